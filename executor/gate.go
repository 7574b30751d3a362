package executor

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// A gate is one breaker as this executor keeps it: what it saw last of the one that all share, a machine of its own for
// what it cannot know to be the tool's fault, and what it has yet to say to the others.
//
// The call path reads one pointer and takes no lock; everything that touches the store happens in write.
type gate struct {
	key    string
	gates  *gates
	policy atomic.Pointer[breaker.Policy]
	seen   atomic.Pointer[breaker.Seen]
	local  *breaker.Cell

	unsaid atomic.Bool   // there is something in fold, or was and is being written
	era    atomic.Uint64 // of what was seen: see kvstate.Update. Written under mu
	alone  bool          // it is one too many to be shared
	wake   chan struct{} // there is more to say, while the writer gathers

	mu       sync.Mutex
	fold     breaker.Fold
	cause    string // the turn of the last outcome in fold
	settles  []settle
	settling bool   // a probe of ours has ended since the writer last rested
	asking   []*ask // in the order of their calls
	writing  bool
	pending  *change   // what was sent and nobody knows the fate of
	gathered time.Time // since when outcomes that hurry nobody are gathered
	carried  bool      // local was put into the shared state when the store went away
}

// A settle is a probe that has ended and was not written yet.
type settle struct {
	nonce   string
	outcome breaker.Outcome
	cause   string
}

// An ask is a call that waits to be let through: as a probe, or once the end of one is written.
type ask struct {
	nonce string
	sent  time.Time // when it was first tried
	timer *time.Timer
	done  func(pass, bool) bool // nil once it was called
}

// A pass is what a call was let through with, to be handed back with its outcome.
type pass struct {
	epoch uint64         // of the shared breaker
	era   uint64         // of the store
	local breaker.Permit // of this executor's own
	probe *grant         // nil for a call that is none
	away  bool           // it was this executor's own machine that let it through
}

// A grant is the right to be a probe.
type grant struct {
	nonce string
	until time.Time // its lease ends then, by our clock
}

// A caller is who wants to be let through, and is told later.
type caller interface {
	let(p pass, ok bool) bool // as ask has it
}

// enter says whether a call may go now: with Pass, with what is in p; with breaker.Ask, c will be told; else not. What this
// executor knows of its own probes holds, although the store has yet to be told: a call that stands in the way of one that
// has ended waits until that is written.
func (g *gate) enter(now time.Time, p *pass, c caller) breaker.Answer {
	for {
		s := g.seen.Load()
		a := g.admit(now, p)
		switch {
		case a == breaker.Pass:
			return breaker.Pass
		case (a == breaker.Ask || s.State() == breaker.HalfOpen) && g.ask(a == breaker.Ask, c.let):
			return breaker.Ask
		case g.seen.Load() == s:
			return breaker.Refuse
		} // what it was refused for is over
	}
}

// admit says whether a call may go now, and with Pass fills in p. With breaker.Ask it may go if ask wins.
func (g *gate) admit(now time.Time, p *pass) breaker.Answer {
	if g.alone || g.gates.away.Load() {
		return g.admitAlone(now, p)
	}
	s := g.seen.Load()
	if !s.Settled() {
		if a := g.asks(s, now); a != breaker.Pass {
			return a
		}
	}
	return g.admitHere(now, s, p, false)
}

// asks is the word of the shared breaker.
func (g *gate) asks(s *breaker.Seen, now time.Time) breaker.Answer {
	roll := 0.0
	if s.Value.Ramp {
		roll = rand.Float64()
	}
	return s.Admit(now, *g.policy.Load(), roll)
}

// admitHere is the word of our own machine, which has none where a person has said what to do.
func (g *gate) admitHere(now time.Time, s *breaker.Seen, p *pass, away bool) breaker.Answer {
	p.epoch, p.era, p.probe, p.away = s.Epoch(), g.era.Load(), nil, away
	if st := s.State(); st == breaker.ForcedClosed || st == breaker.Disabled {
		p.local = breaker.Permit{}
		return breaker.Pass
	}
	var ok bool
	if p.local, ok = g.local.Admit(now); !ok {
		return breaker.Refuse
	}
	return breaker.Pass
}

