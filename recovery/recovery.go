// Package recovery is the error handler's brain: Decide says what to do about a failed attempt, and why.
//
//	fault ──► over?      cancelled, or past the deadline: fail
//	      ──► retry?     may it run again (effect, execution), does another try fit (policy, deadline, budget, circuit)
//	      ──► alternative?   after what time may mend, and what fallback_on names
//	      ──► pieces?    they are accepted
//	      ──► default?   it is used
//	      ──► optional?  it is skipped
//	      ──► escalate
//
// It is the single place that decides. It acts on nothing, waits for nothing and is told everything it goes by, so that
// every decision can be replayed from its Situation. The words in Because reach the log, the journal and the screen.
package recovery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// An Action is what to do next about a failed attempt.
type Action string

// The actions, in the order in which they are considered; Fail comes before all where the call is cancelled or the
// deadline has passed, and nowhere else.
const (
	Retry         Action = "retry"          // send it again After a while
	Alternative   Action = "alternative"    // send it to Tool instead
	AcceptPartial Action = "accept_partial" // end with the pieces that came
	UseDefault    Action = "use_default"    // end with the default
	Skip          Action = "skip"           // end without a value; the turn goes well without it
	Escalate      Action = "escalate"       // end with the fault; somebody has to look
	Fail          Action = "fail"           // end with the fault; nobody wants more
)

// A Situation is all that a decision goes by. What the zero value of a field means is the careful thing: no budget, no
// alternative, no default, required.
type Situation struct {
	Fault   *fault.Fault
	Verdict fault.Verdict // what the fault means for this tool, overrides applied
	Circuit breaker.State // of the tool's breaker, after it heard of this failure

	Effect    tool.Effect
	KeepsKeys bool            // the worker answers a repeated idempotency key without a second run
	Ran       fault.Execution // the worst that is known of all attempts of the call; the fault's own run is added to it

	Policy  retry.Policy
	Attempt int     // attempts of this tool made so far, this one included
	Roll    float64 // the jitter of the next attempt, in [0,1)

	SinceFailure time.Duration // since the first failure of the tool
	Remaining    time.Duration // until the turn's deadline; retry.NoDeadline where there is none
	Deaths       int           // attempts whose worker died or hung under the call, this one included
	Budget       bool          // the tool's retry budget has a retry left

	Alternative string   // the next tool that can stand in; empty where none is left
	Fallen      bool     // the tool that failed stands in itself
	FallbackOn  []string // see tool.Call

	Cancelled string // who or what cancelled the call, where it was not the caller

	Pieces     bool // pieces of a result came before the fault
	HasDefault bool
	Optional   bool
}

// A Decision is what to do, when, and why.
type Decision struct {
	Action  Action
	After   time.Duration // with Retry: how long to wait first
	Tool    string        // with Alternative: which
	Because string
}

// maxDeaths is how many workers may be lost under one call; then the call is poison (design §9).
const maxDeaths = 2

// Decide says what to do about the situation. It is a pure function.
func Decide(s Situation) Decision {
	if reason, over := over(s); over {
		return fail(s, reason)
	}
	after, reason, ok := again(s)
	if ok {
		return Decision{Action: Retry, After: after, Because: reason}
	}
	if s.Alternative == "" {
		return end(s, reason)
	}
	if objection := objection(s); objection != "" {
		return end(s, reason+"; "+s.Alternative+" is not tried: "+objection)
	}
	return Decision{Action: Alternative, Tool: s.Alternative, Because: reason + "; " + s.Alternative + " is tried instead"}
}

// over says whether nobody wants any more of the call.
func over(s Situation) (string, bool) {
	switch s.Fault.Kind {
	case fault.Cancelled:
		return cmp.Or(s.Cancelled, "the caller cancelled it"), true
	case fault.Deadline:
		return "the turn's deadline has passed", true
	}
	return "", false
}

