package executor_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// The call of the benchmarks: a schema of six fields, arguments that fit it, and an answer.
const (
	searchSchema = `{"type":"object","additionalProperties":false,"required":["from","to","date"],"properties":{
		"from":{"type":"string","pattern":"^[A-Z]{3}$"},"to":{"type":"string","pattern":"^[A-Z]{3}$"},
		"date":{"type":"string","format":"date"},"passengers":{"type":"integer","minimum":1,"maximum":9},
		"cabin":{"enum":["economy","premium","business","first"]},"flexible":{"type":"boolean"}}}`
	searchArgs = `{"from":"VIE","to":"LIS","date":"2026-05-01","passengers":2,"cabin":"economy","flexible":true}`
)

// shelf is a catalogue of one tool with a manifest and without workers: its calls go to the queue group.
type shelf struct{ tool *registry.Tool }

func newShelf(t testing.TB, id string) shelf {
	t.Helper()
	c, err := tool.Compile(tool.Manifest{ID: id, Version: "1.0.0", Effect: tool.Read, Input: []byte(searchSchema)})
	if err != nil {
		t.Fatal(err)
	}
	return shelf{&registry.Tool{Name: id, Compiled: c}}
}

func (s shelf) Tool(name string) *registry.Tool {
	if name == s.tool.Name {
		return s.tool
	}
	return nil
}
func (shelf) Nearest(string) []string { return nil }
func (shelf) Gone(string)             {}

func newExecutor(t testing.TB, c *bus.Conn, cat executor.Catalogue, change ...func(*executor.Config)) *executor.Executor {
	t.Helper()
	cfg := executor.Config{Bus: c, Registry: cat}
	for _, f := range change {
		f(&cfg)
	}
	e, err := executor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return e
}

// BenchmarkCall sets one call through the executor beside nats.go's own request, over TCP on one server:
//
//	raw       nc.Request to a plain replier
//	mux       bus.Request to it: our one subscription for all replies
//	bare      executor.Call to it: what the executor costs
//	executor  executor.Call to a worker
//	journal   the same, and its events go to the journal
//
// Server, replier and worker are in this process, so allocations are those of both sides; what a way has above raw is
// ours. Program bench has the far side in a process of its own.
func BenchmarkCall(b *testing.B) {
	s := natstest.Server(b)
	dial := func() *bus.Conn { return natstest.Dial(b, bus.Config{URL: s.ClientURL()}) }
	plain, caller := dial().NATS(), dial()
	if _, err := plain.QueueSubscribe("tb.v1.call.plain", "workers", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		b.Fatal(err)
	}
	if err := plain.Flush(); err != nil {
		b.Fatal(err)
	}
	bare := newExecutor(b, caller, newShelf(b, "plain"))
	st := newStage(b, s)
	st.workWith(worker.Config{Bus: dial(), Concurrency: 256}, handler("search", echo, schema(searchSchema)))
	full := newExecutor(b, dial(), st.reg)
	kept := newExecutor(b, dial(), st.reg, journalled(b))

	args, ctx := []byte(searchArgs), context.Background()
	call := func(e *executor.Executor, name string) func() error {
		return func() error {
			if r := e.Call(ctx, tool.Call{Tool: name, Args: args}); r.Status != tool.Success {
				return fmt.Errorf("%s: %s", r.Status, r.Sentence)
			}
			return nil
		}
	}
	for _, way := range []struct {
		name string
		call func() error
	}{
		{"raw", func() error {
			_, err := caller.NATS().RequestWithContext(ctx, "tb.v1.call.plain", args)
			return err
		}},
		{"mux", func() error {
			if _, f := caller.Request(ctx, "tb.v1.call.plain", "plain", nil, args); f != nil {
				return f
			}
			return nil
		}},
		{"bare", call(bare, "plain")},
		{"executor", call(full, "search")},
		{"journal", call(kept, "search")},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", way.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				share(b, callers, way.call)
			})
		}
	}
}

// share has b.N calls made by so many callers at once, and reports how long they took.
func share(b *testing.B, callers int, call func() error) {
	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				began := time.Now()
				if err := call(); err != nil {
					b.Error(err)
					return
				}
				took[i-1] = time.Since(began)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	percentiles(b, took)
}

func percentiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
}

// BenchmarkCancel is the time from a caller's cancel to the end of the handler's context.
func BenchmarkCancel(b *testing.B) {
	s := natstest.Server(b)
	st := newStage(b, s)
	started, seen := make(chan struct{}), make(chan time.Time)
	wait := func(ctx context.Context, _ *worker.Call) (any, error) {
		started <- struct{}{}
		<-ctx.Done()
		seen <- time.Now()
		return nil, ctx.Err()
	}
	st.workWith(worker.Config{Bus: natstest.Dial(b, bus.Config{URL: s.ClientURL()})}, handler("wait", wait))
	e := newExecutor(b, natstest.Dial(b, bus.Config{URL: s.ClientURL()}), st.reg)
	took := make([]time.Duration, 0, b.N)
	ended := make(chan tool.Result, 1)
	for b.Loop() {
		cancel := e.Go(single(tool.Call{Tool: "wait"}), result(func(r tool.Result) { ended <- r }))
		<-started
		began := time.Now()
		cancel()
		took = append(took, (<-seen).Sub(began))
		if r := <-ended; r.Status != tool.Cancelled {
			b.Fatalf("status %s, want cancelled", r.Status)
		}
	}
	percentiles(b, took)
}

