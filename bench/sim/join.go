package main

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// A join is how replicas and store work together. Its times are those of package executor, which does this with real
// goroutines and a real store; here it is done again with events, around the same pure code.
type join struct {
	delay  time.Duration // from a write in the store to when another replica has seen it, on average
	gather time.Duration // how long outcomes that hurry nobody are gathered before a write
	late   bool          // successes are gathered too, as they once were
	blind  bool          // takes what a replica inferred for what a worker reported
}

// shipped is what package executor does.
var shipped = join{delay: time.Millisecond, gather: 200 * time.Millisecond}

const (
	askTimeout   = 250 * time.Millisecond
	backoffFirst = 2 * time.Millisecond
	backoffMost  = 2 * time.Second
)

// A store is one cell, which is written by compare-and-swap. A write is half the delay on its way and its answer the
// other half; what others see takes half to one and a half of it, each time anew.
type store struct {
	*fleet
	hop time.Duration // join.delay

	value    breaker.Shared
	rev      uint64
	nonces   int
	replicas []*replica
}

func (st *store) nonce() string {
	st.nonces++
	return fmt.Sprint(st.nonces)
}

// swap writes v over rev and says how that went, by and by.
func (st *store) swap(by *replica, v breaker.Shared, rev uint64, answer func(rev uint64, ok bool)) {
	st.writes++
	st.after(st.hop/2, func() {
		if rev != st.rev {
			st.conflicts++
			st.after(st.hop/2, func() { answer(0, false) })
			return
		}
		st.rev++
		at := st.rev
		st.value = v
		st.after(st.hop/2, func() { answer(at, true) })
		for _, r := range st.replicas {
			if r != by {
				st.after(st.hop/2+time.Duration(st.dice.Int64N(int64(st.hop)+1)), func() { r.see(v, at) })
			}
		}
	})
}

// A replica is one executor's side of a shared breaker.
type replica struct {
	*store
	join
	id    string
	seen  *breaker.Seen
	local *breaker.Cell // for what it inferred: that may be its own fault

	unsaid  bool
	fold    breaker.Fold
	bad     int // failures in fold
	settles []settle
	asking  *ask
	writing bool
	waiting int       // counts the waits, so that one that was cut short is known when it ends
	since   time.Time // when gathering began
	resting bool      // gathering
	backoff time.Duration
}

type settle struct {
	nonce   string
	outcome breaker.Outcome
}

type ask struct {
	since time.Time
	nonce string
	then  func(func(breaker.Report))
}

func (st *store) replica(i int, j join) *replica {
	r := &replica{store: st, join: j, id: fmt.Sprint("executor-", i), seen: &breaker.Seen{}, local: breaker.New(st.policy)}
	st.replicas = append(st.replicas, r)
	return r
}

// see takes in what stands at rev, unless something newer was seen.
func (r *replica) see(v breaker.Shared, rev uint64) {
	if rev <= r.seen.Rev {
		return
	}
	r.seen = r.seen.Next(r.now, v, rev)
	if r.seen.State() == breaker.Open {
		r.refuses(r)
	}
}

func (r *replica) refusing() bool {
	v := r.local.View(r.now)
	return v.State == breaker.Open && v.RetryIn > 0
}

func (r *replica) admit(then func(func(breaker.Report))) {
	s := r.seen
	if !s.Settled() {
		switch s.Admit(r.now, r.policy, r.dice.Float64()) {
		case breaker.Refuse:
			then(nil)
			return
		case breaker.Ask:
			if r.asking != nil {
				then(nil)
				return
			}
			r.asking = &ask{since: r.now, nonce: r.nonce(), then: then}
			r.kick()
			return
		}
	}
	p, ok := r.local.Admit(r.now)
	if !ok {
		then(nil)
		return
	}
	then(r.reporter(s.Epoch(), p, ""))
}

// reporter is where a call that was let through reports to, once.
func (r *replica) reporter(epoch uint64, p breaker.Permit, probe string) func(breaker.Report) {
	return func(rep breaker.Report) { r.report(epoch, p, probe, rep) }
}

