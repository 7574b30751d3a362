// Package recovery is the error handler's brain: Decide says what to do about a failed attempt, and why.
//
//	fault ──► what the manifest makes of it ──► may it run again? ──► does another try fit? ──► Decision
//	          (Verdict)                         (effect, execution)    (policy, deadline, budget)
//
// It is the single place that decides. It acts on nothing, waits for nothing and is told everything it goes by, so that
// every decision can be replayed from its Situation. The words in Because reach the log, the journal and the screen.
package recovery

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// An Action is what to do next about a failed attempt.
type Action string

// The actions that one call alone can need.
const (
	Retry         Action = "retry"          // send it again After a while
	AcceptPartial Action = "accept_partial" // end with the pieces that came
	Fail          Action = "fail"           // end with the fault
)

// A Situation is all that a decision goes by.
type Situation struct {
	Fault   *fault.Fault
	Verdict fault.Verdict // what the fault means for this tool, overrides applied

	Effect    tool.Effect
	KeepsKeys bool // the worker answers a repeated idempotency key without a second run

	Policy  retry.Policy
	Attempt int     // attempts made so far, this one included
	Roll    float64 // the jitter of the next attempt, in [0,1)

	SinceFailure time.Duration // since the first failure of the call
	Remaining    time.Duration // until the turn's deadline; retry.NoDeadline where there is none
	Deaths       int           // attempts whose worker died or hung under them, this one included
	Budget       bool          // the tool's retry budget has a retry left
	Pieces       bool          // pieces of a result came before the fault
}

// A Decision is what to do, when, and why.
type Decision struct {
	Action  Action
	After   time.Duration // with Retry: how long to wait first
	Because string
}

// maxDeaths is how many workers may be lost under one call; then the call is poison (design §9).
const maxDeaths = 2

// Decide says what to do about the situation. It is a pure function.
func Decide(s Situation) Decision {
	if reason, final := final(s); final {
		return end(s, reason)
	}
	if reason, ok := mayRunAgain(s); !ok {
		return end(s, reason)
	}
	after, ok, reason := s.Policy.Next(retry.Step{
		Attempt:   s.Attempt,
		Since:     s.SinceFailure,
		Roll:      s.Roll,
		Hint:      s.Fault.RetryAfter(),
		Remaining: s.Remaining,
	})
	if !ok {
		return end(s, reason)
	}
	if !s.Budget {
		return end(s, retry.BudgetSpent)
	}
	return Decision{Retry, after, because(s)}
}

// final says whether no retry can be right, whatever the policy allows.
func final(s Situation) (string, bool) {
	switch {
	case s.Fault.Kind == fault.Cancelled:
		return "the caller cancelled it", true
	case s.Fault.Kind == fault.Deadline:
		return "the turn's deadline has passed", true
	case s.Deaths >= maxDeaths:
		return fmt.Sprintf("%d workers were lost under it: it is not sent again", s.Deaths), true
	case s.Verdict.Retry != fault.Never:
		return "", false
	case s.Verdict.Because != "":
		return s.Verdict.Because, true
	case s.Verdict.Class == fault.Permanent:
		return string(s.Fault.Kind) + " is permanent: another try would end the same way", true
	}
	return string(s.Fault.Kind) + " is not retried", true
}

// mayRunAgain says whether a second run is safe after what is known of the first.
func mayRunAgain(s Situation) (string, bool) {
	if s.Verdict.Retry != fault.ByEffect {
		return "", true
	}
	if s.Effect == tool.Write && !s.KeepsKeys {
		return "it may have run, and running a write twice may do it twice", false
	}
	return "", true
}

func because(s Situation) string {
	switch {
	case s.Fault.Run() == fault.NotStarted:
		return "it did not run"
	case s.Verdict.Retry != fault.ByEffect:
		return string(s.Fault.Kind) + " is transient"
	case s.Effect == tool.Read || s.Effect == tool.Idempotent:
		return "it is " + string(s.Effect) + ": it may run twice"
	case s.KeepsKeys:
		return "its worker keeps idempotency keys: it does not run twice"
	}
	return string(s.Fault.Kind) + " is transient, and the tool declares no effect"
}

func end(s Situation, reason string) Decision {
	if s.Pieces && s.Fault.Kind != fault.Cancelled {
		return Decision{Action: AcceptPartial, Because: reason + "; the pieces that came are kept"}
	}
	return Decision{Action: Fail, Because: reason}
}
