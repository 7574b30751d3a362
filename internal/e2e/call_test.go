//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// What a new user does in the other terminal: the commands that `executor dev` prints, and mistakes.
func TestCalls(t *testing.T) {
	_, url := dev(t, "--files", "testdata")
	file := filepath.Join(t.TempDir(), "args.json")
	if err := os.WriteFile(file, []byte(`{"expression":"6*7"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		args  []string
		stdin string
		code  int
		out   string // regular expression; what must be on standard output
		errs  []string
	}{
		{"success", []string{"calculator", `{"expression": "2 * (3 + 4)"}`}, "", cli.ExitOK, `"value": 14`, []string{`attempt 1 on \w+`, `✓ calculator answered`}},
		{"quiet", []string{"-q", "calculator", `{"expression": "1"}`}, "", cli.ExitOK, `"value": 1`, []string{`^$`}},
		{"a file", []string{"calculator", "@" + file}, "", cli.ExitOK, `"value": 42`, nil},
		{"standard input", []string{"calculator", "-"}, `{"expression":"6*7"}`, cli.ExitOK, `"value": 42`, nil},
		{"no arguments", []string{"http_fetch"}, "", cli.ExitOK, `It works`, nil},
		{"a folder", []string{"file_search", `{"query":"tool that takes as long"}`}, "", cli.ExitOK, `"path": "pause.sh"`, nil},

		{"all violations", []string{"slow", `{"seconds":"x","stubborn":3,"pace":1}`}, "", cli.ExitFailed, `^$`, []string{
			`✗ invalid_arguments`, `/pace: `, `/seconds: expected number, got string`, `/stubborn: expected boolean, got number`, `→ correct these arguments`}},
		{"the tool says no", []string{"calculator", `{"expression":"1/0"}`}, "", cli.ExitFailed, `^$`, []string{`✗ failed.*: division by zero`}},
		{"unknown tool", []string{"calculater"}, "", cli.ExitFailed, `^$`, []string{`✗ tool_not_found.*: there is no tool named calculater`, `did you mean calculator\?`}},
		{"an impossible name", []string{"a.b>c"}, "", cli.ExitFailed, `^$`, []string{`a\.b>c`}},
		{"cut off", []string{"calculator", `{"expression":`}, "", cli.ExitFailed, `^$`, []string{`✗ truncated_call.*: the JSON ends at byte 14`}},
		{"no JSON", []string{"calculator", `{"expression": oops}`}, "", cli.ExitFailed, `^$`, []string{`✗ invalid_arguments.*: .*byte 15 in /expression`}},
		{"a key twice", []string{"calculator", `{"expression":"1","expression":"2"}`}, "", cli.ExitFailed, `^$`, []string{`✗ invalid_arguments.*: .*"expression" occurs twice`}},
		{"no such file", []string{"calculator", "@none.json"}, "", cli.ExitUsage, `^$`, []string{`arguments: open none\.json: no such file`}},
		{"no such flag", []string{"calculator", "--fast"}, "", cli.ExitUsage, `^$`, []string{`unknown flag: --fast`}},
		{"no tool", nil, "", cli.ExitUsage, `^$`, []string{`expected the name of a tool`}},
		{"no server", []string{"calculator", "--nats-url", "nats://127.0.0.1:1"}, "", cli.ExitUnavailable, `^$`, []string{
			`cannot connect to NATS at nats://127\.0\.0\.1:1 `, `start one with "executor dev"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := runWith(t, strings.NewReader(tc.stdin), url, append([]string{"call"}, tc.args...)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			if !regexp.MustCompile(tc.out).MatchString(r.out) {
				t.Errorf("standard output is\n%s\nwant %s", r.out, tc.out)
			}
			for _, want := range tc.errs {
				if !regexp.MustCompile(want).MatchString(r.err) {
					t.Errorf("standard error is\n%s\nwant %s", r.err, want)
				}
			}
		})
	}

	t.Run("flaky", func(t *testing.T) {
		r := run(t, url, "call", "flaky", `{"fail_times": 2}`)
		if r.code != cli.ExitOK || !strings.Contains(r.out, `"attempt": 3`) {
			t.Errorf("exit code %d, %s, want the third attempt to succeed", r.code, r.out)
		}
		delays := regexp.MustCompile(`upstream \(transient\): attempt (\d) fails, as you asked → retry in ([0-9.]+) ms, because it is read`).FindAllStringSubmatch(r.err, -1)
		if len(delays) != 2 {
			t.Fatalf("it says\n%s\nwant two retries with their delays", r.err)
		}
		for i, d := range delays {
			base := float64(100 * (i + 1))
			if ms, err := strconv.ParseFloat(d[2], 64); err != nil || d[1] != fmt.Sprint(i+1) || ms < 0.9*base || ms > 1.1*base {
				t.Errorf("attempt %s is followed by a wait of %s ms, want attempt %d and %v ms ± 10 %%", d[1], d[2], i+1, base)
			}
		}
		if !regexp.MustCompile(`attempt 3 on \w+\n✓ flaky answered at attempt 3`).MatchString(r.err) {
			t.Errorf("it says\n%s\nwant the third attempt at last", r.err)
		}
	})

	t.Run("slow", func(t *testing.T) {
		began := time.Now()
		r := run(t, url, "call", "slow", "--timeout", "400ms", `{"seconds": 60}`)
		if r.code != cli.ExitFailed || !strings.Contains(r.err, ": slow did not answer within 400ms (2 attempts); its worker confirmed that it was stopped") {
			t.Errorf("exit code %d\n%s\nwant a timeout that the worker confirmed", r.code, r.err)
		}
		if !strings.Contains(r.err, "taking its time") {
			t.Errorf("it says\n%s\nwant progress", r.err)
		}
		t.Logf("two attempts of 400 ms each took %v", time.Since(began))
	})

	t.Run("own timeout", func(t *testing.T) {
		r := run(t, url, "call", "slow", "--json", "--deadline", "4s", `{"seconds": 60}`)
		res := decode[tool.Result](t, r.out)
		if r.code != cli.ExitFailed || len(res.Attempts) == 0 || res.Attempts[0].Kind != fault.Timeout {
			t.Fatalf("exit code %d, %s, want a timeout first", r.code, r.out)
		}
		if ms := res.Attempts[0].DurationMs; ms < 3000 || ms > 3500 {
			t.Errorf("the first attempt took %v ms, want the 3000 of its manifest", ms)
		}
	})

	t.Run("ten megabytes", func(t *testing.T) {
		text := `{"text":"` + strings.Repeat("0123456789", 1<<20) + `"}`
		r := runWith(t, strings.NewReader(text), url, "call", "echo", "-", "--json")
		res := decode[tool.Result](t, r.out)
		var got bytes.Buffer
		if err := json.Compact(&got, res.Value); err != nil || got.String() != text {
			t.Errorf("exit code %d, %d bytes came back, %v, want the %d that went there\n%.300s", r.code, got.Len(), err, len(text), r.err)
		}
	})

	t.Run("too much", func(t *testing.T) {
		r := runWith(t, strings.NewReader(strings.Repeat(" ", tool.MaxArgs+1)), url, "call", "echo", "-")
		if r.code == cli.ExitOK || !strings.Contains(r.err, "more than 64 MiB, which is the limit") {
			t.Errorf("exit code %d, %.300s, want the limit", r.code, r.err)
		}
	})

	t.Run("json", func(t *testing.T) {
		good := decode[tool.Result](t, run(t, url, "call", "calculator", "--json", `{"expression":"1"}`).out)
		if good.Status != tool.Success || len(good.Attempts) != 1 || good.Fault != nil {
			t.Errorf("call --json = %+v, want a success in one attempt", good)
		}
		r := run(t, url, "call", "slow", "--json", `{"seconds":"x","stubborn":3}`)
		bad := decode[tool.Result](t, r.out)
		if r.code != cli.ExitFailed || bad.Status != tool.Failed || bad.Fault == nil || len(bad.Fault.Violations) != 2 || r.err != "" {
			t.Errorf("call --json = %d, %+v, %q, want two violations and nothing beside", r.code, bad, r.err)
		}
		tools := decode[[]registry.ToolInfo](t, run(t, url, "tools", "--json").out)
		workers := decode[[]registry.WorkerInfo](t, run(t, url, "workers", "--json").out)
		if len(tools) < 8 || len(workers) != 2 {
			t.Errorf("%d tools and %d workers, want the demo tools, of two workers", len(tools), len(workers))
		}
		if v := decode[cli.Build](t, run(t, url, "version", "--json").out); v.Version == "" || v.Go == "" {
			t.Errorf("version --json = %+v, want a version and Go's", v)
		}
	})

	t.Run("events", func(t *testing.T) {
		r := run(t, url, "call", "flaky", "--events", `{"fail_times":1}`)
		var seq int64
		var kinds []string
		for text := range strings.Lines(r.err) {
			if !strings.HasPrefix(text, "{") {
				continue // what is for people
			}
			ev := decode[wire.Event](t, text)
			if ev.Seq != seq+1 {
				t.Errorf("event %d after %d", ev.Seq, seq)
			}
			seq = ev.Seq
			kinds = append(kinds, ev.Type)
		}
		const want = "TurnStarted CallReady AttemptStarted ToolError RetryScheduled AttemptStarted CallSettled TurnEnded"
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("events %s, want %s", got, want)
		}
	})

	t.Run("lists", func(t *testing.T) {
		if r := run(t, url, "tools"); r.code != cli.ExitOK || !regexp.MustCompile(`(?m)^flaky +1\.0\.0 +read +1 `).MatchString(r.out) {
			t.Errorf("tools = %d\n%s, want flaky in it", r.code, r.out)
		}
		if r := run(t, url, "workers"); r.code != cli.ExitOK || !regexp.MustCompile(`(?m)^\w+ +0/\d+ +ready .*crash$`).MatchString(r.out) {
			t.Errorf("workers = %d\n%s, want the one of crash", r.code, r.out)
		}
	})

	t.Run("crash", func(t *testing.T) {
		r := run(t, url, "call", "crash", "--json")
		res := decode[tool.Result](t, r.out)
		// Its second attempt finds no worker where the next process is slow to start.
		if r.code != cli.ExitFailed || res.Fault == nil || len(res.Attempts) == 0 || res.Attempts[0].Kind != fault.WorkerLost ||
			res.Fault.Kind != fault.WorkerLost && res.Fault.Kind != fault.Unavailable {
			t.Fatalf("exit code %d, %s, want worker_lost", r.code, r.out)
		}
		for _, a := range res.Attempts {
			if a.Kind == fault.WorkerLost {
				t.Logf("the worker was killed and that was noticed after %v ms", a.DurationMs)
				if a.DurationMs > 500 || a.Worker == "" {
					t.Errorf("worker %q was lost after %v ms, want its name and less than 500", a.Worker, a.DurationMs)
				}
			}
		}
		if res.Fault.Run() != fault.Unknown || strings.Contains(res.Sentence, "may have run") {
			t.Errorf("execution %s, %q: want unknown, and no word of it, for crash is read", res.Fault.Run(), res.Sentence)
		}
	})
}

