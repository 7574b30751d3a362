package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A worker whose connection is cut in mid-call is as good as killed: the server says that nobody listens. Under fake
// time the bound is exact.
func TestKilledWorkerIsNoticedWithinHalfASecond(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		busy := make(chan struct{})
		w := st.work(handler("hold", func(ctx context.Context, _ *worker.Call) (any, error) {
			close(busy)
			<-ctx.Done()
			return nil, ctx.Err()
		}, effect(tool.Write)))
		done := make(chan tool.Result, 1)
		go func() { done <- st.call("hold", `{}`) }()
		<-busy
		time.Sleep(3 * time.Second) // of fake time: the call is well under way
		killed := time.Now()
		w.conn.Close()
		r := <-done
		want(t, r, tool.Failed, fault.WorkerLost)
		if took := time.Since(killed); took > 500*time.Millisecond {
			t.Errorf("noticed after %v, want within 500 ms", took)
		}
		if r.Fault.Execution != fault.Unknown || len(r.Attempts) != 1 {
			t.Errorf("execution %s, %d attempts, want unknown and one: it is a write", r.Fault.Execution, len(r.Attempts))
		}
	})
}

func TestReadIsSentToAnotherWorkerWhenItsOwnDies(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var hands [2]*hand
		var died atomic.Bool
		busy := make(chan int, 2)
		for i := range hands {
			hands[i] = st.work(handler("hold", func(ctx context.Context, _ *worker.Call) (any, error) {
				if died.CompareAndSwap(false, true) {
					busy <- i
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return i, nil
			}))
		}
		done := make(chan tool.Result, 1)
		go func() { done <- st.call("hold", `{}`) }()
		first := <-busy
		hands[first].conn.Close()
		r := <-done
		want(t, r, tool.Success, "")
		if len(r.Attempts) != 2 || r.Attempts[0].Kind != fault.WorkerLost || r.Attempts[1].Worker != hands[1-first].ID() {
			t.Errorf("attempts %+v, want worker_lost and then the other worker", r.Attempts)
		}
	})
}

// A worker that takes the call, says so and then says nothing at all, not even to a ping, hangs.
func TestHungWorkerIsNoticed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		accept := nats.Header{"Tb-Frame": {"accept"}, "Tb-Worker": {"w-hung"}}
		nc := natstest.Connect(t, st.server).NATS()
		subscribe(t, nc, "tb.v1.to.w-hung", func(*nats.Msg) {}) // it is connected, and silent
		subscribe(t, nc, "tb.v1.call.hold", func(m *nats.Msg) { _ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: accept}) })
		began := time.Now()
		r := st.exec.Call(context.Background(), tool.Call{Tool: "hold", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
		want(t, r, tool.Failed, fault.WorkerLost)
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("noticed after %v, want within three pings", took)
		}
	})
}

// The answer was lost on the way: the worker is there, and does not know the call any more.
func TestLostAnswerIsNoticed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		nc := natstest.Connect(t, st.server).NATS()
		say := func(to, frame, running string) {
			h := nats.Header{"Tb-Frame": {frame}, "Tb-Worker": {"w-1"}}
			if running != "" {
				h["Tb-Running"] = []string{running}
			}
			_ = nc.PublishMsg(&nats.Msg{Subject: to, Header: h})
		}
		pings := 0
		subscribe(t, nc, "tb.v1.to.w-1", func(m *nats.Msg) {
			if m.Header.Get("Tb-Frame") != "ping" {
				return
			}
			if pings++; pings < 3 {
				say(m.Reply, "pong", "1")
			} else {
				say(m.Reply, "pong", "0")
			}
		})
		subscribe(t, nc, "tb.v1.call.hold", func(m *nats.Msg) { say(m.Reply, "accept", "") })
		r := st.exec.Call(context.Background(), tool.Call{Tool: "hold", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
		want(t, r, tool.Failed, fault.WorkerLost)
		if pings != 4 {
			t.Errorf("%d pings, want 4: it is asked once more", pings)
		}
	})
}

// A plain worker announces nothing and is not pinged: only its answer or its timeout ends the call.
func TestPlainWorkerMayTakeItsTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		nc := natstest.Connect(t, st.server).NATS()
		subscribe(t, nc, "tb.v1.call.think", func(m *nats.Msg) {
			time.AfterFunc(20*time.Second, func() { _ = m.Respond([]byte(`42`)) })
		})
		want(t, st.call("think", `{}`), tool.Success, "")
	})
}

// Poison: a call that kills whoever runs it is not sent a third time.
func TestPoisonIsNotSentAThirdTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var runs atomic.Int32
		hands := map[string]*hand{}
		kill := make(chan string, 8)
		for range 4 {
			w := st.work(handler("poison", func(ctx context.Context, _ *worker.Call) (any, error) {
				runs.Add(1)
				kill <- "one"
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			hands[w.ID()] = w
		}
		done := make(chan tool.Result, 1)
		go func() { done <- st.call("poison", `{}`) }()
		for {
			select {
			case <-kill:
				for _, w := range hands { // whichever runs it
					if w.Stats().Running > 0 {
						w.conn.Close()
					}
				}
				continue
			case r := <-done:
				want(t, r, tool.Failed, fault.WorkerLost)
			}
			break
		}
		if n := runs.Load(); n != 2 {
			t.Errorf("it ran %d times, want 2", n)
		}
	})
}

func subscribe(t *testing.T, nc *nats.Conn, subject string, f func(*nats.Msg)) {
	t.Helper()
	queue := ""
	if subject != "tb.v1.to.w-hung" && subject != "tb.v1.to.w-1" {
		queue = wire.QueueGroup
	}
	if _, err := nc.QueueSubscribe(subject, queue, f); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}
