package turn_test

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
)

// A turn is told what happened and when, and says what to do. Time is an argument, so this takes none.
func Example() {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	show := func(at time.Duration, effects []turn.Effect) {
		for _, do := range effects {
			switch do.Kind {
			case turn.Send:
				fmt.Printf("+%v send attempt %d\n", at, do.Attempt)
			case turn.Wake:
				fmt.Printf("+%v wake at +%v\n", at, do.At.Sub(start))
			case turn.Errored:
				fmt.Printf("+%v %s → %s, because %s\n", at, do.Fault.Kind, do.Decision.Action, do.Decision.Because)
			case turn.Finish:
				fmt.Printf("+%v finish: %s\n", at, do.Result.Sentence)
			}
		}
	}

	policy := retry.Default()
	policy.JitterPercent = 0
	var t turn.Turn
	show(0, t.Start(start, turn.Plan{
		Call: "c1", Tool: "search", Timeout: 10 * time.Second, Policy: &policy, Effect: tool.Read,
	}))
	step := func(at time.Duration, ev turn.Event) { show(at, t.Step(start.Add(at), ev)) }
	step(time.Second, turn.Event{Kind: turn.Failed, Attempt: 1, Fault: fault.New(fault.Upstream, "500"), Budget: true})
	step(1100*time.Millisecond, turn.Event{Kind: turn.Due, Budget: true})
	step(1200*time.Millisecond, turn.Event{Kind: turn.Succeeded, Attempt: 1, Value: []byte(`"late"`)}) // it was given up on
	step(1500*time.Millisecond, turn.Event{Kind: turn.Succeeded, Attempt: 2, Value: []byte(`"found"`)})
	// Output:
	// +0s send attempt 1
	// +0s wake at +10s
	// +1s upstream → retry, because it is read: it may run twice
	// +1s wake at +1.1s
	// +1.1s send attempt 2
	// +1.1s wake at +11.1s
	// +1.5s finish: search answered at attempt 2
}
