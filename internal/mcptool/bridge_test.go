package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

func find(t *testing.T, b *Bridge, name string) worker.Tool {
	t.Helper()
	for _, w := range b.Tools() {
		if w.Manifest.ID == tool.SafeName(name) {
			return w
		}
	}
	t.Fatalf("there is no tool %s", name)
	panic("unreachable")
}

// call is what a tool answers, in one line.
func call(ctx context.Context, t *testing.T, b *Bridge, name, args string) (string, *fault.Fault) {
	t.Helper()
	return use(ctx, t, find(t, b, name), args)
}

func use(ctx context.Context, t *testing.T, w worker.Tool, args string) (string, *fault.Fault) {
	t.Helper()
	v, err := w.Handler.Handle(ctx, &worker.Call{Tool: w.Manifest.ID, Args: json.RawMessage(args), Header: wire.Header{wire.HeaderTraceparent: {"00-aa"}}})
	if err != nil {
		var f *fault.Fault
		if !errors.As(err, &f) {
			t.Fatalf("%s: %v is no fault", w.Manifest.ID, err)
		}
		return fmt.Sprintf("%s %s: %s", f.Kind, f.Run(), f.Message), f
	}
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

// Every server says the same, whatever way leads there and whatever revision is spoken.
var answers = []struct{ name, args, want string }{
	{"echo", `{"n":12345678901234567890,"s":"ü"}`, `{"n":12345678901234567890,"s":"ü"}`},
	{"echo", ``, `{}`},
	{"meta", `{}`, `{"token":true,"traceparent":"00-aa"}`},
	{"text", `{}`, `"hello"`},
	{"json", `{}`, `{"n":12345678901234567890}`},
	{"nothing", `{}`, `null`},
	{"image", `{}`, `[{"type":"text","text":"see"},{"type":"image","mimeType":"image/png","data":"AQI="}]`},
	{"no.such dots", `{}`, `"odd"`},
	{"fails", `{}`, "failed done: the disk is full"},
	{"silently", `{}`, "failed done: the tool failed, and does not say why"},
	{"ts_args", `{}`, "invalid_arguments not_started: Input validation error: Invalid arguments for tool x: path is required"},
	{"ts_args_inside", `{}`, "invalid_arguments unknown: the city is not on the map"},
	{"ts_unknown", `{}`, "tool_not_found not_started: the MCP server: Tool nope not found"},
	{"ts_other", `{}`, "failed done: MCP error -32603: oh no"},
	{"rpc_args", `{}`, "invalid_arguments not_started: bad city"},
	{"rpc_unknown", `{}`, `tool_not_found not_started: the MCP server: unknown tool "x"`},
	{"rpc_other", `{}`, "upstream unknown: the MCP server answered error -32000: backend down"},
	{"rpc_url", `{}`, "unsupported not_started: the tool needs somebody to ask or to sign in, and nobody is here: sign in first"},
	{"steps", `{}`, `"done"`},
	{"oddschema", `{}`, `null`},
}

func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		name, revision string
		config         func(t *testing.T) Config
	}{
		{"stdio", "2026-07-28", func(*testing.T) Config { return program("good") }},
		{"stdio legacy", "2025-11-25", func(*testing.T) Config { return program("legacy") }},
		{"stdio with litter", "2026-07-28", func(*testing.T) Config { return program("garbage") }},
		{"stdio with a flood on stderr", "2026-07-28", func(*testing.T) Config { return program("flood") }},
		{"http", "2025-11-25", func(t *testing.T) Config { return Config{URL: site(t, "good", mcp.StreamableHTTPOptions{}, nil).URL} }},
		{"http json", "2025-11-25", func(t *testing.T) Config {
			return Config{URL: site(t, "good", mcp.StreamableHTTPOptions{JSONResponse: true}, nil).URL}
		}},
		{"http stateless", "2026-07-28", func(t *testing.T) Config {
			return Config{URL: site(t, "good", mcp.StreamableHTTPOptions{Stateless: true}, nil).URL}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, c.config(t))
			if got := b.session.mcp.InitializeResult().ProtocolVersion; got != c.revision {
				t.Errorf("revision %s, want %s", got, c.revision)
			}
			for _, a := range answers {
				got, _ := call(t.Context(), t, b, a.name, a.args)
				if strings.HasPrefix(a.want, "{") && a.name == "meta" {
					got = strings.ReplaceAll(got, " ", "")
				}
				if got != a.want {
					t.Errorf("%s(%s)\n got %s\nwant %s", a.name, a.args, got, a.want)
				}
			}
			// Nobody is here to be asked, and that is no mistake in the arguments.
			if got, f := call(t.Context(), t, b, "asks", "{}"); f == nil || f.Spec().Class == fault.Neutral {
				t.Errorf("asks = %s, want a fault", got)
			}
		})
	}
}

