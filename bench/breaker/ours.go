package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

const (
	bucketName = "TB_BREAKERS"
	toolName   = "backend"
)

// ours is executors as `executor serve` runs them, each with a connection of its own over TCP to one server, and a worker.
// All of it is in this process, so a call costs both ends.
type ours struct {
	spec
	server *bus.Server
	execs  []*executor.Executor
	bucket *kvstate.Bucket
	ends   []func() // last one first
}

func startOurs(ctx context.Context, s spec) (rig, error) {
	o := &ours{spec: s}
	if err := o.start(ctx); err != nil {
		o.close()
		return nil, fmt.Errorf("start %d executors: %w", s.replicas, err)
	}
	return o, nil
}

func (o *ours) end(f func()) { o.ends = append(o.ends, f) }

func (o *ours) close() {
	for i := len(o.ends) - 1; i >= 0; i-- {
		o.ends[i]()
	}
}

func (o *ours) dial(ctx context.Context) (*bus.Conn, error) {
	c, err := bus.Connect(ctx, bus.Config{URL: o.server.ClientURL()})
	if err == nil {
		o.end(func() { c.Close(); <-c.Closed() })
	}
	return c, err
}

func (o *ours) start(ctx context.Context) (err error) {
	if o.server, err = bus.StartServer(bus.ServerConfig{Port: -1, Lazy: true}); err != nil {
		return err
	}
	o.end(o.server.Shutdown)
	c, err := o.dial(ctx)
	if err != nil {
		return err
	}
	if err := c.EnsureTopology(ctx); err != nil {
		return err
	}
	reg := registry.New(registry.Config{Bus: c})
	o.run(reg.Run)
	<-reg.Ready()
	if err := o.work(ctx, reg); err != nil {
		return err
	}
	for range o.replicas {
		if err := o.execute(ctx, reg); err != nil {
			return err
		}
	}
	// Until the first copy of the bucket is whole a breaker is closed, as it is here; and executors come to know each other.
	return o.settle(ctx)
}

// run has f run until the rig is closed.
func (o *ours) run(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f(ctx) // what fails shows in the calls
	}()
	o.end(func() { cancel(); <-ended })
}

func (o *ours) work(ctx context.Context, reg *registry.Registry) error {
	c, err := o.dial(ctx)
	if err != nil {
		return err
	}
	w, err := worker.New(worker.Config{Bus: c, Concurrency: 1024, Tools: []worker.Tool{{
		Manifest: tool.Manifest{
			ID: toolName, Version: "1.0.0", Description: "the backend", Effect: tool.Read,
			Retry: &tool.RetryPolicy{MaxAttempts: new(1)},
			Breaker: &tool.BreakerPolicy{
				FailureThreshold: new(o.threshold), SuccessThreshold: new(1), TimeoutMs: new(o.openFor.Milliseconds()),
			},
		},
		Handler: worker.HandlerFunc(func(context.Context, *worker.Call) (any, error) {
			if err := o.backend.serve(); err != nil {
				return nil, fault.New(fault.Upstream, "%v", err)
			}
			return 1, nil
		}),
	}}})
	if err != nil {
		return err
	}
	o.run(w.Run)
	<-w.Ready()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if t := reg.Tool(toolName); t != nil && t.Compiled != nil && len(t.Workers) > 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the worker did not show up")
		}
	}
}

func (o *ours) execute(ctx context.Context, reg *registry.Registry) error {
	c, err := o.dial(ctx)
	if err != nil {
		return err
	}
	b, err := kvstate.Open(ctx, c, kvstate.Config{Bucket: bucketName})
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Config{Bus: c, Registry: reg, Breakers: b})
	if err != nil {
		return err
	}
	o.run(func(ctx context.Context) error { return e.Run(ctx, 5*time.Second) })
	<-e.Ready()
	o.bucket, o.execs = b, append(o.execs, e)
	return nil
}

// settle makes one good call through each executor.
func (o *ours) settle(ctx context.Context) error {
	sick := o.backend.sick.Swap(false)
	defer o.backend.sick.Store(sick)
	for i := range o.execs {
		if s := o.call(ctx, i, "warm"); !s.ok {
			return s.err
		}
	}
	time.Sleep(1200 * time.Millisecond) // executors say once a second that they live
	o.backend.ran.Store(0)
	o.backend.most.Store(0)
	return nil
}

func (o *ours) call(ctx context.Context, replica int, key string) said {
	r := o.execs[replica].Call(ctx, tool.Call{Tool: toolName, BreakerKey: key})
	if r.Fault == nil {
		return said{ok: r.Status == tool.Success}
	}
	return said{refused: r.Fault.Kind == fault.CircuitOpen, err: r.Fault}
}

// cell finds the record of a partition. What its key is called is the executor's affair: it is the only one that is
// neither that of the tool nor one that was there before.
func (o *ours) cell(ctx context.Context) (kvstate.Entry, error) {
	all, err := o.bucket.All(ctx)
	if err != nil {
		return kvstate.Entry{}, err
	}
	var found []kvstate.Entry
	for _, e := range all {
		if strings.HasPrefix(e.Key, toolName) {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		return kvstate.Entry{}, fmt.Errorf("%d records, want one", len(found))
	}
	return found[0], nil
}

func (o *ours) recorded(ctx context.Context, _ string) (int, error) {
	var last uint64
	for quiet := 0; ; quiet++ {
		e, err := o.cell(ctx)
		if err != nil {
			return 0, err
		}
		if e.Revision != last {
			last, quiet = e.Revision, 0
		}
		if quiet >= 10 { // nothing was written for a second
			var v breaker.Shared
			err := wire.Decode(e.Value, &v)
			return v.Failures, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (o *ours) lose(ctx context.Context, _ string) error {
	e, err := o.cell(ctx)
	if err != nil {
		return err
	}
	return o.bucket.Delete(ctx, e.Key)
}

func (o *ours) outages() []outage {
	return []outage{{"JetStream", o.server.NATS().DisableJetStream, nil}}
}
