package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

const flight = `{"type":"object","additionalProperties":false,"required":["from","to"],"properties":{
	"from":{"type":"string","pattern":"^[A-Z]{3}$"},"to":{"type":"string","pattern":"^[A-Z]{3}$"},"seats":{"type":"integer","minimum":1}}}`

func want(t *testing.T, r tool.Result, status tool.Status, kind fault.Kind) {
	t.Helper()
	got := fault.Kind("")
	if r.Fault != nil {
		got = r.Fault.Kind
	}
	if r.Status != status || got != kind {
		t.Fatalf("status %s, kind %q (%s), want %s, %q", r.Status, got, r.Sentence, status, kind)
	}
}

func TestAnswer(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	w := st.work(handler("echo", echo))
	r := st.call("echo", `{"text":"höß","n":12345678901234567890}`)
	want(t, r, tool.Success, "")
	if string(r.Value) != `{"text":"höß","n":12345678901234567890}` {
		t.Errorf("value = %s, want the arguments byte for byte", r.Value)
	}
	if len(r.Attempts) != 1 || r.Attempts[0].Worker != w.ID() {
		t.Errorf("attempts = %+v, want one at %s", r.Attempts, w.ID())
	}
	if n := st.exec.InFlight(); n != 0 {
		t.Errorf("%d calls in flight after the end, want none", n)
	}
}

func TestEveryViolationAtOnceAndNothingRuns(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	var ran atomic.Int32
	st.work(handler("flight_search", func(context.Context, *worker.Call) (any, error) { ran.Add(1); return 1, nil }, schema(flight)))
	r := st.call("flight_search", `{"from":5,"seats":0,"class":"first"}`)
	want(t, r, tool.Failed, fault.InvalidArguments)
	if len(r.Fault.Violations) < 4 {
		t.Errorf("violations = %+v, want /class, /from, /seats and /to", r.Fault.Violations)
	}
	if r.Fault.Execution != fault.NotStarted || ran.Load() != 0 {
		t.Errorf("execution %s, ran %d times, want not_started and never", r.Fault.Execution, ran.Load())
	}
}

func TestArgumentsThatAreNoJSON(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo))
	for args, kind := range map[string]fault.Kind{
		`{"a": nope}`:                     fault.InvalidArguments,
		`{"a": 1`:                         fault.TruncatedCall,
		`{"a":1}{"b":2}`:                  fault.InvalidArguments,
		`{"a":1,"a":2}`:                   fault.InvalidArguments,
		`[1]`:                             fault.InvalidArguments,
		"{\"a\":\"\xff\"}":                fault.InvalidArguments,
		strings.Repeat(`{"a":`, 10_000):   fault.InvalidArguments,
		`{"a":` + nested(10_000) + `}`:    fault.InvalidArguments,
		`{"a":"` + "\x00" + `"}`:          fault.InvalidArguments,
		`{"a":"\u0000 is data"}`:          "",
		`{"a":1e400, "b":-0, "c":"𝄞"}`:    "",
		`{"a":"` + long(100_000) + `"}`:   "",
		`{"é":{"日本":["x",null,true,{}]}}`: "",
	} {
		r := st.call("echo", args)
		got := fault.Kind("")
		if r.Fault != nil {
			got = r.Fault.Kind
			if len(r.Fault.Message) > 4096 {
				t.Errorf("%.40q: a message of %d bytes", args, len(r.Fault.Message))
			}
		}
		if got != kind {
			t.Errorf("%.40q: kind %q (%s), want %q", args, got, r.Sentence, kind)
		}
	}
}

func long(n int) string   { return strings.Repeat("x", n) }
func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func TestUnknownTool(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("flight_search", echo))
	r := st.call("flight_serch", `{}`)
	want(t, r, tool.Failed, fault.ToolNotFound)
	if len(r.Fault.Suggestions) == 0 || !strings.Contains(r.Fault.Suggestions[0], "flight_search") {
		t.Errorf("suggestions = %q, want flight_search", r.Fault.Suggestions)
	}
}

func TestNamesThatAreNoNames(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo))
	for _, name := range []string{
		"", "a b", "a\r\nPUB x 1", "*", ">", "a..b", ".a", "a.", "$JS.API.STREAM.PURGE.X", long(5000), "\x00", "ｗeather", "_INBOX.x", "a/b",
	} {
		r := st.call(name, `{}`)
		if r.Status != tool.Failed || r.Fault.Kind != fault.ToolNotFound || len(r.Sentence) > 500 {
			t.Errorf("%.20q: %s %v, want failed tool_not_found", name, r.Status, r.Fault)
		}
	}
	want(t, st.call("echo", `{}`), tool.Success, "") // the connection is still up
}

