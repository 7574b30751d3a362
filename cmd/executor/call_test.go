package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

func TestCall(t *testing.T) {
	at := stage(t)
	file := filepath.Join(t.TempDir(), "args.json")
	if err := os.WriteFile(file, []byte(`{"text": "from a file"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, in string
		args     []string
		code     int
		out, err []string
	}{
		{"success", "", []string{"calculator", `{"expression": "2 * (3 + 4)"}`}, 0, []string{`"value": 14`}, []string{"attempt 1", "✓ calculator answered"}},
		{"no arguments are {}", "", []string{"echo"}, 0, []string{"{}"}, nil},
		{"from a file", "", []string{"echo", "@" + file}, 0, []string{`"text": "from a file"`}, nil},
		{"from standard input", `{"text": "piped"}`, []string{"echo", "-"}, 0, []string{`"text": "piped"`}, nil},
		{"retries with their delays", "", []string{"flaky", `{"fail_times": 2}`}, 0, []string{`"attempt": 3`},
			[]string{"upstream (transient): attempt 1 fails, as you asked → retry in ", "attempt 3", "✓ flaky answered at attempt 3"}},
		{"all violations", "", []string{"calculator", `{"expresion": 7}`}, 1, nil,
			[]string{"✗ invalid_arguments [not_started]: ", `/expresion: expected a known property, perhaps "expression"`, "/expression: expected string, got missing"}},
		{"a name that nobody has", "", []string{"calculater"}, 1, nil, []string{"✗ tool_not_found [not_started]: there is no tool named calculater", "→ did you mean calculator?"}},
		{"a name that cannot be", "", []string{"a.b"}, 1, nil, []string{`✗ tool_not_found [not_started]: tool name "a.b": character 2 is '.'`}},
		{"cut off JSON", "", []string{"echo", `{"text": "hi"`}, 1, nil, []string{"✗ truncated_call [not_started]: the JSON ends at byte 13 inside an object"}},
		{"its timeout", "", []string{"slow", `{"seconds": 60}`, "--timeout=150ms"}, 1, nil, []string{"✗ timeout [stopped]: slow did not answer within 150ms (2 attempts)"}},
		{"its deadline", "", []string{"slow", `{"seconds": 60}`, "--deadline=150ms"}, 1, nil, []string{"✗ deadline [unknown]: "}},
		{"quiet", "", []string{"echo", "-q"}, 0, []string{"{}"}, nil},
	} {
		s := command(tc.in, append([]string{"call", at}, tc.args...)...)
		s.check(t, tc.name, tc.code, tc.out, tc.err)
		if tc.name == "quiet" && s.err != "" {
			t.Errorf("quiet: stderr %q, want nothing", s.err)
		}
	}
}

func TestCallJSON(t *testing.T) {
	at := stage(t)
	for _, tc := range []struct {
		args   []string
		code   int
		status tool.Status
		kind   fault.Kind
	}{
		{[]string{"echo", `{"a": 1}`}, 0, tool.Success, ""},
		{[]string{"slow", `{"seconds": "long"}`}, 1, tool.Failed, fault.InvalidArguments},
		{[]string{"slow", `{`}, 1, tool.Failed, fault.TruncatedCall},
		{[]string{"a.b"}, 1, tool.Failed, fault.ToolNotFound},
	} {
		s := command("", append([]string{"call", at, "--json"}, tc.args...)...)
		var r tool.Result
		if err := json.Unmarshal([]byte(s.out), &r); err != nil {
			t.Errorf("call --json %v wrote %q: %v", tc.args, s.out, err)
			continue
		}
		var kind fault.Kind
		if r.Fault != nil {
			kind = r.Fault.Kind
		}
		if s.code != tc.code || r.Status != tc.status || kind != tc.kind || s.err != "" {
			t.Errorf("call --json %v = %d, %s, %q, stderr %q; want %d, %s, %q and silence", tc.args, s.code, r.Status, kind, s.err, tc.code, tc.status, tc.kind)
		}
	}
}

func TestCallEvents(t *testing.T) {
	s := command("", "call", stage(t), "--events", "echo")
	var types []string
	for line := range strings.Lines(s.err) {
		var ev struct{ Type string }
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			break // the line that says how it ended
		}
		types = append(types, ev.Type)
	}
	if got, want := strings.Join(types, " "), "TurnStarted CallReady AttemptStarted CallSettled TurnEnded"; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// Ctrl-C reaches the tool, and the call says so.
func TestCtrlCCancelsTheTool(t *testing.T) {
	at := stage(t)
	ctx, stop := context.WithCancel(t.Context())
	errs, ended := newPage(), make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"call", at, "slow", `{"seconds": 60}`}, strings.NewReader(""), discard, errs)
	}()
	errs.await(t, "progress")
	stop()
	if code := <-ended; code != cli.ExitFailed {
		t.Errorf("exit code %d, want %d", code, cli.ExitFailed)
	}
	if want := "✗ cancelled [stopped]: the caller cancelled slow; its worker confirmed that it was stopped"; !strings.Contains(errs.String(), want) {
		t.Errorf("stderr %q, want %q in it", errs, want)
	}
}

func TestNobodyThere(t *testing.T) {
	at := "--nats-url=" + natstest.URL(t)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no NATS", []string{"call", "echo", "--nats-url=nats://127.0.0.1:1"}, `start one with "executor dev", or pass --nats-url`},
		{"no NATS to list from", []string{"tools", "--nats-url=nats://127.0.0.1:1"}, `start one with "executor dev", or pass --nats-url`},
		{"no executor", []string{"call", "echo", at}, "no executor is running: start one with `executor serve` or `executor dev`"},
	} {
		s := command("", tc.args...)
		s.check(t, tc.name, cli.ExitUnavailable, nil, []string{tc.want})
	}
}

func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"nosuch"}, []string{`unknown command "nosuch"`, "see executor --help"}},
		{[]string{"cal"}, []string{"Did you mean this?", "call"}},
		{[]string{"call"}, []string{"expected the name of a tool and its arguments as one JSON object in quotes, got 0 words", "see executor call --help"}},
		{[]string{"call", "echo", `{"a":`, `1}`}, []string{"in quotes, got 3 words"}},
		{[]string{"call", "echo", "--nosuch"}, []string{"unknown flag: --nosuch", "see executor call --help"}},
		{[]string{"call", "echo", "--timeout=-5s"}, []string{"--timeout: expected a time such as 2s or 500ms, got -5s"}},
		{[]string{"call", "echo", "@/no/such/file"}, []string{"arguments: open /no/such/file"}},
		{[]string{"call", "echo", "--password-file=x"}, []string{"--password-file is given without --user"}},
		{[]string{"tools", "--log-level=loud"}, []string{`log level "loud": expected debug, info, warn or error`}},
		{[]string{"tools", "--config=/no/such/file"}, []string{"configuration: open /no/such/file"}},
	} {
		command("", tc.args...).check(t, strings.Join(tc.args, " "), cli.ExitUsage, nil, tc.want)
	}
}

func TestPlainText(t *testing.T) {
	for in, want := range map[string]string{
		"two\nlines":           "two\nlines",
		"red \x1b[31m":         "red ·[31m",
		"turned \u202eround":   "turned ·round",
		"bell\a and back\b":    "bell· and back·",
		"Zürich, 東京 and emoji": "Zürich, 東京 and emoji",
	} {
		if got := plainText(in); got != want {
			t.Errorf("plainText(%q) = %q, want %q", in, got, want)
		}
	}
}
