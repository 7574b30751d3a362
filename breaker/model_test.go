package breaker

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A naive breaker: it remembers every permit that it ever gave.
type model struct {
	policy      Policy
	state       State
	epoch       uint64
	fails, wins int
	ends        time.Time // of an open or forced state; zero means never
	permits     []given
}

type given struct {
	permit   Permit
	epoch    uint64
	probe    bool
	lease    time.Time
	finished bool // reported, or given up on
}

func (m *model) enter(state State, ends time.Time) {
	m.state, m.epoch, m.fails, m.wins, m.ends = state, m.epoch+1, 0, 0, ends
}

func (m *model) running(now time.Time) (n int) {
	for _, g := range m.permits {
		if g.probe && g.epoch == m.epoch && !g.finished && now.Before(g.lease) {
			n++
		}
	}
	return n
}

func (m *model) ask(now time.Time) bool {
	if !m.ends.IsZero() && !now.Before(m.ends) {
		m.enter(map[bool]State{true: HalfOpen, false: Closed}[m.state == Open], time.Time{})
	}
	switch m.state {
	case Open, ForcedOpen:
		return false
	case HalfOpen:
		waiting := 0
		for _, g := range m.permits {
			if g.probe && g.epoch == m.epoch && !g.finished {
				waiting++
			}
		}
		if waiting < m.policy.Probes {
			return true
		}
		for i := range m.permits { // no place is free: give up on the lost ones
			if g := &m.permits[i]; g.epoch == m.epoch && !now.Before(g.lease) {
				g.finished = true
			}
		}
		return m.running(now) < m.policy.Probes
	}
	return true
}

func (m *model) report(now time.Time, i int, o Outcome) {
	g := &m.permits[i]
	if g.epoch != m.epoch || g.probe && g.finished {
		return
	}
	g.finished = true
	switch {
	case o == Neutral || m.state == Disabled:
	case m.state == HalfOpen && o == Failure:
		m.enter(Open, now.Add(m.policy.OpenFor))
	case m.state == HalfOpen:
		if m.wins++; m.wins == m.policy.SuccessThreshold {
			m.enter(Closed, time.Time{})
		}
	case o == Success:
		m.fails = 0
	default:
		if m.fails++; m.state == Closed && m.fails == m.policy.FailureThreshold {
			m.enter(Open, now.Add(m.policy.OpenFor))
		}
	}
}

func (m *model) force(now time.Time, state State, for_ time.Duration) {
	var ends time.Time
	switch {
	case state == Closed || state == HalfOpen:
	case for_ > 0:
		ends = now.Add(for_)
	case state == Open:
		ends = now.Add(m.policy.OpenFor)
	}
	m.enter(state, ends)
}

// A cell does what the naive model does, whatever happens in whatever order; at most Probes probes run at once; and in
// the end a healthy tool closes it.
func TestCellAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{
			FailureThreshold: rapid.IntRange(1, 3).Draw(t, "failures"),
			SuccessThreshold: rapid.IntRange(1, 3).Draw(t, "successes"),
			OpenFor:          10 * s,
			Probes:           rapid.IntRange(1, 3).Draw(t, "probes"),
			ProbeLease:       20 * s,
		}
		cell, now := New(policy), noon
		m := &model{policy: policy, epoch: 1}

		ask := func() (int, bool) {
			p, ok := cell.Admit(now)
			if want := m.ask(now); ok != want {
				t.Fatalf("Admit = %v, want %v", ok, want)
			}
			if !ok {
				return 0, false
			}
			if want := m.state == HalfOpen; p.Probe != want {
				t.Fatalf("probe = %v, want %v", p.Probe, want)
			}
			m.permits = append(m.permits, given{permit: p, epoch: m.epoch, probe: p.Probe, lease: now.Add(policy.ProbeLease)})
			return len(m.permits) - 1, true
		}
		report := func(i int, o Outcome) {
			before, old := cell.Snapshot(), m.permits[i].epoch != m.epoch
			tr, changed := cell.Report(now, m.permits[i].permit, o)
			m.report(now, i, o)
			after := cell.Snapshot()
			if changed != (before.State != after.State) || changed && (tr.From != before.State || tr.To != after.State) {
				t.Fatalf("Report returned %+v, %v on the way from %s to %s", tr, changed, before.State, after.State)
			}
			if old && before.Epoch != after.Epoch {
				t.Fatal("a stale permit began an epoch")
			}
		}

		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * s) },
			"ask":  func(*rapid.T) { ask() },
			"report": func(t *rapid.T) {
				if len(m.permits) == 0 {
					t.Skip("nothing to report")
				}
				latest := min(len(m.permits), 6)
				i := len(m.permits) - rapid.IntRange(1, latest).Draw(t, "permit")
				report(i, Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
			},
			"force": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("not this time")
				}
				state := State(rapid.IntRange(0, 5).Draw(t, "state"))
				for_ := time.Duration(rapid.IntRange(0, 30).Draw(t, "for")) * s
				cell.Force(now, state, "ann", "test", for_)
				m.force(now, state, for_)
			},
			"": func(t *rapid.T) {
				got, want := cell.View(now), View{State: m.state, Epoch: m.epoch, Failures: m.fails, Successes: m.wins}
				if got.State != want.State || got.Epoch != want.Epoch || got.Failures != want.Failures || got.Successes != want.Successes {
					t.Fatalf("View = %+v, want %+v", got, want)
				}
				if n := m.running(now); n > policy.Probes {
					t.Fatalf("%d probes are running, want at most %d", n, policy.Probes)
				}
			},
		})

		if m.state.forced() && m.ends.IsZero() {
			return // somebody said so, for ever
		}
		for range 10 {
			now = now.Add(30 * s)
			if i, ok := ask(); ok {
				report(i, Success)
			}
		}
		if got := cell.View(now).State; got != Closed {
			t.Fatalf("a healthy tool leaves it %s, want closed", got)
		}
	})
}
