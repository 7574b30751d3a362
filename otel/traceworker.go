package otel

import (
	"context"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/worker"
)

// NewWorkerTracer makes the tracer of the worker of that id: a span around each run of a handler, a child of the attempt
// that the caller's headers name, and the parent of what the handler does with its context. It is nil where Setup found
// nothing to export to.
func NewWorkerTracer(cfg TraceConfig, id string) worker.Observer {
	if s := newSource(cfg); s != nil {
		return &workerTracer{s, id}
	}
	return nil
}

type workerTracer struct {
	*source
	id string
}

// CallStarted begins the span.
func (t *workerTracer) CallStarted(ctx context.Context, c *worker.Call) (in context.Context) {
	in = ctx
	defer t.survive()
	with, span := t.spans.Start(extract(ctx, c.Header), t.process, consumerSpan...)
	if span.IsRecording() {
		says := newList()
		t.message(says, spanProcess, semconv.MessagingOperationTypeProcess, c.Ref.Turn, c.Ref.Call, c.Tool, c.Ref.Attempt)
		says.add(ourWorker.String(t.id))
		says.put(span)
	}
	return with
}

// CallEnded ends it.
func (t *workerTracer) CallEnded(ctx context.Context, _ *worker.Call, _ time.Duration, f *fault.Fault) {
	defer t.survive()
	span := trace.SpanFromContext(ctx)
	if f != nil {
		t.failed(span, f, "")
	}
	span.End()
}