// decode reads exactly one JSON value without unknown fields.
func decode[T any](t testing.TB, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %.1000s", err, text)
	}
	if d.More() {
		t.Errorf("more than one value in %.1000s", text)
	}
	return v
}

// Ctrl-C of the caller reaches the process group of the tool.
func TestCallerInterrupts(t *testing.T) {
	_, url := dev(t)
	b := newBench(t)
	b.worker(url, "w1", b.manifest("pause", tool.Write))
	p := begin(t, nil, url, "call", "pause", `{"seconds":60}`)
	at := b.await("start", 1)
	pressed := time.Now()
	p.signal(syscall.SIGINT)
	if code := p.wait(2 * time.Second); code != cli.ExitFailed || !strings.Contains(p.err.String(), "✗ cancelled") {
		t.Errorf("exit code %d\n%s, want 1 and that it was cancelled", code, &p.err)
	}
	t.Logf("Ctrl-C took %v", time.Since(pressed))
	b.await("term", 1)
	until(t, "the tool's process group is gone", time.Second, func() bool { return !groupAlive(t, at.group) })
	if n := len(b.lines("end")); n != 0 {
		t.Errorf("the tool ran to its end %d times, want it stopped", n)
	}
	if r := run(t, url, "call", "pause", `{"seconds":0}`); r.code != cli.ExitOK {
		t.Errorf("the next call: %d\n%s", r.code, r.err)
	}
}

func TestConfigCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "toolbus.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# mine\nnats_urls: x\ndrain: 5s\nport: many\n")
	r := run(t, "", "config", "check", file)
	if r.code != cli.ExitFailed || !strings.Contains(r.err, file+":2: nats_urls is not a setting") || !strings.Contains(r.err, file+":4: ") {
		t.Errorf("config check = %d, %s, want the mistakes of lines 2 and 4", r.code, r.err)
	}
	write("turn_timeout: 30h\nreplicas: 9\n")
	if r = run(t, "", "config", "check", file); r.code != cli.ExitFailed || !strings.Contains(r.err, "turn_timeout: expected 0s to 24h") || !strings.Contains(r.err, "replicas: expected 0 to 5") {
		t.Errorf("config check = %d, %s, want both mistakes", r.code, r.err)
	}
	write("drain: 5s\n")
	if r = run(t, "", "config", "check", file); r.code != cli.ExitOK || !strings.Contains(r.out, "drain: 5s") {
		t.Errorf("config check = %d, %s%s, want what holds", r.code, r.out, r.err)
	}
	if r = run(t, "", "serve", "--config", filepath.Join(t.TempDir(), "none.yaml")); r.code != cli.ExitUsage || !strings.Contains(r.err, "no such file") {
		t.Errorf("serve without its file = %d, %s", r.code, r.err)
	}
}