func TestManifests(t *testing.T) {
	cfg := program("good")
	cfg.Prefix, cfg.Timeout = "x_", 7*time.Second
	b := open(t, cfg)
	for name, want := range map[string]tool.Effect{"x_echo": tool.Read, "x_meta": tool.Idempotent, "x_text": tool.Write} {
		m := find(t, b, name).Manifest
		if m.Effect != want || m.TimeoutMs != 7000 || m.Version != "1.2.3" || m.Annotations["mcp.tool"] != strings.TrimPrefix(name, "x_") || m.Annotations["mcp.server"] != "good" {
			t.Errorf("%s = %+v, want effect %s, its timeout, version and names", name, m, want)
		}
	}
	m := find(t, b, "x_echo").Manifest
	if m.Annotations["title"] != "Echo" || m.Description != "Does echo." || string(m.Input) != `{"type":"object"}` {
		t.Errorf("x_echo = %+v %s", m, m.Input)
	}
	if m := find(t, b, "x_oddschema").Manifest; m.Input != nil {
		t.Errorf("a schema that refers to a file was kept: %s", m.Input)
	}
	if got := len(b.Tools()); got != 25 {
		t.Errorf("%d tools, want all 25 of several pages", got)
	}
}

func TestOnly(t *testing.T) {
	cfg := program("good")
	cfg.Only = []string{"echo", "text", "nope"}
	b := open(t, cfg)
	var names []string
	for _, w := range b.Tools() {
		names = append(names, w.Manifest.ID)
	}
	slices.Sort(names)
	if fmt.Sprint(names) != "[echo text]" {
		t.Errorf("tools %v, want echo and text", names)
	}
	if !strings.Contains(b.told, `tool "nope": the server does not offer it`) {
		t.Errorf("it complained %q, want a word about nope", b.told)
	}
}

func TestConcurrency(t *testing.T) {
	cfg := program("good")
	cfg.Concurrency = 1
	b := open(t, cfg)
	w := newWords(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		got, _ := call(ctx, t, b, "hangs", w.args())
		ended <- got
	}()
	await(t, w.said, "the first call")
	got, f := call(t.Context(), t, b, "text", "{}")
	if f == nil || f.Kind != fault.Overloaded || f.Run() != fault.NotStarted || f.RetryAfterMs == 0 {
		t.Errorf("a second call = %s, want overloaded", got)
	}
	cancel()
	if got := await(t, ended, "the end of the first"); got != "cancelled unknown: the MCP server was told to stop the call" {
		t.Errorf("a cancelled call = %s", got)
	}
	if got := await(t, w.said, "the cancel to arrive"); got != "cancelled" {
		t.Errorf("the server heard %q, want a cancel", got)
	}
	if got, f := call(t.Context(), t, b, "text", "{}"); f != nil {
		t.Errorf("after it = %s", got)
	}
}

func TestCancelOverHTTP(t *testing.T) {
	for _, o := range []mcp.StreamableHTTPOptions{{}, {Stateless: true, PropagateRequestCancellation: true}} {
		b := open(t, Config{URL: site(t, "good", o, nil).URL})
		w := newWords(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan string, 1)
		go func() {
			got, _ := call(ctx, t, b, "hangs", w.args())
			ended <- got
		}()
		await(t, w.said, "the call")
		cancel()
		await(t, ended, "the end of the call")
		if got := await(t, w.said, "the cancel to arrive"); got != "cancelled" {
			t.Errorf("stateless %v: the server heard %q, want a cancel", o.Stateless, got)
		}
	}
}

func TestHTTPStatus(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		want   string
		ms     int64
	}{
		{429, "3", "rate_limited not_started", 3000},
		{503, "1", "unavailable not_started", 1000},
		{502, "", "upstream unknown", 0},
		{504, "", "upstream unknown", 0},
		{500, "", "upstream unknown", 0},
		{401, "", "denied not_started", 0},
		{403, "", "denied not_started", 0},
		{404, "", "unavailable not_started", 0},
	} {
		b := open(t, Config{URL: site(t, "good", mcp.StreamableHTTPOptions{Stateless: true}, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/call" {
					w.Header().Set("Retry-After", c.after)
					http.Error(w, "<html>no</html>", c.status)
					return
				}
				h.ServeHTTP(w, r)
			})
		}).URL})
		got, f := call(t.Context(), t, b, "text", "{}")
		if f == nil || string(f.Kind)+" "+string(f.Run()) != c.want || f.RetryAfterMs != c.ms || f.Code != fmt.Sprint(c.status) {
			t.Errorf("HTTP %d = %s, after %v; want %s, %d ms", c.status, got, f, c.want, c.ms)
		}
	}
}

