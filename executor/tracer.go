package executor

import "github.com/toolbus/toolbus/wire"

// A Tracer follows turns into the processes that they reach. Turn is called once for every turn that is taken in, before
// anything happens to it, with the trace headers that its client sent. It gives those that the workers get, and what
// follows the turn; nil follows it no further. It is called from many goroutines.
type Tracer interface {
	Turn(turn string, in wire.Header) (Trace, wire.Header)
}

// A Trace follows one turn. Its methods are called in order, with the turn's lock held: they must not block and must not
// call back. It lives as long as the turn does, late results included.
type Trace interface {
	// Event is called as Observer.Event is.
	Observer

	// Attempt is called right before an attempt is published, and once more for each other worker that it is sent to. It
	// gives the trace headers that the worker gets, which nobody changes.
	Attempt(call string, attempt int, tool string) wire.Header

	// Over is the end: nothing more is heard of what is still out.
	Over()
}

// follow has somebody the run, where anybody does.
func (r *run) follow() {
	if t := r.e.cfg.Trace; t != nil {
		r.trace, r.header = t.Turn(r.req.ID, r.header)
	}
}

// traced is the trace headers that go with an attempt.
func (a *attempt) traced() wire.Header {
	r := a.job.run
	if r.trace == nil {
		return r.header
	}
	return r.trace.Attempt(a.job.id(), a.n, a.tool())
}

// share shows what a shared breaker does to the trace of the turn that was the cause, if it still runs.
func (e *Executor) share(ev *wire.Event) {
	if o := e.cfg.Observer; o != nil {
		o.Event(ev)
	}
	r := e.find(ev.Turn)
	if e.cfg.Trace == nil || r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trace != nil && !r.over {
		r.trace.Event(ev)
	}
}
