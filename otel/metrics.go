package otel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// A MetricsConfig says what to measure with. The zero value measures where OTEL_METRICS_EXPORTER asks for it.
type MetricsConfig struct {
	Config

	// Pull makes Handler serve what is measured.
	Pull bool

	// Known says whether there is a tool of that name. Names that somebody made up get no series of their own. Nil knows all.
	Known func(tool string) bool

	// Turns gives exemplars their traces. Nil gives none.
	Turns *Turns
}

// Metrics measures what an executor or a worker does: it is an executor.Observer, and Worker gives a worker.Observer. What
// it costs a call is some additions; nothing waits for an exporter or for who scrapes.
//
// The number of series is bounded whatever callers do: the first 200 tools that are called have their own, all others are
// the tool "other", and there are none by turn, call or session.
type Metrics struct {
	handler http.Handler
	meter   metric.Meter
	tools   tools
	turns   *Turns
	turn    *labels // of what is no tool's

	calls, attempts, errors, retries, retried, saved, timeouts, fallbacks, transitions, ended, late, exhausted metric.Int64Counter
	callTime, attemptTime, turnTime, queueTime, toolTime, flushTime, appendTime                                metric.Float64Histogram
	ran                                                                                                        metric.Int64Counter
	runTime                                                                                                    metric.Float64Histogram
}

// scope is the name under which all our spans and instruments stand.
const scope = "github.com/toolbus/toolbus"

// SetupMetrics makes what measures. Where nobody wants figures it gives nil, and a shutdown that does nothing. The error
// names the variable that cannot be followed. Call shutdown once, at the end: it pushes what is left, for at most five
// seconds.
func SetupMetrics(ctx context.Context, cfg MetricsConfig) (m *Metrics, shutdown func(context.Context) error, err error) {
	if disabled() && !cfg.Pull {
		return nil, nothing, nil
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	var push []sdkmetric.Exporter
	if !disabled() { // who asks for /metrics gets them all the same
		if push, err = figures(cfg.Pull).exporters(ctx); err != nil {
			return nil, nil, err
		}
	}
	if len(push) == 0 && !cfg.Pull {
		return nil, nothing, nil
	}
	opts := []sdkmetric.Option{
		sdkmetric.WithResource(identity(ctx, cfg.Config)),
		sdkmetric.WithCardinalityLimit(0), // Metrics has its own bound, which keeps the sums of each tool right
	}
	for _, e := range push {
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e)))
	}
	m = &Metrics{turns: cfg.Turns, tools: tools{known: cfg.Known, rest: labels{tool: otherTool}}, turn: &labels{}}
	if cfg.Pull {
		pull, err := m.pull()
		if err != nil {
			return nil, nil, err
		}
		opts = append(opts, sdkmetric.WithReader(pull))
	}
	if len(push) > 0 {
		otelapi.SetErrorHandler(&quiet{log: cfg.Logger})
	}
	provider := sdkmetric.NewMeterProvider(opts...)
	m.meter = provider.Meter(scope)
	shutdown = flushed("metrics", provider.Shutdown)
	if err := m.instruments(cfg.Version); err != nil {
		return nil, nil, errors.Join(err, shutdown(ctx))
	}
	return m, shutdown, nil
}

// pull makes the reader behind Handler.
func (m *Metrics) pull() (sdkmetric.Reader, error) {
	all := prometheus.NewRegistry()
	all.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r, err := otelprom.New(otelprom.WithRegisterer(all), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, fmt.Errorf("set up /metrics: %w", err)
	}
	m.handler = promhttp.HandlerFor(all, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError,
	})
	return r, nil
}

// Handler serves the figures, as Prometheus text and as OpenMetrics with exemplars. It is nil without Pull.
func (m *Metrics) Handler() http.Handler { return m.handler }

