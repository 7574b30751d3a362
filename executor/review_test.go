package executor_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A crew is a catalogue of one tool and some workers that tests play.
type crew struct {
	mu   sync.Mutex
	tool registry.Tool
}

func newCrew(t testing.TB, m tool.Manifest, ids ...string) *crew {
	t.Helper()
	m.Version = "1.0.0"
	c, err := tool.Compile(m)
	if err != nil {
		t.Fatal(err)
	}
	all := &crew{tool: registry.Tool{Name: m.ID, Compiled: c}}
	for _, id := range ids {
		all.tool.Workers = append(all.tool.Workers, &registry.Instance{ID: id})
	}
	return all
}

func (c *crew) Tool(name string) *registry.Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != c.tool.Name {
		return nil
	}
	now := c.tool
	return &now
}

func (c *crew) Nearest(string) []string { return nil }

// Gone takes the worker off the list, as the registry does.
func (c *crew) Gone(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var left []*registry.Instance
	for _, w := range c.tool.Workers {
		if w.ID != id {
			left = append(left, w)
		}
	}
	c.tool.Workers = left
}

// lead puts the crew in the place of the stage's registry.
func (c *crew) lead(cfg *executor.Config) { cfg.Registry = c }

// play has f speak for the worker of an id, on a connection of its own.
func (st *stage) play(id string, f func(say func(kind, body string), m *nats.Msg)) *nats.Conn {
	st.t.Helper()
	nc := natstest.Connect(st.t, st.server).NATS()
	if _, err := nc.Subscribe("tb.v1.to."+id, func(m *nats.Msg) {
		f(func(kind, body string) {
			h := frame(kind, "Tb-Worker", id)
			if kind == "pong" {
				h.Set("Tb-Running", "1")
			}
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h, Data: []byte(body)})
		}, m)
	}); err != nil {
		st.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		st.t.Fatal(err)
	}
	return nc
}

const nackFull = `{"kind":"overloaded","message":"all places are taken"}`

// A plain replier hears no cancel: that nobody does says nothing of the call.
func TestNobodyHearsTheCancelOfAPlainWorker(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		began := make(chan struct{}, 2)
		st.plain("tb.v1.call.slow", "workers", func(*nats.Msg) { began <- struct{}{} })
		r := st.exec.Call(t.Context(), tool.Call{Tool: "slow", TimeoutMs: 1000, Retry: once})
		want(t, r, tool.TimedOut, fault.Timeout)
		if r.Fault.Run() != fault.Unknown {
			t.Errorf("after a timeout: execution %s, want unknown: it runs", r.Fault.Run())
		}
		<-began
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-began; cancel() }()
		r = st.exec.Call(ctx, tool.Call{Tool: "slow", Retry: once})
		want(t, r, tool.Cancelled, fault.Cancelled)
		if r.Fault.Run() != fault.Unknown {
			t.Errorf("after a cancel: execution %s, want unknown: it runs", r.Fault.Run())
		}
	})
}

// The worker dies with a write, and before the watch finds out the caller cancels, or its time is over. That nobody hears
// the cancel does not mean that nothing ran: it goes to nobody else.
func TestCancelToADeadWorkerSendsTheCallToNobodyElse(t *testing.T) {
	for name, cancels := range map[string]bool{"cancel": true, "timeout": false} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				c := newCrew(t, tool.Manifest{ID: "book", Effect: tool.Write}, "w-1", "w-2")
				st := newStage(t, natstest.InProcess(t), c.lead)
				var ran atomic.Int32
				took := make(chan int, 4)
				var conns [2]*nats.Conn
				for i, id := range []string{"w-1", "w-2"} {
					conns[i] = st.play(id, func(_ func(string, string), m *nats.Msg) {
						if m.Header.Get("Tb-Frame") == "" {
							ran.Add(1)
							took <- i
						}
					})
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					i := <-took
					conns[i].Close()
					if cancels {
						cancel()
					}
				}()
				r := st.exec.Call(ctx, tool.Call{Tool: "book", TimeoutMs: 30, Retry: once})
				if ran.Load() != 1 {
					t.Errorf("%d workers ran it, want one: it is a write", ran.Load())
				}
				if r.Status == tool.Success || r.Fault.Run() != fault.Unknown {
					t.Errorf("%s %v, execution %s, want unknown", r.Status, r.Fault, r.Fault.Run())
				}
			})
		})
	}
}

