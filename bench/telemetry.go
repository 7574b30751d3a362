package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// telemetry compares calls that nobody looks at with calls that are measured and traced: executor and worker in this
// process, the NATS server in another, and in a third a collector that throws away what it gets. Where that never
// answers, spans are made and then dropped: what is left is what the export costs.
func telemetry(cfg config) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	side, n, err := both(ctx)
	if err != nil {
		return err
	}
	defer side.stop()
	sink, err := start("collector")
	if err != nil {
		return err
	}
	defer sink.stop()
	measured, flush, err := otel.SetupMetrics(ctx, otel.MetricsConfig{Pull: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flush(ctx)) }()

	var ways []way
	add := func(id, name string, cfg executor.Config, seen worker.Observer) error {
		cfg.Bus, cfg.Registry = n.bus, n.reg
		ex, err := executor.New(cfg)
		if err != nil {
			return err
		}
		c, err := dial(ctx, side.line)
		if err != nil {
			return err
		}
		if _, err := serve(ctx, worker.Config{Bus: c, Concurrency: 256, Observer: seen, Tools: []worker.Tool{{
			Manifest: tool.Manifest{ID: id, Version: "1.0.0", Effect: tool.Read, Input: []byte(schema)},
			Handler:  worker.HandlerFunc(func(_ context.Context, call *worker.Call) (any, error) { return call.Args, nil }),
		}}}); err != nil {
			return err
		}
		ways = append(ways, way{name, func() error {
			if r := ex.Call(ctx, tool.Call{Tool: id, Args: []byte(args)}); r.Status != tool.Success {
				return fmt.Errorf("%s: %s", r.Status, r.Sentence)
			}
			return nil
		}})
		return n.await(id, 1)
	}
	if err := add("off", "off", executor.Config{}, nil); err != nil {
		return err
	}
	if err := add("metrics", "metrics", executor.Config{Observer: measured}, measured.Worker()); err != nil {
		return err
	}
	var calls atomic.Int64
	stop := nothing
	for _, share := range []struct{ id, name, part, to string }{
		{"seldom", "metrics, and 1 % traced", "0.01", "/seldom"},
		{"made", "metrics, and all traced, not exported", "1", "/hangs"},
		{"always", "metrics, and all traced", "1", ""},
	} {
		for name, value := range map[string]string{
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": sink.line + share.to, "OTEL_EXPORTER_OTLP_TIMEOUT": "3600000",
			"OTEL_BSP_EXPORT_TIMEOUT": "3600000", "OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": share.part,
		} {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		if stop, err = otel.Setup(ctx, otel.Config{Service: "bench", Logger: slog.New(slog.DiscardHandler)}); err != nil {
			return err
		}
		seen := otel.WorkerObservers(otel.NewWorkerTracer(otel.TraceConfig{}, "bench"), measured.Worker())
		if err := add(share.id, share.name, executor.Config{Observer: measured, Trace: otel.NewTracer(otel.TraceConfig{})}, seen); err != nil {
			return err
		}
	}
	last := &ways[len(ways)-1]
	call := last.call
	last.call = func() error { calls.Add(1); return call() }
	for _, callers := range []int{1, 64} {
		got, err := compare(ways, callers, or(cfg.rounds, 5), or(cfg.each, time.Second))
		if err != nil {
			return err
		}
		fmt.Printf("%d callers; medians of %d rounds; × is the median of the ratios to off within a round\n\n", callers, len(got[0]))
		show(ways, got)
	}
	if err := stop(ctx); err != nil {
		return err
	}
	got, err := counted(sink.line)
	if err != nil {
		return err
	}
	fmt.Printf("%d calls were traced whole, four spans each; the collector got %.1f %% of those spans\n", calls.Load(), 100*float64(got)/float64(4*calls.Load()))
	return nil
}

func nothing(context.Context) error { return nil }
