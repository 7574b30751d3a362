package otel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A sent is an OTLP client that keeps what would be sent.
type sent struct{ body []byte }

func (*sent) Start(context.Context) error { return nil }
func (*sent) Stop(context.Context) error  { return nil }
func (s *sent) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) (err error) {
	s.body, err = proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: spans})
	return err
}

func (s *sent) read(t *testing.T) *collectorpb.ExportTraceServiceRequest {
	t.Helper()
	var r collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(s.body, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// A maker makes spans of any kind.
type maker struct{ *rand.Rand }

func (m maker) text() string {
	if m.IntN(4) == 0 {
		return ""
	}
	return strings.Repeat("né ", m.IntN(100)) // some are longer than one byte can say
}

func (m maker) value(deep int) attribute.Value {
	switch m.IntN(12) {
	case 0:
		return attribute.BoolValue(m.IntN(2) == 0)
	case 1:
		return attribute.Int64Value(m.Int64() - m.Int64())
	case 2:
		return attribute.Float64Value(m.NormFloat64())
	case 3:
		return attribute.BoolSliceValue([]bool{true, false}[m.IntN(2):])
	case 4:
		return attribute.Int64SliceValue([]int64{-1, 0, 1}[m.IntN(3):])
	case 5:
		return attribute.Float64SliceValue([]float64{0, 1.5}[m.IntN(2):])
	case 6:
		return attribute.StringSliceValue([]string{m.text(), m.text()}[m.IntN(2):])
	case 7:
		return attribute.ByteSliceValue([]byte{0, 255})
	case 8:
		if deep > 0 {
			return attribute.SliceValue(m.value(deep-1), m.value(deep-1))
		}
	case 9:
		if deep > 0 {
			return attribute.MapValue(m.attributes(deep - 1)...)
		}
	case 10:
		return attribute.Value{}
	}
	return attribute.StringValue(m.text())
}

func (m maker) attributes(deep int) (all []attribute.KeyValue) {
	for i := range m.IntN(5) {
		all = append(all, attribute.KeyValue{Key: attribute.Key(fmt.Sprint("key", i)), Value: m.value(deep)})
	}
	return all
}

func (m maker) context() trace.SpanContext {
	cfg := trace.SpanContextConfig{TraceFlags: trace.TraceFlags(m.IntN(2)), Remote: m.IntN(2) == 0}
	for i := range cfg.TraceID {
		cfg.TraceID[i] = byte(m.IntN(256))
	}
	for i := range cfg.SpanID {
		cfg.SpanID[i] = byte(m.IntN(256))
	}
	return trace.NewSpanContext(cfg)
}

func (m maker) span(res *resource.Resource, scope instrumentation.Scope) tracetest.SpanStub {
	own := m.context()
	if m.IntN(2) == 0 {
		own = own.WithTraceState(must(trace.ParseTraceState("vendor=1,other=2")))
	}
	s := tracetest.SpanStub{
		Name: m.text(), SpanContext: own, SpanKind: trace.SpanKind(m.IntN(6)), StartTime: time.Unix(0, m.Int64()), EndTime: time.Unix(0, m.Int64()),
		Attributes: m.attributes(2), DroppedAttributes: m.IntN(2), DroppedEvents: m.IntN(2), DroppedLinks: m.IntN(2),
		Status: sdktrace.Status{Code: codes.Code(m.IntN(3)), Description: m.text()}, Resource: res, InstrumentationScope: scope,
	}
	if m.IntN(2) == 0 {
		s.Parent = m.context()
	}
	for range m.IntN(3) {
		s.Events = append(s.Events, sdktrace.Event{Name: m.text(), Time: time.Unix(0, m.Int64()), Attributes: m.attributes(1), DroppedAttributeCount: m.IntN(2)})
		s.Links = append(s.Links, sdktrace.Link{SpanContext: m.context(), Attributes: m.attributes(1), DroppedAttributeCount: m.IntN(2)})
	}
	return s
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func seed(t *testing.T) maker {
	n := uint64(time.Now().UnixNano())
	if s := os.Getenv("OTEL_SEED"); s != "" {
		n = must(strconv.ParseUint(s, 10, 64))
	}
	t.Logf("OTEL_SEED=%d", n)
	return maker{rand.New(rand.NewPCG(n, 0))}
}

// What we encode is what OpenTelemetry's own exporter encodes, for any span.
func TestSpansAreEncodedAsTheStandardExporterDoes(t *testing.T) {
	m := seed(t)
	scopes := []instrumentation.Scope{
		{}, {Name: scope, SchemaURL: schemaURL}, {Name: "theirs", Version: "1", Attributes: attribute.NewSet(attribute.Bool("a", true))},
	}
	for range 500 {
		res := resource.NewWithAttributes(m.text(), m.attributes(0)...)
		var stubs tracetest.SpanStubs
		for range 1 + m.IntN(4) {
			stubs = append(stubs, m.span(res, scopes[m.IntN(3)]))
		}
		theirs, ours := &sent{}, &sent{}
		if err := must(otlptrace.New(t.Context(), theirs)).ExportSpans(t.Context(), stubs.Snapshots()); err != nil {
			t.Fatal(err)
		}
		if err := must(newExporter(t.Context(), ours)).ExportSpans(t.Context(), stubs.Snapshots()); err != nil {
			t.Fatal(err)
		}
		if got, want := ours.read(t), theirs.read(t); !proto.Equal(got, want) {
			t.Fatalf("we encode\n%v\nand they\n%v", got, want)
		}
	}
}

// One attribute with a wrong byte does not cost the batch.
func TestWrongBytesAreReplaced(t *testing.T) {
	to := &sent{}
	stub := tracetest.SpanStub{Name: "bad \xff", Attributes: []attribute.KeyValue{attribute.String("k", "\xc3")}}
	if err := must(newExporter(t.Context(), to)).ExportSpans(t.Context(), tracetest.SpanStubs{stub}.Snapshots()); err != nil {
		t.Fatal(err)
	}
	s := to.read(t).ResourceSpans[0].ScopeSpans[0].Spans[0]
	if s.Name != "bad \uFFFD" || s.Attributes[0].Value.GetStringValue() != "\uFFFD" {
		t.Errorf("the collector got %q with %v", s.Name, s.Attributes)
	}
}

// A slow exporter says what it got, when it is let.
type slow struct {
	let   chan struct{}
	began chan int // how many spans
	mu    sync.Mutex
	names []string
	ended bool
}

func (s *slow) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	s.began <- len(spans)
	select {
	case <-s.let:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range spans {
		s.names = append(s.names, span.Name())
	}
	return nil
}

func (s *slow) Shutdown(context.Context) error {
	s.ended = true
	return nil
}

// batching is a batcher of batches of 2, with room for 4, and a provider above it.
func batching(t *testing.T) (*slow, *batcher, trace.Tracer) {
	t.Helper()
	for name, value := range map[string]string{
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2", "OTEL_BSP_MAX_QUEUE_SIZE": "4", "OTEL_BSP_SCHEDULE_DELAY": "3600000", "OTEL_BSP_EXPORT_TIMEOUT": "nonsense",
	} {
		t.Setenv(name, value)
	}
	to := &slow{let: make(chan struct{}), began: make(chan int, 10)}
	b := newBatcher(to)
	return to, b, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b), sdktrace.WithSampler(sdktrace.AlwaysSample())).Tracer("test")
}

func TestBatches(t *testing.T) {
	to, b, spans := batching(t)
	n := 0
	end := func(count int) {
		for range count {
			n++
			_, s := spans.Start(t.Context(), strconv.Itoa(n))
			s.End()
		}
	}
	end(2) // a batch, which is under way now
	if got := <-to.began; got != 2 {
		t.Errorf("the first batch has %d spans, want 2", got)
	}
	end(7) // room for four of them
	close(to.let)
	if err := b.Shutdown(t.Context()); err == nil || !strings.Contains(err.Error(), "3 spans were dropped") {
		t.Errorf("shutdown = %v, want that 3 spans were dropped", err)
	}
	end(1)
	if err := b.Shutdown(t.Context()); err != nil {
		t.Errorf("the second shutdown = %v, want nil", err)
	}
	if want := []string{"1", "2", "3", "4", "5", "6"}; !slices.Equal(to.names, want) || !to.ended {
		t.Errorf("exported %v, ended %t; want %v, true", to.names, to.ended, want)
	}
}

// An exporter that hangs ends with the time that a shutdown has.
func TestShutdownOfAHungExporter(t *testing.T) {
	to, b, spans := batching(t)
	for range 3 {
		_, s := spans.Start(t.Context(), "span")
		s.End()
	}
	<-to.began
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Shutdown(ctx); err == nil {
		t.Error("shutdown = nil, want that the rest was not exported")
	}
	if !to.ended || len(to.names) > 0 {
		t.Errorf("ended %t, exported %v; want true and nothing", to.ended, to.names)
	}
}

// Nor does one hold the program up that does not heed its time.
func TestShutdownOfADeafExporter(t *testing.T) {
	let := make(chan struct{})
	defer close(let)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := flushed("spans", func(context.Context) error { <-let; return nil })(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown = %v, want %v", err, context.Canceled)
	}
}

// A tally counts the spans that it gets, by name.
type tally struct {
	mu sync.Mutex
	by map[string]int
}

func (y *tally) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, span := range spans {
		y.by[span.Name()]++
	}
	return nil
}

