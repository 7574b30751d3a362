package executor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// turn runs a turn in this process.
func (st *stage) turn(req wire.TurnRequest) *wire.Outcome {
	ended := make(chan *wire.Outcome, 1)
	st.exec.Go(executor.Turn{Request: req}, func(out *wire.Outcome) { ended <- out })
	return <-ended
}

// call is a short way to write one.
func call(id, name, args string, change ...func(*tool.Call)) tool.Call {
	c := tool.Call{ID: id, Tool: name, Args: []byte(args)}
	for _, f := range change {
		f(&c)
	}
	return c
}

func after(ids ...string) func(*tool.Call) { return func(c *tool.Call) { c.After = ids } }
func optional(c *tool.Call)                { c.Optional = true }
func onceOnly(c *tool.Call)                { c.Retry = once }
func dflt(v string) func(*tool.Call)       { return func(c *tool.Call) { c.Default = []byte(v) } }
func insteadTry(name, args string) func(*tool.Call) {
	return func(c *tool.Call) {
		c.Alternatives = append(c.Alternatives, tool.Alternative{Tool: name, Args: []byte(args), Retry: once})
	}
}

// told is an outcome in one line.
func told(out *wire.Outcome) string {
	var b strings.Builder
	b.WriteString(out.Status)
	for _, r := range out.Results {
		fmt.Fprintf(&b, " %s=%s", r.Call, r.Status)
		if r.Value != nil {
			fmt.Fprintf(&b, ":%s", r.Value)
		}
		if r.BecauseOf != "" {
			fmt.Fprintf(&b, "(%s)", r.BecauseOf)
		}
	}
	return b.String()
}

// sleeper answers with what it was asked, after the time that it was asked for.
func sleeper(id string, change ...func(*tool.Manifest)) worker.Tool {
	type in struct {
		Ms    int64 `json:"ms"`
		Value any   `json:"value,omitempty"`
	}
	m := tool.Manifest{ID: id, Version: "1.0.0", Description: "sleeps", Effect: tool.Read, TimeoutMs: 60_000}
	for _, f := range change {
		f(&m)
	}
	return worker.Func(m, func(ctx context.Context, a in) (any, error) {
		select {
		case <-time.After(time.Duration(a.Ms) * time.Millisecond):
			return a.Value, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// broken fails for good, and counts how often it was asked.
func broken(id string, n *atomic.Int32, err error, change ...func(*tool.Manifest)) worker.Tool {
	return handler(id, func(context.Context, *worker.Call) (any, error) { n.Add(1); return nil, err }, change...)
}

func failed() error { return fault.New(fault.Failed, "no such flight") }

// A turn of five minutes of tools that take thirty seconds takes what its longest chain takes: here a minute and a half.
func TestCallsThatDependOnOthers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.workWith(worker.Config{Concurrency: 100}, sleeper("sleep"), handler("echo", echo))
		began := time.Now()
		out := st.turn(wire.TurnRequest{Calls: []tool.Call{
			call("flights", "sleep", `{"ms":30000,"value":{"flights":[{"id":"TB101","price":12345678901234567890}]}}`),
			call("hotels", "sleep", `{"ms":10000,"value":["Palace"]}`),
			call("visa", "sleep", `{"ms":30000,"value":true}`, after("flights", "hotels")),
			call("book", "echo", `{"flight":{"$from":"flights","pointer":"/flights/0"},"visa":{"$from":"visa"},"as":{"$literal":{"$from":"x"}}}`),
			call("report", "sleep", `{"ms":30000,"value":{"$from":"book","pointer":"/flight/id"}}`),
		}})
		want := `completed flights=success:{"flights":[{"id":"TB101","price":12345678901234567890}]} hotels=success:["Palace"] visa=success:true ` +
			`book=success:{"flight":{"id":"TB101","price":12345678901234567890},"visa":true,"as":{"$from":"x"}} report=success:"TB101"`
		// The sleeper's JSON goes through Go's own numbers.
		if got := strings.ReplaceAll(told(out), "12345678901234567000", "12345678901234567890"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if took := time.Since(began); took < 90*time.Second || took > 91*time.Second {
			t.Errorf("took %v, want three times 30 s", took)
		}
		if n := st.exec.InFlight(); n != 0 {
			t.Errorf("%d calls in flight after the end, want none", n)
		}
	})
}

// What stands in for a tool has arguments of its own, retries of its own and a breaker of its own.
func TestAlternative(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var asked atomic.Int32
		st.work(
			broken("live", &asked, upstream(), func(m *tool.Manifest) { m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(2)} }),
			handler("cached", echo, schema(`{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}`)))
		c := call("hotels", "live", `{"city":"Lisbon"}`, onceOnly, insteadTry("cached", `{"place":{"$arg":"/city"}}`))
		for i := range 3 {
			r := st.turn(wire.TurnRequest{Calls: []tool.Call{c}}).Results[0]
			want(t, r, tool.ViaFallback, "")
			if r.FallbackTool != "cached" || r.Tool != "live" || string(r.Value) != `{"place":"Lisbon"}` || len(r.Attempts) != 2 {
				t.Errorf("turn %d: %+v, want the answer of cached to its own arguments", i, r)
			}
			if kind := r.Attempts[0].Kind; i == 2 && kind != fault.CircuitOpen {
				t.Errorf("turn %d: live failed by %s, want circuit_open", i, kind)
			}
		}
		if n := asked.Load(); n != 2 {
			t.Errorf("live was asked %d times, want 2: then its breaker is open", n)
		}
		want(t, st.call("cached", `{"place":"Porto"}`), tool.Success, "") // and that of cached is not
		chosen := st.seen.await(t, wire.AlternativeChosen)
		if chosen.Tool != "cached" || chosen.Call != "hotels" || chosen.Because == "" {
			t.Errorf("event %+v, want cached and why", chosen)
		}

		c.Alternatives[0].Args = []byte(`{"place":{"$arg":"/town"}}`)
		r := st.turn(wire.TurnRequest{Calls: []tool.Call{c}}).Results[0]
		if r.Status != tool.Failed {
			t.Errorf("an alternative whose arguments cannot be filled in: %+v, want failed", r)
		}
	})
}

