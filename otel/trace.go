package otel

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// A TraceConfig says how turns and calls are traced. Zero values work.
type TraceConfig struct {
	// Provider makes the spans. Nil means the process's own, as Setup made it.
	Provider trace.TracerProvider

	// Prefix is the first token of the bus's subjects. Empty means tb.
	Prefix string

	// Content puts arguments and results onto spans, 8 KiB of each at most, and what tools say of their progress and
	// failures. So does OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT.
	Content bool

	Logger *slog.Logger // nil discards
}

// A source is what both sides make their spans with.
type source struct {
	spans    trace.Tracer
	template string // of the subjects that calls go to, for people and backends
	send     string // name of the span of an attempt
	process  string // and of its handling
	content  bool
	log      *slog.Logger

	mu   sync.Mutex
	said time.Time // when a panic was last told of
}

// newSource is nil where spans go nowhere: then there is nothing to make.
func newSource(cfg TraceConfig) *source {
	if cfg.Provider == nil {
		own, exported := otelapi.GetTracerProvider().(*sdktrace.TracerProvider)
		if !exported {
			return nil
		}
		cfg.Provider = own
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	subjects, err := wire.NewSubjects(cfg.Prefix)
	if err != nil {
		subjects, _ = wire.NewSubjects("") // whoever connects with that prefix will hear of it
	}
	template := subjects.Call("{tool}")
	return &source{
		spans:    cfg.Provider.Tracer(scope, trace.WithSchemaURL(schemaURL)),
		template: template, send: spanSend + " " + template, process: spanProcess + " " + template,
		content: cfg.Content || wantsContent(), log: cfg.Logger,
	}
}

func wantsContent() bool {
	switch strings.ToLower(variable("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")) {
	case "true", "span_only", "span_and_event":
		return true
	}
	return false
}

// survive keeps a panic of a sampler, a processor or the SDK from the call, and tells of one in ten seconds.
func (s *source) survive() {
	p := recover()
	if p == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.said) >= 10*time.Second {
		s.said = now
		s.log.Error("tracing panicked; calls are not affected", "panic", p)
	}
}

// extract is a context with the span that headers name, if they do.
func extract(ctx context.Context, h wire.Header) context.Context {
	if wire.Get(h, wire.HeaderTraceparent) == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, HeaderCarrier(h))
}

// carry is h with a span in the place of the one that stood there. It does what propagation.TraceContext would, with less
// garbage: every turn, sampled or not, comes through here.
func carry(span trace.SpanContext, h wire.Header) wire.Header {
	out := make(wire.Header, len(h)+1)
	for k, v := range h {
		if !strings.EqualFold(k, wire.HeaderTraceparent) && !strings.EqualFold(k, wire.HeaderTracestate) {
			out[k] = v
		}
	}
	var b [55]byte // 00-<trace>-<span>-<flags>
	id, parent := span.TraceID(), span.SpanID()
	copy(b[:], "00-")
	hex.Encode(b[3:35], id[:])
	b[35] = '-'
	hex.Encode(b[36:52], parent[:])
	b[52] = '-'
	hex.Encode(b[53:], []byte{byte(span.TraceFlags() & trace.FlagsSampled)})
	out[wire.HeaderTraceparent] = []string{string(b[:])}
	if state := span.TraceState(); state.Len() > 0 {
		out[wire.HeaderTracestate] = []string{state.String()}
	}
	return out
}

// A list is what a span will say. It goes onto the span all at once, when all is known: a span that gets its attributes one
// by one makes room for them again and again. The span copies them, so lists are used again.
type list struct{ all []attribute.KeyValue }

var lists = sync.Pool{New: func() any { return &list{make([]attribute.KeyValue, 0, 16)} }}

func newList() *list { return lists.Get().(*list) }

func (l *list) add(a attribute.KeyValue) { l.all = append(l.all, a) }

// put puts the list onto a span, and is its end.
func (l *list) put(span trace.Span) {
	span.SetAttributes(l.all...)
	clear(l.all)
	l.all = l.all[:0]
	lists.Put(l)
}

// message adds what every span of a message on the bus says of it.
func (s *source) message(l *list, operation string, kind attribute.KeyValue, turn, call, tool string, attempt int) {
	l.all = append(l.all,
		semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName(operation), kind,
		semconv.MessagingDestinationTemplate(s.template), semconv.MessagingMessageConversationID(turn),
		genToolName.String(tool), ourTurn.String(turn), ourCall.String(call), ourAttempt.Int(attempt),
	)
}

// failed puts a fault onto a span. One that was cancelled did not fail: its status stays unset. What the fault says may
// quote arguments, so it stays away unless content is wanted; because, which is ours, stands in for it where there is one.
func (s *source) failed(span trace.Span, f *fault.Fault, because string) {
	if f.Execution != "" {
		span.SetAttributes(word(ourExecution, f.Execution))
	}
	if f.Kind == fault.Cancelled {
		return
	}
	span.SetAttributes(word(semconv.ErrorTypeKey, f.Kind))
	if s.content {
		because = f.Message
	}
	span.SetStatus(codes.Error, text(because, maxText))
}

const (
	maxText    = 1 << 10
	maxContent = 8 << 10
)

// text is s as an attribute may be: bounded, and valid UTF-8, without which a collector may refuse the whole batch.
func text(s string, most int) string {
	return fault.Truncate(strings.ToValidUTF8(s[:min(len(s), most+1)], "\uFFFD"), most)
}

// bounded is an attribute whose value comes from outside.
func bounded(k attribute.Key, s string) attribute.KeyValue { return k.String(text(s, maxText)) }

// show puts arguments or a result onto a span, where content is wanted.
func (s *source) show(span trace.Span, k attribute.Key, content []byte) {
	if !s.content || content == nil {
		return
	}
	if len(content) > maxContent {
		span.SetAttributes(ourCut.Bool(true))
	}
	span.SetAttributes(k.String(text(string(content[:min(len(content), maxContent+1)]), maxContent)))
}

func event(span trace.Span, name string, attrs ...attribute.KeyValue) {
	span.AddEvent(name, trace.WithAttributes(attrs...))
}

// word is a named string of ours as an attribute.
func word[T ~string](k attribute.Key, s T) attribute.KeyValue { return k.String(string(s)) }
