package main

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/cmd/internal/telemetry"
	"github.com/toolbus/toolbus/internal/admin"
	"github.com/toolbus/toolbus/internal/cli"
	toolotel "github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/worker"
)

// listeners have their own variables in the environment; a flag goes before them.
type listeners struct {
	Metrics string `env:"TOOLBUS_METRICS_ADDR"`
	Pprof   string `env:"TOOLBUS_PPROF_ADDR"`
}

func (l *listeners) bind(set *pflag.FlagSet) {
	set.StringVar(&l.Metrics, "metrics-addr", "", "`host:port` of /metrics, /healthz and /readyz, such as 127.0.0.1:9464 (default: none)")
	set.StringVar(&l.Pprof, "pprof-addr", "", "`host:port` of profiles (default: none)")
}

// A lookout is what people see of a worker while it serves.
type lookout struct {
	*telemetry.Telemetry
	parts atomic.Pointer[parts]
}

// parts are what there is to look at, once calls are taken.
type parts struct {
	conn *bus.Conn
	work *worker.Worker
}

// lookOut sets log, metrics and the listener for operators up.
func (o *options) lookOut(ctx context.Context, stderr io.Writer) (l *lookout, err error) {
	var at listeners
	var env logging
	if err := cli.ReadEnv(&at); err != nil {
		return nil, err
	}
	if err := cli.ReadEnv(&env); err != nil {
		return nil, err
	}
	l = &lookout{}
	l.Telemetry, err = telemetry.Start(ctx, telemetry.Config{
		Service: "toolbus-worker", Version: version,
		MetricsAddr: or(o.at.Metrics, at.Metrics), PprofAddr: or(o.at.Pprof, at.Pprof),
		LogLevel: or(o.log.Level, env.Level), LogFormat: or(o.log.Format, env.Format), Stderr: stderr, Ready: l.ready,
	})
	return l, err
}

// up shows what is there now that calls are taken.
func (l *lookout) up(c *bus.Conn, w *worker.Worker) {
	l.parts.Store(&parts{c, w})
	l.Watch(toolotel.Figures{
		Conn: c, Worker: w.Stats,
		Fleet: func() (running, capacity int) { s := w.Stats(); return s.Running, s.Capacity },
	})
}

// ready says whether calls should come here.
func (l *lookout) ready(ctx context.Context) admin.Report {
	now := l.parts.Load()
	switch {
	case now == nil:
		return admin.Report{{Name: "calls", State: admin.Down, Why: "starting"}}
	case now.work.Stats().Draining:
		return admin.Report{{Name: "calls", State: admin.Down, Why: "draining: those that run may end, no new ones are taken"}}
	}
	return append(admin.Report{{Name: "calls"}}, telemetry.Reachable(ctx, now.conn, "")...)
}
