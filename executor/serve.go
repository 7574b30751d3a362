package executor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Run serves turns from the bus until ctx ends, and then lets those under way end within drain (zero means 30 s). It
// returns nil after a clean drain. It can be called once.
func (e *Executor) Run(ctx context.Context, drain time.Duration) error {
	s := e.bus.Subjects()
	turns, err := e.bus.Subscribe(s.TurnRun(), wire.ExecutorQueue, e.take)
	if err != nil {
		return fmt.Errorf("executor: take turns: %w", err)
	}
	ctl, err := e.bus.Subscribe(s.TurnCtls(), "", e.control)
	if err != nil {
		return fmt.Errorf("executor: listen for what is said to turns: %w", err)
	}
	late, err := e.bus.Subscribe(s.TurnLate(), wire.ExecutorQueue, e.answerLate)
	if err != nil {
		return fmt.Errorf("executor: take questions for late results: %w", err)
	}
	trace, err := e.bus.Subscribe(s.TurnTrace(), wire.ExecutorQueue, e.answerTrace)
	if err != nil {
		return fmt.Errorf("executor: take questions for journals: %w", err)
	}
	sharing, part := context.WithCancel(context.WithoutCancel(ctx))
	shared := make(chan struct{})
	go func() {
		defer close(shared)
		e.gates.run(sharing)
	}()
	defer func() { part(); <-shared }() // breakers are shared until the last call has ended
	close(e.ready)
	<-ctx.Done()
	if drain <= 0 {
		drain = 30 * time.Second
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	for _, sub := range []*bus.Subscription{turns, late, trace} {
		if err := sub.Drain(end); err != nil {
			return fmt.Errorf("executor: stop taking turns: %w", err)
		}
	}
	err = e.Shutdown(end)
	if cerr := ctl.Drain(end); err == nil && cerr != nil && end.Err() == nil {
		err = fmt.Errorf("executor: stop listening for what is said to turns: %w", cerr)
	}
	return err
}

// take begins a turn that came over the bus. Its events go to the subject in Tb-Progress, where there is one; the last
// of them, TurnEnded, goes to the reply subject in any case, so that a bare request gets the outcome.
func (e *Executor) take(m *nats.Msg) {
	if m.Reply == "" || !e.replies.Allows(m.Reply, wire.TurnToken) {
		e.log.Warn("turn request without a reply subject that we answer to", "reply", fault.Truncate(m.Reply, 80))
		return
	}
	h := wire.Inbound(wire.Header(m.Header))
	s := &stream{e: e, reply: m.Reply, codec: codecOf(m.Data)}
	if p := wire.Get(h, wire.HeaderProgress); p != "" && e.replies.Allows(p, wire.TurnToken) {
		s.progress = p
	}
	check := wire.Get(h, wire.HeaderBlob)
	if check == "" {
		e.run(s, h, m.Data)
		return
	}
	e.fetches.Go(func() {
		data, f := e.fetch(check)
		if f != nil {
			s.refuse(f)
			return
		}
		s.codec = codecOf(data)
		e.run(s, h, data)
	})
}

// run starts the turn that a request asks for.
func (e *Executor) run(s *stream, h wire.Header, data []byte) {
	var req wire.TurnRequest
	if err := wire.Decode(data, &req); err != nil {
		s.refuse(fault.New(fault.InvalidArguments, "turn request: %v", err))
		return
	}
	r := e.start(&Turn{Request: req, Header: trace(h), Observer: s}, s.settled)
	turn := r.req.ID
	if req.OnClientLoss != wire.LossCancel {
		r = nil
	}
	s.follow(turn, r)
}

// trace is the trace headers of h, to be handed on to the worker. Without a traceparent that is one, there are none.
func trace(h wire.Header) wire.Header {
	if !isTraceparent(wire.Get(h, wire.HeaderTraceparent)) {
		return nil
	}
	var out wire.Header
	for _, k := range []string{wire.HeaderTraceparent, wire.HeaderTracestate, wire.HeaderBaggage} {
		if v := wire.Get(h, k); v != "" && len(v) <= 512 && isPrintable(v) {
			if out == nil {
				out = wire.Header{}
			}
			out[k] = []string{v}
		}
	}
	return out
}

// isTraceparent reports whether s is a W3C traceparent: version, trace, parent and flags in lower-case hex digits, the
// two ids not all zero.
func isTraceparent(s string) bool {
	p := strings.SplitN(s, "-", 5)
	return len(p) >= 4 && isHex(p[0], 2) && p[0] != "ff" && isHex(p[1], 32) && isHex(p[2], 16) && isHex(p[3], 2) &&
		(len(p) == 4 || p[0] != "00") && strings.Trim(p[1], "0") != "" && strings.Trim(p[2], "0") != ""
}

func isHex(s string, n int) bool { return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" }

func isPrintable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

// codecOf is the content type to answer in: the request's own.
func codecOf(b []byte) string {
	for _, c := range b {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{':
			return wire.JSON
		}
		break
	}
	return wire.MsgPack
}
