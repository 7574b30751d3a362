package main

import (
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// A hole is a fleet of which the first replica's own network fails: each of its calls ends in a millisecond, with
// nothing from the tool, which is well.
type hole struct {
	name   string
	policy breaker.Policy
	guard  kind
	noise  float64 // the share of everybody's calls that get no answer
	well   bool    // its network does not fail after all
	pull   bool    // replicas take the next call when they are ready, rather than be given one; one that would refuse waits
}

const (
	holeLasts = 30 * time.Second
	holeSlots = 4
	holeTakes = 50 * time.Millisecond
)

// fall is what came of it: seconds until the breaker opened for all, and which share of the calls failed or was refused,
// in percent; of all, and of those that healthy replicas had.
func (h hole) fall(seed uint64) (trip, bad, healthy float64) {
	c := newClock(seed)
	f := newFleet(c, h.guard, replicas, h.policy)
	trip = never
	if h.guard.shared {
		f.onTrip = func() { trip = min(trip, c.passed().Seconds()) }
	}
	var calls, failed, theirs, theirBad float64
	call := func(i int, then func()) {
		sick := i == 0 && !h.well
		note := func(ok bool) {
			calls++
			if !ok {
				failed++
			}
			if !sick {
				theirs++
				if !ok {
					theirBad++
				}
			}
			then()
		}
		f.guards[i].admit(func(report func(breaker.Report)) {
			if report == nil {
				note(false)
				return
			}
			takes, rep := c.about(holeTakes), breaker.Report{Outcome: breaker.Success}
			switch {
			case sick:
				takes, rep = c.about(time.Millisecond), breaker.Report{Outcome: breaker.Failure, Inferred: true}
			case c.dice.Float64() < h.noise:
				rep = breaker.Report{Outcome: breaker.Failure, Inferred: true}
			}
			c.after(takes, func() {
				report(rep)
				note(rep.Outcome == breaker.Success)
			})
		})
	}
	if !h.pull {
		perSecond := replicas * holeSlots / holeTakes.Seconds() / 2 // half of what they can do
		c.poisson(perSecond, holeLasts, func() { call(c.dice.IntN(replicas), func() {}) })
	}
	for i := range replicas {
		for range holeSlots {
			var loop func()
			loop = func() {
				if f.guards[i].refusing() {
					c.after(100*time.Millisecond, loop)
					return
				}
				call(i, func() { c.after(time.Millisecond, loop) })
			}
			if h.pull {
				loop()
			}
		}
	}
	c.run(holeLasts)
	return trip, 100 * failed / max(calls, 1), 100 * theirBad / max(theirs, 1)
}

func blackhole(o options) *table {
	blind := shared
	blind.join.blind = true
	late := shared
	late.join.late = true
	twenty := breaker.Policy{FailureThreshold: 20}
	t := &table{Title: "blackhole", Says: "20 replicas of 4 calls at once, a healthy tool of 50 ms; one replica's own network fails, in 1 ms; 30 s", Head: []string{
		"", "opens for all, % of runs", "after, s", "calls that fail, %", "of healthy replicas, %",
	}}
	for _, h := range []hole{
		{name: "given calls: no breaker", guard: unguarded},
		{name: "given calls: local breakers", guard: local},
		{name: "given calls: shared, no split", guard: blind},
		{name: "given calls: shared", guard: shared},
		{name: "given calls: shared, 1 % of all time out", guard: shared, noise: 0.01},
		{name: "given calls: shared, 1 % of all time out, nobody sick", guard: shared, noise: 0.01, well: true},
		{name: "given calls: shared, 1 % of all time out, successes gathered", guard: late, noise: 0.01},
		{name: "given calls: shared, 5 % of all time out", guard: shared, noise: 0.05},
		{name: "given calls: shared, 5 % of all time out, nobody sick", guard: shared, noise: 0.05, well: true},
		{name: "given calls: shared, 5 % of all time out, successes gathered", guard: late, noise: 0.05},
		{name: "pulls: no breaker", guard: unguarded, pull: true},
		{name: "pulls: shared, no split", guard: blind, pull: true},
		{name: "pulls: shared, no split, 20 failures", guard: blind, pull: true, policy: twenty},
		{name: "pulls: shared", guard: shared, pull: true},
	} {
		runs := o.all(func(seed uint64) []float64 {
			trip, bad, healthy := h.fall(seed)
			return []float64{trip, bad, healthy}
		})
		opened := over(runs, func(v []float64) (share float64) {
			for _, trip := range v {
				if trip != never {
					share += 100 / float64(len(v))
				}
			}
			return share
		})[0]
		t.add(h.name, append([]float64{opened}, over(runs, median)...)...)
	}
	return t
}

// flaky is a tool of which a share of the calls fails at random, as its worker says. Few should open for that: five
// failures in a row are seldom.
func flaky(o options) *table {
	late := shared
	late.join.late = true
	t := &table{Title: "flaky", Says: "700 calls/s of 50 ms, of which a share fails at random, as the worker says; 5 failures in a row open for 30 s; 2 minutes; means, not medians", Head: []string{
		"replicas", "fail, %", "local: refused, %", "ideal: opened", "refused, %", "shared: opened", "refused, %", "writes/s",
		"successes gathered: opened", "refused, %", "writes/s",
	}}
	for _, n := range o.sizes(20, 256) {
		for _, share := range []float64{0.02, 0.05, 0.1} {
			row := []float64{float64(n), 100 * share}
			for _, k := range []kind{local, ideal, shared, late} {
				got := over(o.all(func(seed uint64) []float64 {
					trips, refused, writes := flake(k, n, share, seed)
					return []float64{trips, refused, writes}
				}), mean)
				switch {
				case k.one:
					got = got[:2]
				case !k.shared:
					got = got[1:2]
				}
				row = append(row, got...)
			}
			t.add("", row...)
		}
	}
	return t
}

const flakyLasts = 2 * time.Minute

func flake(k kind, n int, share float64, seed uint64) (trips, refused, writes float64) {
	c := newClock(seed)
	f := newFleet(c, k, n, breaker.Policy{})
	var calls, no float64
	for _, g := range f.guards {
		c.poisson(offered/float64(n), flakyLasts, func() {
			calls++
			g.admit(func(report func(breaker.Report)) {
				if report == nil {
					no++
					return
				}
				rep := breaker.Report{Outcome: breaker.Success}
				if c.dice.Float64() < share {
					rep.Outcome = breaker.Failure
				}
				c.after(c.about(holeTakes), func() { report(rep) })
			})
		})
	}
	c.run(flakyLasts)
	return float64(f.trips), 100 * no / calls, float64(f.writes) / flakyLasts.Seconds()
}