// again says whether to send the call to the same tool once more, after what wait, and why or why not.
func again(s Situation) (time.Duration, string, bool) {
	if reason := hopeless(s); reason != "" {
		return 0, reason, false
	}
	after, ok, reason := s.Policy.Next(retry.Step{
		Attempt:   s.Attempt,
		Since:     s.SinceFailure,
		Roll:      s.Roll,
		Hint:      s.Fault.RetryAfter(),
		Remaining: s.Remaining,
	})
	switch {
	case !ok:
		return 0, reason, false
	case s.Circuit == breaker.Open || s.Circuit == breaker.ForcedOpen:
		return 0, circuitOpen(s), false
	case !s.Budget:
		return 0, retry.BudgetSpent, false
	}
	return after, because(s), true
}

// hopeless says why no other try can be right, whatever the policy allows. It is empty where one can.
func hopeless(s Situation) string {
	kind := string(s.Fault.Kind)
	switch {
	case s.Deaths >= maxDeaths:
		return fmt.Sprintf("%d workers were lost under it: it is not sent again", s.Deaths)
	case s.Fault.Kind == fault.CircuitOpen:
		return circuitOpen(s)
	case s.Verdict.Retry == fault.Never && s.Verdict.Because != "":
		return s.Verdict.Because
	case s.Verdict.Retry == fault.Never && s.Verdict.Class == fault.Permanent:
		return kind + " is permanent"
	case s.Verdict.Retry == fault.Never:
		return kind + " is not retried"
	case s.Verdict.Retry == fault.ByEffect && s.Effect == tool.Write && !s.KeepsKeys:
		return "it may have run, and running a write twice may do it twice"
	}
	return ""
}

func circuitOpen(s Situation) string {
	if s.Circuit == breaker.ForcedOpen {
		return "its circuit breaker is forced open"
	}
	return "its circuit breaker is open"
}

// because says why the call may run again.
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

// objection says why the alternative is not tried either. It is empty where it is.
func objection(s Situation) string {
	switch {
	case s.Deaths >= maxDeaths:
		return "the arguments may be what kills"
	case (s.Effect == tool.Write || s.Effect == tool.Idempotent) && mayHaveRun(s):
		return "the call may have run, and an alternative may do it a second time"
	case !worthFalling(s):
		return "fallback_on does not name " + string(s.Fault.Kind)
	case s.Remaining <= 0:
		return "it could not begin before the deadline"
	}
	return ""
}

func mayHaveRun(s Situation) bool {
	unsure := []fault.Execution{fault.Unknown, fault.Stopped}
	return slices.Contains(unsure, s.Ran) || slices.Contains(unsure, s.Fault.Run())
}

// worthFalling says whether another tool may do better after such a fault. What time may mend another tool may mend at
// once. A permanent fault is most often the call's own, so that the manifest must say that it is not; one that kept an
// alternative from running at all, though, comes of the alternative.
func worthFalling(s Situation) bool {
	switch {
	case s.Verdict.Class == fault.Transient:
		return true
	case s.Fault.Kind == fault.ToolNotFound || s.Fault.Kind == fault.Unavailable:
		return true
	case s.Fallen && s.Fault.Run() == fault.NotStarted:
		return true
	}
	return slices.Contains(s.FallbackOn, tool.AnyPermanent) || slices.Contains(s.FallbackOn, string(s.Fault.Kind))
}

// fail ends a call of which nobody wants more. What came before the deadline is what the turn makes do with (seed 000
// §4.2).
func fail(s Situation, reason string) Decision {
	if s.Pieces && s.Fault.Kind == fault.Deadline {
		return Decision{Action: AcceptPartial, Because: reason + "; the pieces that came are kept"}
	}
	return Decision{Action: Fail, Because: reason}
}

// end ends a call that failed for good with the best there is.
func end(s Situation, reason string) Decision {
	switch {
	case s.Pieces:
		return Decision{Action: AcceptPartial, Because: reason + "; the pieces that came are kept"}
	case s.HasDefault:
		return Decision{Action: UseDefault, Because: reason + "; its default is used"}
	case s.Optional:
		return Decision{Action: Skip, Because: reason + "; it is optional: the turn goes on without it"}
	}
	return Decision{Action: Escalate, Because: reason + "; nothing else is left to try"}
}