// admitAlone decides while the store is away: an open state that was seen holds for its time, then our own machine goes
// on from there.
func (g *gate) admitAlone(now time.Time, p *pass) breaker.Answer {
	s := g.seen.Load()
	switch a := g.asks(s, now); {
	case a == breaker.Refuse && s.State() != breaker.HalfOpen:
		return breaker.Refuse
	case s.State() == breaker.Open || s.State() == breaker.HalfOpen:
		g.mu.Lock()
		if !g.carried {
			g.carried = true
			g.local.Force(now, breaker.HalfOpen, "", "the breakers' store is away", 0)
		}
		g.mu.Unlock()
	}
	return g.admitHere(now, s, p, true)
}

// back ends what admitAlone began: the shared breaker decides again.
func (g *gate) back(now time.Time) {
	g.mu.Lock()
	carried := g.carried
	g.carried = false
	g.mu.Unlock()
	if carried {
		g.local.Force(now, breaker.Closed, "", "the breakers' store is back", 0)
	}
	g.kick()
}

// ask tries to take a probe, and waits for the end of one of ours that is being written. done is called once, on another
// goroutine, within askTimeout. Where there is neither, for none is free or another call is asking already, ask returns
// false and done is not called. Where done says that it has no use for the grant, the grant is given back.
func (g *gate) ask(free bool, done func(pass, bool) bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.settling && (!free || len(g.asking) > 0) || !g.kicked() {
		return false
	}
	a := &ask{nonce: nonce(), done: done}
	a.timer = time.AfterFunc(askTimeout, func() { g.answer(a, pass{}, false) })
	g.asking = append(g.asking, a)
	return true
}

// answer calls done, once. It says whether the call goes with p.
func (g *gate) answer(a *ask, p pass, ok bool) bool {
	g.mu.Lock()
	done := a.done
	a.done = nil
	if i := slices.Index(g.asking, a); i >= 0 {
		g.asking = slices.Delete(g.asking, i, i+1)
	}
	g.mu.Unlock()
	a.timer.Stop()
	return done != nil && done(p, ok)
}

// report tells how a call that was let through went. The transition is one of our own machine; what the shared one does
// comes later, from write.
func (g *gate) report(now time.Time, p *pass, r breaker.Report, cause string) (breaker.Transition, bool) {
	own := r.Outcome
	if own == breaker.Failure && !r.Inferred && !p.away {
		own = breaker.Neutral // the tool's word is for all of us to count
	}
	tr, changed := g.local.Report(now, p.local, own)

	if p.probe != nil {
		g.settle(settle{p.probe.nonce, r.Outcome, cause})
		return tr, changed
	}
	if g.alone || g.gates.store == nil || r.Outcome == breaker.Neutral && r.Wait == 0 {
		return tr, changed
	}
	policy := g.policy.Load()
	if s := g.seen.Load(); r.Outcome == breaker.Success && r.Wait == 0 && s.Settled() && s.Clean() &&
		policy.Mode == breaker.Consecutive && !g.unsaid.Load() {
		return tr, changed // nothing to reset, here or there
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.seen.Load()
	if p.epoch != s.Epoch() || p.era != g.era.Load() {
		return tr, changed
	}
	g.fold.Add(s, *policy, r, nonce())
	g.cause = cause
	if g.fold.Says(s) {
		g.unsaid.Store(true)
		g.kicked()
	}
	return tr, changed
}

// settle has the end of a probe written.
func (g *gate) settle(st settle) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settles = append(g.settles, st)
	g.settling = true
	g.kicked()
}

// view is what there is to show.
func (g *gate) view(now time.Time) breaker.View {
	v := g.seen.Load().View(now)
	if own := g.local.View(now); v.State == breaker.Closed && own.State != breaker.Closed {
		own.Reason = "on this executor alone: " + own.Reason
		return own
	}
	return v
}