func TestUnavailableIsNotUnknown(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	w := st.work(handler("echo", echo))
	w.stop()
	r := st.exec.Call(context.Background(), tool.Call{Tool: "echo", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
	want(t, r, tool.Failed, fault.Unavailable)
	if r.Fault.Execution != fault.NotStarted {
		t.Errorf("execution %s, want not_started", r.Fault.Execution)
	}
}

func TestRetriedUntilItWorks(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	var n atomic.Int32
	st.work(handler("flaky", func(context.Context, *worker.Call) (any, error) {
		if n.Add(1) < 3 {
			return nil, upstream()
		}
		return "at last", nil
	}))
	r := st.call("flaky", `{}`)
	want(t, r, tool.Success, "")
	if len(r.Attempts) != 3 {
		t.Fatalf("%d attempts, want 3", len(r.Attempts))
	}
	for i, base := range []float64{100, 200} {
		a := r.Attempts[i]
		if a.Kind != fault.Upstream || a.Decision != "retry" || a.Because == "" || a.DelayMs < 0.9*base || a.DelayMs > 1.1*base {
			t.Errorf("attempt %d = %+v, want upstream, retry after %v ms ± 10 %%, and why", i+1, a, base)
		}
	}
	ev := st.seen.await(t, wire.ToolError)
	if ev.Classification != "transient" || ev.BreakerState != "closed" || ev.Decision != "retry" || ev.Tool != "flaky" || ev.Time == "" {
		t.Errorf("event = %+v, want the fields of seed 000 §8.2", ev)
	}
}

// A timeout is told to the worker, waited for until the worker confirms it, and is retried as transient. Time is fake:
// half an hour of it passes.
func TestSeed000_7_4_PerToolTimeoutTerminatesTheTool(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var ended atomic.Int32
		st.work(handler("slow", func(ctx context.Context, _ *worker.Call) (any, error) {
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		}))
		began := time.Now()
		r := st.call("slow", `{}`)
		want(t, r, tool.TimedOut, fault.Timeout)
		if r.Fault.Execution != fault.Stopped {
			t.Errorf("execution %s, want stopped: the worker confirmed it", r.Fault.Execution)
		}
		if r.Attempts[0].Kind != fault.Timeout || r.Attempts[0].Decision != "retry" {
			t.Errorf("attempt 1 = %+v, want a timeout that is retried", r.Attempts[0])
		}
		if n := int(ended.Load()); n != len(r.Attempts) {
			t.Errorf("%d handlers ended for %d attempts", n, len(r.Attempts))
		}
		if took := time.Since(began); took < 60*time.Second || took > 62*time.Second {
			t.Errorf("took %v, want two attempts of 30 s: the second fits no third into 2 s", took)
		}
		if ev := st.seen.await(t, wire.ToolError); ev.Error.Kind != fault.Timeout || ev.Classification != "transient" {
			t.Errorf("event %+v, want the timeout in the turn's trace as transient", ev)
		}
	})
}

func TestStubbornToolIsGivenUpAfterTheGrace(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		free := make(chan struct{})
		st.work(handler("stubborn", func(context.Context, *worker.Call) (any, error) { <-free; return 1, nil }, timeoutMs(1000), effect(tool.Write)))
		began := time.Now()
		r := st.call("stubborn", `{}`)
		took := time.Since(began)
		close(free)
		want(t, r, tool.TimedOut, fault.Timeout)
		if r.Fault.Execution != fault.Unknown || len(r.Attempts) != 1 {
			t.Errorf("execution %s after %d attempts, want unknown after one: it is a write", r.Fault.Execution, len(r.Attempts))
		}
		if took > 1300*time.Millisecond {
			t.Errorf("took %v, want at most timeout and grace", took)
		}
	})
}

func TestDeadlineIsSoftForTheToolAndFinalForTheOutcome(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		ended := make(chan error, 1)
		st.work(handler("slow", func(ctx context.Context, _ *worker.Call) (any, error) {
			select {
			case <-time.After(5 * time.Second):
				ended <- nil
				return 1, nil
			case <-ctx.Done():
				ended <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}))
		done := make(chan tool.Result, 1)
		turn := single(tool.Call{Tool: "slow"})
		turn.Request.DeadlineMs = 1000
		st.exec.Go(turn, result(func(r tool.Result) { done <- r }))
		began := time.Now()
		r := <-done
		want(t, r, tool.TimedOut, fault.Deadline)
		if took := time.Since(began); took > 1050*time.Millisecond {
			t.Errorf("took %v, want a second", took)
		}
		if err := <-ended; err != nil {
			t.Errorf("the tool was stopped (%v), want it to run to its end", err)
		}
	})
}