// maxPerCall is what one call in flight may cost the executor, in bytes (issue "One tool call", Speed and memory).
const maxPerCall = 4 << 10

// TestMemoryOfCallsInFlight has calls out that nobody answers, and looks at what they cost; then all are answered, and
// all of it must come back. The server and the subscriber live in this process, so what is measured is a little more
// than the executor's part. Program bench does it with 100,000 calls and the executor alone.
func TestMemoryOfCallsInFlight(t *testing.T) {
	const calls = 10_000
	s := natstest.Server(t)
	dial := func() *bus.Conn { return natstest.Dial(t, bus.Config{URL: s.ClientURL()}) }
	replies := make([]string, 0, calls)
	all := make(chan struct{})
	far := dial().NATS()
	if _, err := far.Subscribe("tb.v1.call.search", func(m *nats.Msg) {
		if replies = append(replies, m.Reply); len(replies) == calls {
			close(all)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := far.Flush(); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, dial(), newShelf(t, "search"))
	args := []byte(searchArgs)
	ok := make(chan bool, calls)
	before := heapBytes()
	threads := runtime.NumGoroutine()
	for range calls {
		e.Go(single(tool.Call{Tool: "search", Args: args}), result(func(r tool.Result) { ok <- r.Status == tool.Success }))
	}
	<-all
	if n := e.InFlight(); n != calls {
		t.Fatalf("%d calls in flight, want %d", n, calls)
	}
	each := (heapBytes() - before) / calls
	t.Logf("%d bytes for each of %d calls in flight, %d goroutines more", each, calls, runtime.NumGoroutine()-threads)
	if each > maxPerCall {
		t.Errorf("%d bytes for each call in flight, want at most %d", each, maxPerCall)
	}
	for _, reply := range replies {
		if err := far.Publish(reply, []byte(`{"ok":true}`)); err != nil {
			t.Fatal(err)
		}
	}
	for range calls {
		if !<-ok {
			t.Fatal("a call did not succeed")
		}
	}
	if n := e.InFlight(); n != 0 {
		t.Errorf("%d calls in flight after the end, want none", n)
	}
	if left := heapBytes() - before; left/calls > maxPerCall/8 {
		t.Errorf("%d bytes for each call are left after the end, want nearly none", left/calls)
	}
}

// maxPerTurn is what an open turn of ten calls may cost the executor, in bytes.
const maxPerTurn = 16 << 10

// TestMemoryOfOpenTurns is the same with turns of ten calls, which are cancelled in the end.
func TestMemoryOfOpenTurns(t *testing.T) {
	const turns, size = 1000, 10
	s := natstest.Server(t)
	dial := func() *bus.Conn { return natstest.Dial(t, bus.Config{URL: s.ClientURL()}) }
	came, all := 0, make(chan struct{})
	far := dial().NATS()
	if _, err := far.Subscribe("tb.v1.call.search", func(*nats.Msg) {
		if came++; came == turns*size {
			close(all)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := far.Flush(); err != nil {
		t.Fatal(err)
	}
	e := newExecutor(t, dial(), newShelf(t, "search"))
	ended := make(chan *wire.Outcome, turns)
	done := func(out *wire.Outcome) { ended <- out }
	cancels, args := make([]func(), 0, turns), []byte(searchArgs)
	before := heapBytes()
	for range turns {
		req := wire.TurnRequest{Calls: make([]tool.Call, size)}
		for i := range req.Calls {
			req.Calls[i] = tool.Call{Tool: "search", Args: args}
		}
		cancels = append(cancels, e.Go(executor.Turn{Request: req}, done))
	}
	<-all
	each := (heapBytes() - before) / turns
	t.Logf("%d bytes for each of %d turns of %d calls", each, turns, size)
	if each > maxPerTurn {
		t.Errorf("%d bytes for each turn, want at most %d", each, maxPerTurn)
	}
	for _, cancel := range cancels {
		cancel()
	}
	for range turns {
		if out := <-ended; out.Status != wire.CancelledTurn || len(out.Results) != size {
			t.Fatalf("%s with %d results, want cancelled with %d", out.Status, len(out.Results), size)
		}
	}
	if n := e.InFlight(); n != 0 {
		t.Errorf("%d calls in flight after the end, want none", n)
	}
}

// heap is what is in use on the heap and the stacks when all garbage is gone.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
