package main

import (
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// An outage is a tool that is dead from the beginning: each call that reaches it fails after a while.
type outage struct {
	replicas  int
	perSecond float64 // of the whole fleet
	lasts     time.Duration
	silent    bool // no worker says so: each replica infers it
}

const (
	failsAfter  = 50 * time.Millisecond
	outageOpen  = 5 * time.Second
	leakSecond  = 200.0 // calls a second of the whole fleet
	leakLasts   = time.Minute
	seldom      = 0.1 // calls a second of one replica
	seldomLasts = 2 * time.Minute
)

// leak is how many calls reached the tool, and after how many seconds every replica refused.
func leak(o outage, k kind, seed uint64) (calls, all float64) {
	c := newClock(seed)
	f := newFleet(c, k, o.replicas, breaker.Policy{OpenFor: outageOpen})
	n := 0
	for _, g := range f.guards {
		c.poisson(o.perSecond/float64(o.replicas), o.lasts, func() {
			g.admit(func(report func(breaker.Report)) {
				if report == nil {
					return
				}
				n++
				c.after(failsAfter, func() { report(breaker.Report{Outcome: breaker.Failure, Inferred: o.silent, Took: failsAfter}) })
			})
		})
	}
	c.run(o.lasts)
	return float64(n), f.all
}

// outages is a table of leak over fleets of different sizes.
func outages(o options, title, what string, sizes []int, fleet func(replicas int) outage) *table {
	t := &table{Title: title, Says: what, Head: []string{
		"replicas", "none", "local", "shared", "shared, silent", "all refuse: local, s", "shared, s", "shared, silent, s",
	}}
	for _, n := range sizes {
		out := fleet(n)
		quiet := out
		quiet.silent = true
		row := []float64{float64(n)}
		var alls []float64
		for _, way := range []struct {
			k kind
			o outage
		}{{unguarded, out}, {local, out}, {shared, out}, {shared, quiet}} {
			got := o.each(func(seed uint64) []float64 {
				calls, all := leak(way.o, way.k, seed)
				return []float64{calls, all}
			})
			row = append(row, got[0])
			if !way.k.none {
				alls = append(alls, got[1])
			}
		}
		t.add("", append(row, alls...)...)
	}
	return t
}

func leaked(o options) *table {
	return outages(o, "leak", "calls that reach a dead tool in 60 s: 200 calls/s in all, each fails in 50 ms, 5 failures open for 5 s", o.sizes(1, 2, 4, 8, 16, 32, 64, 128, 256),
		func(n int) outage { return outage{replicas: n, perSecond: leakSecond, lasts: leakLasts} })
}

func lowrate(o options) *table {
	return outages(o, "lowrate", "calls that reach a dead tool in 120 s: 6 calls a minute and replica, each fails in 50 ms, 5 failures open for 5 s", o.sizes(4, 16, 64, 256),
		func(n int) outage { return outage{replicas: n, perSecond: seldom * float64(n), lasts: seldomLasts} })
}