func TestCancelReachesTheTool(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	started, ended := make(chan struct{}), make(chan struct{})
	st.work(handler("slow", func(ctx context.Context, _ *worker.Call) (any, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-started; cancel() }()
	r := st.exec.Call(ctx, tool.Call{Tool: "slow"})
	<-ended
	want(t, r, tool.Cancelled, fault.Cancelled)
	if r.Fault.Execution != fault.Stopped {
		t.Errorf("execution %s, want stopped", r.Fault.Execution)
	}
}

func TestResultThatBreaksItsSchema(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	nc := natstest.Connect(t, st.server)
	_ = nc
	st.work(handler("price", func(context.Context, *worker.Call) (any, error) { return map[string]any{"eur": "much"}, nil },
		func(m *tool.Manifest) {
			m.Output = []byte(`{"type":"object","properties":{"eur":{"type":"number"}},"required":["eur"]}`)
		}))
	r := st.call("price", `{}`)
	want(t, r, tool.Failed, fault.InvalidResult)
	if len(r.Attempts) != 1 || len(r.Fault.Violations) == 0 {
		t.Errorf("%d attempts, violations %v, want one attempt and what is wrong", len(r.Attempts), r.Fault.Violations)
	}
}

func TestPanicIsAFault(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("bad", func(context.Context, *worker.Call) (any, error) { panic("secret-token-123") }, effect(tool.Write)))
	r := st.call("bad", `{}`)
	want(t, r, tool.Failed, fault.Internal)
	if strings.Contains(r.Fault.Message, "secret") || !strings.Contains(r.Fault.Detail, "secret") {
		t.Errorf("message %q, want the panic's words in the detail only", r.Fault.Message)
	}
}

func TestPlainReplierIsAWorker(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.plain("tb.v1.call.upper", wire.QueueGroup, func(m *nats.Msg) { _ = m.Respond([]byte(strings.ToUpper(string(m.Data)))) })
	r := st.call("upper", `{"a":"b"}`)
	want(t, r, tool.Success, "")
	if string(r.Value) != `{"A":"B"}` {
		t.Errorf("value = %s", r.Value)
	}
	st.plain("tb.v1.call.hello", wire.QueueGroup, func(m *nats.Msg) { _ = m.Respond([]byte("hello, world")) })
	if r := st.call("hello", ``); string(r.Value) != `"hello, world"` {
		t.Errorf("value = %s, want the text as a JSON string", r.Value)
	}
	st.plain("tb.v1.call.service", wire.QueueGroup, func(m *nats.Msg) {
		reply := nats.NewMsg(m.Reply)
		reply.Header.Set("Nats-Service-Error", "no such city")
		reply.Header.Set("Nats-Service-Error-Code", "404")
		_ = m.RespondMsg(reply)
	})
	want(t, st.call("service", `{}`), tool.Failed, fault.NotFound)
}

func TestStrangeReplies(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	nc := natstest.Connect(t, st.server).NATS()
	respond := func(m *nats.Msg, h nats.Header, body string) {
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h, Data: []byte(body)})
	}
	for name, f := range map[string]func(*nats.Msg){
		"two":      func(m *nats.Msg) { respond(m, nil, `1`); respond(m, nil, `2`) },
		"wrong_id": func(m *nats.Msg) { respond(m, nats.Header{"Tb-Call": {"x/y/1"}}, `2`); respond(m, nil, `1`) },
		"other": func(m *nats.Msg) {
			_ = nc.Publish(strings.Replace(m.Reply, ".other.", ".two.", 1), []byte(`2`))
			respond(m, nil, `1`)
		},
		"unknown":   func(m *nats.Msg) { respond(m, nats.Header{"Tb-Frame": {"dance"}}, `2`); respond(m, nil, `1`) },
		"late":      func(m *nats.Msg) { respond(m, nil, `1`); respond(m, nats.Header{"Tb-Frame": {"progress"}}, `{}`) },
		"bad_frame": func(m *nats.Msg) { respond(m, nats.Header{"Tb-Frame": {"progress"}}, "\xc1\x00"); respond(m, nil, `1`) },
		"rollup":    func(m *nats.Msg) { respond(m, nats.Header{"Nats-Rollup": {"all"}}, `1`) },
	} {
		st.plain("tb.v1.call."+name, wire.QueueGroup, f)
		r := st.call(name, `{}`)
		if r.Status != tool.Success || string(r.Value) != `1` {
			t.Errorf("%s: %s %s %v, want 1", name, r.Status, r.Value, r.Fault)
		}
	}
	st.plain("tb.v1.call.bomb", wire.QueueGroup, func(m *nats.Msg) {
		respond(m, nats.Header{"Tb-Frame": {"error"}, "Content-Type": {"application/msgpack"}}, "\xdd\xff\xff\xff\xff")
	})
	r := st.exec.Call(context.Background(), tool.Call{Tool: "bomb", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
	if r.Status != tool.Failed {
		t.Errorf("bomb: %s, want failed", r.Status)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if st.conn.Orphans() == 0 {
		t.Error("no orphans were counted, want the second answers")
	}
}

func TestLargeArgumentsAndResults(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo, timeoutMs(20_000)))
	args := `{"text":"` + long(10<<20) + `"}`
	r := st.call("echo", args)
	want(t, r, tool.Success, "")
	if string(r.Value) != args {
		t.Errorf("a value of %d bytes, want the %d of the arguments", len(r.Value), len(args))
	}
	if r := st.call("echo", `{"text":"`+long(65<<20)+`"}`); r.Status != tool.Failed || r.Fault.Kind != fault.InvalidArguments {
		t.Errorf("65 MiB: %s %v, want failed invalid_arguments", r.Status, r.Fault)
	}
}