// figures says what metrics are exported with.
func figures(pull bool) *signal[sdkmetric.Exporter] {
	return &signal[sdkmetric.Exporter]{
		name:    "METRICS",
		grpc:    func(ctx context.Context) (sdkmetric.Exporter, error) { return otlpmetricgrpc.New(ctx) },
		http:    func(ctx context.Context) (sdkmetric.Exporter, error) { return otlpmetrichttp.New(ctx) },
		console: func(context.Context) (sdkmetric.Exporter, error) { return stdoutmetric.New() },
		pulled: func() error {
			if !pull {
				return errors.New("OTEL_METRICS_EXPORTER=prometheus: say where to serve them, with --metrics-addr 127.0.0.1:9464")
			}
			return nil
		},
	}
}

// seconds are the histograms' buckets: from a call on one machine to a tool that takes its whole turn.
var seconds = metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

// instruments makes all that is counted and timed. What is looked up when somebody asks is in Watch.
func (m *Metrics) instruments(version string) error {
	var errs []error
	count := func(to *metric.Int64Counter, name, unit, about string) {
		c, err := m.meter.Int64Counter(name, metric.WithDescription(about), metric.WithUnit(unit))
		*to, errs = c, append(errs, err)
	}
	clock := func(to *metric.Float64Histogram, name, about string) {
		h, err := m.meter.Float64Histogram(name, metric.WithDescription(about), metric.WithUnit("s"), seconds)
		*to, errs = h, append(errs, err)
	}
	count(&m.calls, "toolbus.calls", "{call}", "Calls that got their result, by status.")
	count(&m.attempts, "toolbus.attempts", "{attempt}", "Attempts at calls; those that an open breaker refused, too.")
	count(&m.errors, "toolbus.errors", "{error}", "Attempts that failed, by kind of fault and its class: transient, permanent or neutral.")
	count(&m.retries, "toolbus.retries", "{retry}", "Retries that were decided on.")
	count(&m.retried, "toolbus.calls.retried", "{call}", "Calls that got their result and were retried before.")
	count(&m.saved, "toolbus.retries.succeeded", "{call}", "Calls that succeeded after a retry.")
	count(&m.timeouts, "toolbus.timeouts", "{timeout}", "Attempts that took longer than their timeout.")
	count(&m.fallbacks, "toolbus.fallbacks", "{call}", "Calls that were sent to an alternative tool or got a default, by status.")
	count(&m.transitions, "toolbus.breaker.transitions", "{transition}", "Circuit breakers that went to another state; opens are to=open.")
	count(&m.ended, "toolbus.turns", "{turn}", "Turns that ended, by status.")
	count(&m.late, "toolbus.late_results", "{result}", "Results that came after their turn had ended, by status.")
	count(&m.exhausted, "toolbus.retry_budget.exhausted", "{error}", "Failures that were not retried because the tool's retry budget was used up.")
	clock(&m.callTime, "toolbus.call.duration", "From when a call could begin until it had its result, waits included.")
	clock(&m.attemptTime, "toolbus.attempt.duration", "How long attempts took that were sent.")
	clock(&m.turnTime, "toolbus.turn.duration", "How long turns took.")
	clock(&m.queueTime, "toolbus.queue.duration", "From when a call could begin until its first attempt.")
	clock(&m.toolTime, "gen_ai.execute_tool.duration", "How long tool calls took, as OpenTelemetry's conventions for GenAI name it.")
	clock(&m.flushTime, "toolbus.breaker.flush.duration", "How long the store took for each try to write a shared circuit breaker.")
	clock(&m.appendTime, "toolbus.journal.append.duration", "From the first event of a page until all were sent; and how long it took to keep a late result.")
	count(&m.ran, "toolbus.worker.calls", "{call}", "Calls that this worker answered, by status.")
	clock(&m.runTime, "toolbus.worker.call.duration", "How long handlers of this worker took.")

	info := metric.WithAttributes(attribute.String("version", version), attribute.String("go_version", runtime.Version()))
	_, err := m.meter.Int64ObservableGauge("toolbus.build_info", metric.WithDescription("One, with what this program was built from."),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error { o.Observe(1, info); return nil }))
	return errors.Join(append(errs, err)...)
}
