package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// NewTracer makes the tracer of an executor:
//
//	turn                             the client's span is its parent
//	├── execute_tool flights         a call, from when it may begin to its result; decisions are events on it
//	│   ├── send tb.v1.call.{tool}   an attempt, from when it is sent to its end
//	│   │   └── process …            in the worker: see NewWorkerTracer
//	│   └── send tb.v1.call.{tool}   another
//	└── late_result hotels           what came after the turn had its outcome, linked to turn and attempt
//
// It is nil, and so costs nothing, where Setup found nothing to export to. A turn that the sampler does not take costs a
// few allocations and is not followed. What is open of a turn ends with the turn, and there is nothing beside it.
func NewTracer(cfg TraceConfig) executor.Tracer {
	if s := newSource(cfg); s != nil {
		return &tracer{s}
	}
	return nil
}

type tracer struct{ *source }

var (
	serverSpan   = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	producerSpan = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)}
	consumerSpan = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
)

// Turn begins the trace of a turn.
func (t *tracer) Turn(turn string, in wire.Header) (follow executor.Trace, out wire.Header) {
	out = in
	defer t.survive()
	ctx, span := t.spans.Start(extract(context.Background(), in), spanTurn, serverSpan...)
	out = carry(span.SpanContext(), in)
	if !span.IsRecording() {
		return nil, out
	}
	return &turnTrace{source: t.source, id: turn, header: out, ctx: ctx, span: span, calls: map[string]*callTrace{}}, out
}

// A turnTrace is the open spans of a turn.
type turnTrace struct {
	*source
	id     string
	header wire.Header // for those who get no span of their own
	ctx    context.Context
	span   trace.Span
	ended  bool
	start  started
	calls  map[string]*callTrace // that have no result yet, or an attempt that is out
	args   map[string][]byte     // by call, until it begins; only where content is wanted
}

// What a turn says at its start.
type started struct {
	executor, session string
	calls             int
}

// A callTrace is the open spans of a call.
type callTrace struct {
	id, name string
	ctx      context.Context
	span     trace.Span
	ended    bool

	attempt trace.Span // that is out; nil where none is
	n       int
	tool    string // that it went to
	worker  string
	header  wire.Header
	news    int // events of progress on attempt
	unshown int
}

// maxNews is how many events of progress an attempt has.
const maxNews = 20

// Attempt begins the span of an attempt.
func (t *turnTrace) Attempt(call string, attempt int, tool string) (h wire.Header) {
	h = t.header
	defer t.survive()
	c := t.call(call, tool)
	if c.attempt != nil && c.n == attempt {
		event(c.attempt, eventSentAgain)
		return c.header
	}
	t.land(c)
	_, span := t.spans.Start(c.ctx, t.send, producerSpan...)
	c.attempt, c.n, c.tool, c.worker, c.news, c.unshown = span, attempt, tool, "", 0, 0
	c.header = carry(span.SpanContext(), t.header)
	return c.header
}

// call is the spans of a call. The first to speak of it begins them.
func (t *turnTrace) call(id, name string) *callTrace {
	if c := t.calls[id]; c != nil {
		return c
	}
	c := &callTrace{id: id, name: name}
	c.ctx, c.span = t.spans.Start(t.ctx, spanTool+" "+name)
	t.calls[id] = c
	t.show(c.span, genToolArgs, t.args[id])
	delete(t.args, id)
	return c
}

