package executor

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

const queryTimeout = 30 * time.Second // to answer one question for the journal

// answerLate answers a wire.LateQuery from the journal. Whoever of the executors gets it can: they share it.
func (e *Executor) answerLate(m *nats.Msg) {
	var q wire.LateQuery
	refuse := func(f *fault.Fault) {
		e.reply(m.Reply, wire.LateFrame, codecOf(m.Data), &wire.LateRecord{V: wire.Version, Turn: fault.Truncate(q.Turn, tool.MaxID), Fault: f})
	}
	e.ask(m, &q, refuse, func(ctx context.Context) {
		rec, f := e.cfg.Journal.Late(ctx, q)
		if f != nil {
			refuse(f)
			return
		}
		e.reply(m.Reply, wire.LateFrame, codecOf(m.Data), rec)
	})
}

// answerTrace answers a wire.TraceQuery from the journal, page by page.
func (e *Executor) answerTrace(m *nats.Msg) {
	var q wire.TraceQuery
	codec := codecOf(m.Data)
	end := func(f *fault.Fault) {
		e.reply(m.Reply, wire.PageFrame, codec, &wire.Page{V: wire.Version, Turn: fault.Truncate(q.Turn, tool.MaxID), Last: true, Fault: f})
	}
	e.ask(m, &q, end, func(ctx context.Context) {
		end(e.cfg.Journal.Trace(ctx, q.Turn, func(p *wire.Page) error {
			page := *p
			page.Last = false
			e.reply(m.Reply, wire.PageFrame, codec, &page)
			return ctx.Err()
		}))
	})
}

// ask reads a question into q and has it answered, away from the connection's reader.
func (e *Executor) ask(m *nats.Msg, q interface{ Check() error }, refuse func(*fault.Fault), answer func(context.Context)) {
	if m.Reply == "" || !e.replies.Allows(m.Reply, wire.TurnToken) {
		e.log.Warn("question without a reply subject that we answer to", "subject", m.Subject, "reply", fault.Truncate(m.Reply, 80))
		return
	}
	err := wire.Decode(m.Data, q)
	if err == nil {
		err = q.Check()
	}
	switch {
	case err != nil:
		refuse(fault.New(fault.InvalidArguments, "%v", err))
	case e.cfg.Journal == nil:
		refuse(fault.New(fault.Unavailable, "this executor keeps no journal: start it with one"))
	case !e.queries.run(func() {
		ctx, cancel := context.WithTimeout(e.life, queryTimeout)
		defer cancel()
		answer(ctx)
	}):
		refuse(fault.New(fault.Overloaded, "too many questions at once: ask again in a moment"))
	}
}

// reply answers with a record, in the encoding in which was asked. Whoever asks without a place to answer to gets none.
func (e *Executor) reply(to string, frame wire.Frame, codec string, rec any) {
	if to == "" || !e.replies.Allows(to, wire.TurnToken) {
		return
	}
	body, err := wire.Marshal(codec, rec)
	if err != nil {
		e.log.Error("an answer could not be encoded", "frame", frame, "error", err)
		return
	}
	if f := e.answer(to, frame, body); f != nil {
		e.log.Warn("an answer was not sent", "frame", frame, "why", f.Message)
	}
}
