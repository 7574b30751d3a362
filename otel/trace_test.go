package otel_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

var update = flag.Bool("update", false, "write testdata anew")

// A collected keeps the spans that ended, and tells who waits for one.
type collected struct {
	mu    sync.Mutex
	spans tracetest.SpanStubs
	more  chan struct{}
}

func collect() *collected { return &collected{more: make(chan struct{})} }

func (c *collected) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	close(c.more)
	c.more = make(chan struct{})
	return nil
}

func (c *collected) Shutdown(context.Context) error { return nil }

// await returns all spans when n of them have names that start like this.
func (c *collected) await(t *testing.T, n int, prefix string) tracetest.SpanStubs {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		c.mu.Lock()
		all, more, found := slices.Clone(c.spans), c.more, 0
		c.mu.Unlock()
		for _, s := range all {
			if strings.HasPrefix(s.Name, prefix) {
				found++
			}
		}
		if found >= n {
			return all
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%d spans %s… among %d, want %d", found, prefix, len(all), n)
		}
	}
}

// provider sends every span to c as it ends.
func (c *collected) provider(t testing.TB, service string, opts ...sdktrace.TracerProviderOption) trace.TracerProvider {
	p := sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(c),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", service))))...)
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return p
}

// A house is an executor that serves and a worker, on a server.
type house struct {
	exec   *executor.Executor
	client *client.Client
	worker *worker.Worker
}

func build(t testing.TB, server *bus.Server, cfg executor.Config, observer worker.Observer, tools ...worker.Tool) *house {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn := natstest.Connect(t, server)
	reg := registry.New(registry.Config{Bus: conn})
	cfg.Bus, cfg.Registry = conn, reg
	h := new(house)
	var err error
	if h.exec, err = executor.New(cfg); err != nil {
		t.Fatal(err)
	}
	if h.worker, err = worker.New(worker.Config{Bus: natstest.Connect(t, server), ID: "w-1", Tools: tools, Observer: observer, Grace: time.Second}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = reg.Run(ctx) })
	<-reg.Ready()
	ready := make(chan struct{})
	var once sync.Once
	look := func() {
		for _, x := range tools {
			if known := reg.Tool(x.Manifest.ID); known == nil || known.Compiled == nil || len(known.Workers) == 0 {
				return
			}
		}
		once.Do(func() { close(ready) })
	}
	defer reg.OnChange(func(registry.Change) { look() })()
	running.Go(func() { _ = h.worker.Run(ctx) })
	serving := make(chan struct{})
	stop, halt := context.WithCancel(context.Background())
	go func() {
		defer close(serving)
		_ = h.exec.Run(stop, time.Second)
	}()
	t.Cleanup(func() {
		halt()
		<-serving
		cancel()
		running.Wait()
	})
	<-h.worker.Ready()
	<-h.exec.Ready()
	look()
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("the worker's tools did not show up")
	}
	h.client = client.New(natstest.Connect(t, server))
	return h
}

func instrument(id string, f func(context.Context, *worker.Call) (any, error)) worker.Tool {
	return worker.Tool{Manifest: tool.Manifest{ID: id, Version: "1.0.0", Description: "a tool for tests", Effect: tool.Read}, Handler: worker.HandlerFunc(f)}
}

func ok(context.Context, *worker.Call) (any, error) { return "ok", nil }

func down(context.Context, *worker.Call) (any, error) {
	return nil, fault.New(fault.Upstream, "the weather service said: hunter2")
}

// keeper is a journal that keeps nothing: with one, an executor waits for late results.
type keeper struct{}

func (keeper) Write(*wire.Event)                            {}
func (keeper) Keep(context.Context, *wire.LateRecord) error { return nil }
func (keeper) Late(context.Context, wire.LateQuery) (*wire.LateRecord, *fault.Fault) {
	return nil, nil
}
func (keeper) Trace(context.Context, string, func(*wire.Page) error) *fault.Fault { return nil }

