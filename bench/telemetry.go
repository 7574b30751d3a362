package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// telemetry compares calls that nobody looks at with calls that are measured and traced: executor and worker in this
// process, the NATS server in another, and a collector that throws away what it gets.
func telemetry(cfg config) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	side, n, err := both(ctx)
	if err != nil {
		return err
	}
	defer side.stop()
	sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer sink.Close()
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
	for _, share := range []struct{ id, name, part string }{{"seldom", "metrics, and 1 % traced", "0.01"}, {"always", "metrics, and all traced", "1"}} {
		for name, value := range map[string]string{
			"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": sink.URL,
			"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": share.part,
		} {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
		stop, err := otel.Setup(ctx, otel.Config{Service: "bench"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop(ctx)) }()
		seen := otel.WorkerObservers(otel.NewWorkerTracer(otel.TraceConfig{}, "bench"), measured.Worker())
		if err := add(share.id, share.name, executor.Config{Observer: measured, Trace: otel.NewTracer(otel.TraceConfig{})}, seen); err != nil {
			return err
		}
	}
	for _, callers := range []int{1, 64} {
		got, err := compare(ways, callers, or(cfg.rounds, 5), or(cfg.each, time.Second))
		if err != nil {
			return err
		}
		fmt.Printf("%d callers; medians of %d rounds; × is the median of the ratios to off within a round\n\n", callers, len(got[0]))
		show(ways, got)
	}
	return nil
}
