package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// What one Trace may give.
const (
	maxTraceEvents = 100_000
	maxTraceBytes  = 64 << 20
)

var errTraceLong = errors.New("the journal is too long")

// Trace hands the journal of a turn to each, page by page in order, on the caller's goroutine. A turn that still runs has
// a journal up to some milliseconds ago. The fault is NotFound where there is none, and else says why there is no more:
// what each returned, for one, or that there are more than 100,000 events or 64 MiB.
func (j *Journal) Trace(ctx context.Context, turn string, each func(*wire.Page) error) *fault.Fault {
	if err := (&wire.TraceQuery{Turn: turn}).Check(); err != nil {
		return fault.New(fault.InvalidArguments, "%w", err)
	}
	var events, bytes, bad int
	var broken, stopped error
	err := j.read(ctx, j.log, j.bus.Subjects().Log(turn), func(msg *nats.Msg) error {
		p, err := readPage(msg.Data, turn)
		if err != nil {
			bad, broken = bad+1, err
			return nil
		}
		events += len(p.Events)
		bytes += len(msg.Data)
		if events > maxTraceEvents || bytes > maxTraceBytes {
			return errTraceLong
		}
		stopped = each(p)
		return stopped
	})
	switch {
	case stopped != nil:
		return bus.Fault(stopped)
	case errors.Is(err, errTraceLong):
		return fault.New(fault.Unsupported, "the journal of turn %s has more than %d events or %d MiB; the rest is not shown",
			turn, maxTraceEvents, maxTraceBytes>>20)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		f := fault.New(fault.NotFound, "there is no journal of turn %s: journals are kept for %s, and go earlier where there are many", turn, span(j.cfg.Retention))
		f.Suggestions = []string{"Check the id of the turn: its outcome and each of its events name it"}
		return f
	case err != nil:
		return j.fault(ctx, j.log, "read the journal of turn "+turn, err)
	case bad > 0:
		return fault.New(fault.Internal, "%d pages of the journal of turn %s cannot be read, the last of them: %w", bad, turn, broken)
	}
	return nil
}

func readPage(data []byte, turn string) (*wire.Page, error) {
	p := &wire.Page{}
	if err := wire.Decode(data, p); err != nil {
		return nil, err
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	if p.Turn != turn {
		return nil, fmt.Errorf("it is a page of turn %s", p.Turn)
	}
	return p, nil
}
