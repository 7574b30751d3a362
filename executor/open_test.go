package executor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// An agent's loop: rounds of calls under one deadline, the later ones with results of the earlier.
func TestOpenTurn(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.serveHere()
		st.workWith(worker.Config{Concurrency: 10}, sleeper("sleep"), handler("echo", echo))
		turn, err := st.client().Open(t.Context(), wire.TurnRequest{DeadlineMs: 30_000}, nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := turn.Call(t.Context(), call("a", "sleep", `{"ms":1000,"value":{"id":7}}`), call("b", "sleep", `{"ms":500}`))
		if err != nil || first[0].Status != tool.Success || first[1].Status != tool.Success {
			t.Fatalf("round 1: %+v, %v", first, err)
		}
		err = turn.Add(t.Context(), call("x", "echo", `{}`, after("nobody")), call("a", "echo", `{}`), call("y", "echo", `{}`, after("y2")))
		if !errors.Is(err, &fault.Fault{Kind: fault.InvalidArguments}) || !strings.Contains(err.Error(), "nobody") || !strings.Contains(err.Error(), "y2") || !strings.Contains(err.Error(), "also the id") {
			t.Errorf("Add = %v, want all that is wrong", err)
		}
		second, err := turn.Call(t.Context(), call("c", "echo", `{"of":{"$from":"a","pointer":"/id"}}`))
		if err != nil || string(second[0].Value) != `{"of":7}` {
			t.Fatalf("round 2: %+v, %v", second, err)
		}
		out, err := turn.Close(t.Context())
		if err != nil || told(out) != `completed a=success:{"id":7} b=success:null c=success:{"of":7}` {
			t.Errorf("outcome %s, %v", told(out), err)
		}
		synctest.Wait() // the outcome goes out a moment before
		if n := st.exec.InFlight(); n != 0 {
			t.Errorf("%d calls in flight after the end, want none", n)
		}
	})
}

// A question whose answer was lost comes again: it is answered as before and done once.
func TestAskedTwice(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.serveHere()
		var ran atomic.Int32
		st.work(handler("count", func(context.Context, *worker.Call) (any, error) { return ran.Add(1), nil }))
		c := st.client()
		ended := make(chan *wire.Outcome, 1)
		go func() {
			out, err := c.Run(context.Background(), wire.TurnRequest{ID: "mine", Open: true})
			if err != nil {
				t.Error(err)
			}
			ended <- out
		}()
		st.seen.await(t, wire.TurnStarted)
		nc := natstest.Connect(t, st.server).NATS()
		ask := func(frame, body string) wire.TurnReply {
			t.Helper()
			m, err := nc.RequestMsg(&nats.Msg{Subject: "tb.v1.turn.ctl.mine", Header: nats.Header{"Tb-Frame": {frame}}, Data: []byte(body)}, time.Second)
			if err != nil {
				t.Fatalf("%s %s: %v, want an answer", frame, body, err)
			}
			var r wire.TurnReply
			if err := wire.Decode(m.Data, &r); err != nil || r.Check() != nil || m.Header.Get("Tb-Frame") != "turn" {
				t.Fatalf("%s %s: answer %q, %v", frame, body, m.Data, err)
			}
			return r
		}
		for range 3 {
			if r := ask("add", `{"seq":1,"calls":[{"id":"a","tool":"count"}]}`); !r.OK {
				t.Errorf("add: %+v, want ok", r)
			}
		}
		for range 2 {
			if r := ask("add", `{"seq":2,"calls":[{"id":"a","tool":"count"}]}`); r.OK || r.Fault.Kind != fault.InvalidArguments {
				t.Errorf("add of the same call: %+v, want invalid_arguments", r)
			}
		}
		for _, body := range []string{`{`, `{"seq":-1}`, `{"seq":3}`, `{"calls":[{"tool":"a b"}]}`, "\xdd\xff\xff\xff\xff"} {
			if r := ask("add", body); r.OK || r.Fault == nil {
				t.Errorf("add %q: %+v, want a fault", body, r)
			}
		}
		if r := ask("close", `{"seq":4}`); !r.OK {
			t.Errorf("close: %+v, want ok", r)
		}
		if out := <-ended; told(out) != "completed a=success:1" || ran.Load() != 1 {
			t.Errorf("outcome %s, it ran %d times, want once", told(out), ran.Load())
		}
	})
}

