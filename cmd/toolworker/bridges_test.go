package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

// files writes files into one folder, and gives the path of the first.
func files(t *testing.T, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(pairs); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, pairs[i]), []byte(pairs[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, pairs[0])
}

const item = `
id: item
description: Gets an item.
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
effect: read
`

func server(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/gone" {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(429)
		}
		fmt.Fprintf(w, "%q", r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestHTTP(t *testing.T) {
	t.Setenv("TOOLWORKER_TEST_SECRET", "hunter2-hunter2")
	url := natstest.URL(t)
	manifest := write(t, "item.yaml", item+"http: {url: '"+server(t)+"/{id}', allow_private: true, headers: {X-Key: '${env:TOOLWORKER_TEST_SECRET}'}}\n")
	p := start(t, "http", "--manifest", manifest, "--nats-url", url, "--log-level", "debug")
	nc := dial(t, url)
	for args, want := range map[string]string{`{"id":"a"}`: `"/a"`, `{"id":"gone"}`: `"retry_after_ms":3000`, `{}`: `"kind":"invalid_arguments"`} {
		m, err := nc.Request("tb.v1.call.item", []byte(args), 10*time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("item(%s) = %v, %v, want %s", args, m, err, want)
		}
	}
	p.drain(t)
	if strings.Contains(p.stderr.String(), "hunter2") {
		t.Errorf("the log has the secret: %s", p.stderr)
	}
}

func TestExecLines(t *testing.T) {
	url := natstest.URL(t)
	p := start(t, "exec", "-m", write(t, "hello.yaml", hello), "--nats-url", url, "--mode", "lines", "--pool", "2", "--",
		"sh", "-c", `while read -r line; do id=${line#*\"id\":\"}; echo "{\"id\":\"${id%%\"*}\",\"result\":$$}"; done`)
	nc := dial(t, url)
	seen := map[string]bool{}
	for range 5 {
		m, err := nc.Request("tb.v1.call.hello", []byte(`{"name":"x"}`), 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		seen[string(m.Data)] = true
	}
	if len(seen) > 2 {
		t.Errorf("five calls went to %d programs, want at most the two that there are", len(seen))
	}
	p.drain(t)
}

func TestRunConfig(t *testing.T) {
	url := natstest.URL(t)
	at := server(t)
	config := files(t, "tools.yaml", `
tools:
  - exec: {command: [sh, -c, 'cat sub.txt']}
    manifest: hello.yaml
  - http: {url: "`+at+`/{id}", allow_private: true}
    manifest: {id: item, effect: read}
  - http: other.yaml
  - openapi: {spec: api.yaml, server: "`+at+`", allow_private: true}
  - exec: {command: [sh, -c, 'while read -r line; do id=${line#*\"id\":\"}; echo "{\"id\":\"${id%%\"*}\",\"result\":7}"; done'], mode: lines}
    manifest: {id: lines, effect: read}
`, "hello.yaml", hello, "sub.txt", "from the folder",
		"other.yaml", strings.Replace(item, "id: item", "id: other", 1)+"http: {url: '"+at+"/o/{id}', allow_private: true}\n",
		"api.yaml", "openapi: 3.0.0\ninfo: {title: x, version: '1'}\npaths: {/api: {get: {operationId: api, responses: {'200': {description: ok}}}}}")
	p := start(t, "run", config, "--nats-url", url)
	if want := "serving tools hello, item, other, api, lines as worker "; !strings.HasPrefix(p.line, want) {
		t.Errorf("it said %q, want %q", p.line, want)
	}
	nc := dial(t, url)
	for name, want := range map[string]string{"hello": `"from the folder"`, "item": `"/x"`, "other": `"/o/x"`, "api": `"/api"`, "lines": "7"} {
		args := `{"id":"x","name":"n"}`
		if name == "api" {
			args = "{}"
		}
		m, err := nc.Request("tb.v1.call."+name, []byte(args), 10*time.Second)
		if err != nil || string(m.Data) != want {
			t.Errorf("%s = %v, %v, want %s", name, m, err, want)
		}
	}
	p.drain(t)
}

// What is wrong is said with the line and the entry.
func TestConfigMistakes(t *testing.T) {
	config := files(t, "tools.yaml", `tools:
  - exec: {command: [no-such-program]}
    manifest: {id: a}
  - exec: {comand: [sh], strict: 3}
    manifest:
      id: b
      input_schema:
        type: object
        properties:
          x: {type: nmber}
  - http:
      url: https://example.com/{id}
      headers:
        X-Key: ${env:TOOLWORKER_TEST_NONE}
    manifest: {id: c}
  - http: {url: "https://example.com"}
    mcp: {}
  - exec: {command: [sh]}
    manifest: {id: d}
  - exec: {command: [sh], pool: 3}
    manifest: {id: d2}
  - exec: {command: [sh]}
    manifest: {id: d}
  - openapi: {spec: none.yaml}
  - mcp: {}
  - exek: {}
  - mcp: {command: [no-such-server]}
  - mcp: {url: "ftp://example.com"}
  - mcp: {url: "https://example.com/mcp", headers: {X-Key: "${env:TOOLWORKER_TEST_NONE}"}}
`)
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check", config}, &out, &errs); code != cli.ExitFailed {
		t.Errorf("check = %d, want %d", code, cli.ExitFailed)
	}
	for _, want := range []string{
		`tools.yaml:2: tools[0] (exec) cannot be used: command no-such-program: not found`,
		`tools.yaml:4: comand: unknown key; did you mean command?`,
		`tools.yaml:4: strict: expected true or false, got number in 3`,
		`tools.yaml:10: input_schema: `,
		"tools[2] (http) cannot be used:\n",
		`tools.yaml:14: http.headers.X-Key: the variable TOOLWORKER_TEST_NONE is not set`,
		`tools.yaml:16: expected one of exec, http, openapi and mcp, got http and mcp`,
		`pool and parallel go with mode: lines`,
		`tools[6] (exec) cannot be used: tools[4] (exec) has the tool d already`,
		`tools[7] (openapi) cannot be used`,
		`tools.yaml:25: expected either command or url`,
		`tools.yaml:26: exek: unknown key`,
		`tools.yaml:27: tools[10] (mcp) cannot be used: mcp: command no-such-server: `,
		`tools.yaml:28: tools[11] (mcp) cannot be used: mcp: url: expected http://`,
		`tools.yaml:29: tools[12] (mcp) cannot be used: mcp: header "X-Key": ${env:TOOLWORKER_TEST_NONE}: the variable is not set`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("check says\n%s, want %s", &out, want)
		}
	}
}