func (r *replica) report(epoch uint64, p breaker.Permit, probe string, rep breaker.Report) {
	own := rep.Outcome
	if own == breaker.Failure && !rep.Inferred {
		own = breaker.Neutral
	}
	if r.blind {
		rep.Inferred, own = false, breaker.Neutral
	}
	if tr, changed := r.local.Report(r.now, p, own); changed && tr.To == breaker.Open {
		r.refuses(r)
	}
	if probe != "" {
		r.settles = append(r.settles, settle{probe, rep.Outcome})
		r.kick()
		return
	}
	s := r.seen
	if epoch != s.Epoch() || rep.Outcome == breaker.Neutral {
		return
	}
	if rep.Outcome == breaker.Success && s.Settled() && s.Clean() && !r.unsaid {
		return
	}
	r.fold.Add(s, r.policy, rep, "")
	if rep.Outcome == breaker.Failure {
		r.bad++
	}
	if r.fold.Says(s) {
		r.unsaid = true
		r.kick()
	}
}

// kick makes sure that what there is to say is being written: one write at a time.
func (r *replica) kick() {
	switch {
	case !r.writing:
		r.writing, r.backoff = true, backoffFirst
		r.write()
	case r.resting:
		r.resting = false // what came may hurry
		r.waiting++
		r.write()
	}
}

// pause goes on writing in d, unless that is cut short.
func (r *replica) pause(d time.Duration) {
	r.waiting++
	n := r.waiting
	r.after(d, func() {
		if n == r.waiting {
			r.resting = false
			r.write()
		}
	})
}

// write writes what there is to say, one change after the other: settled probes, then a call that asks, then outcomes.
func (r *replica) write() {
	s, nonce := r.seen, r.nonce()
	for len(r.settles) > 0 {
		st := r.settles[0]
		if v, tr, ok := s.Settle(r.policy, st.outcome, st.nonce, nonce); ok {
			r.send(v, tr, func() { r.settles = r.settles[1:] }, nil)
			return
		}
		r.settles = r.settles[1:]
	}
	if a := r.asking; a != nil {
		v, tr, probe, ok := s.Take(r.now, r.policy, r.id, a.nonce)
		if ok && r.now.Sub(a.since) < askTimeout {
			r.send(v, tr, func() { r.granted(a, probe) }, nil)
			return
		}
		r.asking = nil
		a.then(nil)
	}
	if !r.fold.Says(s) {
		r.done()
		return
	}
	if !r.fold.Urgent() || r.late && r.bad == 0 {
		if r.since.IsZero() {
			r.since = r.now
		}
		if in := r.since.Add(r.gather).Sub(r.now); in > 0 {
			r.resting = true
			r.pause(in)
			return
		}
	}
	r.since = time.Time{}
	said, bad := r.fold, r.bad
	r.fold, r.bad = breaker.Fold{}, 0
	v, tr, ok := s.Apply(r.now, r.policy, said, r.id, len(r.replicas), nonce)
	if !ok {
		r.done()
		return
	}
	r.send(v, tr, func() {}, func() { r.fold, r.bad = said.Then(r.fold), r.bad+bad })
}

func (r *replica) done() {
	r.fold, r.bad, r.since = breaker.Fold{}, 0, time.Time{}
	r.unsaid, r.writing = false, false
}

// send writes one change; stands is what follows where it stands, and missed where it does not.
func (r *replica) send(v breaker.Shared, tr breaker.Transition, stands, missed func()) {
	r.swap(r, v, r.seen.Rev, func(rev uint64, ok bool) {
		if ok {
			r.see(v, rev)
			if tr.From != tr.To && tr.To == breaker.Open {
				r.trips++
				r.onTrip()
			}
			stands()
			r.backoff = backoffFirst
			r.write()
			return
		}
		r.after(r.delay, func() { // look at what stands there
			r.see(r.value, r.rev)
			if missed != nil {
				missed()
			}
			d := r.backoff/2 + time.Duration(r.dice.Int64N(int64(r.backoff)))
			r.backoff = min(2*r.backoff, backoffMost)
			r.pause(d)
		})
	})
}

// granted lets the call through that asked.
func (r *replica) granted(a *ask, probe bool) {
	r.asking = nil
	nonce := ""
	if probe {
		r.probes++
		nonce = a.nonce
	}
	a.then(r.reporter(r.seen.Epoch(), breaker.Permit{}, nonce))
}
