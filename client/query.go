package client

import (
	"context"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// answerIn is how long an executor may take for an answer, and for each further part of one.
const answerIn = 10 * time.Second

// What is taken in.
const (
	maxTraceEvents = 100_000
	maxAnswer      = 64 << 20 // bytes
)

// Late fetches what came of a call that went on after its turn had ended; executors keep it for a day. An empty turn means
// whichever turn had such a call last.
//
// The error is a *fault.Fault: not_found where there is no such result, or not yet; unavailable where no executor is
// there, or where it keeps none.
func (c *Client) Late(ctx context.Context, turn, call string) (*wire.LateRecord, error) {
	f := checkID("call", call)
	if f == nil && turn != "" {
		f = checkID("turn", turn)
	}
	if f != nil {
		return nil, f
	}
	var rec wire.LateRecord
	f = c.query(ctx, c.bus.Subjects().TurnLate(), &wire.LateQuery{Turn: turn, Call: call}, func(data []byte) (bool, *fault.Fault) {
		return false, decode(data, &rec)
	})
	switch {
	case f != nil:
		return nil, f
	case rec.Fault != nil:
		wire.CheckFault(rec.Fault)
		return nil, rec.Fault
	}
	if err := rec.Check(); err != nil {
		return nil, fault.New(fault.Internal, "the executor answered with a late result that is none: %v", err)
	}
	if rec.Result.Call != call || turn != "" && rec.Turn != turn {
		return nil, fault.New(fault.Internal, "the executor answered with the late result of another call than %s", call)
	}
	return &rec, nil
}

// Trace is the journal of a turn: its events in order, those so far where it still runs. Arguments and values are in it
// only where the executors keep them.
//
// The error is a *fault.Fault: not_found where there is no journal of the turn; unavailable where no executor is there,
// or where it keeps none. Events that came before the error are returned with it.
func (c *Client) Trace(ctx context.Context, turn string) ([]wire.Event, error) {
	if f := checkID("turn", turn); f != nil {
		return nil, f
	}
	var events []wire.Event
	f := c.query(ctx, c.bus.Subjects().TurnTrace(), &wire.TraceQuery{Turn: turn}, func(data []byte) (bool, *fault.Fault) {
		var p wire.Page
		if f := decode(data, &p); f != nil {
			return false, f
		}
		if p.Fault != nil {
			wire.CheckFault(p.Fault)
			return false, p.Fault
		}
		if err := p.Check(); err != nil {
			return false, fault.New(fault.Internal, "the executor answered with a page that is none: %v", err)
		}
		if p.Turn != turn {
			return false, fault.New(fault.Internal, "the executor answered with events of another turn than %s", turn)
		}
		if events = append(events, p.Events...); len(events) > maxTraceEvents {
			return false, fault.New(fault.Internal, "the journal of turn %s has more than the %d events that are taken in", turn, maxTraceEvents)
		}
		return !p.Last, nil
	})
	switch {
	case f != nil:
		return events, f
	case len(events) == 0:
		return nil, fault.New(fault.NotFound, "there is no journal of turn %s", turn)
	}
	return events, nil
}

// query asks any executor, and takes what it answers until take wants no more.
func (c *Client) query(ctx context.Context, subject string, q any, take func(data []byte) (more bool, f *fault.Fault)) *fault.Fault {
	h, body, f := c.pack(ctx, q)
	if f != nil {
		return f
	}
	in := newInbox(maxTraceEvents, maxAnswer)
	t := c.bus.Open(wire.TurnToken, in)
	defer t.Close()
	if f := c.bus.Send(t, subject, h, body); f != nil {
		return f
	}
	quiet := time.NewTimer(answerIn)
	defer quiet.Stop()
	for size := 0; ; quiet.Reset(answerIn) {
		select {
		case <-in.more:
		case <-quiet.C:
			return fault.New(fault.Timeout, "no executor has answered on %s for %v; try again", subject, answerIn)
		case <-ctx.Done():
			return gaveUp(ctx, "the answer on "+subject)
		}
		frames, dropped := in.take()
		for _, fr := range frames {
			data, f := c.part(ctx, fr)
			if f != nil {
				return f
			}
			if size += len(data); dropped || size > maxAnswer {
				return fault.New(fault.Internal, "the answer on %s is larger than the %d bytes that are taken in", subject, maxAnswer)
			}
			if more, f := take(data); f != nil || !more {
				return f
			}
		}
	}
}

// part is one part of an answer.
func (c *Client) part(ctx context.Context, fr bus.Frame) ([]byte, *fault.Fault) {
	if fr.Refused != nil {
		return nil, fr.Refused
	}
	if fr.NoResponders {
		return nil, nobody()
	}
	return c.payload(ctx, fr)
}
