package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// A program is toolworker under way in this process.
type program struct {
	cancel context.CancelFunc
	line   string // the first of stdout
	code   chan int
	stderr *bytes.Buffer // read it after code
}

// start runs toolworker until it says that it serves.
func start(t *testing.T, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	out, in := io.Pipe()
	p := &program{cancel: cancel, code: make(chan int, 1), stderr: &bytes.Buffer{}}
	go func() {
		p.code <- run(ctx, args, in, p.stderr)
		in.Close()
	}()
	r := bufio.NewReader(out)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("toolworker %v ended with %d before it served: %s", args, <-p.code, p.stderr)
	}
	p.line = line
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return p
}

// drain is Ctrl-C, and checks that all is well in the end.
func (p *program) drain(t *testing.T) {
	t.Helper()
	p.cancel()
	if code := <-p.code; code != cli.ExitOK {
		t.Errorf("exit code %d after Ctrl-C, want 0: %s", code, p.stderr)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func dial(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

const hello = `
id: hello
description: Greets.
effect: read
input_schema:
  type: object
  properties: {name: {type: string}}
  required: [name]
`

func TestExec(t *testing.T) {
	url := natstest.URL(t)
	p := start(t, "exec", "--manifest", write(t, "hello.yaml", hello), "--nats-url", url, "--env", "GREETING=hi", "--id", "w1",
		"--", "sh", "-c", `read args; echo "$GREETING $args from $TOOLBUS_TOOL"`)
	if want := "serving tool hello as worker w1 on " + url + "; Ctrl-C drains\n"; p.line != want {
		t.Errorf("it said %q, want %q", p.line, want)
	}

	nc := dial(t, url)
	for args, want := range map[string]string{
		`{"name":"$(id); ls"}`: `"hi {\"name\":\"$(id); ls\"} from hello"`,
		`{"name":7}`:           `"kind":"invalid_arguments"`,
	} {
		m, err := nc.Request("tb.v1.call.hello", []byte(args), 10*time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("hello(%s) = %s, %v, want %s", args, m.Data, err, want)
		}
	}
	p.drain(t)
	if _, err := nc.Request("tb.v1.call.hello", []byte(`{"name":"x"}`), 10*time.Second); err != nats.ErrNoResponders {
		t.Errorf("after the drain: %v, want no responders", err)
	}
}

// A call that runs when the drain begins gets its answer.
func TestExecDrains(t *testing.T) {
	url := natstest.URL(t)
	dir := t.TempDir()
	p := start(t, "exec", "-m", write(t, "hello.yaml", hello), "--nats-url", url, "--dir", dir,
		"sh", "-c", `: > began; while [ ! -e go ]; do sleep 0.01; done; echo '"done"'`)
	nc := dial(t, url)
	answer := make(chan string, 1)
	go func() {
		m, err := nc.Request("tb.v1.call.hello", []byte(`{"name":"x"}`), 30*time.Second)
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- string(m.Data)
	}()
	appears(t, filepath.Join(dir, "began"))
	p.cancel()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != `"done"` {
		t.Errorf("the call that ran got %s, want its answer", got)
	}
	p.drain(t)
}

// appears returns when the file is there: nothing else tells of a program's progress without a protocol.
func appears(t *testing.T, path string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s did not appear in 20 s", path)
		}
	}
}

func TestDemo(t *testing.T) {
	url := natstest.URL(t)
	p := start(t, "demo", "--nats-url", url, "--dir", "testdata", "--prefix", "x")
	if !strings.HasPrefix(p.line, "serving tools echo, calculator, ") {
		t.Errorf("it said %q, want the demo tools", p.line)
	}
	nc := dial(t, url)
	for call, want := range map[[2]string]string{
		{"echo", `{"a":1}`}:                              `{"a":1}`,
		{"calculator", `{"expression":"6*7"}`}:           `{"expression":"6*7","value":42}`,
		{"http_fetch", `{}`}:                             `It works`,
		{"file_search", `{"query":"retry_policy"}`}:      `"path":"broken.yaml"`,
		{"crash", `{"how":"panic"}`}:                     `"kind":"internal"`,
		{"table_query", `{"limit":1,"order_by":"to"}`}:   `"total":20`,
		{"flaky", `{"fail_times":1,"kind":"not_found"}`}: `"kind":"not_found"`,
	} {
		m, err := nc.Request("x.v1.call."+call[0], []byte(call[1]), 10*time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("%s(%s) = %v, %v, want %s", call[0], call[1], m, err, want)
		}
	}
	p.drain(t)
}

func TestExamples(t *testing.T) {
	const dir = "../../examples/tools/"
	url := natstest.URL(t)
	nc := dial(t, url)
	for _, tc := range []struct{ tool, runs, script, args, want string }{
		{"wordcount", "python3", "wordcount.py", `{"text":"to be or not\nto be","top":1}`, `{"lines": 2, "words": 6, "characters": 18, "top": [{"word": "be", "count": 2}]}`},
		{"wordcount", "python3", "wordcount.py", `{}`, `"kind":"invalid_arguments"`},
		{"disk", "sh", "disk.sh", `{}`, `"mounted":"/`},
	} {
		if _, err := exec.LookPath(tc.runs); err != nil {
			t.Logf("NO %s IN PATH: the example %s is not tested", tc.runs, tc.tool)
			continue
		}
		p := start(t, "exec", "-m", dir+tc.tool+".yaml", "--nats-url", url, "--", tc.runs, dir+tc.script)
		m, err := nc.Request("tb.v1.call."+tc.tool, []byte(tc.args), 20*time.Second)
		if err != nil || !strings.Contains(string(m.Data), tc.want) {
			t.Errorf("%s(%s) = %v, %v, want %s", tc.tool, tc.args, m, err, tc.want)
		}
		p.drain(t)
	}
}

func TestCheck(t *testing.T) {
	fine := write(t, "hello.yaml", hello)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check", fine}, &out, &errs); code != cli.ExitOK || !strings.Contains(out.String(), fine+": fine: tool hello\n") {
		t.Errorf("check = %d, %s%s, want it to be fine", code, &out, &errs)
	}
	out.Reset()
	code := run(t.Context(), []string{"check", "testdata/broken.yaml", fine, "testdata/none.yaml"}, &out, &errs)
	if code != cli.ExitFailed || !strings.Contains(errs.String(), "2 of 3 files cannot be used") {
		t.Errorf("check = %d, %s, want 1 and two of three", code, &errs)
	}
	for _, want := range []string{
		`testdata/broken\.yaml:2: id: `,
		`testdata/broken\.yaml:5: efect: `,
		`testdata/broken\.yaml:7: retry_policy\.max_attempts: `,
		`hello\.yaml: fine`,
		`testdata/none\.yaml: no such file`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("check says\n%s, want %s", &out, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	manifest := write(t, "hello.yaml", hello)
	const nowhere = "nats://127.0.0.1:1"
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"exec"}, cli.ExitUsage, "no command is given; end with --"},
		{[]string{"exec", "--", "sh"}, cli.ExitUsage, `required flag(s) "manifest" not set`},
		{[]string{"exec", "-m", manifest, "no-such-program"}, cli.ExitUsage, "command no-such-program: not found"},
		{[]string{"exec", "-m", "none.yaml", "sh"}, cli.ExitFailed, "none.yaml: no such file"},
		{[]string{"exec", "-m", "testdata/broken.yaml", "sh"}, cli.ExitFailed, "testdata/broken.yaml:5: efect: "},
		{[]string{"exec", "-m", manifest, "--max-output=0", "sh"}, cli.ExitUsage, "--max-output must be at least 1 byte"},
		{[]string{"exec", "-m", manifest, "--nats-url", nowhere, "sh"}, cli.ExitUnavailable, `start one with "executor dev"`},
		{[]string{"demo", "--nats-url", nowhere}, cli.ExitUnavailable, `start one with "executor dev"`},
		{[]string{"demo", "--nats-url", "http://127.0.0.1:1"}, cli.ExitUsage, `scheme "http": expected nats, tls, ws or wss`},
		{[]string{"demo", "--only", "nope"}, cli.ExitUsage, "there is no demo tool nope"},
		{[]string{"demo", "--log-level", "loud"}, cli.ExitUsage, `log level "loud"`},
		{[]string{"demo", "--no-such-flag"}, cli.ExitUsage, "unknown flag: --no-such-flag"},
		{[]string{"dance"}, cli.ExitUsage, `unknown command "dance"`},
		{[]string{"check"}, cli.ExitUsage, "requires at least 1 arg"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), tc.args, &out, &errs)
		if code != tc.code || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("toolworker %v = %d, %s, want %d, …%s…", tc.args, code, &errs, tc.code, tc.want)
		}
		if hint := strings.Contains(errs.String(), "--help"); hint != (code == cli.ExitUsage) {
			t.Errorf("toolworker %v: %s, want a hint at --help for mistakes of usage alone", tc.args, &errs)
		}
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"version", "--json"}, &out, io.Discard); code != cli.ExitOK {
		t.Fatalf("exit code %d, want 0", code)
	}
	var b cli.Build
	if err := json.Unmarshal(out.Bytes(), &b); err != nil || b.Version == "" || b.Go == "" {
		t.Errorf("version --json = %s, %v, want a version and Go's", &out, err)
	}
	out.Reset()
	if run(t.Context(), []string{"version"}, &out, io.Discard); !strings.HasPrefix(out.String(), "toolworker ") {
		t.Errorf("version = %s, want a line that begins with toolworker", &out)
	}
}
