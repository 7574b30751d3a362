package breaker

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// An outcome as the store has it: whose, and what.
type told struct {
	who  int
	what byte // + - ?
}

// A naive shared breaker: it remembers every outcome of the epoch in the order in which they came to the store.
type naive struct {
	p    Policy
	live int
	all  []told
}

// opens says whether the breaker opens when these come to the store at once.
func (n *naive) opens(more []told) bool {
	before := len(n.all)
	n.all = append(n.all, more...)
	row := 0
	for i, o := range n.all {
		switch o.what {
		case '-':
			row++
		case '+':
			row = 0
		}
		if i >= before && row >= n.p.FailureThreshold {
			return true
		}
	}
	sum, who := 0, map[int]bool{}
	for i := len(n.all) - 1; i >= 0 && n.all[i].what != '+'; i-- {
		sum++
		if n.all[i].what == '?' {
			who[n.all[i].who] = true
		}
	}
	need := n.p.MinReporters
	if need <= 0 {
		need = 2
	}
	return len(who) >= min(need, n.live) && sum >= n.p.FailureThreshold
}

// One of several executors, with its copy, its calls and what it has yet to say.
type member struct {
	seen  *Seen
	calls []uint64 // epochs that they were admitted in
	fold  Fold
	told  []told
	probe []taken
}

type taken struct {
	nonce string
	epoch uint64
	ends  time.Time // by the clock of its holder, from before the swap was sent
}

// Several executors with feeds that lag behave as one naive breaker does that is told in the order of the store; no more
// probes run at once than allowed; and in the end a healthy tool closes it.
func TestSharedAgainstTheNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			FailureThreshold: rapid.IntRange(1, 4).Draw(t, "failures"),
			SuccessThreshold: rapid.IntRange(1, 3).Draw(t, "successes"),
			Probes:           rapid.IntRange(1, 3).Draw(t, "probes"),
			MinReporters:     rapid.IntRange(0, 3).Draw(t, "reporters"),
			OpenFor:          10 * s, ProbeLease: 20 * s, Growth: 2, OpenMost: 30 * s,
		}
		n := rapid.IntRange(1, 3).Draw(t, "executors")
		members := make([]member, n)
		for i := range members {
			members[i].seen = &Seen{}
		}
		ref := naive{p: p, live: n}
		now, value, rev, nonces := noon, Shared{}, uint64(0), 0
		store := &Seen{}
		nonce := func() string { nonces++; return fmt.Sprint(nonces) }
		hear := func(m *member) {
			if m.seen.Rev < rev {
				m.seen = m.seen.Next(now, value, rev)
			}
		}
		swap := func(m *member, v Shared) bool {
			if m.seen.Rev != rev {
				return false
			}
			rev += uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
			sane, err := v.Sane()
			if err != nil {
				t.Fatalf("an executor wrote nonsense: %v", err)
			}
			before := store.Epoch()
			value, store = sane, store.Next(now, sane, rev)
			if store.Epoch() < before {
				t.Fatalf("epoch %d after %d", store.Epoch(), before)
			}
			if store.Epoch() != before {
				ref.all = nil
			}
			hear(m)
			return true
		}
		pick := func(t *rapid.T) *member { return &members[rapid.IntRange(0, n-1).Draw(t, "who")] }
		call := func(m *member) {
			switch m.seen.Admit(now, p, 0) {
			case Pass:
				m.calls = append(m.calls, m.seen.Epoch())
			case Ask:
				id := nonce()
				v, _, probe, ok := m.seen.Take(now, p, fmt.Sprint(m), id)
				if !ok || !probe {
					t.Fatalf("may ask in %s, and gets %v, %v", m.seen.State(), probe, ok)
				}
				if swap(m, v) {
					m.probe = append(m.probe, taken{id, m.seen.Epoch(), now.Add(p.ProbeLease)})
				}
			}
		}
		settle := func(m *member, o Outcome) {
			g := m.probe[0]
			m.probe = m.probe[1:]
			if !now.Before(g.ends) {
				o = Neutral // its deadline has come before
			}
			for {
				v, _, ok := m.seen.Settle(p, o, g.nonce, nonce())
				if !ok {
					if store.Holds(g.nonce) && m.seen.Rev == rev {
						t.Fatal("a grant that stands cannot be settled")
					}
					return
				}
				if swap(m, v) {
					return
				}
				hear(m)
			}
		}
		write := func(m *member, who int) {
			if !m.fold.Says(m.seen) {
				m.fold, m.told = Fold{}, nil
				return
			}
			v, tr, ok := m.seen.Apply(now, p, m.fold, fmt.Sprint(who), n, nonce())
			if !ok {
				t.Fatalf("the fold says something, and changes nothing: %+v", m.fold)
			}
			if m.seen.Rev != rev {
				return // a conflict: kept, for when it has heard
			}
			opens := ref.opens(m.told)
			if got := tr.To == Open; got != opens {
				t.Fatalf("%d writes %v after %v with failures=%d: opens = %v, want %v", who, m.told, ref.all, m.seen.Value.Failures, got, opens)
			}
			swap(m, v)
			m.fold, m.told = Fold{}, nil
		}

		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * s) },
			"hear": func(t *rapid.T) { hear(pick(t)) },
			"call": func(t *rapid.T) { call(pick(t)) },
			"end": func(t *rapid.T) {
				who := rapid.IntRange(0, n-1).Draw(t, "who")
				m := &members[who]
				if len(m.calls) == 0 {
					t.Skip("no call runs")
				}
				epoch := m.calls[0]
				m.calls = m.calls[1:]
				if epoch != m.seen.Epoch() {
					return
				}
				what := rapid.SampledFrom([]byte("+-?")).Draw(t, "outcome")
				if m.fold.Epoch != epoch {
					m.told = nil
				}
				m.fold.Add(m.seen, p, outcomes[what], "")
				m.told = append(m.told, told{who, what})
			},
			"probe ends": func(t *rapid.T) {
				m := pick(t)
				if len(m.probe) == 0 {
					t.Skip("no probe runs")
				}
				settle(m, Outcome(rapid.IntRange(0, 2).Draw(t, "outcome")))
			},
			"write": func(t *rapid.T) {
				who := rapid.IntRange(0, n-1).Draw(t, "who")
				write(&members[who], who)
			},
			"crash": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
					t.Skip("not this time")
				}
				*pick(t) = member{seen: &Seen{}}
			},
			"": func(t *rapid.T) {
				running := 0
				for _, m := range members {
					for _, g := range m.probe {
						if g.epoch == store.Epoch() && now.Before(g.ends) {
							running++
						}
					}
				}
				if running > p.Probes {
					t.Fatalf("%d probes run, want at most %d", running, p.Probes)
				}
			},
		})

		for i := range members {
			hear(&members[i])
			members[i].probe = nil // the holders are gone
		}
		for range 12 {
			now = now.Add(40 * s)
			if m := &members[0]; m.seen.State() != Closed {
				if call(m); len(m.probe) > 0 {
					settle(m, Success)
				}
			}
		}
		if got := store.State(); got != Closed {
			t.Fatalf("a healthy tool leaves it %s, want closed", got)
		}
	})
}