// Event puts onto the spans what happened.
func (t *turnTrace) Event(ev *wire.Event) {
	defer t.survive()
	switch ev.Type {
	case wire.TurnStarted:
		t.start = started{ev.Executor, ev.Request.Session, len(ev.Request.Calls)}
		t.learn(ev.Request.Calls)
	case wire.CallsAdded:
		event(t.span, eventAdded, ourCalls.Int(len(ev.Request.Calls)))
		t.learn(ev.Request.Calls)
	case wire.CancelRequested:
		if ev.Because != "" {
			event(t.span, eventCancel, bounded(ourBecause, ev.Because))
			return
		}
		event(t.spanOf(ev.Call), eventCancel)
	case wire.TurnDeadline:
		event(t.span, eventDeadline)
	case wire.TurnEnded:
		t.end(ev.Outcome)
	case wire.BreakerChanged:
		event(t.spanOf(ev.Call), eventBreaker, ourTool.String(ev.Tool), ourBreaker.String(ev.BreakerState), bounded(ourBecause, ev.Because))
	case wire.CallReady:
		t.call(ev.Call, ev.Tool)
	case wire.CallSkipped:
		event(t.call(ev.Call, ev.Tool).span, eventSkipped, bounded(ourBecause, ev.BecauseOf+" gave no value"))
	case wire.AttemptStarted:
		if c := t.calls[ev.Call]; c != nil && c.attempt != nil && ev.Worker != "" {
			c.worker = ev.Worker
		}
	case wire.ProgressEvent:
		t.progress(ev)
	case wire.ToolError:
		t.toolError(ev)
	case wire.RetryScheduled:
		event(t.call(ev.Call, ev.Tool).span, eventRetry, ourAttempt.Int(ev.Attempt), ourDelay.Float64(ev.DelayMs), bounded(ourBecause, ev.Because))
	case wire.AlternativeChosen:
		event(t.call(ev.Call, ev.Tool).span, eventAlternative, ourAttempt.Int(ev.Attempt), ourTool.String(ev.Tool), bounded(ourBecause, ev.Because))
	case wire.CallSettled:
		t.settled(ev)
	case wire.LateResult:
		t.late(ev)
	}
}

// learn keeps arguments until their calls begin, where they are wanted.
func (t *turnTrace) learn(calls []tool.Call) {
	if !t.content {
		return
	}
	if t.args == nil {
		t.args = map[string][]byte{}
	}
	for i := range calls {
		t.args[calls[i].ID] = calls[i].Args
	}
}

// spanOf is the span of a call, or the turn's where it has none.
func (t *turnTrace) spanOf(call string) trace.Span {
	if c := t.calls[call]; c != nil {
		return c.span
	}
	return t.span
}

func (t *turnTrace) progress(ev *wire.Event) {
	c := t.calls[ev.Call]
	if c == nil || c.attempt == nil || ev.Progress == nil {
		return
	}
	if c.news == maxNews {
		c.unshown++
		return
	}
	c.news++
	attrs := []attribute.KeyValue{ourDone.Float64(ev.Progress.Done)}
	if ev.Progress.Total > 0 {
		attrs = append(attrs, ourTotal.Float64(ev.Progress.Total))
	}
	if t.content && ev.Progress.Message != "" {
		attrs = append(attrs, bounded(ourMessage, ev.Progress.Message))
	}
	event(c.attempt, eventProgress, attrs...)
}

// toolError is the end of an attempt, and what was decided. One that was not sent has no span: the decision is all there is.
func (t *turnTrace) toolError(ev *wire.Event) {
	c := t.call(ev.Call, ev.Tool)
	attrs := []attribute.KeyValue{
		ourAttempt.Int(ev.Attempt), ourTool.String(ev.Tool), word(semconv.ErrorTypeKey, ev.Error.Kind), ourClass.String(ev.Classification),
		ourBreaker.String(ev.BreakerState), ourDecision.String(ev.Decision), bounded(ourBecause, ev.Because),
	}
	event(c.span, eventDecision, attrs...)
	if c.attempt == nil || c.n != ev.Attempt {
		return
	}
	if ev.Worker != "" {
		c.worker = ev.Worker
	}
	c.attempt.SetAttributes(ourClass.String(ev.Classification), ourBreaker.String(ev.BreakerState))
	t.failed(c.attempt, ev.Error, "")
	t.land(c)
}

// land ends the attempt that is out, if one is.
func (t *turnTrace) land(c *callTrace) {
	if c.attempt == nil {
		return
	}
	says := newList()
	t.message(says, spanSend, semconv.MessagingOperationTypeSend, t.id, c.id, c.tool, c.n)
	if c.worker != "" {
		says.add(ourWorker.String(c.worker))
	}
	if c.unshown > 0 {
		says.add(ourUnshown.Int(c.unshown))
	}
	says.put(c.attempt)
	c.attempt.End()
	c.attempt = nil
}

