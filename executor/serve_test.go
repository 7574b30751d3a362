package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// serve runs the stage's executor on the bus until the test ends.
func (st *stage) serve() {
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
	nc := natstest.Connect(st.t, st.server).NATS()
	for { // until it listens
		m, err := nc.Request("tb.v1.turn.run", []byte(`{}`), time.Second)
		if err == nil && m.Header.Get("Status") == "" {
			return
		}
	}
}

func one(name, args string) wire.TurnRequest {
	return wire.TurnRequest{Calls: []tool.Call{{ID: "call_1", Tool: name, Args: []byte(args)}}}
}

func TestTurnOverTheBus(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("steps", func(_ context.Context, c *worker.Call) (any, error) {
		c.Progress(1, 2, "half way")
		return "done", nil
	}))
	st.serve()
	var got []string
	out, err := client.New(natstest.Connect(t, st.server)).Stream(t.Context(), one("steps", `{}`), func(ev *wire.Event) {
		got = append(got, ev.Type)
	})
	if err != nil {
		t.Fatal(err)
	}
	if out.Status != "completed" || out.Results[0].Call != "call_1" || string(out.Results[0].Value) != `"done"` {
		t.Errorf("outcome %+v", out)
	}
	if s := strings.Join(got, " "); s != "TurnStarted CallReady AttemptStarted Progress CallSettled TurnEnded" {
		t.Errorf("events %s", s)
	}
}

func TestBareRequestGetsTheOutcome(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo))
	st.serve()
	nc := natstest.Connect(t, st.server).NATS()
	m, err := nc.Request("tb.v1.turn.run", []byte(`{"calls":[{"id":"a","tool":"echo","args":{"x":1}}]}`), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var ev wire.Event
	if err := json.Unmarshal(m.Data, &ev); err != nil {
		t.Fatalf("%s: %v", m.Data, err)
	}
	if ev.Type != wire.TurnEnded || string(ev.Outcome.Results[0].Value) != `{"x":1}` {
		t.Errorf("answer %s", m.Data)
	}
}

func TestTurnRequestsThatAreNone(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo))
	st.serve()
	nc := natstest.Connect(t, st.server).NATS()
	for _, body := range []string{
		``, `{`, `[]`, `{"calls":[]}`, `{"calls":[{"id":"a","tool":"b"},{"id":"a","tool":"b"}]}`, "\xdd\xff\xff\xff\xff", "\xc1",
		`{"id":"a b","calls":[{"id":"x","tool":"echo"}]}`, strings.Repeat("\x91", 100_000), `{"calls":[{"id":"x","tool":"a.b"}]}`,
	} {
		m, err := nc.Request("tb.v1.turn.run", []byte(body), 5*time.Second)
		if err != nil {
			t.Errorf("%.30q: %v, want an answer", body, err)
			continue
		}
		var ev wire.Event
		if err := wire.Decode(m.Data, &ev); err != nil || ev.Outcome == nil || ev.Outcome.Results[0].Fault == nil {
			t.Errorf("%.30q: answer %.200q, %v, want an outcome with a fault", body, m.Data, err)
		}
	}
	// A reply subject of the server's own is not answered to.
	if err := nc.PublishRequest("tb.v1.turn.run", "$JS.API.STREAM.PURGE.TB_BLOBS", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	m, err := nc.Request("tb.v1.turn.run", []byte(`{"calls":[{"id":"a","tool":"echo"}]}`), 5*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"completed"`) {
		t.Errorf("afterwards: %v, want it to go on", err)
	}
}

func TestCancelledClientCancelsTheTool(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	started, ended := make(chan struct{}), make(chan struct{})
	st.work(handler("slow", func(ctx context.Context, _ *worker.Call) (any, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}))
	st.serve()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	out, err := client.New(natstest.Connect(t, st.server)).Run(ctx, one("slow", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	<-ended
	if out.Status != "cancelled" || out.Results[0].Fault.Execution != fault.Stopped {
		t.Errorf("outcome %s, %+v, want cancelled and stopped", out.Status, out.Results[0].Fault)
	}
}

func TestNobodyToAsk(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	_, err := client.New(c).Run(t.Context(), one("echo", `{}`))
	if !errors.Is(err, &fault.Fault{Kind: fault.Unavailable}) || !strings.Contains(err.Error(), "executor") {
		t.Errorf("Run = %v, want unavailable and what to start", err)
	}
}

func TestSilentExecutorIsNoticed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		server := natstest.InProcess(t)
		nc := natstest.Connect(t, server).NATS()
		subscribe(t, nc, "tb.v1.turn.run", func(*nats.Msg) {}) // it takes the turn and dies
		began := time.Now()
		_, err := client.New(natstest.Connect(t, server)).Run(t.Context(), one("echo", `{}`))
		if !errors.Is(err, &fault.Fault{Kind: fault.WorkerLost}) {
			t.Errorf("Run = %v, want worker_lost", err)
		}
		if took := time.Since(began); took > client.Silence+time.Second {
			t.Errorf("noticed after %v", took)
		}
	})
}

func TestLargeTurnOverTheBus(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo))
	st.serve()
	args := `{"text":"` + long(3<<20) + `"}`
	out, err := client.New(natstest.Connect(t, st.server)).Run(t.Context(), one("echo", args))
	if err != nil {
		t.Fatal(err)
	}
	if string(out.Results[0].Value) != args {
		t.Errorf("a value of %d bytes, want %d", len(out.Results[0].Value), len(args))
	}
}

func TestTwoExecutorsShareTheWork(t *testing.T) {
	server := natstest.Server(t)
	a, b := newStage(t, server), newStage(t, server)
	a.work(handler("echo", echo))
	a.serve()
	b.serve()
	var mu sync.Mutex
	by := map[string]int{}
	c := client.New(natstest.Connect(t, server))
	for range 60 {
		_, err := c.Stream(t.Context(), one("echo", `{}`), func(ev *wire.Event) {
			if ev.Type == wire.TurnStarted {
				mu.Lock()
				by[ev.Executor]++
				mu.Unlock()
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(by) != 2 {
		t.Errorf("turns by executor: %v, want both", by)
	}
}