func TestBridgeMistakes(t *testing.T) {
	manifest := write(t, "hello.yaml", hello)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"http"}, cli.ExitUsage, "give either --manifest or --openapi"},
		{[]string{"http", "-m", manifest}, cli.ExitFailed, "the manifest has no http section"},
		{[]string{"http", "-m", manifest, "--server", "x"}, cli.ExitUsage, "--server goes with --openapi"},
		{[]string{"http", "--openapi", "none.yaml"}, cli.ExitFailed, "none.yaml: no such file"},
		{[]string{"exec", "-m", manifest, "--pool", "2", "sh"}, cli.ExitUsage, "--pool and --parallel go with --mode lines"},
		{[]string{"exec", "-m", manifest, "--mode", "x", "sh"}, cli.ExitUsage, "--mode must be call or lines"},
		{[]string{"run"}, cli.ExitUsage, "accepts 1 arg"},
		{[]string{"run", "none.yaml"}, cli.ExitFailed, "none.yaml: no such file"},
		{[]string{"run", write(t, "empty.yaml", "tools: []")}, cli.ExitFailed, "empty.yaml:1: tools: is missing or empty"},
		{[]string{"run", write(t, "odd.yaml", "tool: []")}, cli.ExitFailed, "odd.yaml:1: tool: unknown key; did you mean tools?"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tc.args, &out, &errs); code != tc.code || !strings.Contains(errs.String(), tc.want) {
			t.Errorf("toolworker %v = %d, %s, want %d, …%s…", tc.args, code, &errs, tc.code, tc.want)
		}
	}
}

func TestBridgeExamples(t *testing.T) {
	const dir = "../../examples/bridges/"
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("NO python3 IN PATH: examples/bridges is not tested")
	}
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"check", dir + "tools.yaml", dir + "forecast.yaml"}, &out, &errs); code != cli.ExitOK {
		t.Fatalf("check = %d, %s%s", code, &out, &errs)
	}
	url := natstest.URL(t)
	p := start(t, "run", dir+"tools.yaml", "--nats-url", url)
	nc := dial(t, url)
	for call, want := range map[[2]string]string{
		{"slug", `{"text":"Hello, World!"}`}:    `{"slug": "hello-world"}`,
		{"slug", `{"text":"!"}`}:                `"kind":"invalid_arguments"`,
		{"wordcount", `{"text":"a b","top":0}`}: `"words": 2`,
	} {
		m, err := nc.Request("tb.v1.call."+call[0], []byte(call[1]), 20*time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("%s(%s) = %v, %v, want %s", call[0], call[1], m, err, want)
		}
	}
	p.drain(t)
}

// The YAML of the page can be used, and the page knows every field.
func TestPageOfBridges(t *testing.T) {
	t.Setenv("WEATHER_TOKEN", "x")
	page, err := os.ReadFile("../../docs/bridges.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Errorf("docs/bridges.md has %d blocks of YAML, want 2", len(blocks))
	}
	for _, b := range blocks {
		tools, _, err := checked(write(t, "page.yaml", string(b[1])))
		if err != nil {
			t.Error(err)
		}
		for _, tl := range tools {
			if problems := tool.Check(&tl.Manifest); len(problems) > 0 {
				t.Error(problems)
			}
		}
	}
}
