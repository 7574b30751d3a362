package breaker

import (
	"testing"
	"time"
)

// A success that has something to reset is written at once. When it was gathered with others, 2 % of failures at random
// opened the breaker of a fleet: five came from five executors while the successes between them waited.
func TestWhatResetsIsAsUrgentAsWhatCounts(t *testing.T) {
	now := time.Unix(0, 0)
	failed := (&Seen{}).Next(now, Shared{State: "closed", First: true, Failures: 1, Nonce: "a"}, 1)
	rate := Policy{Mode: FailureRate}
	for _, c := range []struct {
		name         string
		seen         *Seen
		policy       Policy
		report       Report
		says, urgent bool
	}{
		{"a failure", &Seen{}, Policy{}, Report{Outcome: Failure}, true, true},
		{"a failure that was inferred", &Seen{}, Policy{}, Report{Outcome: Failure, Inferred: true}, true, true},
		{"a success after a failure", failed, Policy{}, Report{Outcome: Success}, true, true},
		{"a success with nothing to reset", &Seen{}, Policy{}, Report{Outcome: Success}, false, false},
		{"a success that is counted in a share", &Seen{}, rate, Report{Outcome: Success}, true, false},
	} {
		var f Fold
		f.Add(c.seen, c.policy, c.report, "")
		if says, urgent := f.Says(c.seen), f.Says(c.seen) && f.Urgent(); says != c.says || urgent != c.urgent {
			t.Errorf("%s: says %v and urgent %v, want %v and %v", c.name, says, urgent, c.says, c.urgent)
		}
	}
}
