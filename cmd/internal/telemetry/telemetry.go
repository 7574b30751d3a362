// Package telemetry is what both programs set up to be seen while they serve: log, metrics, traces, and the listener for
// operators.
package telemetry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/admin"
	"github.com/toolbus/toolbus/internal/cli"
	toolotel "github.com/toolbus/toolbus/otel"
)

// A Config is what the settings say.
type Config struct {
	Service, Version       string
	MetricsAddr, PprofAddr string
	LogLevel, LogFormat    string
	Stderr                 io.Writer
	Known                  func(tool string) bool
	Ready                  func(context.Context) admin.Report
}

// A Telemetry is all of it, running.
type Telemetry struct {
	Log     *slog.Logger
	Turns   *toolotel.Turns
	Metrics *toolotel.Metrics // nil where nobody wants figures
	Admin   *admin.Server     // nil where it does not listen

	flushes []func() error
	ends    []func()
}

// Start sets everything up. What cannot be is an error, and then nothing is left running.
func Start(ctx context.Context, cfg Config) (*Telemetry, error) {
	t := &Telemetry{Turns: new(toolotel.Turns)}
	if err := t.start(ctx, cfg); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func (t *Telemetry) start(ctx context.Context, cfg Config) error {
	var level admin.Level
	if err := level.Parse(cfg.LogLevel); err != nil {
		return err
	}
	lines, err := cli.Logger(cfg.Stderr, "debug", cfg.LogFormat) // level decides
	if err != nil {
		return err
	}
	us := toolotel.Config{Service: cfg.Service, Version: cfg.Version}
	var flush func(context.Context) error
	if t.Log, flush, err = toolotel.SetupLogs(ctx, toolotel.LogsConfig{Config: us, Next: lines.Handler(), Level: &level, Turns: t.Turns}); err != nil {
		return err
	}
	t.last(ctx, flush)
	us.Logger = t.Log
	if t.Metrics, flush, err = toolotel.SetupMetrics(ctx, toolotel.MetricsConfig{Config: us, Pull: cfg.MetricsAddr != "", Known: cfg.Known, Turns: t.Turns}); err != nil {
		return err
	}
	t.last(ctx, flush)
	if flush, err = toolotel.Setup(ctx, us); err != nil {
		return err
	}
	t.last(ctx, flush)
	var figures http.Handler
	if t.Metrics != nil {
		figures = t.Metrics.Handler()
	}
	t.Admin, err = admin.Start(ctx, admin.Config{
		Addr: cfg.MetricsAddr, PprofAddr: cfg.PprofAddr, Metrics: figures, Ready: cfg.Ready, Level: &level, Logger: t.Log,
	})
	if err != nil {
		return err
	}
	t.ends = append(t.ends, t.Admin.Close, level.OnSignal(t.Log))
	t.announce()
	return nil
}

func (t *Telemetry) announce() {
	if t.Admin == nil {
		return
	}
	if at := t.Admin.Addr(); at != nil {
		t.Log.Info("metrics and health are served", "metrics", "http://"+at.String()+"/metrics", "ready", "http://"+at.String()+"/readyz")
	}
	if at := t.Admin.PprofAddr(); at != nil {
		t.Log.Info("profiles are served", "pprof", "http://"+at.String()+"/debug/pprof/")
	}
}

// last has flush called at the end. It bounds itself.
func (t *Telemetry) last(ctx context.Context, flush func(context.Context) error) {
	t.flushes = append(t.flushes, func() error { return flush(context.WithoutCancel(ctx)) })
}

// Watch shows figures until Close.
func (t *Telemetry) Watch(f toolotel.Figures) {
	if t == nil || t.Metrics == nil {
		return
	}
	stop, err := t.Metrics.Watch(f)
	if err != nil {
		t.Log.Warn("some figures are not shown", "error", err)
	}
	t.ends = append(t.ends, stop)
}

// Close ends it all, the last first, and then exports what is left, all at once: a collector that takes everything and
// answers nothing holds up the end of the program for five seconds, and not for five of each kind.
func (t *Telemetry) Close() {
	for i := len(t.ends) - 1; i >= 0; i-- {
		t.ends[i]()
	}
	errs := make([]error, len(t.flushes))
	var all sync.WaitGroup
	for i, flush := range t.flushes {
		all.Go(func() { errs[i] = flush() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil { // in one line: of lines that are alike the log holds back the second
		t.Log.Warn("the last telemetry was not exported", "error", err)
	}
	t.ends, t.flushes = nil, nil
}

// jetStreamTime is how long JetStream may take to answer before it counts as away.
const jetStreamTime = 500 * time.Millisecond

// Reachable looks at the connection, and with a stream's name at JetStream: without it work goes on, with less.
func Reachable(ctx context.Context, c *bus.Conn, stream string) admin.Report {
	if !c.Connected() {
		return admin.Report{{Name: "nats", State: admin.Down, Why: "not connected; it is tried again and again"}}
	}
	all := admin.Report{{Name: "nats"}}
	if stream == "" {
		return all
	}
	ctx, cancel := context.WithTimeout(ctx, jetStreamTime)
	defer cancel()
	js := admin.Check{Name: "jetstream"}
	if _, err := c.JetStream().Stream(ctx, stream); err != nil {
		js.State, js.Why = admin.Degraded, "calls go on; large payloads, journals and shared breakers do not: "+err.Error()
	}
	return append(all, js)
}
