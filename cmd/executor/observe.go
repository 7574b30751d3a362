package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/cmd/internal/telemetry"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/admin"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/kvstate"
	toolotel "github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/registry"
)

// A lookout is what people see of an executor while it serves.
type lookout struct {
	*telemetry.Telemetry
	p      *program
	server *bus.Server // of this process; nil where there is none
	parts  atomic.Pointer[parts]
}

// parts are what there is to look at, once turns are taken.
type parts struct {
	ctx  context.Context // its end is the beginning of the drain
	conn *bus.Conn
	reg  *registry.Registry
}

// lookOut sets log, metrics and the listener for operators up, and makes that log the program's. The level is that of the
// settings, else usual.
func (p *program) lookOut(ctx context.Context, usual string) (l *lookout, err error) {
	l = &lookout{p: p}
	level := p.cfg.LogLevel
	if level == "" {
		level = usual
	}
	l.Telemetry, err = telemetry.Start(ctx, telemetry.Config{
		Service: "toolbus-executor", Version: version, MetricsAddr: p.cfg.MetricsAddr, PprofAddr: p.cfg.PprofAddr,
		LogLevel: level, LogFormat: p.cfg.LogFormat, Stderr: p.err, Known: l.known, Ready: l.ready,
	})
	if err != nil {
		return nil, err
	}
	p.log, p.look = l.Log, l
	return l, nil
}

// bindListeners adds the flags of where operators are answered. What they say goes over the settings when it is called.
func (p *program) bindListeners(f *pflag.FlagSet) (over func()) {
	metrics := f.String("metrics-addr", "", "`host:port` of /metrics, /healthz and /readyz, such as 127.0.0.1:9464 (default: none)")
	pprof := f.String("pprof-addr", "", "`host:port` of profiles (default: none)")
	return func() {
		if f.Changed("metrics-addr") {
			p.cfg.MetricsAddr = *metrics
		}
		if f.Changed("pprof-addr") {
			p.cfg.PprofAddr = *pprof
		}
	}
}

// observer is what the executor tells of its turns.
func (l *lookout) observer() executor.Observer {
	if l.Metrics == nil {
		return l.Turns.Around()
	}
	return l.Turns.Around(l.Metrics)
}

// flushed is what the store of breakers tells; nil, where nobody wants figures.
func (l *lookout) flushed() func(time.Duration, error) {
	if l == nil || l.Metrics == nil {
		return nil
	}
	return func(took time.Duration, err error) {
		if errors.Is(err, kvstate.ErrConflict) {
			err = toolotel.ErrConflict
		}
		l.Metrics.BreakerFlushed(took, err)
	}
}

// appended is what the journal tells; nil, where nobody wants figures.
func (l *lookout) appended() func(journal.What, time.Duration, error) {
	if l == nil || l.Metrics == nil {
		return nil
	}
	return func(what journal.What, took time.Duration, err error) {
		l.Metrics.JournalAppended(string(what), took, err)
	}
}

// up shows what is there now that turns are taken.
func (l *lookout) up(ctx context.Context, c *bus.Conn, reg *registry.Registry, ex *executor.Executor, kept *keeper) {
	l.parts.Store(&parts{ctx, c, reg})
	l.Watch(toolotel.Figures{
		Calls: ex.InFlight, Turns: ex.Turns, Breakers: ex.Breakers, Dropped: kept.Dropped, Conn: c, Server: l.server,
		Workers: func(each func(string, int)) {
			for _, t := range reg.Tools() {
				each(t.Name, len(t.Workers))
			}
		},
		Fleet: func() (running, capacity int) {
			for _, w := range reg.Workers() {
				running, capacity = running+w.Running, capacity+w.Capacity
			}
			return running, capacity
		},
	})
}

// known says whether a tool is one that somebody serves, or did.
func (l *lookout) known(tool string) bool {
	now := l.parts.Load()
	return now == nil || now.reg.Tool(tool) != nil
}

// ready says whether turns should come here.
func (l *lookout) ready(ctx context.Context) admin.Report {
	now := l.parts.Load()
	switch {
	case now == nil:
		return admin.Report{{Name: "turns", State: admin.Down, Why: "starting"}}
	case now.ctx.Err() != nil:
		return admin.Report{{Name: "turns", State: admin.Down, Why: "draining: those under way end, no new ones are taken"}}
	}
	return append(admin.Report{{Name: "turns"}}, telemetry.Reachable(ctx, now.conn, l.p.bucket("BLOBS"))...)
}