// Whatever stands in a record, once repaired it makes sense, and a healthy tool closes the breaker in a bounded time,
// unless somebody said for ever.
func FuzzSane(f *testing.F) {
	f.Add("open", 1, uint64(0), 0, 0, int64(30_000), int64(0), int64(0), uint8(0), false, 0, false)
	f.Add("half_open", 9, uint64(7), -1, 1<<40, int64(-1), int64(1)<<60, int64(-5), uint8(200), true, -9, true)
	f.Add("forced_open", 1, uint64(1)<<63, 3, 3, int64(1)<<62, int64(5), int64(1)<<62, uint8(3), true, 1<<62, false)
	f.Add("melted", 0, uint64(0), 0, 0, int64(0), int64(-1), int64(0), uint8(1), false, 0, true)
	f.Fuzz(func(t *testing.T, state string, version int, epoch uint64, failures, successes int, hold, wait, lease int64, many uint8, first bool, n int, ramp bool) {
		v := Shared{
			V: version, State: state, First: first, Epoch: epoch, Failures: failures, Successes: successes, HoldMs: hold, Trips: n,
			Now: Tally{n, n, failures}, Last: Tally{n, successes, n}, Ramp: ramp, WaitMs: wait, WaitID: state, Why: state, Who: state, Nonce: state,
		}
		for i := range int(many) {
			v.Suspects = append(v.Suspects, Suspect{ID: fmt.Sprint(i % 20), N: n * i, Was: failures})
			v.Probes = append(v.Probes, Grant{Holder: state, Nonce: fmt.Sprint(i % 70), LeaseMs: lease - int64(i)})
			v.Past = append(v.Past, fmt.Sprint(i))
		}
		v, _ = v.Sane()
		if again, err := v.Sane(); err != nil {
			t.Fatalf("repaired, and still wrong: %v: %+v", err, again)
		}
		for _, p := range []Policy{{}, {Mode: FailureRate, Growth: 3, Probes: 100}} {
			comesBack(t, p, v)
		}
	})
}

func comesBack(t *testing.T, p Policy, v Shared) {
	now, rev := noon, uint64(100)
	seen := (&Seen{}).Next(now, v, rev)
	forever := seen.State() == ForcedOpen && v.HoldMs == 0
	write := func(v Shared) {
		v, err := v.Sane()
		if err != nil {
			t.Fatalf("we ourselves wrote nonsense: %v", err)
		}
		rev++
		seen = seen.Next(now, v, rev)
	}
	var fold Fold
	fold.Add(seen, p, Report{Outcome: Failure}, "") // must not panic, whatever it does
	seen.Apply(now, p, fold, "me", 2, "x")
	seen.View(now)
	for i := range 2000 {
		switch seen.Admit(now, p, 0.5) {
		case Pass:
			if st := seen.State(); st != Closed && st != ForcedClosed && st != Disabled {
				t.Fatalf("lets everything through in %s", st)
			}
			return
		case Refuse:
			now = now.Add(6 * time.Hour)
		case Ask:
			id := fmt.Sprint("probe", i)
			v, _, probe, ok := seen.Take(now, p, "me", id)
			if !ok {
				t.Fatalf("may ask in %s, and there is nothing to take: %+v", seen.State(), seen.Value)
			}
			write(v)
			if probe {
				v, _, ok := seen.Settle(p, Success, id, fmt.Sprint("write", i))
				if !ok {
					t.Fatalf("a probe that was just taken cannot be settled: %+v", seen.Value)
				}
				write(v)
			}
		}
	}
	if !forever {
		t.Fatalf("stuck: %+v", seen.Value)
	}
}

func (o told) String() string { return fmt.Sprintf("%d%c", o.who, o.what) }
