package breaker

import (
	"fmt"
	"time"
)

// A Seen is a Shared as one executor sees it: which revision, and when, by its own clock, it first saw what is in it.
// It is immutable: Next makes the one that follows. The zero Seen is a breaker that nobody ever wrote: closed.
type Seen struct {
	Value Shared
	Rev   uint64 // of the store; 0: there is no value

	state  State
	since  time.Time // of this epoch
	waitAt time.Time // of this WaitID
	halfAt time.Time // of this half of the window
	grants []grantAt // of each probe
}

type grantAt struct {
	nonce string
	at    time.Time
}

// Epoch is the revision of the value that began the state; 0 where nobody ever wrote one.
func (s *Seen) Epoch() uint64 {
	switch {
	case s.Value.First:
		return 0
	case s.Value.Epoch != 0:
		return s.Value.Epoch
	}
	return s.Rev
}

// State is the state, whatever time has passed since.
func (s *Seen) State() State { return s.state }

// Next is what is seen once v stands at rev. The value must be Sane. What was there before keeps the time at which it was
// first seen.
func (s *Seen) Next(now time.Time, v Shared, rev uint64) *Seen {
	n := &Seen{Value: v, Rev: rev, state: v.state(), since: now, waitAt: now, halfAt: now}
	if !s.since.IsZero() && n.Epoch() == s.Epoch() {
		n.since = s.since
	}
	if v.WaitID == s.Value.WaitID && !s.waitAt.IsZero() {
		n.waitAt = s.waitAt
	}
	if v.Now.ID == s.Value.Now.ID && !s.halfAt.IsZero() {
		n.halfAt = s.halfAt
	}
	for _, g := range v.Probes {
		at := now
		for _, old := range s.grants {
			if old.nonce == g.Nonce {
				at = old.at
			}
		}
		n.grants = append(n.grants, grantAt{g.Nonce, at})
	}
	return n
}

// An Answer is what a breaker says to a call.
type Answer uint8

// The answers.
const (
	Refuse Answer = iota // not now
	Pass                 // go
	Ask                  // it is time for a probe, or for another state: go if Take wins
)

// Admit says what to do with a call now. Roll, in [0,1), decides while the breaker ramps up.
func (s *Seen) Admit(now time.Time, p Policy, roll float64) Answer {
	if s.waiting(now) > 0 {
		return Refuse
	}
	switch s.State() {
	case Open:
		if s.openLeft(now, &p) > 0 {
			return Refuse
		}
		return Ask
	case ForcedOpen:
		if s.Value.HoldMs == 0 || s.left(now) > 0 {
			return Refuse
		}
		return Ask
	case HalfOpen:
		if s.free(now, &p) {
			return Ask
		}
		return Refuse
	case ForcedClosed, Disabled:
		if s.Value.HoldMs != 0 && s.left(now) <= 0 {
			return Ask
		}
		return Pass
	}
	if s.Value.Ramp {
		over := positive(p.OpenFor, defaultOpenFor) / 2
		if in := now.Sub(s.since); in < over && roll >= max(0.1, float64(in)/float64(over)) {
			return Refuse
		}
	}
	return Pass
}

// Settled says that Admit answers Pass for as long as this value stands, so that nobody need ask.
func (s *Seen) Settled() bool {
	switch s.State() {
	case Closed:
		return s.Value.WaitMs == 0 && !s.Value.Ramp
	case ForcedClosed, Disabled:
		return s.Value.WaitMs == 0 && s.Value.HoldMs == 0
	}
	return false
}

// Clean says that a success has nothing to reset here.
func (s *Seen) Clean() bool { return s.Value.Failures == 0 && len(s.Value.Suspects) == 0 }

// openLeft is how much is left of the open time. It is never longer than our own policy has it: not where the policy
// became shorter meanwhile, nor where the record says something else.
func (s *Seen) openLeft(now time.Time, p *Policy) time.Duration {
	return min(time.Duration(s.Value.HoldMs)*time.Millisecond, p.openMost()) - now.Sub(s.since)
}

// left is how much is left of the time that the state lasts.
func (s *Seen) left(now time.Time) time.Duration {
	return time.Duration(s.Value.HoldMs)*time.Millisecond - now.Sub(s.since)
}

// waiting is how much is left of the time that the tool asked all to wait.
func (s *Seen) waiting(now time.Time) time.Duration {
	if s.Value.WaitMs == 0 || s.State() == ForcedClosed || s.State() == Disabled {
		return 0
	}
	return max(0, time.Duration(s.Value.WaitMs)*time.Millisecond-now.Sub(s.waitAt))
}

// margin is what is added to a lease before another executor takes the place of its holder, for the time that the grant
// took to be seen and for clocks that run at slightly different speeds.
const margin = 500 * time.Millisecond

// lost says that the grant's lease and margin are over.
func (s *Seen) lost(now time.Time, i int) bool {
	return now.Sub(s.grants[i].at) >= time.Duration(s.Value.Probes[i].LeaseMs)*time.Millisecond+margin
}

// free says that there is a place for a probe.
func (s *Seen) free(now time.Time, p *Policy) bool {
	running := 0
	for i := range s.Value.Probes {
		if !s.lost(now, i) {
			running++
		}
	}
	return running < min(positive(p.Probes, 1), maxProbes)
}

// View is what there is to show now.
func (s *Seen) View(now time.Time) View {
	v := View{
		State: s.State(), Epoch: s.Epoch(), Failures: s.Value.Failures, Successes: s.Value.Successes,
		Reason: s.Value.Why, Who: s.Value.Who,
	}
	if v.State == Open || v.State == ForcedOpen {
		v.OpenedAgo, v.RetryIn = now.Sub(s.since), max(0, s.left(now))
	}
	if w := s.waiting(now); w > v.RetryIn {
		v.RetryIn = w
		if v.State == Closed {
			v.Reason = fmt.Sprintf("the tool asked for a wait of %v", time.Duration(s.Value.WaitMs)*time.Millisecond)
		}
	}
	return v
}
