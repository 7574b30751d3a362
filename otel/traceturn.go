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
	span.SetAttributes(ourTurn.String(turn))
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
	calls  map[string]*callTrace // that have no result yet, or an attempt that is out
	args   map[string][]byte     // by call, until it begins; only where content is wanted
}

// A callTrace is the open spans of a call.
type callTrace struct {
	ctx  context.Context
	span trace.Span

	attempt trace.Span // that is out; nil where none is
	n       int
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
	c.land()
	_, span := t.spans.Start(c.ctx, t.send, trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(t.message(spanSend, semconv.MessagingOperationTypeSend, t.id, call, tool, attempt)...))
	c.attempt, c.n, c.news, c.unshown = span, attempt, 0, 0
	c.header = carry(span.SpanContext(), t.header)
	return c.header
}

// call is the spans of a call. The first to speak of it begins them.
func (t *turnTrace) call(id, name string) *callTrace {
	if c := t.calls[id]; c != nil {
		return c
	}
	c := new(callTrace)
	c.ctx, c.span = t.spans.Start(t.ctx, spanTool+" "+name, trace.WithAttributes(
		genOperation.String(spanTool), genToolName.String(name), genToolCallID.String(id), genToolType.String("function"),
		ourTurn.String(t.id),
	))
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
		t.span.SetAttributes(ourExecutor.String(ev.Executor), ourCalls.Int(len(ev.Request.Calls)))
		if s := ev.Request.Session; s != "" {
			t.span.SetAttributes(bounded(genConversation, s))
		}
		t.learn(ev.Request.Calls)
	case wire.CallsAdded:
		event(t.span, eventAdded, ourCalls.Int(len(ev.Request.Calls)))
		t.learn(ev.Request.Calls)
	case wire.CancelRequested:
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
			c.attempt.SetAttributes(ourWorker.String(ev.Worker))
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
		c.attempt.SetAttributes(ourWorker.String(ev.Worker))
	}
	c.attempt.SetAttributes(ourClass.String(ev.Classification), ourBreaker.String(ev.BreakerState))
	t.failed(c.attempt, ev.Error, "")
	c.land()
}

// land ends the attempt that is out, if one is.
func (c *callTrace) land() {
	if c.attempt == nil {
		return
	}
	if c.unshown > 0 {
		c.attempt.SetAttributes(ourUnshown.Int(c.unshown))
	}
	c.attempt.End()
	c.attempt = nil
}

// settled ends the span of a call. An attempt that goes on keeps its own.
func (t *turnTrace) settled(ev *wire.Event) {
	c, r := t.call(ev.Call, ev.Tool), ev.Result
	if r.Status == tool.Success || r.Status == tool.ViaFallback {
		c.land()
	}
	c.span.SetAttributes(ourAttempts.Int(ev.Attempt))
	t.result(c.span, r)
	c.span.End()
	if c.attempt == nil {
		delete(t.calls, ev.Call)
	}
}

// result puts onto a span how a call ended.
func (t *turnTrace) result(span trace.Span, r *tool.Result) {
	span.SetAttributes(word(ourStatus, r.Status))
	if r.FallbackTool != "" {
		span.SetAttributes(ourFallback.String(r.FallbackTool))
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
		span.SetAttributes(word(semconv.ErrorTypeKey, r.Status))
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
		c.land()
		delete(t.calls, ev.Call)
	}
	_, span := t.spans.Start(t.ctx, spanLate+" "+ev.Tool, trace.WithLinks(links...), trace.WithAttributes(
		genToolName.String(ev.Tool), genToolCallID.String(ev.Call), ourTurn.String(t.id), ourAttempt.Int(ev.Attempt),
	))
	t.result(span, ev.Result)
	span.End()
}

// end ends the span of the turn. A turn that somebody has to look at, or that gave nothing in its time, is an error.
func (t *turnTrace) end(out *wire.Outcome) {
	t.span.SetAttributes(ourStatus.String(out.Status))
	if out.Status == wire.Escalated || out.Status == wire.TimedOutTurn {
		t.span.SetAttributes(semconv.ErrorTypeKey.String(out.Status))
		t.span.SetStatus(codes.Error, "")
	}
	t.span.End()
	t.ended = true
}

// Over ends what is still open: attempts that are not heard of any more, and a turn that was refused.
func (t *turnTrace) Over() {
	defer t.survive()
	for id, c := range t.calls {
		c.land()
		c.span.End() // for the second time, most often: that does nothing
		delete(t.calls, id)
	}
	if !t.ended {
		t.span.SetAttributes(ourStatus.String("refused"))
		t.span.SetStatus(codes.Error, "the turn was refused")
		t.span.End()
	}
}
