// Package client hands turns to executors over the bus, and brings back what happens to them.
//
//	Run / Stream      ──► tb.v1.turn.run ──► an executor
//	                  ◄── events, the outcome last
//	Open              ──► tb.v1.turn.run ──► an executor
//	                  ◄── events, until the turn has ended
//	  Add Call Close  ──► tb.v1.turn.ctl.<turn> ──► the same one, which answers
//	Cancel CancelCall ──► tb.v1.turn.ctl.<turn>
//	Late / Trace      ──► tb.v1.turn.late, tb.v1.turn.trace ──► any executor, which answers
//
// It decides nothing. An executor that goes silent is noticed within Silence; then the outcome is unknown, and the error
// says so. Every error is a *fault.Fault.
package client

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Silence is how long an executor may say nothing about a turn before it is taken for lost. A live one speaks every
// second.
const Silence = 5 * time.Second

// A Client is safe for concurrent use. It holds nothing that must be closed.
type Client struct{ bus *bus.Conn }

// New makes a client on a connection.
func New(b *bus.Conn) *Client { return &Client{b} }

// Run runs a turn and returns its outcome. See Stream.
func (c *Client) Run(ctx context.Context, req wire.TurnRequest) (*wire.Outcome, error) {
	return c.Stream(ctx, req, nil)
}

// Stream runs a turn, calls each with every event as it comes, and returns the outcome; late results come after it and
// are for Late to fetch. An empty req.ID is filled in. When ctx ends first, the turn is cancelled and its outcome, which
// says so, is waited for a little.
//
// The error is a *fault.Fault: unavailable where no executor is there (nothing ran), worker_lost where the executor went
// silent (what ran is unknown).
func (c *Client) Stream(ctx context.Context, req wire.TurnRequest, each func(*wire.Event)) (*wire.Outcome, error) {
	f, err := c.begin(ctx, req, func(ev *wire.Event) {
		if each != nil && ev.Type != wire.Alive {
			each(ev)
		}
	})
	if err != nil {
		return nil, err
	}
	return f.follow(ctx)
}

// begin hands a turn over. Its events are kept until they are followed.
func (c *Client) begin(ctx context.Context, req wire.TurnRequest, each func(*wire.Event)) (*feed, error) {
	if req.ID == "" {
		req.ID = nuid.Next()
	}
	if err := req.Check(); err != nil {
		return nil, fault.New(fault.InvalidArguments, "%v", err)
	}
	h, body, f := c.pack(ctx, &req)
	if f != nil {
		return nil, f
	}
	in := newInbox(maxFrames, maxBytes)
	t := c.bus.Open(wire.TurnToken, in)
	h[wire.HeaderProgress] = []string{t.Reply()}
	if f := c.bus.Send(t, c.bus.Subjects().TurnRun(), h, body); f != nil {
		t.Close()
		return nil, f
	}
	return &feed{c: c, turn: req.ID, open: req.Open, tied: req.OnClientLoss == wire.LossCancel, each: each, in: in, ticket: t}, nil
}

// Cancel tells whoever runs the turn to stop it. It does not wait.
func (c *Client) Cancel(turn string) *fault.Fault {
	if f := checkID("turn", turn); f != nil {
		return f
	}
	return c.bus.Publish(c.bus.Subjects().TurnCtl(turn), wire.Header{wire.HeaderFrame: {string(wire.Cancel)}}, nil)
}

// CancelCall tells whoever runs the turn to stop one call of it. It does not wait: the call's result says whether it was
// in time.
func (c *Client) CancelCall(turn, call string) *fault.Fault {
	if f := cmp.Or(checkID("turn", turn), checkID("call", call)); f != nil {
		return f
	}
	body, err := wire.Marshal(wire.MsgPack, &wire.TurnControl{Call: call})
	if err != nil {
		return fault.New(fault.InvalidArguments, "cancel call %s: %v", call, err)
	}
	h := wire.Header{wire.HeaderFrame: {string(wire.Cancel)}, wire.HeaderContentType: {wire.MsgPack}}
	return c.bus.Publish(c.bus.Subjects().TurnCtl(turn), h, body)
}

// checkID says what is wrong with the id of a turn or a call.
func checkID(what, id string) *fault.Fault {
	if err := tool.CheckID(id); err != nil {
		return fault.New(fault.InvalidArguments, "%s: %v", what, err)
	}
	return nil
}

// pack is a record ready to send. What does not fit a message is put behind a claim check.
func (c *Client) pack(ctx context.Context, record any) (wire.Header, []byte, *fault.Fault) {
	h := wire.Header{wire.HeaderContentType: {wire.MsgPack}}
	body, err := wire.Marshal(wire.MsgPack, record)
	if err != nil {
		return nil, nil, fault.New(fault.InvalidArguments, "%v", err)
	}
	if len(body) <= c.bus.Inline() {
		return h, body, nil
	}
	ref, f := c.bus.PutBlob(ctx, body, time.Hour)
	if f != nil {
		return nil, nil, f
	}
	h[wire.HeaderBlob] = []string{ref.String()}
	return h, nil, nil
}

// payload is what a frame from an executor holds, behind a claim check or not.
func (c *Client) payload(ctx context.Context, fr bus.Frame) ([]byte, *fault.Fault) {
	check := wire.Get(fr.Header, wire.HeaderBlob)
	if check == "" {
		return fr.Data, nil
	}
	ref, err := wire.ParseBlobRef(check)
	if err != nil {
		return nil, fault.New(fault.Internal, "the executor sent a claim check that cannot be read: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return c.bus.GetBlob(ctx, ref)
}

// decode reads a record that an executor sent.
func decode(data []byte, record any) *fault.Fault {
	if err := wire.Decode(data, record); err != nil {
		return fault.New(fault.Internal, "what the executor sent cannot be read: %v", err)
	}
	return nil
}

// nobody is the fault where no executor listens.
func nobody() *fault.Fault {
	return fault.New(fault.Unavailable, "no executor is running: start one with `executor serve` or `executor dev`")
}

// gaveUp is the fault of one whose ctx ended while waiting for something.
func gaveUp(ctx context.Context, what string) *fault.Fault {
	f := bus.Fault(ctx.Err())
	f.Message = what + " did not come in time"
	if f.Kind == fault.Cancelled {
		f.Message = "cancelled while waiting for " + what
	}
	return f
}
