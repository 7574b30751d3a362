package turn_test

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// A turn is told what happened and when, and says what to do. Time is an argument, so this takes none.
func Example() {
	policy := retry.Default()
	policy.JitterPercent = 0
	t, err := turn.New(turn.Config{
		Request: &wire.TurnRequest{ID: "trip", DeadlineMs: 60_000, Calls: []tool.Call{
			{ID: "flights", Tool: "flight_search", Args: []byte(`{"to":"LIS"}`)},
			{ID: "booking", Tool: "book_trip", Args: []byte(`{"flight":{"$from":"flights","pointer":"/0/id"}}`)},
		}},
		Tools: func(name string) *turn.Tool {
			return &turn.Tool{Name: name, Timeout: 10 * time.Second, Policy: policy, Effect: tool.Read}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	carry := func(at time.Duration, effects []turn.Effect) {
		for i := 0; i < len(effects); i++ {
			switch do := effects[i]; do.Kind {
			case turn.Send:
				fmt.Printf("+%v send %s %s, attempt %d\n", at, do.Tool.Name, do.Args, do.Attempt)
			case turn.Ended:
				if do.Verdict != nil { // it failed; what follows comes last
					effects = t.Step(effects, start.Add(at), turn.Event{Kind: turn.Judged, Call: do.Call, Budget: true})
				}
			case turn.Finish:
				fmt.Printf("+%v %s: %s\n", at, do.Outcome.Status, do.Outcome.Sentence)
			}
		}
	}
	step := func(at time.Duration, ev turn.Event) { carry(at, t.Step(nil, start.Add(at), ev)) }

	carry(0, t.Start(nil, start))
	step(time.Second, turn.Event{Kind: turn.Failed, Call: 0, Attempt: 1, Fault: fault.New(fault.Upstream, "500")})
	step(t.Wake().Sub(start), turn.Event{Kind: turn.Due})
	step(2*time.Second, turn.Event{Kind: turn.Succeeded, Call: 0, Attempt: 2, Value: []byte(`[{"id":7}]`)})
	step(3*time.Second, turn.Event{Kind: turn.Succeeded, Call: 1, Attempt: 1, Value: []byte(`"booked"`)})
	// Output:
	// +0s send flight_search {"to":"LIS"}, attempt 1
	// +1.1s send flight_search {"to":"LIS"}, attempt 2
	// +2s send book_trip {"flight":7}, attempt 1
	// +3s completed: Completed flight search and book trip
}

// Everything that is wrong with a plan is said at once.
func ExampleCheck() {
	fmt.Println(turn.Check(&wire.TurnRequest{ID: "trip", Calls: []tool.Call{
		{ID: "flights", Tool: "flight_search", After: []string{"booking"}},
		{ID: "booking", Tool: "book_trip", Args: []byte(`{"flight":{"$from":"flights"},"hotel":{"$from":"hotel"}}`)},
	}}))
	// Output:
	// calls[0].after: these calls wait for each other: flights → booking → flights
	// calls[1].args: there is no call "hotel"
}
