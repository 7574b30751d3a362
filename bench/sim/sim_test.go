package main

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/toolbus/toolbus/breaker"
)

var seed = flag.Uint64("seed", 1, "seed of the first run")

func small() options { return options{seed: *seed, runs: 3, small: true} }

// The more replicas, the more each breaker of their own leaks; a shared one does not care.
func TestSharedLeaksLeast(t *testing.T) {
	o := small()
	t.Logf("seed %d", o.seed)
	calls := func(n int, k kind) float64 {
		return o.each(func(seed uint64) []float64 {
			c, _ := leak(outage{replicas: n, perSecond: leakSecond, lasts: leakLasts}, k, seed)
			return []float64{c}
		})[0]
	}
	for _, n := range []int{1, 8, 64} {
		none, own, all := calls(n, unguarded), calls(n, local), calls(n, shared)
		// With one replica they are the same but for the way to the store.
		if !(all <= own+3 && own < none/3) {
			t.Errorf("%d replicas: %v calls reach a dead tool with a shared breaker, %v with local ones, %v with none; want them to grow", n, all, own, none)
		}
		if n > 1 && all > own/2 {
			t.Errorf("%d replicas: %v calls with a shared breaker, %v with local ones, want less than half", n, all, own)
		}
		if all > 60 { // 5, what is under way in 50 ms, and a probe each 5 s
			t.Errorf("%d replicas: %v calls reach a dead tool with a shared breaker, want no more than 60", n, all)
		}
	}
}

func TestBrownout(t *testing.T) {
	const naive, tenthOnly, both = "naive: 3 retries", "budget 10 %", "budget + shared"
	t.Logf("seed %d", *seed)
	recovers := map[string]float64{}
	during := map[string]float64{}
	for _, s := range strategies {
		if s.name != naive && s.name != tenthOnly && s.name != both {
			continue
		}
		c := load(s, 10, 75*time.Second, *seed)
		a, _ := c.amplification()
		recovers[s.name], during[s.name] = c.recovered(), a
	}
	if r := recovers[naive]; r != never {
		t.Errorf("with naive retries the tool recovers after %v s, want never", r)
	}
	for _, name := range []string{tenthOnly, both} {
		if r := recovers[name]; r > 15 {
			t.Errorf("%s: recovers after %v s, want at most 15", name, r)
		}
	}
	if a, b, c := during[both], during[tenthOnly], during[naive]; !(a < 1 && a < b && b < 2 && 3 < c && c <= 4) {
		t.Errorf("amplification: %.2f shared, %.2f budget, %.2f naive; want less than 1, less than 2, and 3 to 4", a, b, c)
	}
}

func TestOneSickReplica(t *testing.T) {
	h := hole{guard: shared, pull: true}
	trip, _, healthy := h.fall(*seed)
	if trip != never || healthy > 0 {
		t.Errorf("seed %d: one sick replica opened the breaker for all after %v s, and %.1f %% of the others' calls failed", *seed, trip, healthy)
	}
	h.guard.join.blind = true
	if trip, _, _ := h.fall(*seed); trip == never {
		t.Errorf("seed %d: it did not open without the split either, so this shows nothing", *seed)
	}
}

func TestSameSeedSameOutput(t *testing.T) {
	print := func(seed uint64) string {
		o := small()
		o.seed = seed
		var b bytes.Buffer
		if err := simulate(o, []string{"leak", "lowrate"}, output{to: &b, json: true}); err != nil {
			t.Fatal(err)
		}
		s := strategies[len(strategies)-1]
		c := load(s, 10, 50*time.Second, seed)
		t := table{}
		t.add(s.name, append(c.good, float64(c.writes), float64(c.probes), float64(c.failed))...)
		t.write(&b)
		return b.String()
	}
	one, again, other := print(*seed), print(*seed), print(*seed+100)
	if one != again {
		t.Errorf("seed %d: two runs differ", *seed)
	}
	if one == other {
		t.Errorf("seeds %d and %d gave the same", *seed, *seed+100)
	}
}

// Whatever replicas, delays and outcomes there are, no more probes run at once than the policy lets.
func TestOneProbeAtOnce(t *testing.T) {
	for i := range uint64(20) {
		seed := *seed + i
		c := newClock(seed)
		dice := rand.New(rand.NewPCG(seed, 1))
		k := shared
		k.join.delay = time.Duration(1+dice.IntN(100)) * time.Millisecond
		f := newFleet(c, k, 2+dice.IntN(30), breaker.Policy{OpenFor: time.Second})
		now, most := 0, 0
		for j, g := range f.guards {
			r := g.(*replica)
			c.poisson(20, time.Minute, func() {
				half := r.seen.State() != breaker.Closed
				g.admit(func(report func(breaker.Report)) {
					if report == nil {
						return
					}
					probe := half && r.seen.State() == breaker.HalfOpen
					if probe {
						now++
						most = max(most, now)
					}
					c.after(c.about(100*time.Millisecond), func() {
						if probe {
							now--
						}
						o := breaker.Failure
						if c.dice.IntN(3) == 0 || j == 0 && c.dice.IntN(2) == 0 {
							o = breaker.Success
						}
						report(breaker.Report{Outcome: o})
					})
				})
			})
		}
		c.run(time.Minute)
		if most != 1 {
			t.Errorf("seed %d: %d probes at once, want 1", seed, most)
		}
	}
}
