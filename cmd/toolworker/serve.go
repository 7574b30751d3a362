package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/cli"
	toolotel "github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/worker"
)

// drainTime is how long the connection may take to end once the worker has.
const drainTime = 5 * time.Second

// options are the flags of every command that serves.
type options struct {
	nats        cli.NATSFlags
	concurrency int
	grace       time.Duration
	log         logging
	at          listeners
	made        *slog.Logger // by logger

	// follow runs beside the worker, until ctx ends, where its tools may change.
	follow func(ctx context.Context, w *worker.Worker, log *slog.Logger)
}

// logging has its own variables in the environment; a flag goes before them.
type logging struct {
	Level  string `env:"TOOLBUS_LOG_LEVEL"`
	Format string `env:"TOOLBUS_LOG_FORMAT"`
}

func (o *options) bind(set *pflag.FlagSet) {
	set.SortFlags = false
	set.IntVar(&o.concurrency, "concurrency", 0, "how many calls run at once (default four per CPU)")
	set.DurationVar(&o.grace, "grace", 0, "how long running calls may go on after Ctrl-C (default 10s)")
	set.StringVar(&o.log.Level, "log-level", "", "debug, info, warn or error (default info)")
	set.StringVar(&o.log.Format, "log-format", "", "text or json (default text)")
	o.at.bind(set)
	o.nats.Bind(set)
}

// logger is the log that the flags and the environment ask for, made once.
func (o *options) logger(stderr io.Writer) (log *slog.Logger, err error) {
	if o.made != nil {
		return o.made, nil
	}
	var env logging
	if err := cli.ReadEnv(&env); err != nil {
		return nil, err
	}
	o.made, err = cli.Logger(stderr, or(o.log.Level, env.Level), or(o.log.Format, env.Format))
	return o.made, err
}

// serve runs a worker of the tools until ctx ends, and drains it.
func (o *options) serve(ctx context.Context, tools []worker.Tool, stdout, stderr io.Writer) error {
	look, err := o.lookOut(ctx, stderr)
	if err != nil {
		return err
	}
	defer look.Close()
	log := look.Log
	cfg, err := o.nats.Config()
	if err != nil {
		return err
	}
	cfg.Name, cfg.Logger = "toolworker "+names(tools), log

	conn, err := bus.Connect(ctx, cfg)
	if err != nil {
		return &failure{cli.ExitUnavailable, err}
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		if err := conn.Drain(ctx); err != nil {
			log.Warn("the connection did not end in time", "error", err)
		}
	}()
	traces := toolotel.NewWorkerTracer(toolotel.TraceConfig{Prefix: cfg.Prefix, Logger: log}, conn.ID())
	w, err := worker.New(worker.Config{
		Bus: conn, Tools: tools, Concurrency: o.concurrency, Grace: o.grace, Logger: log,
		Observer: toolotel.WorkerObservers(traces, look.Metrics.Worker()),
	})
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}

	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	select {
	case <-w.Ready():
		look.up(conn, w)
		if o.follow != nil {
			following, stop := context.WithCancel(ctx)
			var done sync.WaitGroup
			done.Go(func() { o.follow(following, w, log) })
			defer done.Wait()
			defer stop()
		}
		fmt.Fprintf(stdout, "serving %s as worker %s on %s; Ctrl-C drains\n", names(tools), w.ID(), conn.NATS().ConnectedUrlRedacted())
		err = <-ended
	case err = <-ended:
	}
	if err != nil {
		return &failure{cli.ExitFailed, err}
	}
	return nil
}

func names(tools []worker.Tool) string {
	if len(tools) == 1 {
		return "tool " + tools[0].Manifest.ID
	}
	ids := make([]string, len(tools))
	for i, t := range tools {
		ids[i] = t.Manifest.ID
	}
	return "tools " + strings.Join(ids, ", ")
}

func or(s, otherwise string) string {
	if s != "" {
		return s
	}
	return otherwise
}
