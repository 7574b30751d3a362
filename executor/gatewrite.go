package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

const (
	writeTimeout = 300 * time.Millisecond // of one write or look
	askTimeout   = 250 * time.Millisecond // how long a call waits to be let through as a probe
	gather       = 200 * time.Millisecond // how long outcomes that hurry nobody are gathered before a write
	backoffFirst = 2 * time.Millisecond   // after a conflict
	backoffMost  = 2 * time.Second        // while the store does not answer
)

// kick makes sure that what there is to say is being written: one write at a time for each gate.
func (g *gate) kick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.kicked()
}

// kicked is kick under the lock. It is false where nothing will be written: the executor is stopping.
func (g *gate) kicked() bool {
	if g.writing {
		select {
		case g.wake <- struct{}{}:
		default: // it will look again
		}
		return true
	}
	g.writing = g.gates.start(g.write)
	return g.writing
}

// A change is one write that is due, or was sent and is not known to have come.
type change struct {
	value  breaker.Shared
	before string // the nonce of the value that it follows
	rev    uint64 // of that value: never of anything that was seen later
	era    uint64 // of that
	tr     breaker.Transition
	cause  string
	write  string // its nonce
	sent   time.Time

	fold   breaker.Fold // what it says of these
	settle bool         // that the first of settles has ended
	ask    *ask
	probe  bool
}

// write writes until there is nothing left to say. It waits for the store, so nobody waits for it.
func (g *gate) write() {
	backoff := backoffFirst
	for {
		c, wait, more := g.next(time.Now())
		switch {
		case !more:
			return
		case wait > 0:
			more = g.gates.sleep(wait, g.wake)
		case g.attempt(c):
			backoff = backoffFirst
		default:
			more = g.gates.sleep(backoff/2+rand.N(backoff), nil)
			backoff = min(2*backoff, backoffMost)
		}
		if !more {
			g.giveUp()
			return
		}
	}
}

// giveUp ends a writer whose executor is stopping.
func (g *gate) giveUp() {
	g.mu.Lock()
	asking := slices.Clone(g.asking)
	g.writing = false
	g.mu.Unlock()
	for _, a := range asking {
		g.answer(a, pass{}, false)
	}
}

// next is the change to write now, or how long to wait for more to write with it. It is false where there is nothing, and
// then the writer is over.
func (g *gate) next(now time.Time) (c *change, wait time.Duration, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pending != nil {
		return g.pending, 0, true // the very same again: nothing else may follow what it followed
	}
	s, p := g.seen.Load(), *g.policy.Load()
	c = &change{write: nonce(), before: s.Value.Nonce, rev: s.Rev, era: g.era.Load(), sent: now, cause: g.cause}
	switch {
	case g.nextSettle(c, s, p), g.nextAsk(c, s, p, now):
	case !g.fold.Says(s):
		return nil, 0, g.rest()
	case !g.fold.Urgent() && (g.gathered.IsZero() || now.Before(g.gathered)):
		if g.gathered.IsZero() {
			g.gathered = now.Add(gather)
		}
		return nil, g.gathered.Sub(now), true
	case !g.nextFold(c, s, p, now):
		return nil, 0, g.rest()
	}
	g.pending = c
	return c, 0, true
}

// rest ends the writer: there is nothing to say.
func (g *gate) rest() bool {
	g.fold, g.gathered, g.writing, g.settling = breaker.Fold{}, time.Time{}, false, false
	g.unsaid.Store(false)
	return false
}

func (g *gate) nextSettle(c *change, s *breaker.Seen, p breaker.Policy) bool {
	for ; len(g.settles) > 0; g.settles = g.settles[1:] {
		st := g.settles[0]
		v, tr, ok := s.Settle(p, st.outcome, st.nonce, c.write)
		if ok {
			c.value, c.tr, c.settle, c.cause = v, tr, true, st.cause
			return true
		} // its grant does not stand any more
	}
	return false
}

func (g *gate) nextAsk(c *change, s *breaker.Seen, p breaker.Policy, now time.Time) bool {
	if len(g.asking) == 0 {
		return false
	}
	a := g.asking[0]
	v, tr, probe, ok := s.Take(now, p, g.gates.me, a.nonce)
	if !ok || g.gates.away.Load() {
		asking := g.asking
		g.asking = nil
		g.gates.start(func() { // not under our lock
			for _, a := range asking {
				g.without(a)
			}
		})
		return false
	}
	if a.sent.IsZero() {
		a.sent = now // of several tries the first may be the one that stands
	}
	c.value, c.tr, c.ask, c.probe, c.write, c.sent = v, tr, a, probe, a.nonce, a.sent
	return true
}

// without answers an ask for which there is nothing to take: the probe that it waited for has closed the breaker, or opened
// it, or others were let through instead.
func (g *gate) without(a *ask) {
	var p pass
	now := time.Now()
	s := g.seen.Load()
	ok := !g.gates.away.Load() && g.asks(s, now) == breaker.Pass && g.admitHere(now, s, &p, false) == breaker.Pass
	if !g.answer(a, p, ok) && ok {
		g.local.Report(now, p.local, breaker.Neutral)
	}
}

func (g *gate) nextFold(c *change, s *breaker.Seen, p breaker.Policy, now time.Time) (ok bool) {
	c.value, c.tr, ok = s.Apply(now, p, g.fold, g.gates.me, g.gates.live(now), c.write)
	c.fold, g.fold, g.gathered = g.fold, breaker.Fold{}, time.Time{}
	return ok
}