// The manifest's own fallback takes the same arguments, and a tool that nobody has falls back too.
func TestManifestsFallback(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var n atomic.Int32
		st.work(broken("live", &n, failed(), func(m *tool.Manifest) { m.Fallback, m.FallbackOn = "spare", []string{"permanent"} }), handler("spare", echo))
		r := st.turn(wire.TurnRequest{Calls: []tool.Call{call("a", "live", `{"x":1}`)}}).Results[0]
		want(t, r, tool.ViaFallback, "")
		r = st.turn(wire.TurnRequest{Calls: []tool.Call{call("a", "nobody", `{"x":1}`, insteadTry("spare", ""))}}).Results[0]
		want(t, r, tool.ViaFallback, "")
		if k := st.exec.KnownTools(); k > 2 {
			t.Errorf("%d tools are remembered, want those that there are", k)
		}
	})
}

// A part of a tool has a breaker of its own, and a call of a turn goes by it.
func TestBreakerOfAPart(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.work(handler("by_tenant", func(_ context.Context, c *worker.Call) (any, error) {
			if strings.Contains(string(c.Args), "bad") {
				return nil, upstream()
			}
			return 1, nil
		}, func(m *tool.Manifest) { m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(1)} }))
		tenant := func(key string) func(*tool.Call) { return func(c *tool.Call) { c.BreakerKey = key } }
		calls := []tool.Call{
			call("a", "by_tenant", `{"of":"bad"}`, onceOnly, tenant("bad"), optional),
			call("b", "by_tenant", `{"of":"bad"}`, onceOnly, tenant("bad"), optional, func(c *tool.Call) { c.After, c.Join = []string{"a"}, tool.JoinAvailable }),
			call("c", "by_tenant", `{"of":"good"}`, onceOnly, tenant("good"), func(c *tool.Call) { c.After, c.Join = []string{"b"}, tool.JoinAvailable }),
		}
		out := st.turn(wire.TurnRequest{Calls: calls})
		if kinds := []fault.Kind{kindOf(out.Results[0]), kindOf(out.Results[1]), kindOf(out.Results[2])}; !slices.Equal(kinds, []fault.Kind{fault.Upstream, fault.CircuitOpen, ""}) {
			t.Errorf("kinds %v, want the second of the bad tenant refused and the good one served", kinds)
		}
	})
}

