package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func planFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTurnValidate(t *testing.T) {
	bad := planFile(t, "deadlin: 5s\ncalls:\n  - {id: a, tool: x, after: nobody}\n")
	for _, tc := range []struct {
		name, in string
		args     []string
		code     int
		out, err []string
	}{
		{"the example", "", []string{"../../examples/trip.yaml"}, cli.ExitOK, []string{"trip.yaml: 4 calls, no mistakes"}, nil},
		{"standard input", `{"calls":[{"tool":"echo"}]}`, []string{"-"}, cli.ExitOK, []string{"-: 1 call, no mistakes"}, nil},
		{"mistakes", "", []string{bad}, cli.ExitUsage, nil, []string{"plan.yaml:1: deadlin: unknown field; did you mean deadline?", "plan.yaml:3: calls[0].after"}},
		{"mistakes as JSON", "", []string{bad, "--json"}, cli.ExitUsage, []string{`"ok": false`, `"line": 1`, `"field": "deadlin"`}, nil},
		{"as JSON", "", []string{"../../examples/trip.yaml", "--json"}, cli.ExitOK, []string{`"ok": true`, `"calls": 4`}, nil},
		{"no file", "", []string{"none.yaml"}, cli.ExitUsage, nil, []string{"plan: open none.yaml: no such file"}},
		{"too large", strings.Repeat(" ", tool.MaxDocumentBytes+1), []string{"-"}, cli.ExitUsage, nil, []string{"plan: more than 1 MiB, which is the limit"}},
		{"no argument", "", nil, cli.ExitUsage, nil, []string{"expected one plan file, or - for standard input, got 0 words"}},
	} {
		command(tc.in, append([]string{"turn", "validate"}, tc.args...)...).check(t, tc.name, tc.code, tc.out, tc.err)
	}
}

func TestTurnMistakes(t *testing.T) {
	trip := "../../examples/trip.yaml"
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"turn", "run", trip, "--deadline=-1s"}, cli.ExitUsage, "--deadline: expected a time such as 2s or 500ms, 596h at most, got -1s"},
		{[]string{"turn", "run", trip, "--deadline=600h"}, cli.ExitUsage, "596h at most, got 600h"},
		{[]string{"turn", "run", trip, "--turn=a b"}, cli.ExitUsage, `--turn: id "a b"`},
		{[]string{"turn", "run", trip, "--turn=a.b"}, cli.ExitUsage, "a.b"},
		{[]string{"turn", "run", planFile(t, "calls: 3")}, cli.ExitUsage, "plan.yaml:1: calls: expected a list, got 3"},
		{[]string{"turn", "run", trip, "--nats-url=nats://127.0.0.1:1"}, cli.ExitUnavailable, `start one with "executor dev"`},
		{[]string{"tools", "--nats-url=http://127.0.0.1:1"}, cli.ExitUsage, `scheme "http": expected nats, tls, ws or wss`},
		{[]string{"tools", "--nats-url=nats://127.0.0.1:70000"}, cli.ExitUsage, "port 70000: expected 1 to 65535"},
		{[]string{"tools", "--creds=/none.creds"}, cli.ExitUsage, "/none.creds"},
		{[]string{"tools", "--prefix=a.b"}, cli.ExitUsage, "a.b"},
		{[]string{"dev", "--port=70000"}, cli.ExitUsage, "--port: expected 1 to 65535, 0 for 4222 or -1 for any free one, got 70000"},
		{[]string{"serve", "--embedded", "--port=-2"}, cli.ExitUsage, "--port: expected 1 to 65535"},
		{[]string{"trace"}, cli.ExitUsage, "expected the id of one turn, got 0 words"},
		{[]string{"trace", "a b"}, cli.ExitUsage, "a b"},
		{[]string{"trace", "t", "--json", "--svg=x"}, cli.ExitUsage, "[json svg]"},
		{[]string{"late", "a/b/c"}, cli.ExitUsage, "b/c"},
		{[]string{"late", "a", "--wait=-1s"}, cli.ExitUsage, "--wait: expected a time such as 30s, got -1s"},
		{[]string{"late", "a", "--nats-url=nats://127.0.0.1:1"}, cli.ExitUnavailable, `start one with "executor dev"`},
	} {
		command("", tc.args...).check(t, strings.Join(tc.args, " "), tc.code, nil, []string{tc.want})
	}
}

// trip is a server, a worker with the tools of the example, and executor serve.
func trip(t *testing.T) string {
	t.Helper()
	server := natstest.Server(t)
	at := "--nats-url=" + server.ClientURL()
	work(t, server, "flight_search", "flight_cache", "hotel_search", "hotel_cache", "weather", "book_trip", "slow")
	background(t, "executor is ready", "serve", at)
	return at
}

