package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

func TestCheckTurn(t *testing.T) {
	turn := func(calls ...tool.Call) *TurnRequest { return &TurnRequest{ID: "t1", Calls: calls} }
	// one is a turn of one call that is good but for what change does.
	one := func(change func(*tool.Call)) *TurnRequest {
		c := tool.Call{ID: "a", Tool: "search"}
		change(&c)
		return turn(c)
	}
	names := func(n int) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprint("c", i)
		}
		return list
	}
	checks(t, []checked{
		{"a turn", turn(tool.Call{ID: "a", Tool: "search"}, tool.Call{Tool: "search"}, tool.Call{Tool: "search"}), nil},
		{"an open turn that gets its calls later", &TurnRequest{Open: true}, nil},
		{"a turn without calls", turn(), []string{"calls: expected at least one, got none"}},
		{"a turn with bad arguments, which are one call's fault", turn(tool.Call{Tool: "search", Args: raw("{")}), nil},
		{"everything set", planRecords[0].value.(*TurnRequest), nil},
		{"all that a turn can get wrong",
			&TurnRequest{ID: "t/1", Session: "s\r\nx", DeadlineMs: -1, DeadlineMode: "Hard", Parallel: -1, ToolParallel: 1001, OnFailure: "go on", OnClientLoss: "stop",
				Calls: []tool.Call{{ID: "a", Tool: "search"}, {ID: "a", Tool: ""}, {ID: "b c", Tool: "sea.rch"}, {Tool: "x", Key: "k\x00", TimeoutMs: 1 << 31}}},
			[]string{"id: ", "session: ", "deadline_ms: ", `deadline_mode: expected soft or hard, got "Hard"`, "parallel: expected 0 to 1000, got -1",
				"tool_parallel: expected 0 to 1000, got 1001", `on_failure: expected continue or stop, got "go on"`, `on_client_loss: expected continue or cancel, got "stop"`,
				`calls[1].id: "a" is also the id of calls[0]`, "calls[1].tool: ", "calls[2].id: ", "calls[2].tool: ", "calls[3].key: ", "calls[3].timeout_ms: "}},
		{"1,001 calls", turn(make([]tool.Call, 1001)...), []string{"calls: at most 1000 are allowed, got 1001"}},

		{"a call after others that are not there, which the plan knows", one(func(c *tool.Call) { c.After = []string{"x", "y"} }), nil},
		{"a call after 1,000 others", one(func(c *tool.Call) { c.After = names(1000) }), nil},
		{"a call after 1,001 others", one(func(c *tool.Call) { c.After = names(1001) }), []string{"calls[0].after: at most 1000 are allowed, got 1001"}},
		{"a call after itself", one(func(c *tool.Call) { c.After = []string{"b", "a"} }), []string{`calls[0].after[1]: "a" is the call itself; name another`}},
		{"a call after one twice", one(func(c *tool.Call) { c.After = []string{"b", "c", "b"} }), []string{`calls[0].after[2]: "b" is also after[0]`}},
		{"a call after no id", one(func(c *tool.Call) { c.After = []string{"", "*"} }), []string{"calls[0].after[0]: id is empty", "calls[0].after[1]: id \"*\""}},
		{"a call without an id after others", &TurnRequest{Calls: []tool.Call{{Tool: "search", After: []string{"b"}}}}, nil},

		{"join any", one(func(c *tool.Call) { c.After, c.Join = names(3), tool.JoinAny }), nil},
		{"join 2", one(func(c *tool.Call) { c.After, c.Join = names(3), "2" }), nil},
		{"join more than there are, which the plan knows", one(func(c *tool.Call) { c.Join = "7" }), nil},
		{"join available by a time", one(func(c *tool.Call) { c.Join, c.JoinByMs = tool.JoinAvailable, 1000 }), nil},
		{"join none", one(func(c *tool.Call) { c.Join = "none" }), []string{`calls[0].join: expected all, any, available or a number from 1, got "none"`}},
		{"join 0", one(func(c *tool.Call) { c.Join = "0" }), []string{"calls[0].join: "}},
		{"join 02", one(func(c *tool.Call) { c.Join = "02" }), []string{"calls[0].join: "}},
		{"a time to join without available", one(func(c *tool.Call) { c.JoinByMs = 1000 }), []string{"calls[0].join_by_ms: only with join available"}},
		{"a time to join before the call", one(func(c *tool.Call) { c.Join, c.JoinByMs = tool.JoinAvailable, -1 }), []string{"calls[0].join_by_ms: expected 0 to"}},

		{"an effect that is none", one(func(c *tool.Call) { c.Effect = "reads" }), []string{`calls[0].effect: expected read or idempotent or write, got "reads"`}},
		{"a breaker key of two lines", one(func(c *tool.Call) { c.BreakerKey = "a\nb" }), []string{"calls[0].breaker_key: "}},
		{"a breaker key that is too long", one(func(c *tool.Call) { c.BreakerKey = strings.Repeat("k", 513) }), []string{"calls[0].breaker_key: expected one line of at most 512 bytes"}},
		{"a retry policy that no manifest may have",
			one(func(c *tool.Call) {
				c.Retry = &tool.RetryPolicy{Strategy: "often", MaxAttempts: ptr(0), JitterPercent: ptr(101.0)}
			}),
			[]string{"calls[0].retry.strategy: ", "calls[0].retry.max_attempts: ", "calls[0].retry.jitter_percent: "}},
		{"a default", one(func(c *tool.Call) { c.Default = raw(` [1, 2] `) }), nil},
		{"a default that is no JSON", one(func(c *tool.Call) { c.Default = raw(`{"a":}`) }), []string{"calls[0].default: expected a JSON value"}},
		{"a default that is empty", one(func(c *tool.Call) { c.Default = raw(``) }), []string{"calls[0].default: "}},
		{"a default that is too large", one(func(c *tool.Call) { c.Default = raw(`"` + strings.Repeat("x", tool.MaxDefault) + `"`) }), []string{"calls[0].default: expected at most 65536 bytes"}},
		{"fallback on permanent faults", one(func(c *tool.Call) { c.FallbackOn = []string{"permanent"} }), nil},

		{"fallback on what is no permanent fault", one(func(c *tool.Call) { c.FallbackOn = []string{"not_found", "timeout"} }), []string{"calls[0].fallback_on[1]: "}},

		{"three alternatives", one(func(c *tool.Call) { c.Alternatives = []tool.Alternative{{Tool: "x"}, {Tool: "y"}, {Tool: "search"}} }), nil},
		{"four alternatives", one(func(c *tool.Call) { c.Alternatives = make([]tool.Alternative, 4) }),
			[]string{"calls[0].alternatives: at most 3 are allowed, got 4", "calls[0].alternatives[2].tool: tool name is empty"}},
		{"all that an alternative can get wrong",
			one(func(c *tool.Call) {
				c.Alternatives = []tool.Alternative{{Tool: "x"}, {Tool: "_turn", TimeoutMs: -1, BreakerKey: "\t", Retry: &tool.RetryPolicy{MaxDelayMs: ptr[int64](-1)}}}
			}),
			[]string{"calls[0].alternatives[1].tool: ", "calls[0].alternatives[1].timeout_ms: expected 0 to", "calls[0].alternatives[1].breaker_key: ", "calls[0].alternatives[1].retry.max_delay_ms: "}},
	})
}