// Secrets go to the server and to no other.
func TestHeaders(t *testing.T) {
	t.Setenv("MCPTOOL_TOKEN", "secret")
	came := make(chan string, 100)
	s := site(t, "good", mcp.StreamableHTTPOptions{Stateless: true}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came <- r.Header.Get("Authorization")
			h.ServeHTTP(w, r)
		})
	})
	away := site(t, "good", mcp.StreamableHTTPOptions{}, func(http.Handler) http.Handler {
		return http.RedirectHandler(s.URL, http.StatusTemporaryRedirect)
	})
	header := map[string]string{"authorization": "Bearer ${env:MCPTOOL_TOKEN}"}
	open(t, Config{URL: s.URL, Header: header})
	for range len(came) {
		if got := <-came; got != "Bearer secret" {
			t.Errorf("Authorization %q, want the secret", got)
		}
	}
	_, err := Open(t.Context(), Config{URL: away.URL, Header: header})
	if err == nil || !strings.Contains(err.Error(), "redirects to http://127.0.0.1") || strings.Contains(err.Error(), "secret") || len(came) > 0 {
		t.Errorf("a redirect elsewhere = %v with %d requests, want a refusal", err, len(came))
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no server is given"},
		{Config{Command: []string{"sh"}, URL: "http://a"}, "choose one"},
		{Config{Command: []string{"no-such-program-here"}}, "install it"},
		{Config{Command: []string{"sh"}, Dir: "/no/such"}, "dir"},
		{Config{Command: []string{"sh"}, Env: []string{"=x"}}, "env"},
		{Config{Command: []string{"sh"}, Header: map[string]string{"a": "b"}}, "headers are for a URL"},
		{Config{URL: "ftp://a/b"}, "expected http://"},
		{Config{URL: "http://user:pw@a/b"}, "a user or a password"},
		{Config{URL: "http://a", Header: map[string]string{"A": "${env:NO_SUCH_VARIABLE}"}}, "${env:NO_SUCH_VARIABLE}: the variable is not set"},
		{Config{URL: "http://a", Header: map[string]string{"A": "${vault:x}"}}, "expected ${env:NAME}"},
		{Config{URL: "http://a", Header: map[string]string{"A": "b\nc"}}, "one line"},
		{Config{URL: "http://a", Timeout: -1}, "expected 0 or more"},
	} {
		b, err := Open(t.Context(), c.cfg)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "pw") {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

// A call that the server has taken is of unknown execution, whatever it answers to other requests after that.
func TestHTTPStatusOfOtherRequests(t *testing.T) {
	for _, status := range []int{404, 405, 503} { // of the request to go on with a stream that broke
		b := open(t, Config{URL: site(t, "good", mcp.StreamableHTTPOptions{}, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-ID") != "" {
					http.Error(w, "no", status)
					return
				}
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte(`"tools/call"`)) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "id: 1\nretry: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"x\"}}\n\n")
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
			})
		}).URL})
		forget(t, b)
		got, f := call(t.Context(), t, b, "text", "{}")
		if f == nil || f.Run() != fault.Unknown {
			t.Errorf("a stream that HTTP %d ends = %s, want unknown", status, got)
		}
	}
}

func TestASessionThatAnotherCallLoses(t *testing.T) {
	began, release := make(chan bool, 1), make(chan bool)
	b := open(t, Config{URL: site(t, "good", mcp.StreamableHTTPOptions{}, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			switch {
			case bytes.Contains(body, []byte(`"hangs"`)):
				w.Header().Set("Content-Type", "text/event-stream")
				w.(http.Flusher).Flush()
				began <- true
				<-release
			case bytes.Contains(body, []byte(`"tools/call"`)):
				http.Error(w, "no such session", http.StatusNotFound)
			default:
				r.Body = io.NopCloser(bytes.NewReader(body))
				h.ServeHTTP(w, r)
			}
		})
	}).URL})
	forget(t, b)
	defer close(release)
	first := make(chan string, 1)
	go func() {
		got, _ := call(t.Context(), t, b, "hangs", "{}")
		first <- got
	}()
	await(t, began, "the call")
	if got, _ := call(t.Context(), t, b, "text", "{}"); !strings.HasPrefix(got, "unavailable not_started") {
		t.Errorf("the call that finds no session = %s, want unavailable, not_started", got)
	}
	if got := await(t, first, "the end of the first"); !strings.HasPrefix(got, "worker_lost unknown") {
		t.Errorf("the call that ran = %s, want worker_lost, unknown", got)
	}
}

// forget ends the session at the server, in the end: a client that took it for lost does not.
func forget(t *testing.T, b *Bridge) {
	r, err := http.NewRequest(http.MethodDelete, b.cfg.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Mcp-Session-Id", b.session.mcp.ID())
	r.Close = true
	t.Cleanup(func() {
		if resp, err := http.DefaultClient.Do(r); err == nil {
			resp.Body.Close()
		}
	})
}
