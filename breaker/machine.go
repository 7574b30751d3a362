package breaker

import (
	"fmt"
	"time"
)

// A Record is all that a breaker remembers. It is a plain value, to be kept or shown elsewhere. Its times are readings
// of one machine's clock and mean nothing on another.
type Record struct {
	State     State
	Epoch     uint64 // number of this stay in this state, from 1
	Failures  int    // in a row, in this epoch
	Successes int    // in a row, in this epoch; counted in half-open

	Since  time.Time     // when this epoch began; zero for the first
	Hold   time.Duration // how long it lasts; zero means Policy.OpenFor when open, for ever when forced
	Opened time.Time     // when it last opened, while open or half-open
	Probes []Probe       // on their way, half-open only

	Why string // why this epoch began
	Who string // who forced it, if somebody did
}

// A Probe is a call that was let through half-open and has not reported.
type Probe struct {
	Nonce uint64
	Ends  time.Time // after this it may be taken as lost
}

// A Machine is one breaker, told the time. Not safe for concurrent use: see Cell. Make one with NewMachine.
type Machine struct {
	policy Policy
	rec    Record
	nonce  uint64
}

// NewMachine is a closed breaker.
func NewMachine(p Policy) *Machine {
	return &Machine{policy: p.orDefault(), rec: Record{Epoch: 1}}
}

// Snapshot is what the machine remembers, as a copy.
func (m *Machine) Snapshot() Record {
	r := m.rec
	r.Probes = append([]Probe(nil), r.Probes...)
	return r
}

// SetPolicy changes the rules and keeps the state: a shorter OpenFor holds for a breaker that is open already, a lower
// threshold at the next report.
func (m *Machine) SetPolicy(p Policy) { m.policy = p.orDefault() }

// Admit says whether a call may go now. The permit of a call that goes has to be reported.
func (m *Machine) Admit(now time.Time) (Permit, bool) {
	from := m.rec.State
	if m.over(now) {
		m.enter(now, after(from), passed(from), "")
	}

	p := Permit{Epoch: m.rec.Epoch, from: from, to: m.rec.State}
	switch m.rec.State {
	case Open, ForcedOpen:
		return Permit{}, false
	case HalfOpen:
		return m.probe(now, p)
	}
	return p, true
}

// probe makes p a probe, if a place is free or a probe is lost.
func (m *Machine) probe(now time.Time, p Permit) (Permit, bool) {
	if len(m.rec.Probes) >= m.policy.Probes && !m.dropLost(now) {
		return Permit{}, false
	}
	m.nonce++
	p.Probe, p.nonce = true, m.nonce
	m.rec.Probes = append(m.rec.Probes, Probe{Nonce: p.nonce, Ends: now.Add(m.policy.ProbeLease)})
	return p, true
}

// dropLost gives up on the probes whose lease has ended, and says whether that made room.
func (m *Machine) dropLost(now time.Time) bool {
	kept := m.rec.Probes[:0]
	for _, p := range m.rec.Probes {
		if now.Before(p.Ends) {
			kept = append(kept, p)
		}
	}
	m.rec.Probes = kept
	return len(kept) < m.policy.Probes
}

// Report says how an admitted call went. A permit of an older epoch changes nothing, nor does a probe's that was reported
// before or given up on.
func (m *Machine) Report(now time.Time, p Permit, o Outcome) (Transition, bool) {
	if p.Epoch != m.rec.Epoch {
		return Transition{}, false
	}
	switch m.rec.State {
	case Closed, ForcedClosed:
		return m.count(now, o)
	case HalfOpen:
		if m.release(p) {
			return m.probed(now, o)
		}
	}
	return Transition{}, false
}

// count is a report while closed.
func (m *Machine) count(now time.Time, o Outcome) (Transition, bool) {
	switch o {
	case Success:
		m.rec.Failures = 0
	case Failure:
		m.rec.Failures++
		if m.rec.State == Closed && m.rec.Failures >= m.policy.FailureThreshold {
			return m.enter(now, Open, inARow(m.rec.Failures, "failure"), ""), true
		}
	}
	return Transition{}, false
}

// probed is the report of a probe.
func (m *Machine) probed(now time.Time, o Outcome) (Transition, bool) {
	switch o {
	case Failure:
		return m.enter(now, Open, "a probe failed", ""), true
	case Success:
		m.rec.Successes++
		if m.rec.Successes >= m.policy.SuccessThreshold {
			return m.enter(now, Closed, inARow(m.rec.Successes, "successful probe"), ""), true
		}
	}
	return Transition{}, false
}

// release frees the place of a probe, and says whether it had one.
func (m *Machine) release(p Permit) bool {
	for i, q := range m.rec.Probes {
		if p.Probe && q.Nonce == p.nonce {
			m.rec.Probes = append(m.rec.Probes[:i], m.rec.Probes[i+1:]...)
			return true
		}
	}
	return false
}

// Force puts the breaker into a state by hand, for a while, and begins a new epoch even where the state stays.
// ForcedOpen, ForcedClosed and Disabled last for that long, or until the next Force where it is zero or less, and end
// closed. Closed gives the breaker back to itself. Open lasts for that long, or Policy.OpenFor, and then goes on to
// half-open as usual; HalfOpen asks for probes at once. Who and why are kept and shown. A state that does not exist
// changes nothing.
func (m *Machine) Force(now time.Time, s State, who, why string, for_ time.Duration) (Transition, bool) {
	if int(s) >= len(stateNames) {
		return Transition{}, false
	}
	t := m.enter(now, s, why, who)
	if s == Open || s.forced() {
		m.rec.Hold = max(for_, 0)
	}
	return t, true
}

// enter is the one place where the state changes. The new one is built fresh.
func (m *Machine) enter(now time.Time, s State, why, who string) Transition {
	t := Transition{From: m.rec.State, To: s, Epoch: m.rec.Epoch + 1, Why: why, Who: who}
	opened := m.rec.Opened
	switch {
	case s == Open || s == ForcedOpen || s == HalfOpen && opened.IsZero():
		opened = now
	case s != HalfOpen:
		opened = time.Time{}
	}
	m.rec = Record{State: s, Epoch: t.Epoch, Since: now, Opened: opened, Why: why, Who: who}
	return t
}

// over says whether the time of an open or forced state has passed.
func (m *Machine) over(now time.Time) bool {
	d, ends := m.lasts()
	return ends && now.Sub(m.rec.Since) >= d
}

// lasts is how long this state stays by itself, if it ends by itself.
func (m *Machine) lasts() (time.Duration, bool) {
	switch {
	case m.rec.Hold > 0:
		return m.rec.Hold, true
	case m.rec.State == Open:
		return m.policy.OpenFor, true
	}
	return 0, false
}

// after is the state that follows s when its time has passed, and passed says so in words.
func after(s State) State {
	if s == Open {
		return HalfOpen
	}
	return Closed
}

func passed(s State) string {
	if s == Open {
		return "the open time has passed; a probe is let through"
	}
	return "the time of " + s.String() + " has passed"
}

// View is what there is to show now.
func (m *Machine) View(now time.Time) View {
	r := &m.rec
	v := View{State: r.State, Epoch: r.Epoch, Failures: r.Failures, Successes: r.Successes, Reason: r.Why, Who: r.Who}
	if !r.Opened.IsZero() {
		v.OpenedAgo = max(now.Sub(r.Opened), 0)
	}
	if d, ends := m.lasts(); ends && (r.State == Open || r.State == ForcedOpen) {
		v.RetryIn = max(d-max(now.Sub(r.Since), 0), 0)
	}
	return v
}

func inARow(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss in a row", n, what)
}