func TestCheckControl(t *testing.T) {
	no := fault.New(fault.Overloaded, "full")
	result := &tool.Result{Call: "a", Tool: "search", Status: tool.Success}
	checks(t, []checked{
		{"cancel the turn", &TurnControl{}, nil},
		{"cancel a call", &TurnControl{Call: "a"}, nil},
		{"add a call", &TurnControl{Seq: 1, Calls: []tool.Call{{Tool: "search"}}}, nil},
		{"all that a control can get wrong", &TurnControl{Call: ">", Seq: -1, Calls: []tool.Call{{ID: "a", Tool: "x"}, {ID: "a"}}},
			[]string{"call: ", "seq: ", `calls[1].id: "a" is also the id of calls[0]`, "calls[1].tool: "}},
		{"1,001 calls to add", &TurnControl{Calls: make([]tool.Call, 1001)}, []string{"calls: at most 1000 are allowed, got 1001"}},

		{"yes", &TurnReply{OK: true}, nil},
		{"no", &TurnReply{Fault: no}, nil},
		{"yes and no", &TurnReply{OK: true, Fault: no}, []string{`fault: expected none beside ok, got "overloaded"`}},
		{"neither", &TurnReply{}, []string{"fault: expected one"}},

		{"the late result of a call", &LateQuery{Turn: "t1", Call: "a"}, nil},
		{"of a call of any turn", &LateQuery{Call: "a"}, nil},
		{"of no call", &LateQuery{Turn: "t.1"}, []string{"turn: ", "call: id is empty"}},
		{"a journal", &TraceQuery{Turn: "t1"}, nil},
		{"the journal of any turn", &TraceQuery{Turn: "*"}, []string{"turn: "}},

		{"a late result", &LateRecord{V: 1, Turn: "t1", Session: "s", Time: "2026-11-21T08:00:00Z", Result: result}, nil},
		{"a status of a later version", &LateRecord{V: 1, Turn: "t1", Result: &tool.Result{Call: "a", Tool: "search", Status: "moved"}}, nil},
		{"none of any turn", &LateRecord{V: 1, Fault: no}, nil},
		{"a late result of version 2", &LateRecord{V: 2}, []string{"version 2: expected 1"}},
		{"a late result of nothing", &LateRecord{V: 1}, []string{"turn: ", "result: expected one, or a fault"}},
		{"a late result and none", &LateRecord{V: 1, Turn: "t1", Result: result, Fault: no}, []string{"fault: expected none beside a result"}},
		{"all that a late result can get wrong", &LateRecord{V: 1, Turn: "t 1", Session: "\n", Time: strings.Repeat("9", 65), Result: &tool.Result{Call: ">"}},
			[]string{"turn: ", "session: ", "timestamp: ", "result.call: ", "result.tool: ", "result.status: "}},
	})
}