// Calls that do not fit a message are added by claim check; those that do not fit the executor are refused.
func TestAddMuch(t *testing.T) {
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.MaxInFlight = 2 })
	st.serveHere()
	st.work(handler("echo", echo))
	turn, err := st.client().Open(t.Context(), wire.TurnRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	args := `{"text":"` + long(3<<20) + `"}`
	got, err := turn.Call(t.Context(), call("a", "echo", args))
	if err != nil || string(got[0].Value) != args {
		t.Fatalf("%v, want the arguments back", err)
	}
	err = turn.Add(t.Context(), call("b", "echo", `{}`), call("c", "echo", `{}`))
	if !errors.Is(err, &fault.Fault{Kind: fault.Overloaded}) {
		t.Errorf("Add = %v, want overloaded", err)
	}
	out, err := turn.Close(t.Context())
	if err != nil || out.Status != wire.Completed || len(out.Results) != 1 {
		t.Errorf("%+v, %v, want the one call", out, err)
	}
}

// Whoever killed the client: a turn that was asked to go on goes on, one that was not is cancelled soon.
func TestClientLoss(t *testing.T) {
	for _, loss := range []string{wire.LossContinue, wire.LossCancel} {
		t.Run(loss, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				st := newStage(t, natstest.InProcess(t), journalled(t))
				st.serveHere()
				st.work(sleeper("sleep"))
				conn := natstest.Connect(t, st.server)
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_, err := client.New(conn).Run(t.Context(), wire.TurnRequest{
						ID: "mine", OnClientLoss: loss, Calls: []tool.Call{call("a", "sleep", `{"ms":30000,"value":1}`)},
					})
					if err == nil {
						t.Error("Run gave an outcome, want that the connection is gone")
					}
				}()
				st.seen.await(t, wire.AttemptStarted)
				time.Sleep(10 * time.Second) // while the client is there, nothing happens
				began := time.Now()
				if n := st.exec.InFlight(); n != 1 {
					t.Fatalf("%d calls in flight, want one", n)
				}
				conn.Close()
				if loss == wire.LossContinue {
					time.Sleep(19 * time.Second)
				}
				ev := st.seen.await(t, wire.TurnEnded)
				took := time.Since(began)
				switch {
				case loss == wire.LossContinue && (ev.Outcome.Status != wire.Completed || took < 19500*time.Millisecond):
					t.Errorf("%s after %v, want completed after 20 s", ev.Outcome.Status, took)
				case loss == wire.LossCancel && (ev.Outcome.Status != wire.CancelledTurn || took > 4500*time.Millisecond):
					t.Errorf("%s after %v, want cancelled within 4 s", ev.Outcome.Status, took)
				}
				<-gone
				time.Sleep(time.Second) // nobody waits for the journal
				events, err := st.client().Trace(t.Context(), "mine")
				if err != nil || events[len(events)-1].Type != wire.TurnEnded {
					t.Errorf("Trace = %d events, %v, want the journal to its end", len(events), err)
				}
				for _, ev := range events {
					if ev.Type == wire.CancelRequested && ev.Because != "the turn's client is gone" {
						t.Errorf("cancelled because %q, want that the client is gone", ev.Because)
					}
				}
				if n := st.exec.InFlight(); n != 0 {
					t.Errorf("%d calls in flight, want none", n)
				}
			})
		})
	}
}

// Calls that come to an open turn at its deadline, before its timer: they are refused, and the turn ends.
func TestAddAtTheDeadline(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		ended := make(chan *wire.Outcome, 1)
		st.exec.Go(executor.Turn{Request: wire.TurnRequest{ID: "mine", Open: true, DeadlineMs: 1000}}, func(o *wire.Outcome) { ended <- o })
		f := st.exec.AddLate("mine", 2*time.Second, call("a", "echo", `{}`))
		if f == nil || !strings.Contains(f.Message, "ended") {
			t.Errorf("calls that come after the deadline: %v, want a word that the turn has ended", f)
		}
		select {
		case out := <-ended:
			if len(out.Results) != 0 {
				t.Errorf("outcome %+v, want no results", out)
			}
		case <-time.After(time.Minute):
			t.Error("no outcome came a minute after the deadline")
		}
		if n := st.exec.InFlight(); n != 0 {
			t.Errorf("%d calls in flight after the end, want none", n)
		}
	})
}
