package retry_test

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// A tool that keeps failing after 300 ms, whose manifest asks for slower retries.
func ExamplePolicy_Next() {
	p := retry.Merge(retry.Default(), &tool.RetryPolicy{InitialDelayMs: new(int64(250))})

	var since time.Duration
	for attempt := 1; ; attempt++ {
		delay, ok, because := p.Next(retry.Step{
			Attempt:   attempt,
			Since:     since,
			Roll:      retry.Roll(1, "search", attempt+1),
			Remaining: retry.NoDeadline,
		})
		fmt.Println(because)
		if !ok {
			return
		}
		since += delay + 300*time.Millisecond
	}
	// Output:
	// attempt 2 of 5 after 271ms
	// attempt 3 of 5 after 458ms
	// the retry time of 2s is used up: 1.329s since the first failure, and the next wait is 763ms
}
