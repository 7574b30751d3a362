package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

const (
	writeTimeout = time.Second            // of one write or look
	askTimeout   = 250 * time.Millisecond // how long a call waits to be let through as a probe
	gather       = 200 * time.Millisecond // how long outcomes that hurry nobody are gathered before a write
	backoffFirst = 2 * time.Millisecond   // after a conflict
	backoffMost  = 2 * time.Second        // while the store does not answer
)

// kick makes sure that what there is to say is being written: one write at a time for each gate.
func (g *gate) kick() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.writing {
		g.writing = g.gates.start(g.write)
	}
}

// A change is one write that is due.
type change struct {
	value breaker.Shared
	rev   uint64 // of what it follows: never of anything that was seen later
	era   uint64 // of that
	tr    breaker.Transition
	cause string
	write string // its nonce

	fold   breaker.Fold // what it says of these
	settle *settle
	ask    *ask
	probe  bool
	sent   time.Time
}

// write writes until there is nothing left to say. It waits for the store, so nobody waits for it.
func (g *gate) write() {
	backoff := backoffFirst
	for {
		c, wait, more := g.next(time.Now())
		if !more {
			return
		}
		if wait > 0 {
			if !g.gates.sleep(wait) {
				g.giveUp()
				return
			}
			continue
		}
		if g.attempt(c) {
			backoff = backoffFirst
			continue
		}
		if !g.gates.sleep(backoff/2 + rand.N(backoff)) {
			g.giveUp()
			return
		}
		backoff = min(2*backoff, backoffMost)
	}
}

// giveUp ends a writer whose executor is stopping.
func (g *gate) giveUp() {
	g.mu.Lock()
	a := g.asking
	g.asking, g.writing = nil, false
	g.mu.Unlock()
	if a != nil {
		a.done(pass{}, false)
	}
}

// next is the change to write now, or how long to wait for more to write with it. It is false where there is nothing, and
// then the writer is over.
func (g *gate) next(now time.Time) (c change, wait time.Duration, more bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, p := g.seen.Load(), *g.policy.Load()
	c = change{write: nonce(), rev: s.Rev, era: g.gates.era.Load(), sent: now, cause: g.cause}
	for len(g.settles) > 0 {
		st := g.settles[0]
		v, tr, ok := s.Settle(p, st.outcome, st.nonce, c.write)
		if ok {
			c.value, c.tr, c.settle, c.cause = v, tr, &st, st.cause
			return c, 0, true
		}
		g.settles = g.settles[1:] // its grant does not stand any more
	}
	if a := g.asking; a != nil {
		v, tr, probe, ok := s.Take(now, p, g.gates.me, a.nonce)
		if ok && now.Sub(a.since) < askTimeout && !g.gates.away.Load() {
			if a.sent.IsZero() {
				a.sent = now // of several tries the first may be the one that stands
			}
			c.value, c.tr, c.ask, c.probe, c.write, c.sent = v, tr, a, probe, a.nonce, a.sent
			return c, 0, true
		}
		g.asking = nil
		g.gates.start(func() { a.done(pass{}, false) }) // not under our lock
	}
	if !g.fold.Says(s) {
		g.fold = breaker.Fold{}
		g.unsaid.Store(false)
		g.writing = false
		return c, 0, false
	}
	if !g.fold.Urgent() {
		if in := g.gathered.Add(gather).Sub(now); !g.gathered.IsZero() && in > 0 {
			return c, in, true
		}
		if g.gathered.IsZero() {
			g.gathered = now
			return c, gather, true
		}
	}
	g.gathered = time.Time{}
	v, tr, ok := s.Apply(now, p, g.fold, g.gates.me, g.gates.live(now), c.write)
	c.value, c.tr, c.fold = v, tr, g.fold
	g.fold = breaker.Fold{Epoch: c.fold.Epoch}
	if !ok {
		g.unsaid.Store(false)
		g.writing = false
		return c, 0, false
	}
	return c, 0, true
}