// A refusal that comes after the cancel ends the call: it is not handed on.
func TestRefusedAfterTheCancel(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := newCrew(t, tool.Manifest{ID: "book"}, "w-1", "w-2")
		st := newStage(t, natstest.InProcess(t), c.lead)
		var calls atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, id := range []string{"w-1", "w-2"} {
			var nack func()
			st.play(id, func(say func(string, string), m *nats.Msg) {
				switch m.Header.Get("Tb-Frame") {
				case "":
					calls.Add(1)
					nack = func() { say("nack", nackFull) }
					cancel()
				case "cancel":
					nack()
				}
			})
		}
		r := st.exec.Call(ctx, tool.Call{Tool: "book", Retry: once})
		want(t, r, tool.Cancelled, fault.Cancelled)
		if calls.Load() != 1 || r.Fault.Run() != fault.NotStarted {
			t.Errorf("%d workers got it, execution %s, want one that refused it", calls.Load(), r.Fault.Run())
		}
	})
}

// A call that is cancelled while its arguments are being stored is sent to nobody, and ends at once.
func TestCancelWhileArgumentsAreStored(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := newCrew(t, tool.Manifest{ID: "book"}, "w-1")
		st := newStage(t, natstest.InProcess(t), c.lead)
		var calls atomic.Int32
		st.play("w-1", func(say func(string, string), m *nats.Msg) {
			if m.Header.Get("Tb-Frame") == "" {
				calls.Add(1)
				say("result", "1")
			}
		})
		began := time.Now()
		done := make(chan tool.Result, 1)
		big := []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
		cancel := st.exec.Go(single(tool.Call{Tool: "book", Args: append(append([]byte(`{"a":`), big...), '}'), Retry: once}),
			result(func(r tool.Result) { done <- r }))
		cancel()
		r := <-done
		want(t, r, tool.Cancelled, fault.Cancelled)
		if r.Fault.Run() != fault.NotStarted || time.Since(began) > 100*time.Millisecond {
			t.Errorf("execution %s after %v, want not_started at once", r.Fault.Run(), time.Since(began))
		}
		time.Sleep(time.Second)
		if calls.Load() != 0 {
			t.Error("a worker got the call after it was cancelled")
		}
	})
}

// A call that waits for a place and is cancelled ends at once: it is nowhere.
func TestCancelWhileWaitingForAPlace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := newCrew(t, tool.Manifest{ID: "book"}, "w-1")
		st := newStage(t, natstest.InProcess(t), c.lead)
		var calls atomic.Int32
		full := make(chan struct{}, 16)
		st.play("w-1", func(say func(string, string), m *nats.Msg) {
			if m.Header.Get("Tb-Frame") == "" {
				say("nack", nackFull)
				calls.Add(1)
				full <- struct{}{}
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var at time.Time
		go func() {
			for range 4 {
				<-full
			}
			time.Sleep(4 * time.Millisecond) // within the wait of 8 ms
			at = time.Now()
			cancel()
		}()
		r := st.exec.Call(ctx, tool.Call{Tool: "book", Retry: once})
		want(t, r, tool.Cancelled, fault.Cancelled)
		if took := time.Since(at); r.Fault.Run() != fault.NotStarted || took > 10*time.Millisecond {
			t.Errorf("execution %s after %v, want not_started at once", r.Fault.Run(), took)
		}
		time.Sleep(time.Second)
		if calls.Load() != 4 {
			t.Errorf("%d times sent, want 4: not after the cancel", calls.Load())
		}
	})
}

