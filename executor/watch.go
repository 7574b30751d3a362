package executor

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/wire"
)

// watch asks every worker that holds calls whether it is still there: one ping per worker, not per call (design §4,
// "Liveness of an attempt"). It has one timer, which runs only while calls are out.
//
// Three verdicts: gone (the server says that nobody listens), hung (three pings unanswered), and lost (the worker is
// there and does not know the attempt).
type watch struct {
	e     *Executor
	armed atomic.Bool // the timer runs
	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

// tick is how often the watch looks. A ping goes out each wire.PingEvery; the shorter tick finds attempts of which
// nothing was heard for wire.ProbeAfter.
const tick = wire.ProbeAfter / 2

// need makes sure that the watch looks. It is called for every attempt, so it costs one load where the watch runs.
func (w *watch) need() {
	if w.armed.Load() || !w.armed.CompareAndSwap(false, true) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.over:
	case w.timer == nil:
		w.timer = time.AfterFunc(tick, w.look)
	default:
		w.timer.Reset(tick)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// look disarms first and scans then: a call held before the scan is seen by it, one held after it arms again.
func (w *watch) look() {
	w.armed.Store(false)
	now := time.Now()
	busy := false
	w.e.peers.byID.Range(func(_, v any) bool {
		p := v.(*peer)
		if p.check(now, w.e) {
			busy = true
		}
		return true
	})
	if busy {
		w.need()
	}
}

// A ping is what the watch keeps of one worker. It is under the peer's lock.
type ping struct {
	sent   time.Time
	open   bool // unanswered
	missed int
	empty  int // times in a row that nobody listened
	ticket bus.Ticket
}

// check pings the worker if it is time to, and reports whether it holds anything.
func (p *peer) check(now time.Time, e *Executor) (busy bool) {
	p.mu.Lock()
	if len(p.attempts) == 0 {
		if p.ping.open {
			p.ping.ticket.Close()
		}
		p.ping = ping{}
		if p.stale(now) {
			p.drop()
		}
		p.mu.Unlock()
		return false
	}
	of, oldest := p.suspect()
	every := wire.PingEvery
	if p.ping.empty > 0 {
		every = tick // ask again soon: a subscription may not have reached every server yet
	}
	if now.Sub(e.born)-oldest < wire.ProbeAfter || now.Sub(p.ping.sent) < every || !e.bus.Connected() {
		p.mu.Unlock()
		return true
	}
	if p.ping.open {
		p.ping.missed++
		p.ping.ticket.Close()
	}
	if p.ping.missed >= wire.PingsMissed {
		p.mu.Unlock()
		p.lose(now, "worker "+p.id+" does not answer")
		return true
	}
	p.ping.sent, p.ping.open = now, true
	p.ping.ticket = e.bus.Open(of.tool(), &pong{p: p, e: e, of: of})
	t := p.ping.ticket
	p.mu.Unlock()

	h := wire.Header{wire.HeaderFrame: {string(wire.Ping)}, wire.HeaderCall: {of.ref()}, wire.HeaderTool: {of.tool()}}
	_ = e.bus.Send(t, e.bus.Subjects().To(p.id), h, nil) // unsent counts as unanswered
	return true
}

// suspect is the attempt to ask about, and when the oldest was sent: one that the worker did not know when it was asked
// before, else one of which nothing was heard, else any, by turns.
func (p *peer) suspect() (of *attempt, oldest time.Duration) {
	for a := range p.attempts { // in random order
		if of == nil || a.sent < oldest {
			oldest = a.sent
		}
		if of == nil || a.doubt() > of.doubt() {
			of = a
		}
	}
	return of, oldest
}

func (a *attempt) doubt() int {
	switch {
	case a.denied.Load():
		return 2
	case !a.heard.Load():
		return 1
	}
	return 0
}

// lose ends every attempt that the worker holds.
func (p *peer) lose(now time.Time, why string) {
	p.mu.Lock()
	held := make([]*attempt, 0, len(p.attempts))
	for a := range p.attempts {
		held = append(held, a)
	}
	p.ping.missed, p.ping.empty, p.ping.open = 0, 0, false
	p.mu.Unlock()
	for _, a := range held {
		a.lost(now, why)
	}
}

// A pong takes the answer to one ping.
type pong struct {
	p  *peer
	e  *Executor
	of *attempt
}

// Receive is called by the connection's reader.
func (g *pong) Receive(f bus.Frame) {
	p, now := g.p, time.Now()
	if f.Refused != nil {
		f.NoResponders = false // we may not ask, so there is no verdict: it counts as an answer that says nothing
	}
	p.mu.Lock()
	p.ping.ticket.Close()
	p.ping.open = false
	if !f.NoResponders {
		denied := f.Kind == wire.Pong && wire.Get(f.Header, wire.HeaderRunning) == "0"
		again := g.of.denied.Swap(denied)
		p.ping.missed, p.ping.empty = 0, 0
		if denied && !again {
			p.ping.sent = time.Time{} // its answer may be on its way: ask once more at the next tick
		}
		p.mu.Unlock()
		if denied && again {
			g.of.lost(now, "worker "+p.id+" does not know the call: the request or its answer was lost on the way")
		}
		return
	}
	p.ping.empty++
	gone := p.ping.empty >= 2
	p.mu.Unlock()
	if gone {
		g.e.cat.Gone(p.id)
		p.lose(now, "worker "+p.id+" is gone")
	}
}
