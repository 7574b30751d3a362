// Package retry says when a failed call may be sent again, and when enough is enough. It is told the time and the dice
// and never waits; it knows no faults: whether a failure is worth another attempt is decided elsewhere, from its kind.
//
//	attempt 1   at once
//	attempt 2   100 ms later, ±10 %
//	attempt 3   200 ms
//	attempt 4   400 ms
//	attempt 5   800 ms          and no more than 2 s after the first failure
//
// A Policy is merged from layers of which the most specific wins, field by field. Next applies it to one call. A Budget
// bounds what all calls of a tool retry together, so that a tool that is down is not hit harder for it.
//
// Every delay is a pure function of (policy, seed, call id, attempt): see Roll. Other languages replay it from
// testdata/jitter.json.
package retry

import (
	"time"

	"github.com/toolbus/toolbus/tool"
)

// A Strategy says how delays grow.
type Strategy string

// The strategies of seeds 000 §2.1 and 001. The n-th retry waits:
const (
	Exponential Strategy = "exponential" // Initial × Multiplier^(n-1); the zero Strategy is this one
	Linear      Strategy = "linear"      // Initial × n
	Constant    Strategy = "constant"    // Initial
	None        Strategy = "none"        // not at all; it is still retried
)

// MaxDelay bounds every time in a policy.
const MaxDelay = 24 * time.Hour

// A Policy says how often, how fast and how long one call is retried. The zero Policy makes one attempt. Fields out of
// range count as the nearest value within it.
type Policy struct {
	Strategy      Strategy
	Initial       time.Duration // before the first retry, 0 to MaxDelay
	Max           time.Duration // no delay is longer, but for jitter; 0 to MaxDelay
	Multiplier    float64       // of Exponential, at least 1
	JitterPercent float64       // 0 to 100; 10 spreads a delay over ±10 %
	MaxAttempts   int           // the first one included, at least 1

	// MaxTotal bounds the time from the first failure to the start of the last attempt, waiting and running. A tool
	// that took 30 s to time out therefore still gets its retry. 0 to MaxDelay.
	MaxTotal time.Duration
}

// Default is the policy of seed 000 §2.1.
func Default() Policy {
	return Policy{
		Strategy:      Exponential,
		Initial:       100 * time.Millisecond,
		Max:           800 * time.Millisecond,
		Multiplier:    2,
		JitterPercent: 10,
		MaxAttempts:   5,
		MaxTotal:      2 * time.Second,
	}
}

// Merge lays the layers over base, least specific first: policy, tool manifest, session, call. A field that a layer
// leaves out keeps what is below it; a nil layer leaves out everything. The result is within range.
func Merge(base Policy, layers ...*tool.RetryPolicy) Policy {
	p := base
	for _, l := range layers {
		if l != nil {
			p = p.under(l)
		}
	}
	return p.inRange()
}

func (p Policy) under(l *tool.RetryPolicy) Policy {
	switch l.Strategy {
	case "exponential_backoff", "exponential":
		p.Strategy = Exponential
	case "linear", "constant", "none":
		p.Strategy = Strategy(l.Strategy)
	}
	if l.InitialDelayMs != nil {
		p.Initial = millis(*l.InitialDelayMs)
	}
	if l.MaxDelayMs != nil {
		p.Max = millis(*l.MaxDelayMs)
	}
	if l.Multiplier != nil {
		p.Multiplier = *l.Multiplier
	}
	if l.JitterPercent != nil {
		p.JitterPercent = *l.JitterPercent
	}
	if l.MaxAttempts != nil {
		p.MaxAttempts = *l.MaxAttempts
	}
	if l.MaxTotalTimeMs != nil {
		p.MaxTotal = millis(*l.MaxTotalTimeMs)
	}
	return p
}

func (p Policy) inRange() Policy {
	p.Initial = within(p.Initial, 0, MaxDelay)
	p.Max = within(p.Max, 0, MaxDelay)
	p.MaxTotal = within(p.MaxTotal, 0, MaxDelay)
	p.MaxAttempts = max(p.MaxAttempts, 1)
	p.JitterPercent = within(p.JitterPercent, 0, 100)
	if !(p.Multiplier >= 1) { // NaN too
		p.Multiplier = 1
	}
	return p
}

// within is v, or the nearer bound where it is outside. NaN is low.
func within[T time.Duration | float64](v, low, high T) T {
	switch {
	case v > high:
		return high
	case v >= low:
		return v
	}
	return low
}

// millis is ms milliseconds, cut off above MaxDelay so that it cannot overflow.
func millis(ms int64) time.Duration {
	return time.Duration(min(ms, MaxDelay.Milliseconds())) * time.Millisecond
}