// A call that asks for a probe and is cancelled ends at once; when the grant comes, it is given back.
func TestCancelWhileAskingForAProbe(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		line := kvstate.NewMemory().Line()
		m := tool.Manifest{ID: "down", Effect: tool.Read}
		quick(&m)
		c := newCrew(t, m, "w-1")
		st := newStage(t, natstest.InProcess(t), c.lead, func(cfg *executor.Config) { cfg.Breakers = line })
		var calls atomic.Int32
		var well atomic.Bool
		st.play("w-1", func(say func(string, string), m *nats.Msg) {
			if m.Header.Get("Tb-Frame") == "" {
				calls.Add(1)
				if well.Load() {
					say("result", "1")
					return
				}
				say("error", `{"kind":"upstream","message":"500"}`)
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- st.exec.Run(ctx, time.Second) }()
		defer func() { cancel(); <-ended }()
		<-st.exec.Ready()
		for range 3 {
			want(t, st.call("down", `{}`), tool.Failed, fault.Upstream)
			time.Sleep(300 * time.Millisecond)
		}
		want(t, st.call("down", `{}`), tool.Failed, fault.CircuitOpen)
		time.Sleep(2100 * time.Millisecond)
		line.Trouble(kvstate.Trouble{There: func() time.Duration { return 100 * time.Millisecond }})
		call, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		began := time.Now()
		r := st.exec.Call(call, tool.Call{Tool: "down"})
		want(t, r, tool.Cancelled, fault.Cancelled)
		if took := time.Since(began); r.Fault.Run() != fault.NotStarted || took > 30*time.Millisecond {
			t.Errorf("execution %s after %v, want not_started at once", r.Fault.Run(), took)
		}
		line.Trouble(kvstate.Trouble{})
		time.Sleep(time.Second)
		if calls.Load() != 3 {
			t.Errorf("%d calls came to the worker, want 3: none after the cancel", calls.Load())
		}
		well.Store(true)
		want(t, st.call("down", `{}`), tool.Success, "") // the grant was given back: somebody else is the probe
	})
}

// A result that cannot be fetched was made by a run: a write is not run again.
func TestResultThatCannotBeFetchedRan(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := newCrew(t, tool.Manifest{ID: "book", Effect: tool.Write}, "w-1")
		st := newStage(t, natstest.InProcess(t), c.lead)
		js, err := jetstream.New(st.conn.NATS())
		if err != nil {
			t.Fatal(err)
		}
		if err := js.DeleteStream(t.Context(), "TB_BLOBS"); err != nil {
			t.Fatal(err)
		}
		var ran atomic.Int32
		check := "v1;abc;100000;1;" + strings.Repeat("0", 64)
		nc := natstest.Connect(t, st.server).NATS()
		subscribe(t, nc, "tb.v1.to.w-1", func(m *nats.Msg) {
			if m.Header.Get("Tb-Frame") == "" {
				ran.Add(1)
				_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: frame("result", "Tb-Worker", "w-1", "Tb-Blob", check)})
			}
		})
		r := st.call("book", `{}`)
		if ran.Load() != 1 || r.Status != tool.Failed || r.Fault.Run() != fault.Done {
			t.Errorf("ran %d times: %s %v, execution %s; want once, failed, done", ran.Load(), r.Status, r.Fault, r.Fault.Run())
		}
	})
}

