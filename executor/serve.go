package executor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
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
		return fmt.Errorf("executor: listen for cancels: %w", err)
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
	if err := turns.Drain(end); err != nil {
		return fmt.Errorf("executor: stop taking turns: %w", err)
	}
	err = e.Shutdown(end)
	if cerr := ctl.Drain(end); err == nil && cerr != nil && end.Err() == nil {
		err = fmt.Errorf("executor: stop listening for cancels: %w", cerr)
	}
	return err
}

// alive is how often a turn's client hears that its executor is there.
const alive = time.Second

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
		e.begin(s, h, m.Data)
		return
	}
	e.fetches.Go(func() {
		data, f := e.fetch(check)
		if f != nil {
			s.refuse(f)
			return
		}
		s.codec = codecOf(data)
		e.begin(s, h, data)
	})
}

// begin starts the turn that a request asks for.
func (e *Executor) begin(s *stream, h wire.Header, data []byte) {
	var req wire.TurnRequest
	err := wire.Decode(data, &req)
	if err == nil {
		err = req.Check()
	}
	if err != nil {
		s.refuse(fault.New(fault.InvalidArguments, "turn request: %v", err))
		return
	}
	if len(req.Calls) != 1 {
		s.refuse(fault.New(fault.Unsupported, "turn request: expected one call, got %d: plans of several calls are not supported yet", len(req.Calls)))
		return
	}
	s.beat()
	e.Go(Turn{
		ID: req.ID, Session: req.Session, Deadline: time.Duration(req.DeadlineMs) * time.Millisecond,
		Call: req.Calls[0], Header: trace(h), Observer: s,
	}, s.settled)
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

// control is a message on a turn's control subject. Every executor hears it; the one that runs the turn acts.
func (e *Executor) control(m *nats.Msg) {
	turn, ok := e.bus.Subjects().TurnOf(m.Subject)
	if !ok || wire.FrameOf(wire.Header(m.Header)) != wire.Cancel {
		return
	}
	if r := e.find(turn); r != nil {
		r.cancel()
	}
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

// A stream tells a client over the bus what happens to its turn. Event and settled are called under the run's lock.
type stream struct {
	e        *Executor
	reply    string
	progress string
	codec    string
	ended    bool // TurnEnded was sent

	mu      sync.Mutex // for what the timer and the one who stores share
	timer   *time.Timer
	over    bool
	storing bool     // an event is being stored: what comes next waits for it in queue
	queue   []parcel // in order
}

// A parcel is an event that is ready to go.
type parcel struct {
	to   string
	ev   *wire.Event
	body []byte
}

// Event sends one event on.
func (s *stream) Event(ev *wire.Event) {
	to := s.progress
	if ev.Type == wire.TurnEnded {
		to, s.ended = s.reply, true
	}
	if to != "" {
		s.send(to, ev)
	}
}

// settled is the end of the run. One that was refused at the door sent no events.
func (s *stream) settled(r tool.Result) {
	s.mu.Lock()
	s.over = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	if !s.ended {
		s.end(r)
	}
}

func (s *stream) refuse(f *fault.Fault) {
	s.end(tool.Result{Status: tool.Failed, Fault: f, Sentence: f.Message})
}

func (s *stream) end(r tool.Result) {
	s.send(s.reply, &wire.Event{V: wire.Version, Type: wire.TurnEnded, Seq: 1, Outcome: &wire.Outcome{
		Status: outcomeOf(r.Status), Results: []tool.Result{r}, Sentence: r.Sentence,
	}})
}

// beat says that the executor is there, and again after a while.
func (s *stream) beat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.progress == "" {
		return
	}
	if s.timer == nil {
		s.timer = time.AfterFunc(alive, s.beat)
		return
	}
	s.send(s.progress, &wire.Event{V: wire.Version, Type: wire.Alive, Executor: s.e.ID()})
	s.timer.Reset(alive)
}

// send publishes one event, after those before it. What does not fit a message goes by claim check.
func (s *stream) send(to string, ev *wire.Event) {
	b, err := wire.Marshal(s.codec, ev)
	if err != nil {
		s.e.log.Error("an event could not be encoded", "type", ev.Type, "turn", ev.Turn, "error", err)
		return
	}
	if ev.Type == wire.Alive { // it has no place in the order, and must not wait
		s.publish(to, "", b)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.storing && len(b) <= s.e.bus.Inline() {
		s.publish(to, "", b)
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
	if len(p.body) <= s.e.bus.Inline() {
		s.publish(p.to, "", p.body)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	ref, f := s.e.bus.PutBlob(ctx, p.body, blobTTL)
	if f != nil {
		s.e.log.Error("an event that needs a claim check was not stored", "type", p.ev.Type, "turn", p.ev.Turn, "why", f.Message)
		return
	}
	s.publish(p.to, ref.String(), nil)
}

func (s *stream) publish(to, check string, b []byte) {
	h := wire.Header{wire.HeaderFrame: {string(wire.EventFrame)}}
	if check != "" {
		h[wire.HeaderBlob] = []string{check}
	}
	if f := s.e.bus.Respond(to, h, b); f != nil {
		s.e.log.Warn("an event was not sent to the turn's client", "why", f.Message)
	}
}
