//go:build unix

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// asWorker, set to the path of a trace, makes the test program a worker that runs one command.
const asWorker = "COMMAND_TEST_AS_WORKER"

func runAsWorker() {
	c := sh(`exec 9>"$1"; echo started >&9; exec sleep 600`, os.Getenv(asWorker))
	_, _ = c.run(context.Background(), nil, nil, func(wire.ProgressRecord) {})
}

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		runAsWorker()
		return
	}
	goleak.VerifyTestMain(m)
}

// sh is a Command of a shell script.
func sh(script string, args ...string) Command {
	return Command{Path: "sh", Args: append([]string{"-c", script, "tool"}, args...)}
}

// run runs c as a worker would, and fails where it takes longer than a test may.
func run(t *testing.T, c Command, args string) (string, *fault.Fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return runCtx(ctx, c, args)
}

func runCtx(ctx context.Context, c Command, args string) (string, *fault.Fault) {
	out, f := c.run(ctx, []byte(args), nil, func(wire.ProgressRecord) {})
	return string(out), f
}

func TestResult(t *testing.T) {
	for _, tc := range []struct {
		name, script, args, want string
	}{
		{"json", `printf '{"n":1}'`, `{}`, `{"n":1}`},
		{"a line end is no part of it", `echo '[1,2]'`, `{}`, `[1,2]`},
		{"arguments come on stdin", `cat`, `{"q":"a b"}`, `{"q":"a b"}`},
		{"no arguments are an empty object", `cat`, ``, `{}`},
		{"unicode", `cat`, `{"q":"Zürich 東京 🚀"}`, `{"q":"Zürich 東京 🚀"}`},
		{"text", `echo hello; echo "wor\"ld"`, `{}`, `"hello\nwor\"ld"`},
		{"nothing", `:`, `{}`, `null`},
		{"bytes that are not UTF-8", `printf 'a\377b'`, `{}`, `"a` + "\uFFFD" + `b"`},
		{"stderr is not the result", `echo 1; echo noise >&2`, `{}`, `1`},
		{"stdin not read", `exec <&-; echo true`, `{"big":"` + strings.Repeat("x", 1<<20) + `"}`, `true`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, f := run(t, sh(tc.script), tc.args)
			if f != nil {
				t.Fatalf("fault %v (%s), want result %s", f, f.Detail, tc.want)
			}
			if got != tc.want {
				t.Errorf("result %s, want %s", got, tc.want)
			}
		})
	}
}

func TestStrict(t *testing.T) {
	for script, want := range map[string]string{
		`echo hello`: `the command must write JSON to standard output, and wrote "hello"`,
		`:`:          `the command must write JSON to standard output, and wrote nothing`,
	} {
		c := sh(script)
		c.Strict = true
		if _, f := run(t, c, `{}`); f == nil || f.Kind != fault.InvalidResult || f.Message != want {
			t.Errorf("%s: fault %v, want invalid_result: %s", script, f, want)
		}
	}
}