// Seed 000 §5: what depends on a call that failed gets its default, is skipped, or the turn escalates.
func TestCascade(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var n atomic.Int32
		st.work(broken("broken", &n, failed()), handler("echo", echo))
		for name, c := range map[string]struct {
			calls []tool.Call
			want  string
		}{
			"its default": {[]tool.Call{
				call("a", "broken", `{}`, dflt(`{"id":7}`)), call("b", "echo", `{"of":{"$from":"a","pointer":"/id"}}`),
			}, `completed a=defaulted:{"id":7} b=success:{"of":7}`},
			"optional": {[]tool.Call{
				call("a", "broken", `{}`, optional), call("b", "echo", `{"of":{"$from":"a"}}`, optional), call("c", "echo", `{}`),
			}, `partial a=failed b=skipped(a) c=success:{}`},
			"required": {[]tool.Call{
				call("a", "broken", `{}`), call("b", "echo", `{}`, after("a")), call("c", "echo", `{}`, after("b")), call("d", "echo", `{}`),
			}, `escalated a=failed b=skipped(a) c=skipped(b) d=success:{}`},
		} {
			if got := told(st.turn(wire.TurnRequest{Calls: c.calls})); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
		if n.Load() != 3 {
			t.Errorf("it was asked %d times, want once in each turn", n.Load())
		}
	})
}

// Effects that fail at once, a thousand of them, are worked off one after the other.
func TestEverySendFails(t *testing.T) {
	server := natstest.Server(t)
	st := newStage(t, server)
	st.work(handler("echo", echo))
	st.conn.Close()
	calls := make([]tool.Call, wire.MaxCalls)
	for i := range calls {
		calls[i] = call(fmt.Sprint("c", i), "echo", `{}`, onceOnly)
	}
	out := st.turn(wire.TurnRequest{Calls: calls})
	if out.Status != wire.Escalated || len(out.Results) != len(calls) {
		t.Fatalf("%s with %d results, want escalated with %d", out.Status, len(out.Results), len(calls))
	}
	for i, r := range out.Results {
		if r.Call != calls[i].ID || r.Status != tool.Failed {
			t.Fatalf("result %d = %s %s, want that of %s, failed", i, r.Call, r.Status, calls[i].ID)
		}
	}
	if n := st.exec.InFlight(); n != 0 {
		t.Errorf("%d calls in flight, want none", n)
	}
}

// A turn that may not run gives every call its one result, and says what is wrong with the plan.
func TestPlansThatAreNone(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	var n atomic.Int32
	st.work(broken("any", &n, failed()))
	for name, c := range map[string]struct {
		calls []tool.Call
		want  []string
	}{
		"cycle":    {[]tool.Call{call("a", "any", `{}`, after("b")), call("b", "any", `{}`, after("a"))}, []string{"a → b → a"}},
		"nobody":   {[]tool.Call{call("a", "any", `{}`, after("x")), call("b", "any", `{"$from":"y"}`)}, []string{`"x"`, `"y"`}},
		"twice":    {[]tool.Call{call("a", "any", `{}`), call("a", "any", `{}`)}, []string{"also the id"}},
		"pointer":  {[]tool.Call{call("a", "any", `{}`), call("b", "any", `{"x":{"$from":"a","pointer":"id"}}`)}, []string{"pointer"}},
		"no name":  {[]tool.Call{call("a", "any", `{}`), call("b", "a b", `{}`)}, []string{"tool"}},
		"no calls": {nil, []string{"at least one"}},
	} {
		out := st.turn(wire.TurnRequest{Calls: c.calls})
		if out.Status != wire.Escalated || len(out.Results) != max(len(c.calls), 1) {
			t.Errorf("%s: %s with %d results, want escalated with one for each of %d calls", name, out.Status, len(out.Results), len(c.calls))
		}
		for i, r := range out.Results {
			if r.Status != tool.Failed || r.Fault == nil || r.Fault.Run() != fault.NotStarted || r.Sentence == "" {
				t.Errorf("%s: %+v, want failed, not started, and why", name, r)
			}
			if i < len(c.calls) && r.Call != c.calls[i].ID {
				t.Errorf("%s: result %d is of %s, want %s", name, i, r.Call, c.calls[i].ID)
			}
		}
		for _, word := range c.want {
			if !strings.Contains(out.Sentence, word) {
				t.Errorf("%s: %q, want %q in it", name, out.Sentence, word)
			}
		}
	}
	if n.Load() != 0 || st.exec.InFlight() != 0 {
		t.Errorf("%d calls ran and %d are in flight, want none", n.Load(), st.exec.InFlight())
	}
}