// The whole trace of a turn in which everything happens: a retry, a breaker that opens, a fallback, a refusal by the open
// breaker with a default, and a result that comes late; from two processes' worth of tracers.
func TestWholeTrace(t *testing.T) {
	got, turns := collect(), make(chan string, 1)
	release := make(chan struct{})
	slow := func(_ context.Context, c *worker.Call) (any, error) {
		c.Progress(1, 4, "hunter2")
		<-release
		return "late", nil
	}
	flaky := func(ctx context.Context, c *worker.Call) (any, error) {
		if c.Ref.Attempt == 1 {
			return down(ctx, c)
		}
		return "ok", nil
	}
	h := build(t, natstest.Server(t), executor.Config{
		Journal: keeper{},
		Trace:   otel.NewTracer(otel.TraceConfig{Provider: got.provider(t, "executor")}),
		Retry:   &retry.Policy{Strategy: retry.Exponential, Initial: 5 * time.Millisecond, Max: 5 * time.Millisecond, Multiplier: 1, MaxAttempts: 2, MaxTotal: time.Minute},
		Breaker: &breaker.Policy{FailureThreshold: 2, SuccessThreshold: 1, OpenFor: time.Hour, Probes: 1, ProbeLease: time.Minute},
	}, otel.NewWorkerTracer(otel.TraceConfig{Provider: got.provider(t, "worker")}, "w-1"),
		instrument("flaky", flaky), instrument("frail", down), instrument("backup", ok), instrument("slow", slow))

	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	h.exec.Go(executor.Turn{
		Request: wire.TurnRequest{ID: "trip", Session: "s1", DeadlineMs: 1000, Calls: []tool.Call{
			{ID: "a", Tool: "flaky", Args: []byte(`{"secret":"hunter2"}`)},
			{ID: "b", Tool: "frail", After: []string{"a"}, Alternatives: []tool.Alternative{{Tool: "backup"}}},
			{ID: "c", Tool: "frail", After: []string{"b"}, Default: []byte(`"nothing"`)},
			{ID: "d", Tool: "slow"},
		}},
		Header: wire.Header{"Traceparent": {parent}, "tracestate": {"vendor=1"}},
	}, func(out *wire.Outcome) { turns <- out.Status })
	if status := <-turns; status != wire.PartialTurn {
		t.Errorf("the turn ended %s, want %s", status, wire.PartialTurn)
	}
	got.await(t, 1, "turn")
	close(release)
	got.await(t, 1, "late_result")
	drawn := draw(t, got.await(t, 6, "process"), h.exec.ID())
	golden(t, "trace.txt", drawn)
	if strings.Contains(drawn, "hunter2") {
		t.Error("arguments or what tools say are in the trace, and nobody asked for them")
	}
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.SplitAfter(got, "\n"), strings.SplitAfter(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		line := func(of []string) string {
			return strings.TrimSpace(strings.Join(of[min(i, len(of)):min(i+1, len(of))], ""))
		}
		if g, w := line(gotLines), line(wantLines); g != w {
			t.Errorf("%s:%d: got\n%s\nwant\n%s", path, i+1, g, w)
		}
	}
}

// draw is one trace as a tree, with all that does not change from run to run.
func draw(t *testing.T, spans tracetest.SpanStubs, executor string) string {
	t.Helper()
	children, names := map[trace.SpanID][]tracetest.SpanStub{}, map[trace.SpanID]string{}
	for _, s := range spans {
		children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], s)
		names[s.SpanContext.SpanID()] = s.Name
		if want := spans[0].SpanContext.TraceID(); s.SpanContext.TraceID() != want {
			t.Errorf("%s is in trace %s, want %s", s.Name, s.SpanContext.TraceID(), want)
		}
	}
	var b strings.Builder
	attributes := func(all []attribute.KeyValue) string {
		slices.SortFunc(all, func(x, y attribute.KeyValue) int { return cmp.Compare(x.Key, y.Key) })
		var out strings.Builder
		for _, a := range all {
			fmt.Fprintf(&out, " %s=%q", a.Key, strings.ReplaceAll(a.Value.String(), executor, "EXECUTOR"))
		}
		return out.String()
	}
	place := func(s tracetest.SpanStub) string {
		id := ""
		for _, a := range s.Attributes {
			if a.Key == "gen_ai.tool.call.id" || a.Key == "toolbus.attempt" {
				id += a.Value.String()
			}
		}
		return s.Name + id
	}
	var walk func(of trace.SpanID, indent string)
	walk = func(of trace.SpanID, indent string) {
		slices.SortFunc(children[of], func(x, y tracetest.SpanStub) int { return cmp.Compare(place(x), place(y)) })
		for _, s := range children[of] {
			fmt.Fprintf(&b, "%s%s · %s · %s", indent, s.Name, s.SpanKind, s.Status.Code)
			if s.Status.Description != "" {
				fmt.Fprintf(&b, " (%s)", s.Status.Description)
			}
			service, _ := s.Resource.Set().Value("service.name")
			fmt.Fprintf(&b, " · %s ·%s\n", service.AsString(), attributes(s.Attributes))
			for _, e := range s.Events {
				fmt.Fprintf(&b, "%s  ! %s%s\n", indent, e.Name, attributes(e.Attributes))
			}
			for _, l := range s.Links {
				fmt.Fprintf(&b, "%s  → %s\n", indent, names[l.SpanContext.SpanID()])
			}
			walk(s.SpanContext.SpanID(), indent+"    ")
		}
	}
	for _, s := range spans { // from those whose parents are elsewhere
		if names[s.Parent.SpanID()] == "" && children[s.Parent.SpanID()] != nil {
			fmt.Fprintf(&b, "parent %s tracestate %q\n", s.Parent.SpanID(), s.SpanContext.TraceState().String())
			walk(s.Parent.SpanID(), "")
			delete(children, s.Parent.SpanID())
		}
	}
	return b.String()
}
