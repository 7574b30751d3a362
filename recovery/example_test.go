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
	// write: fail after 0s, because it may have run, and running a write twice may do it twice
}
