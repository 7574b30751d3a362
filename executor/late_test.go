package executor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// serveHere runs the stage's executor on the bus until the test ends. It serves within a bubble too.
func (st *stage) serveHere() {
	st.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- st.exec.Run(ctx, 5*time.Second) }()
	st.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			st.t.Error(err)
		}
	})
	<-st.exec.Ready()
}

func (st *stage) client() *client.Client {
	st.t.Helper()
	return client.New(natstest.Connect(st.t, st.server))
}

// journalled gives the executor a journal on the stage's server.
func journalled(t testing.TB) func(*executor.Config) {
	return func(cfg *executor.Config) {
		j := journal.New(journal.Config{Bus: cfg.Bus, Memory: true})
		if err := j.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := j.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		cfg.Journal = j
	}
}

// Seed 000 §4.2: the outcome comes at the deadline with what there is; what runs goes on, and what it comes to is kept.
func TestLateResultIsKept(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), journalled(t))
		st.serveHere()
		st.workWith(worker.Config{Concurrency: 10}, sleeper("sleep"))
		c := st.client()
		req := wire.TurnRequest{ID: "trip", DeadlineMs: 2000, Calls: []tool.Call{
			call("flights", "sleep", `{"ms":500,"value":"TB101"}`),
			call("hotels", "sleep", `{"ms":4000,"value":["Palace"]}`),
			call("book", "sleep", `{"ms":0}`, after("hotels")),
		}}
		began := time.Now()
		out, err := c.Run(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(out); got != `partial flights=success:"TB101" hotels=timed_out book=not_started` {
			t.Errorf("outcome %s", got)
		}
		if took := time.Since(began); took > 2100*time.Millisecond || len(out.Running) != 1 || out.Running[0] != "hotels" {
			t.Errorf("after %v, running %v, want 2 s and hotels", took, out.Running)
		}
		if n := st.exec.InFlight(); n != 1 {
			t.Errorf("%d calls in flight after the outcome, want the one that goes on", n)
		}
		if _, err := c.Late(t.Context(), "trip", "hotels"); !errors.Is(err, &fault.Fault{Kind: fault.NotFound}) {
			t.Errorf("Late before it came = %v, want not_found", err)
		}
		late := st.seen.await(t, wire.LateResult)
		time.Sleep(100 * time.Millisecond) // of fake time: until it is stored
		if took := time.Since(began); took < 4*time.Second || took > 4200*time.Millisecond || late.Call != "hotels" {
			t.Errorf("the late result of %s came after %v, want that of hotels after 4 s", late.Call, took)
		}
		for _, turn := range []string{"trip", ""} {
			rec, err := c.Late(t.Context(), turn, "hotels")
			if err != nil || string(rec.Result.Value) != `["Palace"]` || rec.Result.Status != tool.Success || rec.Turn != "trip" {
				t.Errorf("Late(%q) = %+v, %v, want the Palace", turn, rec, err)
			}
		}
		if n, held := st.exec.InFlight(), st.exec.Held(); n+held != 0 {
			t.Errorf("%d calls in flight, %d attempts on workers' accounts, want none", n, held)
		}
		events, err := c.Trace(t.Context(), "trip")
		if err != nil || len(events) == 0 || events[0].Type != wire.TurnStarted || events[len(events)-1].Type != wire.LateResult {
			t.Fatalf("Trace = %d events, %v, want TurnStarted first and LateResult last", len(events), err)
		}
		for i, ev := range events {
			if ev.Seq != int64(i+1) || ev.Turn != "trip" {
				t.Errorf("event %d is %s %s number %d", i, ev.Turn, ev.Type, ev.Seq)
			}
		}
		if _, err := c.Trace(t.Context(), "nothing"); !errors.Is(err, &fault.Fault{Kind: fault.NotFound}) {
			t.Errorf("Trace of no turn = %v, want not_found", err)
		}
	})
}