func TestBreakerOpensAndRefuses(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	var n atomic.Int32
	st.work(handler("down", func(context.Context, *worker.Call) (any, error) { n.Add(1); return nil, upstream() },
		func(m *tool.Manifest) {
			m.Retry = &tool.RetryPolicy{MaxAttempts: new(1)}
			m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(3)}
		}))
	for range 3 {
		want(t, st.call("down", `{}`), tool.Failed, fault.Upstream)
	}
	r := st.call("down", `{}`)
	want(t, r, tool.Failed, fault.CircuitOpen)
	if n.Load() != 3 {
		t.Errorf("the tool ran %d times, want 3", n.Load())
	}
	if ev := st.seen.await(t, wire.BreakerChanged); ev.Decision != "Circuit breaker opened for down" {
		t.Errorf("event %+v", ev)
	}
}

func TestFullWorkersHandOn(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	free, busy := make(chan struct{}), make(chan struct{}, 2)
	block := handler("block", func(context.Context, *worker.Call) (any, error) { busy <- struct{}{}; <-free; return 1, nil })
	st.workWith(worker.Config{Concurrency: 1}, block)
	st.workWith(worker.Config{Concurrency: 1}, block)
	results := make(chan tool.Result, 2)
	for range 2 {
		go func() { results <- st.call("block", `{}`) }()
	}
	<-busy
	<-busy // each of the two got one
	r := st.exec.Call(context.Background(), tool.Call{Tool: "block", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
	want(t, r, tool.Failed, fault.Overloaded)
	if r.Fault.Execution != fault.NotStarted {
		t.Errorf("execution %s, want not_started", r.Fault.Execution)
	}
	close(free)
	for range 2 {
		want(t, <-results, tool.Success, "")
	}
}

func TestShutdownLetsCallsEnd(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	free, busy := make(chan struct{}), make(chan struct{})
	st.work(handler("block", func(context.Context, *worker.Call) (any, error) { close(busy); <-free; return 1, nil }))
	done := make(chan tool.Result, 1)
	go func() { done <- st.call("block", `{}`) }()
	<-busy
	ended := make(chan error, 1)
	go func() { ended <- st.exec.Shutdown(context.Background()) }()
	for { // until it refuses, which it does at once
		r := st.call("block", `{}`)
		if r.Fault != nil && r.Fault.Kind == fault.Unavailable {
			break
		}
	}
	close(free)
	want(t, <-done, tool.Success, "")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestLimitInFlight(t *testing.T) {
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.MaxInFlight = 1 })
	free, busy := make(chan struct{}), make(chan struct{})
	st.work(handler("block", func(context.Context, *worker.Call) (any, error) { close(busy); <-free; return 1, nil }))
	done := make(chan tool.Result, 1)
	go func() { done <- st.call("block", `{}`) }()
	<-busy
	want(t, st.call("block", `{}`), tool.Failed, fault.Overloaded)
	close(free)
	want(t, <-done, tool.Success, "")
}

func TestDisconnectedFailsNow(t *testing.T) {
	server := natstest.Server(t)
	st := newStage(t, server)
	st.work(handler("echo", echo))
	st.conn.Close()
	r := st.exec.Call(context.Background(), tool.Call{Tool: "echo", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
	want(t, r, tool.Failed, fault.Unavailable)
}

func TestEventsInOrder(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("steps", func(_ context.Context, c *worker.Call) (any, error) {
		c.Progress(1, 2, "half way")
		if err := c.Partial(json.RawMessage(`{"row":1}`)); err != nil {
			return nil, err
		}
		return "done", nil
	}))
	want(t, st.call("steps", `{}`), tool.Success, "")
	got := fmt.Sprint(st.seen.types())
	if got != "[TurnStarted CallReady AttemptStarted Progress Partial CallSettled TurnEnded]" {
		t.Errorf("events %s", got)
	}
}

func TestConfigNeedsABus(t *testing.T) {
	if _, err := executor.New(executor.Config{}); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("New = %v, want an error", err)
	}
}
