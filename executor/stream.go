package executor

import (
	"context"
	"sync"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// alive is how often a turn's client hears that its executor is there.
const alive = time.Second

// lossAfter is how many beats in a row nobody must have heard until the client counts as gone.
const lossAfter = 3

// A stream tells a client over the bus what happens to its turn. Event and settled are called under the run's lock.
type stream struct {
	e        *Executor
	reply    string
	progress string
	codec    string
	ended    bool // TurnEnded was sent

	mu      sync.Mutex // for what the timer, the bus and the one who stores share
	timer   *time.Timer
	over    bool
	storing bool     // an event is being stored: what comes next waits for it in queue
	queue   []parcel // in order

	// Of a turn that ends with its client. A beat asks for a reply that nobody gives; where nobody listens, the server says
	// so.
	turn    string // its id
	watched *run
	ticket  bus.Ticket
	unheard int  // beats in a row that nobody heard
	deaf    bool // the last beat was one of them
}

// A parcel is an event that is ready to go.
type parcel struct {
	to   string
	ev   *wire.Event
	body []byte
}

// Event sends one event on. After the end there are none: late results are in the journal.
func (s *stream) Event(ev *wire.Event) {
	if s.ended {
		return
	}
	to := s.progress
	if ev.Type == wire.TurnEnded {
		to, s.ended = s.reply, true
	}
	if to != "" {
		s.send(to, ev)
	}
}

// settled is the end of the turn. One that was refused at the door sent no events.
func (s *stream) settled(out *wire.Outcome) {
	s.mu.Lock()
	s.over = true
	if !s.storing {
		s.hush()
	}
	s.mu.Unlock()
	if !s.ended {
		s.end(out)
	}
}

// hush ends the beats. While the last events are being stored they go on: the client is still to wait. s.mu is held.
func (s *stream) hush() {
	s.ticket.Close()
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *stream) refuse(f *fault.Fault) { s.end(s.e.refusal(&wire.TurnRequest{}, f)) }

func (s *stream) end(out *wire.Outcome) {
	s.ended = true
	s.send(s.reply, &wire.Event{V: wire.Version, Type: wire.TurnEnded, Seq: 1, Outcome: out})
}

// follow has the client told again and again that the executor of the turn is there. Where the turn ends with its client,
// r is it; else nil.
func (s *stream) follow(turn string, r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.progress == "" {
		return
	}
	s.turn, s.watched = turn, r
	s.timer = time.AfterFunc(alive, s.beat)
}

// beat says that the executor is there, and again after a while.
func (s *stream) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over && !s.storing {
		return
	}
	if s.watched != nil {
		s.listen()
	}
	s.timer.Reset(alive)
	b, err := wire.Marshal(s.codec, &wire.Event{V: wire.Version, Type: wire.Alive, Turn: s.turn, Executor: s.e.ID()})
	if err != nil {
		s.e.log.Error("an event could not be encoded", "type", wire.Alive, "error", err)
		return
	}
	// It has no place in the order of events, and waits for none of them.
	if f := s.e.bus.Send(s.ticket, s.progress, wire.Header{wire.HeaderFrame: {string(wire.EventFrame)}}, b); f != nil {
		s.e.log.Warn("an event was not sent to the turn's client", "why", f.Message)
	}
}

// listen waits for the server's word on the next beat. s.mu is held.
func (s *stream) listen() {
	if !s.deaf {
		s.unheard = 0
	}
	s.deaf = false
	s.ticket.Close()
	s.ticket = s.e.bus.Open(wire.TurnToken, s)
}

// Receive is called by the connection's reader, when nobody listens where a beat went.
func (s *stream) Receive(f bus.Frame) {
	if !f.NoResponders {
		return
	}
	s.mu.Lock()
	s.deaf = true
	s.unheard++
	gone := s.unheard >= lossAfter && !s.over
	s.mu.Unlock()
	if gone {
		s.e.log.Info("the client of a turn is gone: the turn is cancelled", "turn", s.watched.req.ID)
		s.watched.lost()
	}
}

// send publishes one event, after those before it. What does not fit a message goes by claim check.
func (s *stream) send(to string, ev *wire.Event) {
	b, err := wire.Marshal(s.codec, ev)
	if err != nil {
		s.e.log.Error("an event could not be encoded", "type", ev.Type, "turn", ev.Turn, "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.storing && len(b) <= s.e.bus.Inline() {
		s.publish(to, b)
		return
	}
	s.queue = append(s.queue, parcel{to, ev, b})
	if !s.storing {
		s.storing = true
		s.e.fetches.Go(s.store)
	}
}

// store sends what is in the queue.
func (s *stream) store() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.storing = false
			if s.over {
				s.hush()
			}
			s.mu.Unlock()
			return
		}
		p := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		s.post(p)
	}
}

// post publishes one event, by claim check where it needs one.
func (s *stream) post(p parcel) {
	f := s.e.answer(p.to, wire.EventFrame, p.body)
	if f != nil && p.ev.Outcome != nil {
		f = s.shorten(p, f)
	}
	if f != nil {
		s.e.log.Error("an event was not sent to the turn's client", "type", p.ev.Type, "turn", p.ev.Turn, "why", f.Message)
	}
}

func (s *stream) publish(to string, b []byte) {
	if f := s.e.bus.Respond(to, wire.Header{wire.HeaderFrame: {string(wire.EventFrame)}}, b); f != nil {
		s.e.log.Warn("an event was not sent to the turn's client", "why", f.Message)
	}
}

// answer sends one record to a reply subject, by claim check where it does not fit a message: then it waits for the store.
func (e *Executor) answer(to string, frame wire.Frame, body []byte) *fault.Fault {
	h := wire.Header{wire.HeaderFrame: {string(frame)}}
	if len(body) > e.bus.Inline() {
		ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
		defer cancel()
		ref, f := e.bus.PutBlob(ctx, body, blobTTL)
		if f != nil {
			return f
		}
		h[wire.HeaderBlob], body = []string{ref.String()}, nil
	}
	return e.bus.Respond(to, h, body)
}