// A late failure is news too; one that was stopped on purpose is none.
func TestLateFailure(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), journalled(t))
		st.serveHere()
		st.workWith(worker.Config{Concurrency: 10}, handler("hold", func(ctx context.Context, _ *worker.Call) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, timeoutMs(3000)))
		c := st.client()
		for _, mode := range []string{wire.DeadlineSoft, wire.DeadlineHard} {
			req := wire.TurnRequest{ID: mode, DeadlineMs: 1000, DeadlineMode: mode, Calls: []tool.Call{call("a", "hold", `{}`)}}
			out, err := c.Run(t.Context(), req)
			if err != nil || out.Status != wire.TimedOutTurn {
				t.Fatalf("%s: %+v, %v, want timed_out", mode, out, err)
			}
		}
		time.Sleep(5 * time.Second)
		rec, err := c.Late(t.Context(), wire.DeadlineSoft, "a")
		if err != nil || rec.Result.Status != tool.TimedOut || rec.Result.Fault.Kind != fault.Timeout {
			t.Errorf("Late = %+v, %v, want the tool's own timeout", rec, err)
		}
		if _, err := c.Late(t.Context(), wire.DeadlineHard, "a"); !errors.Is(err, &fault.Fault{Kind: fault.NotFound}) {
			t.Errorf("Late of what was stopped = %v, want not_found", err)
		}
		if n := st.exec.InFlight(); n != 0 {
			t.Errorf("%d calls in flight, want none", n)
		}
	})
}

func TestNoJournalToAsk(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.serveHere()
	c := st.client()
	if _, err := c.Late(t.Context(), "", "a"); !errors.Is(err, &fault.Fault{Kind: fault.Unavailable}) {
		t.Errorf("Late = %v, want unavailable", err)
	}
	if _, err := c.Trace(t.Context(), "a"); !errors.Is(err, &fault.Fault{Kind: fault.Unavailable}) {
		t.Errorf("Trace = %v, want unavailable", err)
	}
}

// Questions that are none are answered so, and those without a place to answer to are not.
func TestHostileQuestions(t *testing.T) {
	st := newStage(t, natstest.Server(t), journalled(t))
	st.serveHere()
	nc := natstest.Connect(t, st.server).NATS()
	bodies := []string{
		``, `{`, `[]`, `{}`, `{"call":"a b"}`, `{"turn":"*","call":">"}`, `{"turn":"` + long(900_000) + `","call":"a"}`, "\xc1", strings.Repeat("\x91", 100_000),
	}
	for _, bomb := range bombs {
		bodies = append(bodies, bomb)
	}
	for _, subject := range []string{"tb.v1.turn.late", "tb.v1.turn.trace"} {
		for _, body := range bodies {
			m, err := nc.Request(subject, []byte(body), 5*time.Second)
			if err != nil {
				t.Errorf("%s %.30q: %v, want an answer", subject, body, err)
				continue
			}
			var rec wire.LateRecord // a page has its fault in the same place
			if err := wire.Decode(m.Data, &rec); err != nil || rec.Fault == nil || rec.Fault.Kind != fault.InvalidArguments {
				t.Errorf("%s %.30q: answer %.200q, %v, want invalid_arguments", subject, body, m.Data, err)
			}
		}
		for _, reply := range []string{"$JS.API.STREAM.PURGE.TB_LATE", "tb.v1.late.a.b", "tb.v1.log.a"} {
			if err := nc.PublishRequest(subject, reply, []byte(`{"turn":"a","call":"b"}`)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := st.client().Late(t.Context(), "a", "b"); !errors.Is(err, &fault.Fault{Kind: fault.NotFound}) {
		t.Errorf("afterwards: %v, want not_found", err)
	}
}

// The end of an executor waits for calls that go on after their turn; when the drain is over, they are stopped.
func TestShutdownWithStragglers(t *testing.T) {
	for name, drain := range map[string]time.Duration{"in time": time.Minute, "cut off": time.Second} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				st := newStage(t, natstest.InProcess(t), journalled(t))
				var ended atomic.Value
				st.work(handler("slow", func(ctx context.Context, _ *worker.Call) (any, error) {
					select {
					case <-time.After(5 * time.Second):
						ended.Store("by itself")
						return "at last", nil
					case <-ctx.Done():
						ended.Store("stopped")
						return nil, ctx.Err()
					}
				}))
				out := st.turn(wire.TurnRequest{ID: "mine", DeadlineMs: 1000, Calls: []tool.Call{call("a", "slow", `{}`)}})
				if out.Status != wire.TimedOutTurn {
					t.Fatalf("%s, want timed_out", told(out))
				}
				ctx, cancel := context.WithTimeout(t.Context(), drain)
				defer cancel()
				began := time.Now()
				err := st.exec.Shutdown(ctx)
				took := time.Since(began).Round(100 * time.Millisecond)
				if name == "in time" {
					if err != nil || took != 4*time.Second || ended.Load() != "by itself" {
						t.Errorf("Shutdown = %v after %v, the tool ended %v; want none after 4 s, by itself", err, took, ended.Load())
					}
					j := journal.New(journal.Config{Bus: st.conn, Memory: true})
					rec, f := j.Late(t.Context(), wire.LateQuery{Turn: "mine", Call: "a"})
					if f != nil || string(rec.Result.Value) != `"at last"` {
						t.Errorf("Late = %+v, %v, want that it was kept before the end", rec, f)
					}
					if err := j.Close(t.Context()); err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || took > 1300*time.Millisecond || ended.Load() != "stopped" {
					t.Errorf("Shutdown = %v after %v, the tool ended %v; want that a call was cancelled after 1 s", err, took, ended.Load())
				}
			})
		})
	}
}

