package otel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// An exporter encodes spans and gives them to OpenTelemetry's client, which knows endpoints, headers, TLS and retries. What
// the SDK would do between the two is to build a tree of messages, some thirty objects for each span, only to encode it:
// half of what a span costs. A test holds the two encodings against each other.
type exporter struct {
	client otlptrace.Client
	buf    []byte // used again; one batch is exported at a time
}

// keptBuffer bounds the buffer that is kept for the next batch.
const keptBuffer = 4 << 20

func newExporter(ctx context.Context, client otlptrace.Client) (trace.SpanExporter, error) {
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return &exporter{client: client}, nil
}

// ExportSpans sends a batch.
func (e *exporter) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	e.buf = appendBatch(e.buf[:0], spans)
	batch := &tracepb.ResourceSpans{}
	batch.ProtoReflect().SetUnknown(e.buf) // which are written as they stand: so what is encoded here is not built again
	err := e.client.UploadTraces(ctx, []*tracepb.ResourceSpans{batch})
	if cap(e.buf) > keptBuffer {
		e.buf = nil
	}
	if err != nil {
		return fmt.Errorf("export %d spans: %w", len(spans), err)
	}
	return nil
}

// Shutdown ends the client.
func (e *exporter) Shutdown(ctx context.Context) error { return e.client.Stop(ctx) }

// appendBatch appends the fields of an OTLP ResourceSpans: all spans of a provider have its resource, and most of them one
// scope.
func appendBatch(b []byte, spans []trace.ReadOnlySpan) []byte {
	b, at := open(b, 1) // resource
	b = appendAttributes(b, 1, spans[0].Resource().Attributes())
	b = shut(b, at)
	for _, scope := range scopes(spans) {
		b, at = open(b, 2) // scope_spans
		b = appendScope(b, scope)
		for _, s := range spans {
			if s.InstrumentationScope() == scope {
				b = appendSpan(b, s)
			}
		}
		b = appendText(b, 3, scope.SchemaURL)
		b = shut(b, at)
	}
	return appendText(b, 3, spans[0].Resource().SchemaURL())
}

// scopes are those of the spans, each once.
func scopes(spans []trace.ReadOnlySpan) []instrumentation.Scope {
	var all []instrumentation.Scope
next:
	for _, s := range spans {
		own := s.InstrumentationScope()
		for _, is := range all {
			if is == own {
				continue next
			}
		}
		all = append(all, own)
	}
	return all
}