// attempt writes one change and sees to what came of it. It is false where the store could not be asked.
func (g *gate) attempt(c change) bool {
	ctx, cancel := context.WithTimeout(g.gates.ctx, writeTimeout)
	defer cancel()
	body, err := wire.Marshal(wire.MsgPack, &c.value)
	if err != nil {
		g.gates.log.Error("a breaker could not be written", "breaker", g.key, "error", err)
		return true
	}
	rev, err := g.gates.swap(ctx, g.key, body, c.rev)
	if err == nil {
		g.apply(c.value, c.era, rev)
		g.wrote(c)
		return true
	}
	// Whatever the answer was, the write may stand there. Only what stands there tells.
	stands, lerr := g.look(ctx)
	if lerr == nil && stands == c.write {
		g.wrote(c)
		return true
	}
	g.unwritten(c)
	if lerr == nil && errors.Is(err, kvstate.ErrConflict) {
		g.gates.conflicts.Add(1)
		return false // somebody was faster: look again, a little later
	}
	if lerr != nil {
		g.gates.lost()
		g.refuseAsk(c)
	}
	return false
}

// look reads what stands in the store, and returns the nonce of its writer.
func (g *gate) look(ctx context.Context) (string, error) {
	seen, era := g.seen.Load(), g.gates.era.Load()
	e, err := g.gates.store.Get(ctx, g.key)
	if errors.Is(err, kvstate.ErrNotFound) {
		g.seen.CompareAndSwap(seen, &breaker.Seen{}) // unless something was told meanwhile
		return "", nil
	}
	if err != nil {
		return "", err
	}
	v := g.gates.decode(e)
	g.apply(v, era, e.Revision)
	return v.Nonce, nil
}

// unwritten takes back what a change was to say.
func (g *gate) unwritten(c change) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fold = c.fold.Then(g.fold)
}

// refuseAsk lets a call that waits for a probe go its way: the store does not answer.
func (g *gate) refuseAsk(c change) {
	g.mu.Lock()
	a := g.asking
	if c.ask == nil || a != c.ask {
		g.mu.Unlock()
		return
	}
	g.asking = nil
	g.mu.Unlock()
	a.done(pass{}, false)
}

// wrote is what follows from a change that stands in the store.
func (g *gate) wrote(c change) {
	if c.tr.From != c.tr.To {
		g.gates.publish(g.key, c.tr, c.cause)
	}
	switch {
	case c.settle != nil:
		g.mu.Lock()
		g.settles = g.settles[1:]
		g.mu.Unlock()
	case c.ask != nil:
		g.granted(c)
	}
}

// granted lets the call through that asked. One that has no use for it any more gives it back.
func (g *gate) granted(c change) {
	g.mu.Lock()
	g.asking = nil
	g.mu.Unlock()
	p := pass{gate: g, epoch: g.seen.Load().Epoch()}
	if c.probe {
		p.probe = c.ask.nonce
		p.until = c.sent.Add(c.lease()) // not the policy's, which may have changed meanwhile
	}
	if c.ask.done(p, true) || !c.probe {
		return
	}
	g.mu.Lock()
	g.settles = append(g.settles, settle{nonce: c.ask.nonce, outcome: breaker.Neutral})
	g.mu.Unlock()
}

// lease is the length of the grant that c takes: the last one.
func (c *change) lease() time.Duration {
	return time.Duration(c.value.Probes[len(c.value.Probes)-1].LeaseMs) * time.Millisecond
}

// apply takes in what stands at rev of an era, unless something newer was seen. Of a new era everything is newer.
func (g *gate) apply(v breaker.Shared, era, rev uint64) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		old := g.seen.Load()
		base := old
		switch {
		case era < g.era || era == g.era && rev <= old.Rev:
			return
		case era > g.era && old.Rev == rev && old.Value.Nonce == v.Nonce: // the same as before
			g.era = era
			return
		case era > g.era:
			base = &breaker.Seen{}
		}
		if g.seen.CompareAndSwap(old, base.Next(now, v, rev)) {
			g.era = era
			return
		}
	}
}

// forget takes in that nothing stands there any more, since rev of an era.
func (g *gate) forget(era, rev uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if era < g.era || era == g.era && rev < g.seen.Load().Rev {
		return
	}
	g.era = era
	g.seen.Store(&breaker.Seen{})
}