// close ends the span of a call. What it says of the result is on it already, but for says.
func (t *turnTrace) close(c *callTrace, says *list) {
	says.all = append(says.all, genOperation.String(spanTool), genToolName.String(c.name), genToolCallID.String(c.id),
		genToolType.String("function"), ourTurn.String(t.id))
	says.put(c.span)
	c.span.End()
	c.ended = true
}

// settled ends the span of a call. An attempt that goes on keeps its own.
func (t *turnTrace) settled(ev *wire.Event) {
	c, r := t.call(ev.Call, ev.Tool), ev.Result
	if r.Status == tool.Success || r.Status == tool.ViaFallback {
		t.land(c)
	}
	says := newList()
	says.add(ourAttempts.Int(ev.Attempt))
	t.result(c.span, says, r)
	t.close(c, says)
	if c.attempt == nil {
		delete(t.calls, ev.Call)
	}
}

// result has a span say how a call ended.
func (t *turnTrace) result(span trace.Span, says *list, r *tool.Result) {
	says.add(word(ourStatus, r.Status))
	if r.FallbackTool != "" {
		says.add(ourFallback.String(r.FallbackTool))
	}
	t.show(span, genToolResult, r.Value)
	switch {
	case r.Status.HasValue():
	case r.Fault != nil && r.Status != tool.Cancelled:
		because := ""
		if n := len(r.Attempts); n > 0 {
			because = r.Attempts[n-1].Because
		}
		t.failed(span, r.Fault, because)
	case r.Status != tool.Cancelled:
		says.add(word(semconv.ErrorTypeKey, r.Status))
		span.SetStatus(codes.Error, "")
	}
}

// late ends an attempt that went on after its turn, and says so where somebody who looks at the turn sees it.
func (t *turnTrace) late(ev *wire.Event) {
	links := []trace.Link{{SpanContext: t.span.SpanContext()}}
	if c := t.calls[ev.Call]; c != nil && c.attempt != nil {
		links = append(links, trace.Link{SpanContext: c.attempt.SpanContext()})
		if f := ev.Result.Fault; f != nil {
			t.failed(c.attempt, f, "")
		}
		t.land(c)
		delete(t.calls, ev.Call)
	}
	_, span := t.spans.Start(t.ctx, spanLate+" "+ev.Tool, trace.WithLinks(links...))
	says := newList()
	says.all = append(says.all, genToolName.String(ev.Tool), genToolCallID.String(ev.Call), ourTurn.String(t.id), ourAttempt.Int(ev.Attempt))
	t.result(span, says, ev.Result)
	says.put(span)
	span.End()
}

// end ends the span of the turn. A turn that somebody has to look at, or that gave nothing in its time, is an error.
func (t *turnTrace) end(out *wire.Outcome) {
	says := newList()
	if out.Status == wire.Escalated || out.Status == wire.TimedOutTurn {
		says.add(semconv.ErrorTypeKey.String(out.Status))
		t.span.SetStatus(codes.Error, "")
	}
	t.finish(says, out.Status)
}

// finish ends the span of the turn.
func (t *turnTrace) finish(says *list, status string) {
	says.add(ourTurn.String(t.id))
	says.add(ourStatus.String(status))
	if t.start.executor != "" {
		says.add(ourExecutor.String(t.start.executor))
		says.add(ourCalls.Int(t.start.calls))
	}
	if s := t.start.session; s != "" {
		says.add(bounded(genConversation, s))
	}
	says.put(t.span)
	t.span.End()
	t.ended = true
}

// Over ends what is still open: attempts that are not heard of any more, and a turn that was refused.
func (t *turnTrace) Over() {
	defer t.survive()
	for id, c := range t.calls {
		t.land(c)
		if !c.ended {
			t.close(c, newList())
		}
		delete(t.calls, id)
	}
	if !t.ended {
		t.span.SetStatus(codes.Error, "the turn was refused")
		t.finish(newList(), "refused")
	}
}