// What a model puts into arguments is data, whatever a shell would make of it.
func TestArgumentsArriveLiterally(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	for _, text := range []string{"; rm -rf /", "$(touch " + marker + ")", "`touch " + marker + "`", "a\nb", `"'\`, "--help", "| cat", "%s%n"} {
		args, err := json.Marshal(map[string]string{"q": text})
		if err != nil {
			t.Fatal(err)
		}
		got, f := run(t, sh("cat"), string(args))
		if f != nil || got != string(args) {
			t.Errorf("arguments %s came back as %s, %v", args, got, f)
		}
		got, f = run(t, sh(`printf '%s.' "$1"`, text), "{}")
		var said string
		if f != nil || json.Unmarshal([]byte(got), &said) != nil || said != text+"." {
			t.Errorf("argument %q arrived as %s, %v", text, got, f)
		}
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("an argument was run by a shell")
	}
}

func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("NO python3 IN PATH: the Python bridge is not tested")
	}
	script := `import json,sys; a=json.load(sys.stdin); print(json.dumps({"words": len(a["text"].split()), "text": a["text"]}, ensure_ascii=False))`
	got, f := run(t, Command{Path: python, Args: []string{"-c", script}, Env: []string{"PYTHONIOENCODING=utf-8"}}, `{"text":"ein zwei dreißig"}`)
	if want := `{"words": 3, "text": "ein zwei dreißig"}`; f != nil || got != want {
		t.Errorf("result %s, %v, want %s", got, f, want)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("COMMAND_TEST_SECRET", "hunter2")
	t.Setenv("COMMAND_TEST_PASSED", "through")
	t.Setenv("TZ", "UTC")
	c := sh("env")
	c.Env = []string{"COMMAND_TEST_PASSED", "COMMAND_TEST_SET=a=b", "COMMAND_TEST_UNSET", "TOOLBUS_KEY=forged"}
	out, f := c.run(t.Context(), nil, []string{"TOOLBUS_TOOL=env", "TOOLBUS_KEY=k"}, nil)
	if f != nil {
		t.Fatal(f)
	}
	var text string
	if err := json.Unmarshal(out, &text); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(text, "\n")
	has := func(line string) bool {
		for _, l := range got {
			if l == line {
				return true
			}
		}
		return false
	}
	for _, want := range []string{"COMMAND_TEST_PASSED=through", "COMMAND_TEST_SET=a=b", "TOOLBUS_TOOL=env", "TOOLBUS_KEY=k", "TZ=UTC", "PATH=" + os.Getenv("PATH")} {
		if !has(want) {
			t.Errorf("the environment has no %s:\n%s", want, text)
		}
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "forged") {
		t.Errorf("the environment leaks:\n%s", text)
	}
}

func TestCallEnv(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	call := &worker.Call{
		Tool: "find", Key: "t1/c1",
		Ref:    wire.CallRef{Turn: "t1", Call: "c1", Attempt: 3},
		Header: wire.Header{"Traceparent": {"00-a-b-01"}, "tracestate": {"bad\x00"}},
	}
	got := callEnv(ctx, call)
	want := []string{"TOOLBUS_TOOL=find", "TOOLBUS_CALL=t1/c1", "TOOLBUS_ATTEMPT=3", "TOOLBUS_TIMEOUT_MS=", "TOOLBUS_KEY=t1/c1", "TRACEPARENT=00-a-b-01"}
	if len(got) != len(want) {
		t.Fatalf("callEnv = %q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("callEnv[%d] = %q, want %q", i, got[i], want[i])
		}
	}
	if got := callEnv(t.Context(), &worker.Call{Tool: "bare"}); !reflect.DeepEqual(got, []string{"TOOLBUS_TOOL=bare"}) {
		t.Errorf("callEnv of a bare request = %q, want the tool alone", got)
	}
}

func TestHandle(t *testing.T) {
	var h worker.Handler = sh(`printf '"%s"' "$TOOLBUS_CALL"`)
	got, err := h.Handle(t.Context(), &worker.Call{Tool: "x", Ref: wire.CallRef{Turn: "t", Call: "c", Attempt: 1}})
	if err != nil || fmt.Sprintf("%s", got) != `"t/c"` {
		t.Errorf("Handle = %s, %v, want \"t/c\"", got, err)
	}
	if got, err := sh("exit 1").Handle(t.Context(), &worker.Call{}); err == nil || got != nil {
		t.Errorf("Handle of exit 1 = %v, %v, want an error alone", got, err)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		c    Command
		want string
	}{
		{"fine", sh("true"), ""},
		{"missing", Command{Path: "no-such-program"}, "command no-such-program: not found; give its path, or put it in PATH"},
		{"missing path", Command{Path: "/no/such"}, "command /no/such: not found; give its path, or put it in PATH"},
		{"not executable", Command{Path: plain}, "command " + plain + ": not executable; chmod +x may help"},
		{"relative to the directory", Command{Path: "./plain", Dir: dir}, "command ./plain: not executable; chmod +x may help"},
		{"no directory", Command{Path: "sh", Dir: "/no/such"}, "directory of the command: stat /no/such: no such file or directory"},
		{"a nameless variable", Command{Path: "sh", Env: []string{"=x"}}, `environment: "" is not a name`},
	} {
		got := ""
		if err := tc.c.Check(); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s: Check() = %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestProgress(t *testing.T) {
	var got []wire.ProgressRecord
	c := sh(`printf '::progress 1/3 one\nnoise\n::progress 2\n::prog' >&2; printf 'ress 3/3  done \n::progress x\n::progress 1' >&2; exit 1`)
	_, f := c.run(t.Context(), nil, nil, func(p wire.ProgressRecord) { got = append(got, p) })
	want := []wire.ProgressRecord{{Done: 1, Total: 3, Message: "one"}, {Done: 2}, {Done: 3, Total: 3, Message: "done"}, {Done: 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("progress %v, want %v", got, want)
	}
	if f == nil || f.Detail != "noise\n::progress x" {
		t.Errorf("fault %v, want the rest of stderr as its detail", f)
	}
}
