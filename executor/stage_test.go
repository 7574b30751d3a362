package executor_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// A stage is a server with a registry and an executor on it. Workers come and go by its methods.
type stage struct {
	t      testing.TB
	server *bus.Server
	conn   *bus.Conn
	reg    *registry.Registry
	exec   *executor.Executor
	seen   *recorder
}

// A recorder keeps events, and tells who waits for one.
type recorder struct {
	mu     sync.Mutex
	events []*wire.Event
	more   chan struct{}
}

func (r *recorder) Event(ev *wire.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
	close(r.more)
	r.more = make(chan struct{})
}

// await returns the first event of a type.
func (r *recorder) await(t testing.TB, kind string) *wire.Event {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		more := r.more
		for _, ev := range r.events {
			if ev.Type == kind {
				r.mu.Unlock()
				return ev
			}
		}
		r.mu.Unlock()
		select {
		case <-more:
		case <-late:
			t.Fatalf("no event %s came", kind)
		}
	}
}

func (r *recorder) all() []*wire.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*wire.Event(nil), r.events...)
}

func (r *recorder) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, ev := range r.events {
		out = append(out, ev.Type)
	}
	return out
}

// newStage sets the stage on a server. Inside a bubble pass natstest.InProcess.
func newStage(t testing.TB, server *bus.Server, change ...func(*executor.Config)) *stage {
	t.Helper()
	st := &stage{t: t, server: server, conn: natstest.Connect(t, server), seen: &recorder{more: make(chan struct{})}}
	ctx, cancel := context.WithCancel(context.Background())
	if err := st.conn.EnsureTopology(ctx); err != nil {
		t.Fatal(err)
	}
	st.reg = registry.New(registry.Config{Bus: st.conn})
	cfg := executor.Config{Bus: st.conn, Registry: st.reg, Observer: st.seen}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if st.exec, err = executor.New(cfg); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- st.reg.Run(ctx) }()
	<-st.reg.Ready()
	t.Cleanup(func() {
		end, stop := context.WithTimeout(context.Background(), 5*time.Second)
		defer stop()
		if err := st.exec.Shutdown(end); err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return st
}

// work starts a worker and waits until the registry knows its tools.
func (st *stage) work(tools ...worker.Tool) *hand {
	return st.workWith(worker.Config{}, tools...)
}

// A hand is a worker at work.
type hand struct {
	*worker.Worker
	conn *bus.Conn
	stop func()
}

func (st *stage) workWith(cfg worker.Config, tools ...worker.Tool) *hand {
	st.t.Helper()
	cfg.Bus, cfg.Tools = natstest.Connect(st.t, st.server), tools
	w, err := worker.New(cfg)
	if err != nil {
		st.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx) // tests that care run it themselves
	}()
	h := &hand{Worker: w, conn: cfg.Bus, stop: func() { cancel(); <-ended }}
	st.t.Cleanup(h.stop)
	select {
	case <-w.Ready():
	case <-ended:
		st.t.Fatal("the worker ended at its start")
	}
	for _, t := range tools {
		st.awaitWorker(t.Manifest.ID, w.ID())
	}
	return h
}

// awaitWorker waits until the registry has worker under tool, by its own changes.
func (st *stage) awaitWorker(name, id string) {
	st.t.Helper()
	changed := make(chan struct{}, 1)
	defer st.reg.OnChange(func(registry.Change) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	late := time.After(10 * time.Second)
	for {
		if t := st.reg.Tool(name); t != nil && t.Compiled != nil {
			for _, w := range t.Workers {
				if w.ID == id {
					return
				}
			}
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-late:
			st.t.Fatalf("worker %s of %s did not show up", id, name)
		}
	}
}

func (st *stage) call(name, args string) tool.Result {
	return st.exec.Call(context.Background(), tool.Call{Tool: name, Args: []byte(args)})
}

// single is a turn of one call.
func single(c tool.Call) executor.Turn {
	return executor.Turn{Request: wire.TurnRequest{Calls: []tool.Call{c}}}
}

// result has f told of a turn's first result.
func result(f func(tool.Result)) func(*wire.Outcome) {
	return func(out *wire.Outcome) { f(out.Results[0]) }
}

// plain subscribes as a bare NATS replier would.
func (st *stage) plain(subject, queue string, f func(*nats.Msg)) {
	st.t.Helper()
	nc := natstest.Connect(st.t, st.server).NATS()
	if _, err := nc.QueueSubscribe(subject, queue, f); err != nil {
		st.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		st.t.Fatal(err)
	}
}

// handler makes a tool of a func, with a manifest of few words.
func handler(id string, f func(context.Context, *worker.Call) (any, error), change ...func(*tool.Manifest)) worker.Tool {
	m := tool.Manifest{ID: id, Version: "1.0.0", Description: "a tool for tests", Effect: tool.Read}
	for _, c := range change {
		c(&m)
	}
	return worker.Tool{Manifest: m, Handler: worker.HandlerFunc(f)}
}

func echo(_ context.Context, c *worker.Call) (any, error) { return c.Args, nil }

func timeoutMs(ms int64) func(*tool.Manifest) { return func(m *tool.Manifest) { m.TimeoutMs = ms } }
func schema(s string) func(*tool.Manifest)    { return func(m *tool.Manifest) { m.Input = []byte(s) } }

func effect(e tool.Effect) func(*tool.Manifest) { return func(m *tool.Manifest) { m.Effect = e } }

func upstream() error { return fault.New(fault.Upstream, "the weather service answered 500") }