// attempt sends a change and finds out what became of it. It is false where the same, or another, should be sent a little
// later.
func (g *gate) attempt(c *change) bool {
	body, err := wire.Marshal(wire.MsgPack, &c.value)
	if err != nil {
		g.gates.log.Error("a breaker could not be written", "breaker", g.key, "error", err)
		g.resolve(c, breaker.Missed, breaker.Fold{})
		return false
	}
	rev, err := g.swap(c, body)
	if err == nil {
		g.apply(c.value, c.era, rev, true)
		g.resolve(c, breaker.Stands, breaker.Fold{})
		return true
	}
	// Whatever the answer was, the write may stand there. Only what stands there tells.
	if lerr := g.look(); lerr != nil {
		g.gates.lost() // and the change stays pending
		if c.ask != nil {
			g.answer(c.ask, pass{}, false)
		}
		return false
	}
	if c.era != g.era.Load() {
		g.resolve(c, breaker.Missed, breaker.Fold{}) // what it speaks of is gone
		return false
	}
	fate := g.seen.Load().Fate(c.write, c.before)
	switch fate {
	case breaker.Stands:
		g.resolve(c, fate, breaker.Fold{})
		return true
	case breaker.Missed:
		g.resolve(c, fate, c.fold)
	case breaker.Unclear:
		g.resolve(c, fate, c.fold.Unsure())
	}
	return false // where it waits, the very same goes out again
}

func (g *gate) swap(c *change, body []byte) (uint64, error) {
	ctx, cancel := context.WithTimeout(g.gates.ctx, writeTimeout)
	defer cancel()
	if c.rev == 0 {
		return g.gates.store.Create(ctx, g.key, body)
	}
	return g.gates.store.Update(ctx, g.key, body, c.rev)
}

// look takes in what stands in the store.
func (g *gate) look() error {
	ctx, cancel := context.WithTimeout(g.gates.ctx, writeTimeout)
	defer cancel()
	seen, era := g.seen.Load(), g.gates.era.Load()
	e, err := g.gates.store.Get(ctx, g.key)
	if errors.Is(err, kvstate.ErrNotFound) {
		g.seen.CompareAndSwap(seen, &breaker.Seen{}) // unless something was told meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	g.apply(g.gates.decode(e), era, e.Revision, false)
	return nil
}

// resolve ends a pending change. Again is what of it is to be said again.
func (g *gate) resolve(c *change, f breaker.Fate, again breaker.Fold) {
	s := g.seen.Load()
	g.mu.Lock()
	g.pending = nil
	g.fold = again.Then(g.fold)
	if f == breaker.Stands && c.settle {
		g.settles = g.settles[1:]
	}
	g.mu.Unlock()
	if f == breaker.Stands && c.tr.From != c.tr.To {
		g.gates.publish(g.key, c.tr, c.cause)
	}
	switch {
	case c.ask == nil:
	case c.probe && s.Holds(c.write):
		g.granted(c, s.Epoch())
	case f == breaker.Stands && !c.probe && s.Value.Nonce == c.write:
		g.answer(c.ask, pass{epoch: s.Epoch(), era: c.era}, true)
	case f == breaker.Stands:
		g.answer(c.ask, pass{}, false) // it stood, and something came after it
	}
}

// granted lets the call through that asked. One that has no use for it any more gives it back.
func (g *gate) granted(c *change, epoch uint64) {
	p := pass{epoch: epoch, era: c.era, probe: &grant{c.write, c.sent.Add(c.lease())}}
	if !g.answer(c.ask, p, true) {
		g.settle(settle{nonce: c.write, outcome: breaker.Neutral})
	}
}

// lease is the length of the grant that c takes: not the policy's, which may have changed meanwhile.
func (c *change) lease() time.Duration {
	for _, p := range c.value.Probes {
		if p.Nonce == c.write {
			return time.Duration(p.LeaseMs) * time.Millisecond
		}
	}
	return 0
}

// apply takes in what stands at rev of an era, unless something newer was seen. Of a new era everything is newer; and so is
// our own write that was confirmed at a revision that we had passed: it proves that the store began anew.
func (g *gate) apply(v breaker.Shared, era, rev uint64, own bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		old := g.seen.Load()
		base, known := old, g.era.Load()
		switch {
		case era < known:
			return
		case era == known && rev <= old.Rev:
			if !own || old.Fate(v.Nonce, "") == breaker.Stands {
				return
			}
			base = &breaker.Seen{}
		case era > known && old.Rev == rev && old.Value.Nonce == v.Nonce: // the same as before
			g.era.Store(era)
			return
		case era > known:
			base = &breaker.Seen{}
		}
		if g.seen.CompareAndSwap(old, base.Next(now, v, rev)) {
			g.turn(era)
			return
		}
	}
}

// turn begins an era: what was to be said of the one before is void. g.mu is held.
func (g *gate) turn(era uint64) {
	if g.era.Swap(era) != era {
		g.fold = breaker.Fold{}
	}
}

// forget takes in that nothing stands there any more, since rev of an era.
func (g *gate) forget(era, rev uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	known := g.era.Load()
	if era < known || era == known && rev < g.seen.Load().Rev {
		return
	}
	g.turn(era)
	g.seen.Store(&breaker.Seen{})
}
