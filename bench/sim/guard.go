package main

import (
	"github.com/toolbus/toolbus/breaker"
)

// A guard stands before the calls of one replica.
type guard interface {
	// admit calls then once, now or later: with where to report how the call went, or with nil where it may not go.
	admit(then func(report func(breaker.Report)))

	// refusing says that a call would be refused now, and how long that holds; zero is until further notice.
	refusing() bool
}

// A fleet is some replicas and what their guards did.
type fleet struct {
	*clock
	policy breaker.Policy
	guards []guard

	probes    int
	trips     int
	writes    int // to the store
	conflicts int // writes that came too late

	opened map[guard]bool // which refused for the first time, or learned that they have to
	all    float64        // seconds until each of them had; NaN: not yet
	onTrip func()
}

// A kind is how a fleet guards its calls.
type kind struct {
	shared bool
	none   bool
	one    bool // one breaker for all, at no distance: what a shared one would be if there were no distances
	join   join
}

var (
	unguarded = kind{none: true}
	local     = kind{}
	ideal     = kind{one: true}
	shared    = kind{shared: true, join: shipped}
)

func newFleet(c *clock, k kind, replicas int, p breaker.Policy) *fleet {
	f := &fleet{clock: c, policy: p, opened: map[guard]bool{}, all: never, onTrip: func() {}}
	st := &store{fleet: f, hop: k.join.delay}
	cell := breaker.New(p)
	for i := range replicas {
		switch {
		case k.none:
			f.guards = append(f.guards, open{})
		case k.shared:
			f.guards = append(f.guards, st.replica(i, k.join))
		case k.one:
			f.guards = append(f.guards, &alone{fleet: f, cell: cell})
		default:
			f.guards = append(f.guards, &alone{fleet: f, cell: breaker.New(p)})
		}
	}
	return f
}

// refuses notes that g knows of an open breaker.
func (f *fleet) refuses(g guard) {
	f.opened[g] = true
	if len(f.opened) == len(f.guards) && f.all == never {
		f.all = f.passed().Seconds()
	}
}

// open is no guard at all.
type open struct{}

func (open) admit(then func(func(breaker.Report))) { then(func(breaker.Report) {}) }
func (open) refusing() bool                        { return false }

// alone is the breaker of one replica that asks nobody: breaker.Cell as it ships.
type alone struct {
	*fleet
	cell *breaker.Cell
}

func (a *alone) admit(then func(func(breaker.Report))) {
	p, ok := a.cell.Admit(a.now)
	if !ok {
		then(nil)
		return
	}
	if p.Probe {
		a.probes++
	}
	then(func(r breaker.Report) {
		if tr, changed := a.cell.Report(a.now, p, r.Outcome); changed && tr.To == breaker.Open {
			a.trips++
			a.refuses(a)
			a.onTrip()
		}
	})
}

func (a *alone) refusing() bool {
	v := a.cell.View(a.now)
	return v.State == breaker.Open && v.RetryIn > 0
}