func TestTurnRun(t *testing.T) {
	at := trip(t)
	quick := planFile(t, `
calls:
  - {id: flights, tool: flight_search, args: {from: ZRH, to: LIS}}
  - {id: booking, tool: book_trip, args: {flight: {$from: flights, pointer: /flights/0/id}}}
`)
	s := command("", "turn", "run", at, "--values", "--turn=quick", quick)
	s.check(t, "a plan", cli.ExitOK, []string{"flights  success", "booking  success", `"flight": "TB347"`, "completed: "},
		[]string{"flights: attempt 1 at flight_search on ", "booking: ✓ ", "executor trace quick"})
	s = command("", "turn", "run", at, "-q", quick)
	s.check(t, "quiet", cli.ExitOK, []string{"completed: "}, nil)
	if strings.Contains(s.err, "attempt") {
		t.Errorf("quiet: stderr %q, want nothing of attempts", s.err)
	}

	s = command("", "turn", "run", at, "--json", quick)
	var last wire.Event
	lines := strings.Split(strings.TrimSpace(s.out), "\n")
	for _, line := range lines {
		last = wire.Event{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("--json wrote %q: %v", line, err)
		}
	}
	if s.code != cli.ExitOK || len(lines) < 6 || last.Type != wire.TurnEnded || last.Outcome == nil || last.Outcome.Status != wire.Completed {
		t.Errorf("--json ended with %d and %+v, want 0 and a completed turn", s.code, last)
	}

	s = command("", "turn", "validate", at, "--tools", planFile(t, "calls:\n  - {id: a, tool: weathr}\n  - {id: b, tool: weather, args: {town: x}}\n"))
	s.check(t, "unknown tools", cli.ExitOK, nil, []string{":2: calls[0].tool: nobody knows weathr; did you mean weather?", ":3: calls[1].args: arguments of weather are invalid"})

	s = command("", "turn", "run", at, planFile(t, "calls:\n  - {id: a, tool: weathr}\n"))
	s.check(t, "an unknown tool", cli.ExitFailed, []string{"escalated: "}, []string{"What can be done:\n  a → did you mean weather?"})
}

// A turn that runs out of time says how to get what is still to come; that is there, and so is the journal.
func TestTurnLateAndTrace(t *testing.T) {
	at := trip(t)
	plan := planFile(t, `
deadline: 700ms
calls:
  - {id: flights, tool: flight_search, args: {from: ZRH, to: LIS}}
  - {id: hotels, tool: hotel_search, args: {city: Lisbon, delay_ms: 1200}}
`)
	s := command("", "turn", "run", at, "--turn=slowly", plan)
	s.check(t, "out of time", cli.ExitFailed, []string{"hotels   timed_out", "partial: "}, []string{"executor late slowly/hotels"})

	command("", "late", at, "slowly/hotels", "--wait=10s").check(t, "late", cli.ExitOK, []string{`"hotels"`}, nil)
	command("", "late", at, "hotels", "--json").check(t, "late as JSON", cli.ExitOK, []string{`"turn": "slowly"`, `"status": "success"`}, nil)
	command("", "late", at, "flights").check(t, "not late", cli.ExitFailed, nil, []string{"flights"})

	command("", "trace", at, "slowly", "--width=90").check(t, "trace", cli.ExitOK, []string{"turn slowly · partial", "#1 flight_search on ", "… timed_out", "late: success", "▒", "│"}, nil)
	svg := filepath.Join(t.TempDir(), "t.svg")
	command("", "trace", at, "slowly", "--svg="+svg).check(t, "svg", cli.ExitOK, nil, []string{"wrote "})
	if b, err := os.ReadFile(svg); err != nil || !strings.HasPrefix(string(b), "<svg ") {
		t.Errorf("the picture is %.40q, %v", b, err)
	}
	s = command("", "trace", at, "slowly", "--json")
	s.check(t, "events", cli.ExitOK, []string{`"type":"TurnStarted"`, `"type":"LateResult"`}, nil)
	command("", "trace", at, "never").check(t, "no journal", cli.ExitFailed, nil, []string{"never"})
}

func TestCtrlCCancelsTheTurn(t *testing.T) {
	at := trip(t)
	plan := planFile(t, "calls:\n  - {id: nap, tool: hotel_search, args: {city: Rome, delay_ms: 60000}}\n")
	ctx, stop := context.WithCancel(t.Context())
	outs, errs, ended := newPage(), newPage(), make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"turn", "run", at, plan}, strings.NewReader(""), outs, errs)
	}()
	errs.await(t, "progress")
	stop()
	if code := <-ended; code != cli.ExitFailed {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailed)
	}
	if !strings.Contains(outs.String(), "cancelled: ") {
		t.Errorf("stdout %q, want a cancelled turn", outs)
	}
}

