package otel

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

const (
	flushTime = 5 * time.Second        // bounds the shutdown: what is not exported by then is lost
	heedTime  = 100 * time.Millisecond // how long who is told that it is over may take to end
)

// A Config says who we are, where the environment does not.
type Config struct {
	Service string // service.name; OTEL_SERVICE_NAME wins
	Version string // service.version; OTEL_RESOURCE_ATTRIBUTES wins

	// Logger hears what goes wrong with exporting, at most every ten seconds. Nil means slog.Default.
	Logger *slog.Logger
}

// Setup sets the process's tracer provider and W3C propagators up. The error names the variable that cannot be
// followed; then nothing is set up. Call shutdown once before the program ends: it exports what is left, for at most
// five seconds, and its error is for the log. Where nothing is exported it does nothing. Not for concurrent use.
func Setup(ctx context.Context, cfg Config) (shutdown func(context.Context) error, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if disabled() {
		return nothing, nil
	}
	exporters, err := traces.exporters(ctx)
	if err != nil {
		return nil, err
	}
	otelapi.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	if len(exporters) == 0 {
		return nothing, nil
	}
	otelapi.SetErrorHandler(&quiet{log: cfg.Logger})
	opts := []trace.TracerProviderOption{trace.WithResource(identity(ctx, cfg))}
	for _, e := range exporters {
		opts = append(opts, trace.WithSpanProcessor(newBatcher(e)))
	}
	provider := trace.NewTracerProvider(opts...)
	otelapi.SetTracerProvider(provider)
	return flushed("spans", provider.Shutdown), nil
}

func nothing(context.Context) error { return nil }

// flushed is a provider's shutdown with a bound, and with a word on what it could not export. The bound holds for exporters
// too that do not heed it, such as a console that writes into a pipe which nobody reads: those are left behind.
func flushed(what string, shutdown func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, flushTime)
		defer cancel()
		over := make(chan error, 1)
		go func() { over <- shutdown(ctx) }()
		var err error
		select {
		case err = <-over:
		case <-ctx.Done():
			select {
			case err = <-over:
			case <-time.After(heedTime):
				err = ctx.Err()
			}
		}
		if err != nil {
			return fmt.Errorf("export the last %s: %w", what, err)
		}
		return nil
	}
}

func disabled() bool { return strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") }

// variable is a variable without the blanks around it; an empty one is as good as none.
func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

var traces = signal[trace.SpanExporter]{
	name: "TRACES",
	grpc: func(ctx context.Context) (trace.SpanExporter, error) {
		return newExporter(ctx, otlptracegrpc.NewClient())
	},
	http: func(ctx context.Context) (trace.SpanExporter, error) {
		return newExporter(ctx, otlptracehttp.NewClient())
	},
	console: func(context.Context) (trace.SpanExporter, error) { return stdouttrace.New() },
}

// instance tells this process from others of its service: a random UUID, as OpenTelemetry asks. Without one a collector
// takes the figures of two executors for those of one.
var instance = sync.OnceValue(func() string {
	var b [16]byte
	_, _ = rand.Read(b[:])  // it never fails
	b[6] = b[6]&0x0f | 0x40 // version 4
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
})

// identity is who we are: what cfg says, and over it what the environment says.
func identity(ctx context.Context, cfg Config) *resource.Resource {
	ours := []attribute.KeyValue{attribute.String("service.instance.id", instance())}
	if cfg.Service != "" {
		ours = append(ours, attribute.String("service.name", cfg.Service))
	}
	if cfg.Version != "" {
		ours = append(ours, attribute.String("service.version", cfg.Version))
	}
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(ours...), resource.WithFromEnv())
	if err != nil {
		cfg.Logger.Warn("some of what OpenTelemetry says about this process is missing (see OTEL_RESOURCE_ATTRIBUTES)", "error", err)
	}
	return r
}

// quiet logs what the SDK complains of, once in ten seconds: a collector that is away fails every batch.
type quiet struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	held int
}

// Handle is for otelapi.ErrorHandler.
func (q *quiet) Handle(err error) {
	if held, ok := q.pass(time.Now()); ok {
		q.log.Warn("OpenTelemetry export failed; calls are not affected", "error", err, "more_like_it", held)
	}
}

// pass says whether a complaint may be said, and how many were held back since the last. The line itself is written
// without the lock: it may be exported, too, and that may be what fails.
func (q *quiet) pass(now time.Time) (held int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Sub(q.last) < 10*time.Second {
		q.held++
		return 0, false
	}
	held, q.last, q.held = q.held, now, 0
	return held, true
}
