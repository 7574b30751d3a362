package recovery

import (
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

func TestDecide(t *testing.T) {
	policy := retry.Default()
	policy.JitterPercent = 0
	for _, tc := range []struct {
		name    string
		kind    fault.Kind
		change  func(*Situation)
		action  Action
		after   time.Duration
		because string
	}{
		{"it did not run", fault.Unavailable, nil, Retry, 100 * time.Millisecond, "it did not run"},
		{"a read may run twice", fault.Timeout, func(s *Situation) { s.Effect = tool.Read }, Retry, 100 * time.Millisecond, "it is read: it may run twice"},
		{"a write may not", fault.Timeout, func(s *Situation) { s.Effect = tool.Write }, Fail, 0, "running a write twice may do it twice"},
		{"a write with keys may", fault.Timeout, func(s *Situation) { s.Effect, s.KeepsKeys = tool.Write, true }, Retry, 100 * time.Millisecond, "keeps idempotency keys"},
		{"a write that was stopped in the middle may not", fault.Timeout, func(s *Situation) { s.Effect = tool.Write; s.Fault.Execution = fault.Stopped }, Fail, 0, "may do it twice"},
		{"an undeclared effect follows the seeds", fault.Timeout, nil, Retry, 100 * time.Millisecond, "declares no effect"},
		{"permanent", fault.InvalidArguments, nil, Fail, 0, "invalid_arguments is permanent"},
		{"cancelled", fault.Cancelled, nil, Fail, 0, "the caller cancelled it"},
		{"an open circuit", fault.CircuitOpen, nil, Fail, 0, "circuit_open is not retried"},
		{"attempts used up", fault.Upstream, func(s *Situation) { s.Attempt = 5 }, Fail, 0, "all 5 attempts are used up"},
		{"no budget", fault.Upstream, func(s *Situation) { s.Budget = false }, Fail, 0, retry.BudgetSpent},
		{"the wait does not fit", fault.Upstream, func(s *Situation) { s.Remaining = 50 * time.Millisecond }, Fail, 0, "does not fit"},
		{"poison", fault.WorkerLost, func(s *Situation) { s.Effect, s.Deaths = tool.Read, 2 }, Fail, 0, "2 workers were lost under it"},
		{"retry-after is a floor", fault.RateLimited, func(s *Situation) { s.Fault.RetryAfterMs = 700 }, Retry, 700 * time.Millisecond, "it did not run"},
		{"pieces are kept", fault.Partial, func(s *Situation) { s.Attempt, s.Pieces = 5, true }, AcceptPartial, 0, "the pieces that came are kept"},
		{"the manifest says no", fault.Upstream, func(s *Situation) {
			s.Verdict = fault.Overrides{Kinds: map[fault.Kind]fault.Override{fault.Upstream: {Class: fault.Permanent}}}.Judge(s.Fault)
		}, Fail, 0, "manifest"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := fault.New(tc.kind, "it broke")
			f.Tool = "echo"
			s := Situation{Fault: f, Verdict: fault.Overrides{}.Judge(f), Policy: policy, Attempt: 1, Remaining: retry.NoDeadline, Budget: true}
			if tc.change != nil {
				tc.change(&s)
			}
			d := Decide(s)
			if d.Action != tc.action || d.After != tc.after || !strings.Contains(d.Because, tc.because) {
				t.Errorf("Decide = %s after %v because %q, want %s after %v because …%q…", d.Action, d.After, d.Because, tc.action, tc.after, tc.because)
			}
		})
	}
}