// Of a turn of several calls each line says of which call it speaks.
func TestScreenOfManyCalls(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b)
	s.many = true
	for i, ev := range []wire.Event{
		{Type: wire.TurnStarted},
		{Type: wire.AttemptStarted, Call: "a", Attempt: 1, Tool: "x", Worker: "w1"},
		{Type: wire.ProgressEvent, Call: "a", Attempt: 1, Progress: &wire.ProgressRecord{Done: 1, Total: 2}},
		{Type: wire.ProgressEvent, Call: "b", Attempt: 1, Progress: &wire.ProgressRecord{Done: 1, Total: 4}},
		{Type: wire.ProgressEvent, Call: "a", Attempt: 1, Progress: &wire.ProgressRecord{Done: 2, Total: 2}},
		{Type: wire.ToolError, Call: "a", Attempt: 1, Error: fault.New(fault.Upstream, "no"), Classification: "transient", Decision: "alternative", Because: "it is used up; y is tried instead"},
		{Type: wire.AlternativeChosen, Call: "a", Tool: "y", Because: "it is used up; y is tried instead"},
		{Type: wire.AlternativeChosen, Call: "a", Tool: "z", Because: "the circuit breaker of y is open"},
		{Type: wire.TurnDeadline},
		{Type: wire.CallSettled, Call: "b", Result: &tool.Result{Status: tool.TimedOut, Sentence: "b timed \x1bout"}},
		{Type: wire.ToolError}, {Type: wire.ProgressEvent}, {Type: wire.CallSettled}, {},
	} {
		ev.AtMs = float64(100 * i)
		s.show(&ev)
	}
	want := ` 100.0 ms  a: attempt 1 at x on w1
 200.0 ms  a: progress 50 %
 300.0 ms  b: progress 25 %
 500.0 ms  a: upstream (transient) → alternative, because it is used up; y is tried instead
 700.0 ms  a: → z, because the circuit breaker of y is open
 800.0 ms  the deadline has come
 900.0 ms  b: … b timed ·out
`
	if b.String() != want {
		t.Errorf("the screen shows\n%s\nwant\n%s", b.String(), want)
	}
}

// last is what stands on a terminal in the end, as far as a board writes: up, back to the beginning, empty the line.
func last(t *testing.T, written string) string {
	t.Helper()
	var lines []string
	at := 0
	for _, part := range regexp.MustCompile(`\x1b\[\d+A|\r\x1b\[K|\n|[^\x1b\r\n]+`).FindAllString(written, -1) {
		up := 0
		switch {
		case part == "\n":
			at++
		case part == erase:
			for len(lines) <= at {
				lines = append(lines, "")
			}
			lines[at] = ""
		case strings.HasPrefix(part, "\x1b"):
			if _, err := fmt.Sscanf(part, "\x1b[%dA", &up); err != nil || up > at {
				t.Fatalf("the board goes up %d lines from line %d", up, at)
			}
			at -= up
		default:
			lines[at] += part
		}
	}
	return strings.Join(lines, "\n")
}

func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		board := newBoard(&b, 60, 24, []tool.Call{{ID: "flights"}, {}})
		board.take(&wire.Event{Type: wire.CallReady, Call: "flights"})
		board.take(&wire.Event{Type: wire.AttemptStarted, Call: "flights", Attempt: 1, Tool: "flight_search", Worker: "w1"})
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		want := "▶ flights    1.50 s  attempt 1 at flight_search on w1\n  c2         0.0 ms  waits"
		if got := last(t, b.String()); got != want {
			t.Errorf("while it runs the board shows\n%s\nwant\n%s", got, want)
		}
		board.take(&wire.Event{Type: wire.ProgressEvent, Call: "flights", Attempt: 1, Progress: &wire.ProgressRecord{Done: 1, Total: 2, Message: "\x1b[2J" + strings.Repeat("long ", 40)}})
		board.take(&wire.Event{Type: wire.CallSettled, Call: "c2", Result: &tool.Result{Status: tool.Success, DurationMs: 12, Sentence: "it answered"}})
		board.close()
		want = "▶ flights    1.50 s  attempt 1  progress  50 %  ·[2Jlong l…\n✓ c2        12.0 ms  it answered"
		if got := last(t, b.String()); got != want {
			t.Errorf("in the end the board shows\n%s\nwant\n%s", got, want)
		}
	})
}

// Of very many calls those are shown that something happens to, and the lines stay as many.
func TestBoardOfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		board := newBoard(&b, 60, 24, make([]tool.Call, 100))
		board.take(&wire.Event{Type: wire.AttemptStarted, Call: "c70", Attempt: 1, Tool: "x"})
		board.take(&wire.Event{Type: wire.CallSettled, Call: "c3", Result: &tool.Result{Status: tool.Success, DurationMs: 1}})
		board.close()
		lines := strings.Split(last(t, b.String()), "\n")
		if len(lines) != boardLines || !strings.HasPrefix(lines[0], "▶ c70") || !strings.Contains(lines[boardLines-1], "1 of 100 calls have ended") {
			t.Errorf("the board shows %d lines:\n%s\nwant c70 first and the count last", len(lines), strings.Join(lines, "\n"))
		}
	})
}

// On a low terminal there are no more lines than it can show: what has scrolled away cannot be written over.
func TestBoardOnALowTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for height, want := range map[int]int{1: 1, 2: 1, 5: 4, 11: 10, 100: 10} {
			var b strings.Builder
			board := newBoard(&b, 60, height, make([]tool.Call, 10))
			board.take(&wire.Event{Type: wire.AttemptStarted, Call: "c7", Attempt: 1, Tool: "x"})
			board.close()
			if lines := strings.Split(last(t, b.String()), "\n"); len(lines) != want {
				t.Errorf("the board has %d lines of a terminal's %d, want %d", len(lines), height, want)
			}
		}
	})
}
