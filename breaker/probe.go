package breaker

import "time"

// Take is the value that follows seen when a call, to which Admit said Ask, wants to go: the grant of a probe, or the end
// of a forced state. Who swaps it in may go; probe says whether it must Settle with the same nonce. It is false where
// there is nothing to take any more.
//
// The lease is measured by the holder from before it sent the swap, and by everybody else from when they saw it, plus a
// margin; so the holder's is over first.
func (s *Seen) Take(now time.Time, p Policy, me, nonce string) (v Shared, t Transition, probe, ok bool) {
	p = p.orDefault()
	from := s.State()
	g := Grant{Holder: me, Nonce: nonce, LeaseMs: min(p.ProbeLease, maxLease).Milliseconds()}
	if s.waiting(now) > 0 {
		return Shared{}, Transition{}, false, false
	}
	switch from {
	case Open:
		if s.openLeft(now, &p) > 0 {
			return Shared{}, Transition{}, false, false
		}
		v = s.Value.begin(HalfOpen, 0, passed(Open), "", nonce)
		v.Probes = []Grant{g}
		return v, Transition{From: Open, To: HalfOpen, Why: v.Why}, true, true
	case HalfOpen:
		if !s.free(now, &p) {
			return Shared{}, Transition{}, false, false
		}
		v = s.next(nonce)
		v.Probes = filter(v.Probes, func(i int, _ *Grant) bool { return !s.lost(now, i) })
		v.Probes = append(v.Probes, g)
		return v, Transition{}, true, true
	case ForcedOpen, ForcedClosed, Disabled:
		if s.Value.HoldMs == 0 || s.left(now) > 0 {
			return Shared{}, Transition{}, false, false
		}
		v = s.Value.begin(Closed, 0, passed(from), "", nonce)
		v.Trips = 0
		return v, Transition{From: from, To: Closed, Why: v.Why}, false, true
	}
	return Shared{}, Transition{}, false, false
}

// Holds reports whether the grant with this nonce stands in seen.
func (s *Seen) Holds(nonce string) bool {
	for _, g := range s.Value.Probes {
		if g.Nonce == nonce {
			return s.State() == HalfOpen
		}
	}
	return false
}

// Settle is the value that follows seen when the probe with this nonce has ended so. It is false where the grant does not
// stand any more: somebody took it over, or the state has changed, and the outcome says nothing.
func (s *Seen) Settle(p Policy, o Outcome, nonce, write string) (Shared, Transition, bool) {
	if !s.Holds(nonce) {
		return Shared{}, Transition{}, false
	}
	p = p.orDefault()
	v := s.next(write)
	switch o {
	case Failure:
		v = s.Value
		v.Trips++
		v = v.begin(Open, p.openFor(v.Trips), "a probe failed", "", write)
		return v, Transition{From: HalfOpen, To: Open, Why: v.Why}, true
	case Success:
		v.Successes++
		if v.Successes >= p.SuccessThreshold {
			v = s.Value.begin(Closed, 0, inARow(v.Successes, "successful probe"), "", write)
			v.Trips, v.Ramp = 0, p.Ramp
			return v, Transition{From: HalfOpen, To: Closed, Why: v.Why}, true
		}
	}
	v.Probes = filter(v.Probes, func(_ int, g *Grant) bool { return g.Nonce != nonce })
	return v, Transition{}, true
}

// Force is the value that follows seen when somebody says so. ForcedOpen, ForcedClosed and Disabled last for that long,
// or until the next word where it is zero; Closed gives the breaker back to itself.
func (s *Seen) Force(state State, who, why string, lasts time.Duration, write string) (Shared, Transition) {
	v := s.Value.begin(state, max(0, lasts), why, who, write)
	v.Trips, v.WaitMs, v.WaitID = 0, 0, ""
	return v, Transition{From: s.State(), To: state, Why: why, Who: who}
}
