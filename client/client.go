// Package client hands turns to executors over the bus, and brings back what happens to them.
//
//	Run / Stream ──► tb.v1.turn.run ──► an executor
//	             ◄── events, the outcome last
//	Cancel       ──► tb.v1.turn.ctl.<turn>
//
// It decides nothing. An executor that goes silent is noticed within Silence; then the outcome is unknown, and the error
// says so.
package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Silence is how long an executor may say nothing about a turn before it is taken for lost. A live one speaks every
// second.
const Silence = 5 * time.Second

// After a cancel it is said again each time that the outcome has not come, for it may have overtaken its turn: so often to
// an executor that says nothing, and so often in all.
const (
	again    = 500 * time.Millisecond
	patience = 4
	most     = 10
)

// A Client is safe for concurrent use. It holds nothing that must be closed.
type Client struct{ bus *bus.Conn }

// New makes a client on a connection.
func New(b *bus.Conn) *Client { return &Client{b} }

// Run runs a turn and returns its outcome. See Stream.
func (c *Client) Run(ctx context.Context, req wire.TurnRequest) (*wire.Outcome, error) {
	return c.Stream(ctx, req, nil)
}

// Stream runs a turn, calls each with every event as it comes, and returns the outcome. An empty req.ID is filled in.
// When ctx ends first, the turn is cancelled and its outcome, which says so, is waited for a little.
//
// The error is a *fault.Fault: unavailable where no executor is there (nothing ran), worker_lost where the executor went
// silent (what ran is unknown).
func (c *Client) Stream(ctx context.Context, req wire.TurnRequest, each func(*wire.Event)) (*wire.Outcome, error) {
	if req.ID == "" {
		req.ID = nuid.Next()
	}
	if err := req.Check(); err != nil {
		return nil, fault.New(fault.InvalidArguments, "%v", err)
	}
	body, err := wire.Marshal(wire.MsgPack, &req)
	if err != nil {
		return nil, fault.New(fault.InvalidArguments, "turn request: %v", err)
	}
	s := &stream{more: make(chan struct{}, 1)}
	t := c.bus.Open(wire.TurnToken, s)
	defer t.Close()
	h := wire.Header{wire.HeaderProgress: {t.Reply()}, wire.HeaderContentType: {wire.MsgPack}}
	if len(body) > c.bus.Inline() {
		ref, f := c.bus.PutBlob(ctx, body, time.Hour)
		if f != nil {
			return nil, f
		}
		h[wire.HeaderBlob], body = []string{ref.String()}, nil
	}
	if f := c.bus.Send(t, c.bus.Subjects().TurnRun(), h, body); f != nil {
		return nil, f
	}
	return c.follow(ctx, req.ID, s, each)
}

// follow takes the events in until the last.
func (c *Client) follow(ctx context.Context, turn string, s *stream, each func(*wire.Event)) (*wire.Outcome, error) {
	quiet := time.NewTimer(Silence)
	defer quiet.Stop()
	ended := ctx.Done()
	silent, said := 0, 0 // how often a cancel was said
	for {
		select {
		case <-s.more:
			if silent = 0; said == 0 {
				quiet.Reset(Silence)
			}
		case <-ended:
			ended, silent, said = nil, 1, 1
			_ = c.Cancel(turn) // unsent: it is said again
			quiet.Reset(again)
		case <-quiet.C:
			if said == 0 {
				f := fault.New(fault.WorkerLost, "the executor of turn %s has gone silent: what ran is unknown", turn)
				return nil, f.WithCause(context.Cause(ctx))
			}
			if silent == patience || said == most {
				f := fault.New(fault.WorkerLost, "turn %s was cancelled, and its outcome did not come: what ran is unknown", turn)
				return nil, f.WithCause(context.Cause(ctx))
			}
			silent, said = silent+1, said+1
			_ = c.Cancel(turn)
			quiet.Reset(again)
		}
		for _, fr := range s.take() {
			out, err := c.event(turn, fr, each)
			if out != nil || err != nil {
				return out, err
			}
		}
	}
}

// event takes one frame in. It returns the outcome where that was the last. What speaks of another turn is not for us:
// whoever runs a turn chooses where its events go.
func (c *Client) event(turn string, fr bus.Frame, each func(*wire.Event)) (*wire.Outcome, error) {
	if fr.Refused != nil {
		return nil, fr.Refused
	}
	if fr.NoResponders {
		return nil, fault.New(fault.Unavailable, "no executor is running: start one with `executor serve` or `executor dev`")
	}
	data := fr.Data
	if check := wire.Get(fr.Header, wire.HeaderBlob); check != "" {
		ref, err := wire.ParseBlobRef(check)
		if err != nil {
			return nil, fault.New(fault.Internal, "the executor sent a claim check that cannot be read: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var f *fault.Fault
		if data, f = c.bus.GetBlob(ctx, ref); f != nil {
			f.Execution = fault.Unknown // of the turn, whatever kept us from hearing of it
			return nil, f
		}
	}
	var ev wire.Event
	if err := wire.Decode(data, &ev); err != nil {
		return nil, fault.New(fault.Internal, "an event of the executor cannot be read: %v", err)
	}
	if ev.Turn != "" && ev.Turn != turn {
		return nil, nil
	}
	if each != nil && ev.Type != wire.Alive {
		each(&ev)
	}
	if ev.Type != wire.TurnEnded {
		return nil, nil
	}
	if ev.Outcome == nil || len(ev.Outcome.Results) == 0 {
		return nil, errors.New("client: the executor ended the turn without an outcome")
	}
	return ev.Outcome, nil
}

// Cancel tells whoever runs the turn to stop it. It does not wait.
func (c *Client) Cancel(turn string) *fault.Fault {
	return c.bus.Publish(c.bus.Subjects().TurnCtl(turn), wire.Header{wire.HeaderFrame: {string(wire.Cancel)}}, nil)
}

// A stream keeps the frames of one turn until they are taken.
type stream struct {
	mu     sync.Mutex
	frames []bus.Frame
	bytes  int
	more   chan struct{}
}

// What is kept for a reader that does not keep up; beyond it the oldest are dropped, so that the last one, which has the
// outcome, is never.
const (
	maxWaiting      = 4096
	maxWaitingBytes = 32 << 20
)

// Receive is called by the connection's reader.
func (s *stream) Receive(f bus.Frame) {
	s.mu.Lock()
	s.bytes += len(f.Data)
	old := 0
	for n := len(s.frames); old < n && (n-old >= maxWaiting || s.bytes > maxWaitingBytes); old++ {
		s.bytes -= len(s.frames[old].Data)
	}
	if old > 0 {
		s.frames = slices.Delete(s.frames, 0, old)
	}
	s.frames = append(s.frames, f)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

func (s *stream) take() []bus.Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.frames
	s.frames, s.bytes = nil, 0
	return fs
}