func (*tally) Shutdown(context.Context) error { return nil }

// However many end spans and flush at once, each span is exported once or counted as dropped.
func TestSpansAreExportedOnceOrDropped(t *testing.T) {
	for name, value := range map[string]string{
		"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "7", "OTEL_BSP_MAX_QUEUE_SIZE": "50", "OTEL_BSP_SCHEDULE_DELAY": "1", "OTEL_BSP_EXPORT_TIMEOUT": "",
	} {
		t.Setenv(name, value)
	}
	to := &tally{by: map[string]int{}}
	b := newBatcher(to)
	spans := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b), sdktrace.WithSampler(sdktrace.AlwaysSample())).Tracer("test")
	const each, of = 2000, 8
	var all sync.WaitGroup
	for who := range of {
		all.Go(func() {
			for i := range each {
				_, s := spans.Start(context.Background(), fmt.Sprint(who, "-", i))
				s.End()
				if i%100 == who {
					if err := b.ForceFlush(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	_ = b.Shutdown(t.Context()) // says what was dropped
	for name, n := range to.by {
		if n != 1 {
			t.Errorf("span %s was exported %d times", name, n)
		}
	}
	if got := len(to.by) + b.drops(); got != each*of {
		t.Errorf("%d spans were exported and %d dropped, want %d in all", len(to.by), b.drops(), each*of)
	}
}

// What somebody means by never is no time that overflows.
func TestHugeNumbers(t *testing.T) {
	for _, name := range []string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"} {
		t.Setenv(name, strconv.Itoa(math.MaxInt))
	}
	to := &tally{by: map[string]int{}}
	b := newBatcher(to)
	_, s := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b), sdktrace.WithSampler(sdktrace.AlwaysSample())).Tracer("test").Start(t.Context(), "span")
	s.End()
	if err := b.Shutdown(t.Context()); err != nil || to.by["span"] != 1 {
		t.Errorf("shutdown = %v, exported %v; want nil and the span", err, to.by)
	}
}
