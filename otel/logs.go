package otel

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutlog"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/trace"
)

// A LogsConfig says where log lines go.
type LogsConfig struct {
	Config

	// Next writes the lines. It should take every level: Level decides.
	Next slog.Handler

	// Level is the least that is logged. It may be set at any time. Nil is info.
	Level slog.Leveler

	// Turns gives lines that name a turn its trace. Nil gives it to those only whose context has a span.
	Turns *Turns
}

// SetupLogs makes the log of a program that serves:
//
//	level ──► trace and span ids ──► repeats held back ──► secrets taken out ──► Next, and OTEL_LOGS_EXPORTER
//
// The error names the variable that cannot be followed. Call shutdown once, at the end: it exports what is left, for at
// most five seconds.
func SetupLogs(ctx context.Context, cfg LogsConfig) (log *slog.Logger, shutdown func(context.Context) error, err error) {
	if cfg.Level == nil {
		cfg.Level = slog.LevelInfo
	}
	h := &handler{level: cfg.Level, turns: cfg.Turns, repeats: newRepeats()}
	to, shutdown := outlets{cfg.Next}, nothing
	if !disabled() {
		exporters, err := lines.exporters(ctx)
		if err != nil {
			return nil, nil, err
		}
		if len(exporters) > 0 {
			opts := []sdklog.LoggerProviderOption{sdklog.WithResource(identity(ctx, cfg.Config))}
			for _, e := range exporters {
				opts = append(opts, sdklog.WithProcessor(sdklog.NewBatchProcessor(e)))
			}
			provider := sdklog.NewLoggerProvider(opts...)
			otelapi.SetErrorHandler(&quiet{log: slog.New(&handler{level: cfg.Level, repeats: h.repeats, next: redacted{to}})})
			to = append(to, otelslog.NewHandler(scope, otelslog.WithLoggerProvider(provider)))
			shutdown = flushed("log lines", provider.Shutdown)
		}
	}
	h.next = redacted{to}
	return slog.New(h), shutdown, nil
}

var lines = signal[sdklog.Exporter]{
	name:    "LOGS",
	grpc:    func(ctx context.Context) (sdklog.Exporter, error) { return otlploggrpc.New(ctx) },
	http:    func(ctx context.Context) (sdklog.Exporter, error) { return otlploghttp.New(ctx) },
	console: func(context.Context) (sdklog.Exporter, error) { return stdoutlog.New() },
}

// A handler is what a line goes through first.
type handler struct {
	level   slog.Leveler
	turns   *Turns
	repeats *repeats
	next    redacted

	turn, tool string // of the logger, where it has them
	grouped    bool   // names do not stand at the top any more
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	turn, tool := h.turn, h.tool
	if !h.grouped {
		r.Attrs(func(a slog.Attr) bool {
			turn, tool = named(a, turn, tool)
			return true
		})
	}
	if r.Level >= slog.LevelWarn {
		held, ok := h.repeats.pass(r.Time, r.Level.String()+" "+tool+" "+r.Message)
		if !ok {
			return nil
		}
		if held > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("more_like_it", held))
		}
	}
	if span := h.span(ctx, turn); span.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
		ctx = trace.ContextWithSpanContext(ctx, span)
	}
	return h.next.Handle(ctx, r)
}

// span is that of the context, or else of the turn.
func (h *handler) span(ctx context.Context, turn string) trace.SpanContext {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() || turn == "" {
		return span
	}
	return trace.SpanContextFromContext(h.turns.context(turn))
}

// named is the turn and the tool, where a is one of them.
func named(a slog.Attr, turn, tool string) (string, string) {
	switch {
	case a.Value.Kind() != slog.KindString:
	case a.Key == "turn":
		turn = a.Value.String()
	case a.Key == "tool":
		tool = a.Value.String()
	}
	return turn, tool
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	g := *h
	if !h.grouped {
		for _, a := range attrs {
			g.turn, g.tool = named(a, g.turn, g.tool)
		}
	}
	g.next = h.next.WithAttrs(attrs)
	return &g
}

func (h *handler) WithGroup(name string) slog.Handler {
	g := *h
	g.next, g.grouped = h.next.WithGroup(name), h.grouped || name != ""
	return &g
}

// outlets are the handlers to which a line goes, all of them.
type outlets []slog.Handler

func (all outlets) Handle(ctx context.Context, r slog.Record) error {
	var first error
	for _, h := range all {
		if !h.Enabled(ctx, r.Level) {
			continue
		}
		if err := h.Handle(ctx, r.Clone()); err != nil && first == nil {
			first = err
		}
	}
	return first
}

func (all outlets) each(f func(slog.Handler) slog.Handler) outlets {
	out := make(outlets, len(all))
	for i, h := range all {
		out[i] = f(h)
	}
	return out
}
