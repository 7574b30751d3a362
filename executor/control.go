package executor

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// control is a message on a turn's control subject. Every executor hears it; the one that runs the turn acts, and answers
// where there is an answer.
func (e *Executor) control(m *nats.Msg) {
	id, ok := e.bus.Subjects().TurnOf(m.Subject)
	if !ok {
		return
	}
	r := e.find(id)
	if r == nil {
		return
	}
	h := wire.Inbound(wire.Header(m.Header))
	frame := wire.FrameOf(h)
	check := wire.Get(h, wire.HeaderBlob)
	if check == "" || frame != wire.AddFrame {
		r.hear(frame, m.Reply, m.Data)
		return
	}
	e.fetches.Go(func() {
		data, f := e.fetch(check)
		if f != nil {
			e.reply(m.Reply, wire.TurnFrame, wire.MsgPack, &wire.TurnReply{Fault: f})
			return
		}
		r.hear(frame, m.Reply, data)
	})
}

// hear takes in what is said to the turn.
func (r *run) hear(frame wire.Frame, reply string, data []byte) {
	var said wire.TurnControl
	var f *fault.Fault
	if len(data) > 0 { // a cancel may say nothing more
		err := wire.Decode(data, &said)
		if err == nil {
			err = said.Check()
		}
		if err != nil {
			f = fault.New(fault.InvalidArguments, "turn control: %v", err)
		}
	}
	switch frame {
	case wire.Cancel:
		if f == nil {
			r.cancelCall(said.Call)
			return
		}
		r.e.log.Warn("a cancel could not be read, and nothing was cancelled", "turn", r.req.ID, "why", f.Message)
	case wire.AddFrame, wire.CloseFrame:
		answer := wire.TurnReply{OK: f == nil, Fault: f}
		if f == nil {
			answer = r.amend(frame, &said)
		}
		r.e.reply(reply, wire.TurnFrame, codecOf(data), &answer)
	}
}

// cancelCall cancels one call, and the whole turn where id is empty.
func (r *run) cancelCall(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ev := turn.Event{Kind: turn.CancelTurn}
	if id != "" {
		call, ok := r.turn.Find(id)
		if !ok {
			return
		}
		ev = turn.Event{Kind: turn.CancelCall, Call: call}
	}
	r.apply(time.Now(), ev)
}

// A door is what was said to an open turn and was answered. A message that comes again, because its answer was lost, has
// the same answer.
type door struct {
	last [8]said // by Seq, modulo their number
}

type said struct {
	seq    int64
	answer wire.TurnReply
}

// amend adds calls or closes the turn, once for each Seq.
func (r *run) amend(frame wire.Frame, c *wire.TurnControl) wire.TurnReply {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.door == nil {
		r.door = new(door)
	}
	before := &r.door.last[c.Seq%int64(len(r.door.last))]
	switch {
	case c.Seq == 0: // its sender does not say it again
		return r.amended(frame, c)
	case c.Seq == before.seq:
		return before.answer
	case c.Seq < before.seq:
		return wire.TurnReply{Fault: fault.New(fault.InvalidArguments, "message %d came after message %d: number them as you send them", c.Seq, before.seq)}
	}
	*before = said{c.Seq, r.amended(frame, c)}
	return before.answer
}

func (r *run) amended(frame wire.Frame, c *wire.TurnControl) wire.TurnReply {
	if frame == wire.AddFrame {
		f := r.add(c.Calls)
		return wire.TurnReply{OK: f == nil, Fault: f}
	}
	r.apply(time.Now(), turn.Event{Kind: turn.Close})
	return wire.TurnReply{OK: true}
}

// add hands more calls to the turn.
func (r *run) add(calls []tool.Call) *fault.Fault {
	if r.over {
		return fault.New(fault.InvalidArguments, "the turn has ended: no call can be added")
	}
	if len(calls) == 0 {
		return fault.New(fault.InvalidArguments, "calls: expected at least one, got none")
	}
	if f := r.e.admit(len(calls)); f != nil {
		return f
	}
	r.calls += len(calls)
	now, q := time.Now(), queues.Get().(*queue)
	effects, err := r.turn.Add(q.effects, now, calls)
	if err != nil {
		r.settle(len(calls))
	}
	q.effects = effects // of a refusal too: the deadline may have come before the timer said so
	r.carry(now, q)
	if err != nil {
		return planFault(err)
	}
	return nil
}