// Limits are of calls and of turns; what does not fit is refused whole.
func TestLimitsOfTurns(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), func(c *executor.Config) { c.MaxInFlight, c.MaxTurns = 5, 2 })
		st.workWith(worker.Config{Concurrency: 10}, sleeper("sleep"))
		calls := func(n int) (list []tool.Call) {
			for i := range n {
				list = append(list, call(fmt.Sprint("c", i), "sleep", `{"ms":1000,"value":1}`))
			}
			return list
		}
		ended := make(chan *wire.Outcome, 4)
		run := func(n int) {
			st.exec.Go(executor.Turn{Request: wire.TurnRequest{Calls: calls(n)}}, func(out *wire.Outcome) { ended <- out })
		}
		refused := func(n int, words string) {
			t.Helper()
			run(n)
			out := <-ended
			if len(out.Results) != n || kindOf(out.Results[n-1]) != fault.Overloaded || !strings.Contains(out.Sentence, words) {
				t.Errorf("a turn of %d: %s %q, want one refusal for each call that says %q", n, told(out), out.Sentence, words)
			}
		}
		refused(6, "its limit is 5")
		run(3)
		refused(3, "3 calls in flight")
		run(1)
		refused(1, "2 turns under way")
		for range 2 {
			if out := <-ended; out.Status != wire.Completed {
				t.Errorf("%s, want completed", told(out))
			}
		}
		run(5)
		if out := <-ended; out.Status != wire.Completed {
			t.Errorf("afterwards: %s, want completed", told(out))
		}
	})
}

// Parallel and ToolParallel hold for turns that do not say themselves.
func TestParallel(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), func(c *executor.Config) { c.Parallel, c.ToolParallel = 3, 2 })
		st.workWith(worker.Config{Concurrency: 100}, sleeper("sleep"), sleeper("doze"))
		var calls []tool.Call
		for i := range 6 {
			calls = append(calls, call(fmt.Sprint("a", i), "sleep", `{"ms":1000}`), call(fmt.Sprint("b", i), "doze", `{"ms":1000}`))
		}
		for _, c := range []struct {
			parallel, tools int
			seconds         int
		}{{0, 0, 4}, {12, 0, 3}, {12, 12, 1}, {1, 0, 12}} {
			began := time.Now()
			out := st.turn(wire.TurnRequest{Calls: calls, Parallel: c.parallel, ToolParallel: c.tools})
			if took := time.Since(began).Round(100 * time.Millisecond); out.Status != wire.Completed || took != time.Duration(c.seconds)*time.Second {
				t.Errorf("parallel %d, of a tool %d: %s after %v, want completed after %d s", c.parallel, c.tools, out.Status, took, c.seconds)
			}
		}
	})
}

// One result that nobody wants any more: its tool is told to stop, the others go on.
func TestCancelOneCall(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.serveHere()
		stopped := make(chan error, 1)
		st.workWith(worker.Config{Concurrency: 10}, sleeper("sleep"), handler("hold", func(ctx context.Context, _ *worker.Call) (any, error) {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return nil, ctx.Err()
		}))
		c := st.client()
		go func() {
			time.Sleep(time.Second)
			_ = c.CancelCall("mine", "unknown")
			_ = c.CancelCall("mine", "b")
		}()
		began := time.Now()
		out, err := c.Run(t.Context(), wire.TurnRequest{ID: "mine", Calls: []tool.Call{
			call("a", "sleep", `{"ms":3000,"value":1}`), call("b", "hold", `{}`), call("c", "sleep", `{"ms":0,"value":3}`, after("a")),
		}})
		if err != nil {
			t.Fatal(err)
		}
		if got := told(out); got != "partial a=success:1 b=cancelled c=success:3" {
			t.Errorf("outcome %s", got)
		}
		if err := <-stopped; err == nil || time.Since(began) > 3100*time.Millisecond {
			t.Errorf("the tool was stopped by %v, the turn took %v, want a stop and 3 s", err, time.Since(began))
		}
	})
}
