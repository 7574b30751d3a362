package client

import (
	"context"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// After a cancel it is said again each time that the outcome has not come, for it may have overtaken its turn: so often to
// an executor that says nothing, and so often in all.
const (
	again    = 500 * time.Millisecond
	patience = 4
	most     = 10
)

// A feed is the events of one turn on their way to its client.
type feed struct {
	c    *Client
	turn string
	open bool              // it may end without a call
	tied bool              // it is not to go on without us
	each func(*wire.Event) // is given every one, Alive too

	in     *inbox
	ticket bus.Ticket
	lost   *fault.Fault // why an event could not be fetched: it may have been the last
}

// follow takes the events in until the last, and closes the feed.
func (f *feed) follow(ctx context.Context) (*wire.Outcome, error) {
	defer f.ticket.Close()
	out, flt := f.last(ctx)
	if flt == nil {
		return out, nil
	}
	if f.tied { // our connection may go on to take its events, so the executor would not notice
		_ = f.c.Cancel(f.turn)
	}
	return nil, flt
}

// last takes the events in until the last.
func (f *feed) last(ctx context.Context) (*wire.Outcome, *fault.Fault) {
	quiet := time.NewTimer(Silence)
	defer quiet.Stop()
	ended := ctx.Done()
	silent, said := 0, 0 // how often a cancel was said
	for {
		select {
		case <-f.in.more:
			silent = 0
		case <-ended:
			ended, silent, said = nil, 1, 1
			_ = f.c.Cancel(f.turn) // unsent: it is said again
			quiet.Reset(again)
		case <-quiet.C:
			if said == 0 && f.lost != nil {
				return nil, f.lost
			}
			if said == 0 {
				lost := fault.New(fault.WorkerLost, "the executor of turn %s has gone silent: what ran is unknown", f.turn)
				return nil, lost.WithCause(context.Cause(ctx))
			}
			if silent == patience || said == most {
				lost := fault.New(fault.WorkerLost, "turn %s was cancelled, and its outcome did not come: what ran is unknown", f.turn)
				return nil, lost.WithCause(context.Cause(ctx))
			}
			silent, said = silent+1, said+1
			_ = f.c.Cancel(f.turn)
			quiet.Reset(again)
		}
		frames, _ := f.in.take()
		for _, fr := range frames {
			if out, flt := f.event(fr); out != nil || flt != nil {
				return out, flt
			}
		}
		if said == 0 && len(frames) > 0 { // only now: that took its time, too
			quiet.Reset(Silence)
		}
	}
}

// event takes one frame in. It returns the outcome where that was the last. What speaks of another turn is not for us:
// whoever runs a turn chooses where its events go.
func (f *feed) event(fr bus.Frame) (*wire.Outcome, *fault.Fault) {
	if fr.Refused != nil {
		return nil, fr.Refused
	}
	if fr.NoResponders {
		return nil, nobody()
	}
	data, flt := f.c.payload(context.Background(), fr)
	if flt != nil {
		flt.Execution = fault.Unknown // of the turn, whatever kept us from hearing of it
		f.lost = flt
		return nil, nil // the outcome may come all the same
	}
	var ev wire.Event
	if flt := decode(data, &ev); flt != nil {
		flt.Execution = fault.Unknown
		return nil, flt
	}
	if ev.Turn != "" && ev.Turn != f.turn {
		return nil, nil
	}
	f.each(&ev)
	if ev.Type != wire.TurnEnded {
		return nil, nil
	}
	if ev.Outcome == nil || len(ev.Outcome.Results) == 0 && !f.open {
		return nil, fault.New(fault.Internal, "the executor ended turn %s without an outcome", f.turn)
	}
	return ev.Outcome, nil
}