func TestCheckEvents(t *testing.T) {
	event := func(turn string) Event { return Event{V: 1, Type: CallReady, Seq: 1, Turn: turn} }
	checks(t, []checked{
		{"an event", &Event{V: 1, Type: "SomethingNew", Seq: 1, Turn: "t1"}, nil},
		{"an event of version 2", &Event{V: 2, Type: Alive, Seq: 1, Turn: "t1"}, []string{"version 2: expected 1"}},
		{"an event without its turn", &Event{V: 1, Type: Alive, Seq: -1}, []string{"turn: ", "seq: "}},
		{"an event of no call that can be", &Event{V: 1, Type: CallReady, Turn: "t1", Call: "a b"}, []string{"call: "}},
		{"an event without a type", &Event{V: 1, Turn: "t1"}, []string{"type: expected one line of 1 to 64 bytes"}},

		{"a page", &Page{V: 1, Turn: "t1", Events: []Event{event("t1"), event("t1")}}, nil},
		{"the last page, with nothing on it", &Page{V: 1, Turn: "t1", Last: true}, nil},
		{"a page of version 2", &Page{V: 2}, []string{"page of version 2: expected 1"}},
		{"a page with an event of version 2", &Page{V: 1, Turn: "t1", Events: []Event{event("t1"), {V: 2}}}, []string{"events[1]: event of version 2: expected 1"}},
		{"a page with events of another turn", &Page{V: 1, Turn: "t1", Events: []Event{event("t1"), event("t2"), event("")}},
			[]string{`events[1].turn: expected "t1", as the page says, got "t2"`, "events[2].turn: id is empty"}},
		{"10,001 events", &Page{V: 1, Turn: "t1", Events: make([]Event, MaxEvents+1)}, []string{"version 0"}},
		{"a page of no turn", &Page{V: 1}, []string{"turn: "}},
	})
	full := &Page{V: 1, Turn: "t1", Events: make([]Event, MaxEvents+1)}
	for i := range full.Events {
		full.Events[i] = event("t1")
	}
	checks(t, []checked{{"10,001 good events", full, []string{"events: at most 10000 are allowed, got 10001"}}})
}

// Who shows problems beside the lines of a file must not take sentences apart.
func TestProblemsOneByOne(t *testing.T) {
	r := &TurnRequest{ID: "t1", Parallel: -1, Calls: []tool.Call{
		{ID: "a", Tool: "x", Key: "; calls[7].tool: \n", Alternatives: []tool.Alternative{{Tool: "y"}, {Tool: "z", Retry: &tool.RetryPolicy{MaxAttempts: ptr(0)}}}}}}
	var e *Error
	if !errors.As(r.Check(), &e) {
		t.Fatal("Check() = nil, want an *Error")
	}
	want := []string{"parallel", "calls[0].key", "calls[0].alternatives[1].retry.max_attempts"}
	var got, whole []string
	for _, p := range e.Problems {
		got = append(got, p.Field)
		whole = append(whole, p.Field+": "+p.Message)
	}
	if !slices.Equal(got, want) {
		t.Errorf("problems of %q, want of %q", got, want)
	}
	if all := strings.Join(whole, "; "); all != e.Message {
		t.Errorf("one by one they say %q, together %q", all, e.Message)
	}
}

// What is checked on the way of every turn must cost next to nothing where all is well.
func TestCheckAllocatesLittle(t *testing.T) {
	r := &TurnRequest{ID: "t1", Calls: []tool.Call{{ID: "a", Tool: "search", Args: raw(`{}`), TimeoutMs: 1000}}}
	if n := testing.AllocsPerRun(100, func() { _ = r.Check() }); n > 2 {
		t.Errorf("Check of one call allocates %v times, want at most 2", n)
	}
}

func BenchmarkCheckTurn(b *testing.B) {
	for _, n := range []int{1, 1000} {
		r := &TurnRequest{ID: "t1", Calls: make([]tool.Call, n)}
		for i := range r.Calls {
			r.Calls[i] = tool.Call{ID: fmt.Sprint("c", i), Tool: "search", Args: raw(`{}`)}
			if i > 0 {
				r.Calls[i].After = []string{"c0"}
			}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Check(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
