// Package breaker stops calls to a tool that keeps failing, and finds out when it is well again (design §7).
//
//	        FailureThreshold in a row            OpenFor has passed
//	closed ─────────────────────────► open ◄───────────────────────► half-open
//	  ▲                                        one probe failed           │
//	  └───────────────────────────────────────────────────────────────────┘
//	                        SuccessThreshold in a row
//
// forced_open, forced_closed and disabled are an operator's word, and win over all of this while they last.
//
// Admit asks whether a call may go; Report says how it went. An answer names the question: the Permit of the admission
// comes back with the report, and carries the epoch. Every state that is entered begins a new epoch, and a report from
// an older one changes nothing: what was sent while closed cannot close a half-open breaker, nor open it.
//
// "In a row" means in the order of the reports, not of the starts. Half-open lets at most Policy.Probes through at once.
// Every probe ends: reported, or given up on after Policy.ProbeLease; a neutral outcome frees its place and decides
// nothing. So a breaker that sees calls cannot be stuck.
//
// A Machine is the pure state machine, told the time. A Cell is one that many goroutines share, and costs a single
// atomic load while the tool is well. Neither does I/O, holds a clock or calls anybody back: a change of state is
// returned as a Transition to the one who caused it.
package breaker

import (
	"fmt"
	"time"
)

// A Policy says when a breaker opens and closes. Fields of zero or less mean the defaults (seed 000 §3.2).
type Policy struct {
	FailureThreshold int           // failures in a row that open it: 5
	SuccessThreshold int           // successful probes in a row that close it: 2
	OpenFor          time.Duration // how long it stays open: 30 s
	Probes           int           // probes at once in half-open: 1

	// ProbeLease is after what time a probe without a report is taken as lost: 60 s. It should be longer than an
	// attempt may take, else a slow tool's probes are given up on while they run.
	ProbeLease time.Duration

	// What follows holds for shared breakers (see Shared).

	// Mode is what opens it. The zero Mode is Consecutive.
	Mode Mode
	// Window, MinCalls and Rate belong to the modes that count shares: at least MinCalls calls within Window, of which
	// the share Rate or more was bad. They default to 5 min, 10 and 0.5.
	Window   time.Duration
	MinCalls int
	Rate     float64
	// Slow is how long a call takes that SlowCalls counts as bad: 10 s.
	Slow time.Duration

	// Growth multiplies the open time each time it opens again without having closed, up to OpenMost. Zero means 1: it
	// does not grow. OpenMost defaults to ten times OpenFor.
	Growth   float64
	OpenMost time.Duration

	// MinReporters is how many executors must have inferred failures (silence, their own connection) before those count
	// for all. Zero means two, or one where only one executor lives. What workers report counts in any case.
	MinReporters int
	// Distinct counts several failed attempts of one call as one failure.
	Distinct bool
	// Ramp lets calls through gradually over half the open time after closing.
	Ramp bool
}

// A Mode is what opens a breaker.
type Mode uint8

// The modes.
const (
	Consecutive Mode = iota // FailureThreshold failures in a row
	FailureRate             // a share of failures within a window
	SlowCalls               // a share of slow calls or failures within a window
)

const defaultOpenFor = 30 * time.Second

// Default is what a zero Policy means.
func Default() Policy {
	return Policy{FailureThreshold: 5, SuccessThreshold: 2, OpenFor: defaultOpenFor, Probes: 1, ProbeLease: time.Minute}
}

func (p Policy) orDefault() Policy {
	d := Default()
	p.FailureThreshold = positive(p.FailureThreshold, d.FailureThreshold)
	p.SuccessThreshold = positive(p.SuccessThreshold, d.SuccessThreshold)
	p.OpenFor = positive(p.OpenFor, d.OpenFor)
	p.Probes = positive(p.Probes, d.Probes)
	p.ProbeLease = positive(p.ProbeLease, d.ProbeLease)
	p.Window = positive(p.Window, 5*time.Minute)
	p.MinCalls = positive(p.MinCalls, 10)
	p.Slow = positive(p.Slow, 10*time.Second)
	p.OpenMost = p.openMost()
	if !(p.Rate > 0 && p.Rate <= 1) { // NaN, too
		p.Rate = 0.5
	}
	if !(p.Growth > 1) { // NaN, too
		p.Growth = 1
	}
	return p
}

// openMost is the longest time that it stays open. It is asked of every call that is refused, so it is quick.
func (p *Policy) openMost() time.Duration {
	d := positive(p.OpenFor, defaultOpenFor)
	if p.Growth > 1 {
		return max(positive(p.OpenMost, 10*d), d)
	}
	return d
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// A State is what a breaker does with calls.
type State uint8

// The states. The zero State is Closed.
const (
	Closed       State = iota // lets all through, counts failures
	Open                      // lets none through
	HalfOpen                  // lets probes through
	ForcedOpen                // lets none through, because somebody said so
	ForcedClosed              // lets all through and counts, but never opens, because somebody said so
	Disabled                  // lets all through and counts nothing, because somebody said so
)

var stateNames = [...]string{"closed", "open", "half_open", "forced_open", "forced_closed", "disabled"}

// String is the state as it is written in records, metrics and on the wire.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

func (s State) forced() bool { return s == ForcedOpen || s == ForcedClosed || s == Disabled }

// An Outcome is how an admitted call went, as the breaker sees it.
type Outcome uint8

// The outcomes. The zero Outcome is Neutral.
const (
	Neutral Outcome = iota // says nothing of the tool's health: a permanent fault, a cancel, a refusal of our own
	Success
	Failure
)

// String is success, failure or neutral.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	}
	return "neutral"
}

// A Permit is one admission, to be handed back with the report. It is a value. The zero Permit is of no epoch, and a
// report with it changes nothing.
type Permit struct {
	Epoch uint64
	Probe bool // half-open: this call decides. Report it whatever happens, else its place is taken until the lease ends

	nonce    uint64 // tells probes of one epoch apart
	from, to State  // the change of state that came with this admission; equal where there was none
}

// Transition is the change of state that came with this admission: open to half-open, or the end of a forced state.
func (p Permit) Transition() (Transition, bool) {
	if p.from == p.to {
		return Transition{}, false
	}
	return Transition{From: p.from, To: p.to, Epoch: p.Epoch, Why: passed(p.from)}, true
}

// A Transition is a change of state.
type Transition struct {
	From, To State
	Epoch    uint64 // the epoch that began
	Why      string // in words
	Who      string // who forced it; empty where the breaker did it itself
}

var events = [...]string{
	Closed:       "closed",
	Open:         "opened",
	HalfOpen:     "half-opened",
	ForcedOpen:   "forced open",
	ForcedClosed: "forced closed",
	Disabled:     "disabled",
}

// Event is the line for logs and traces, such as "Circuit breaker opened for flight_search" (seed 000 §3.3).
func (t Transition) Event(tool string) string {
	what := t.To.String()
	if int(t.To) < len(events) {
		what = events[t.To]
	}
	return "Circuit breaker " + what + " for " + tool
}

// A View is what there is to show of a breaker. A state whose time has passed is shown, with RetryIn zero, until a call
// comes and changes it.
type View struct {
	State     State
	Epoch     uint64
	Failures  int           // in a row, in this epoch
	Successes int           // in a row, in this epoch
	OpenedAgo time.Duration // since it last opened; zero where it is not open or half-open
	RetryIn   time.Duration // until the next call may be let through; zero means now, or that nobody knows
	Reason    string        // why it is in this state; empty for a breaker that was never anything but closed
	Who       string        // who forced it; empty where nobody did
}
