package recovery_test

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// The same timeout of two tools: what a second run would do decides.
func ExampleDecide() {
	f := fault.New(fault.Timeout, "no answer within 30s")
	for _, effect := range []tool.Effect{tool.Read, tool.Write} {
		d := recovery.Decide(recovery.Situation{
			Fault: f, Verdict: fault.Overrides{}.Judge(f), Effect: effect,
			Policy: retry.Default(), Attempt: 1, Roll: 0.5, Remaining: time.Minute, Budget: true,
		})
		fmt.Printf("%s: %s after %v, because %s\n", effect, d.Action, d.After, d.Because)
	}
	// Output:
	// read: retry after 100ms, because it is read: it may run twice
	// write: escalate after 0s, because it may have run, and running a write twice may do it twice; nothing else is left to try
}

// A search that has run out of attempts, with more and more to fall back on.
func ExampleDecide_fallback() {
	f := fault.New(fault.Upstream, "the supplier answered 500")
	s := recovery.Situation{
		Fault: f, Verdict: fault.Overrides{}.Judge(f), Effect: tool.Read,
		Policy: retry.Default(), Attempt: 5, Remaining: time.Minute, Budget: true,
	}
	decide := func() {
		d := recovery.Decide(s)
		fmt.Printf("%s: %s\n", d.Action, d.Because)
	}
	decide()
	s.Optional = true
	decide()
	s.HasDefault = true
	decide()
	s.Alternative = "hotel_cache"
	decide()
	// Output:
	// escalate: all 5 attempts are used up; nothing else is left to try
	// skip: all 5 attempts are used up; it is optional: the turn goes on without it
	// use_default: all 5 attempts are used up; its default is used
	// alternative: all 5 attempts are used up; hotel_cache is tried instead
}