// An outcome that fits nowhere, for the store of claim checks takes nothing: its client learns how each call ended, and
// has the values that fit.
func TestOutcomeThatCannotBeSent(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo), handler("large", func(context.Context, *worker.Call) (any, error) { return strings.Repeat("x", 600_000), nil }))
	st.serve()
	blobs, err := st.conn.JetStream().Stream(t.Context(), "TB_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := blobs.CachedInfo().Config
	cfg.MaxMsgSize = 100
	if _, err := st.conn.JetStream().UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	out, err := st.client().Run(t.Context(), wire.TurnRequest{Calls: []tool.Call{
		call("small", "echo", `{"s":"y"}`), call("a", "large", `{}`), call("b", "large", `{}`),
	}})
	if err != nil {
		t.Fatalf("no outcome: %v", err)
	}
	if got := told(out); out.Status != wire.Escalated || !strings.HasPrefix(got, `escalated small=success:{"s":"y"} `) {
		t.Errorf("outcome %s, want escalated with the small value", fault.Truncate(got, 300))
	}
	for _, r := range out.Results[1:] {
		if r.Status != tool.Failed || r.Value != nil || r.Fault == nil || r.Fault.Execution != fault.Done {
			t.Errorf("result of %s: %s %v, want failed, and a fault that says that it was done", r.Call, r.Status, r.Fault)
		}
	}
	if !strings.Contains(out.Sentence, "2 calls could not be sent") {
		t.Errorf("sentence %q, want that the values of 2 calls could not be sent", out.Sentence)
	}
}

// Late results wait for the journal in memory: beyond a bound they are let go.
func TestTooMuchToKeep(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), journalled(t))
		st.serveHere()
		st.work(sleeper("sleep"))
		c := st.client()
		for _, k := range []struct {
			turn string
			held int64
			kept bool
		}{{"full", executor.MaxKeeping - 5, false}, {"free", 0, true}} {
			st.exec.Keeping(k.held)
			if _, err := c.Run(t.Context(), wire.TurnRequest{ID: k.turn, DeadlineMs: 100, Calls: []tool.Call{call("a", "sleep", `{"ms":500,"value":"0123456789"}`)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // of fake time: until it is stored
			if _, err := c.Late(t.Context(), k.turn, "a"); (err == nil) != k.kept {
				t.Errorf("with %d bytes on their way the late result is kept: %v, want %v", k.held, err, k.kept)
			}
			if n := st.exec.Keeping(-k.held); n != 0 {
				t.Errorf("%d bytes are still being kept in the end, want none", n)
			}
		}
	})
}

// A turn that can never be taken in is not told to come back later.
func TestMoreCallsThanEver(t *testing.T) {
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.MaxInFlight = 2 })
	ended := make(chan *wire.Outcome, 1)
	st.exec.Go(executor.Turn{Request: wire.TurnRequest{Calls: []tool.Call{call("a", "x", `{}`), call("b", "x", `{}`), call("c", "x", `{}`)}}}, func(o *wire.Outcome) { ended <- o })
	f := (<-ended).Results[0].Fault
	if f == nil || f.Kind != fault.Overloaded || !strings.Contains(f.Message, "hand over fewer") {
		t.Errorf("three calls where two may be under way: %v, want overloaded, and that fewer may", f)
	}
}