// What is said of the run holds for the call: a first attempt that may have run is not undone by a second that did not.
func TestExecutionOfAllAttempts(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := newCrew(t, tool.Manifest{ID: "find", Effect: tool.Read, Breaker: &tool.BreakerPolicy{FailureThreshold: new(100)}}, "w-1")
		st := newStage(t, natstest.InProcess(t), c.lead)
		var calls atomic.Int32
		st.play("w-1", func(say func(string, string), m *nats.Msg) {
			if m.Header.Get("Tb-Frame") != "" {
				return
			}
			if calls.Add(1) == 1 {
				say("error", `{"kind":"upstream","message":"500"}`)
				return
			}
			say("error", `{"kind":"unavailable","message":"not today","execution":"not_started"}`)
		})
		r := st.call("find", `{}`)
		want(t, r, tool.Failed, fault.Unavailable)
		if r.Fault.Run() != fault.Unknown {
			t.Errorf("execution %s after %d attempts, want unknown: the first may have run", r.Fault.Run(), len(r.Attempts))
		}
		calls.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		r = st.exec.Call(ctx, tool.Call{Tool: "find"})
		want(t, r, tool.Cancelled, fault.Cancelled)
		if r.Fault.Run() != fault.Unknown {
			t.Errorf("cancelled before the second attempt: execution %s, want unknown: the first may have run", r.Fault.Run())
		}
	})
}

// Events that need a claim check keep their place in the stream.
func TestLargeEventsKeepTheirOrder(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.serve()
	st.work(handler("large", func(context.Context, *worker.Call) (any, error) { return strings.Repeat("x", 3<<20), nil }))
	c := client.New(natstest.Connect(t, st.server))
	for range 5 {
		var seq int64
		settled := false
		if _, err := c.Stream(t.Context(), one("large", `{}`), func(ev *wire.Event) {
			if ev.Seq <= seq {
				t.Errorf("%s has number %d after %d", ev.Type, ev.Seq, seq)
			}
			seq, settled = ev.Seq, settled || ev.Type == wire.CallSettled
		}); err != nil {
			t.Fatal(err)
		}
		if !settled {
			t.Error("the outcome came before the call's own result")
		}
	}
}

// A cancel may reach an executor before its turn does, and be lost there.
func TestCancelIsSaidAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		server := natstest.InProcess(t)
		nc := natstest.Connect(t, server).NATS()
		var said atomic.Int32
		var hears atomic.Bool // the executor hears the second cancel
		var reply atomic.Value
		answer := func(ev wire.Event) {
			b, err := wire.Marshal(wire.JSON, &ev)
			if err != nil {
				t.Error(err)
			}
			_ = nc.PublishMsg(&nats.Msg{Subject: reply.Load().(string), Header: frame("event"), Data: b})
		}
		over := make(chan struct{})
		subscribe(t, nc, "tb.v1.turn.run", func(m *nats.Msg) {
			reply.Store(m.Reply)
			go func() {
				beat := time.NewTicker(time.Second)
				defer beat.Stop()
				for {
					select {
					case <-beat.C:
						answer(wire.Event{Type: wire.Alive})
					case <-over:
						return
					}
				}
			}()
		})
		subscribe(t, nc, "tb.v1.turn.ctl.*", func(*nats.Msg) {
			if said.Add(1) == 2 && hears.Load() {
				answer(wire.Event{Type: wire.TurnEnded, Outcome: &wire.Outcome{Status: "cancelled", Results: []tool.Result{{}}}})
			}
		})
		defer func() { over <- struct{}{}; over <- struct{}{} }()
		c := client.New(natstest.Connect(t, server))
		for _, second := range []bool{false, true} {
			hears.Store(second)
			said.Store(0)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			out, err := c.Run(ctx, one("any", `{}`))
			cancel()
			var f *fault.Fault
			switch took := time.Since(began); {
			case second && (err != nil || out.Status != "cancelled" || took > time.Second):
				t.Errorf("%v, %v after %v, want cancelled by the second cancel", out, err, took)
			case !second && (!errors.As(err, &f) || f.Run() != fault.Unknown || took > 6*time.Second):
				t.Errorf("%v after %v, want that it is unknown what ran, soon", err, took)
			}
		}
	})
}
