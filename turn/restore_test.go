package turn

import (
	"math"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// What cannot have happened is told, and where.
func TestRestoreRefuses(t *testing.T) {
	began := wire.Event{Type: wire.TurnStarted, Request: &wire.TurnRequest{ID: "t", Calls: []tool.Call{{ID: "a", Tool: "x"}, {ID: "b", Tool: "x", After: []string{"a"}}}}}
	ready := wire.Event{Type: wire.CallReady, Call: "a"}
	sent := wire.Event{Type: wire.AttemptStarted, Call: "a", Attempt: 1, TimeoutMs: 1000}
	failed := func(decision string) wire.Event {
		return wire.Event{Type: wire.ToolError, Call: "a", Attempt: 1, Error: fault.New(fault.Upstream, "it broke"), Decision: decision}
	}
	result := func(call string, s tool.Status) wire.Event {
		return wire.Event{Type: wire.CallSettled, Call: call, Result: &tool.Result{Call: call, Status: s}}
	}
	for _, tc := range []struct {
		journal []wire.Event
		want    string // "" for none
	}{
		{nil, "does not begin with TurnStarted"},
		{[]wire.Event{ready}, "does not begin with TurnStarted"},
		{[]wire.Event{{Type: wire.TurnStarted}}, "does not begin with TurnStarted"},
		{[]wire.Event{{Type: wire.TurnStarted, Request: &wire.TurnRequest{ID: "t"}}}, "at least one call"},
		{[]wire.Event{began, ready, sent}, ""},
		{[]wire.Event{began, {Type: "Later"}, {Type: "Later", Call: "a"}, {Type: wire.BreakerChanged, Tool: "x"}, ready}, ""},
		{[]wire.Event{began, {Type: wire.CallReady, Call: "z"}}, `there is no call "z"`},
		{[]wire.Event{began, ready, ready}, "event 3 of the journal, CallReady: it cannot be: a waits for its place"},
		{[]wire.Event{began, sent}, "a waits for its inputs"},
		{[]wire.Event{began, ready, sent, sent}, "a runs"},
		{[]wire.Event{began, ready, {Type: wire.AttemptStarted, Call: "a", Attempt: 2}}, "expected attempt 1 of a, got 2"},
		{[]wire.Event{began, ready, sent, failed("retry"), sent}, "between two attempts"},
		{[]wire.Event{began, ready, sent, failed("retry"), {Type: wire.AlternativeChosen, Call: "a"}}, "between two attempts"},
		{[]wire.Event{began, ready, sent, failed("alternative")}, "no such alternative"},
		{[]wire.Event{began, ready, sent, {Type: wire.ToolError, Call: "a"}}, "it has no error"},
		{[]wire.Event{began, ready, sent, {Type: wire.CallSettled, Call: "a"}}, "it has no result"},
		{[]wire.Event{began, ready, sent, result("a", "")}, "it has no result"},
		{[]wire.Event{began, ready, sent, result("a", tool.Success), result("a", tool.Success)}, "a has its result"},
		{[]wire.Event{began, ready, sent, {Type: wire.LateResult, Call: "a"}}, "a runs"},
		{[]wire.Event{began, {Type: wire.TurnEnded}}, "2 calls have no result yet"},
		{[]wire.Event{began, {Type: wire.CallsAdded}}, "it names no calls"},
		{[]wire.Event{began, {Type: wire.CallsAdded, Request: began.Request}}, "takes no calls any more"},
		{[]wire.Event{began, {Type: wire.CallReady, Call: "a", AtMs: math.NaN()}}, "expected times from 0 to 1e+11 ms, got NaN"},
		{[]wire.Event{began, {Type: wire.CallReady, Call: "a", AtMs: -1}}, "got -1"},
		{[]wire.Event{began, ready, {Type: wire.AttemptStarted, Call: "a", Attempt: 1, TimeoutMs: math.Inf(1)}}, "got +Inf"},
	} {
		_, err := Restore(Config{}, start, tc.journal)
		if got := errText(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
			t.Errorf("Restore(%s) = %q, want %q", names(tc.journal), got, tc.want)
		}
	}
}

// A result without a fault is odd, and no reason to panic when its attempt is told to stop again.
func TestRestoreWithoutFault(t *testing.T) {
	turn, err := Restore(Config{Recorded: true}, start, []wire.Event{
		{Type: wire.TurnStarted, Request: &wire.TurnRequest{ID: "t", DeadlineMs: 1000, DeadlineMode: wire.DeadlineHard, Calls: []tool.Call{{ID: "a", Tool: "x"}}}},
		{Type: wire.CallReady, Call: "a"},
		{Type: wire.AttemptStarted, Call: "a", Attempt: 1, TimeoutMs: 5000},
		{Type: wire.TurnDeadline, AtMs: 1000},
		{Type: wire.CallSettled, Call: "a", AtMs: 1000, Result: &tool.Result{Call: "a", Status: tool.TimedOut}},
		{Type: wire.TurnEnded, AtMs: 1000},
	})
	if err != nil {
		t.Fatal(err)
	}
	torment(t, turn, nil)
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func names(journal []wire.Event) string {
	var b strings.Builder
	for _, ev := range journal {
		b.WriteString(ev.Type + " ")
	}
	return b.String()
}
