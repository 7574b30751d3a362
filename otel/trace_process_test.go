package otel_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A hop is a span as a collector gets it.
type hop struct {
	name, service, trace, id, parent string
}

// A gatherer is a collector that takes OTLP over HTTP: protobuf, as Go and Python send it, and JSON.
type gatherer struct {
	mu   sync.Mutex
	hops map[string]hop // by span id
	more chan struct{}
}

func (g *gatherer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var hops []hop
	if err == nil {
		if strings.Contains(r.Header.Get("Content-Type"), "json") {
			hops, err = fromJSON(body)
		} else {
			hops, err = fromProto(body)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range hops {
		g.hops[h.id] = h
	}
	close(g.more)
	g.more = make(chan struct{})
}

func fromProto(body []byte) (hops []hop, err error) {
	var req collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	for _, r := range req.ResourceSpans {
		service := ""
		for _, a := range r.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				hops = append(hops, hop{span.Name, service, fmt.Sprintf("%x", span.TraceId), fmt.Sprintf("%x", span.SpanId), fmt.Sprintf("%x", span.ParentSpanId)})
			}
		}
	}
	return hops, nil
}

// fromJSON reads OTLP's JSON, whose ids are in hex.
func fromJSON(body []byte) (hops []hop, err error) {
	var req struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ Name, TraceID, SpanID, ParentSpanID string }
			}
		}
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return nil, err
	}
	for _, r := range req.ResourceSpans {
		for _, s := range r.ScopeSpans {
			for _, span := range s.Spans {
				hops = append(hops, hop{span.Name, "typescript", span.TraceID, span.SpanID, span.ParentSpanID})
			}
		}
	}
	return hops, nil
}

// await returns the last span of a way down a trace, each the child of the one before: names start like these.
func (g *gatherer) await(t *testing.T, trace string, way ...string) (last hop) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		g.mu.Lock()
		more := g.more
		for _, h := range g.hops {
			if at, ok := h, strings.HasPrefix(h.name, way[len(way)-1]); ok {
				n := len(way) - 1
				for n > 0 && strings.HasPrefix(at.name, way[n]) {
					n--
					at = g.hops[at.parent]
				}
				if n == 0 && strings.HasPrefix(at.name, way[0]) && at.trace == trace && h.trace == trace {
					g.mu.Unlock()
					return h
				}
			}
		}
		g.mu.Unlock()
		select {
		case <-more:
		case <-late:
			g.mu.Lock()
			defer g.mu.Unlock()
			t.Fatalf("no way %s among %v", strings.Join(way, " ► "), g.hops)
		}
	}
}

// spawn runs a program until the test ends.
func spawn(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var said strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, &said, &said, 5*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		if t.Failed() {
			t.Logf("%s %v: %v\n%s", name, args, err, &said)
		}
	})
}

// One turn, whose calls go to workers in Go, Python and TypeScript, is one trace in a collector that knows none of them:
// executor and workers are processes of their own.
func TestOneTraceAcrossProcesses(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("SKIPPED: it builds and starts both programs")
	}
	server := natstest.Server(t)
	g := &gatherer{hops: map[string]hop{}, more: make(chan struct{})}
	at := httptest.NewServer(g)
	t.Cleanup(at.Close) // after the programs have sent their last
	env := []string{
		"TOOLBUS_NATS_URL=" + server.ClientURL(), "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT=" + at.URL,
		"OTEL_BSP_SCHEDULE_DELAY=50", "XDG_DATA_HOME=" + t.TempDir(),
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OTEL_") && !strings.HasPrefix(v, "TOOLBUS_") {
			env = append(env, v)
		}
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/executor", "../cmd/toolworker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	spawn(t, env, filepath.Join(bin, "executor"), "serve")
	spawn(t, env, filepath.Join(bin, "toolworker"), "demo", "--only", "echo")

	languages := []struct{ name, tool, span, service, why string }{
		{"go", "echo", "process tb.v1.call.{tool}", "toolbus-worker", ""},
		{"python", "echo_python", "", "python", python(t, env)},
		{"typescript", "echo_typescript", "", "typescript", typescript(t, env)},
	}
	req := wire.TurnRequest{ID: "abroad"}
	for _, l := range languages {
		if l.why == "" {
			req.Calls = append(req.Calls, tool.Call{ID: l.name, Tool: l.tool, Args: []byte(`{}`)})
		}
	}
	c := client.New(natstest.Connect(t, server))
	var out *wire.Outcome
	trace := ""
	for try, late := 0, time.Now().Add(30*time.Second); time.Now().Before(late); try++ { // until the last worker is there
		req.ID = fmt.Sprint("abroad-", try)
		var err error
		note := func(ev *wire.Event) {
			if ev.Type == wire.TurnStarted {
				trace = strings.Split(ev.Traceparent, "-")[1]
			}
		}
		if out, err = c.Stream(t.Context(), req, note); err == nil && out.Status == wire.Completed {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	if out == nil || out.Status != wire.Completed {
		t.Fatalf("the turn did not complete: %+v", out)
	}
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			if l.why != "" {
				t.Skip("SKIPPED: " + l.why)
			}
			h := g.await(t, trace, "turn", "execute_tool "+l.tool, "send tb.v1.call.{tool}", l.span)
			if h.service != l.service {
				t.Errorf("the worker's span %q is of %s, want %s", h.name, h.service, l.service)
			}
		})
	}
}

// python starts a worker with the Python SDK, or says why not. PYTHON names the interpreter.
func python(t *testing.T, env []string) (why string) {
	interpreter := os.Getenv("PYTHON")
	if interpreter == "" {
		interpreter = "python3"
	}
	env = append(env, "PYTHONPATH="+filepath.Join("..", "sdk", "python", "src"), "OTEL_SERVICE_NAME=python")
	check := exec.Command(interpreter, "-c", "import toolbus, opentelemetry.exporter.otlp.proto.http")
	check.Env = env
	if out, err := check.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return interpreter + " has not what it takes (the SDK's dependencies and opentelemetry-exporter-otlp-proto-http): " + lines[len(lines)-1]
	}
	spawn(t, env, interpreter, filepath.Join("testdata", "worker.py"))
	return ""
}

// typescript starts a worker with the TypeScript SDK, or says why not.
func typescript(t *testing.T, env []string) (why string) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "there is no node"
	}
	sdk := filepath.Join("..", "sdk", "typescript")
	for _, need := range []string{"dist", "node_modules"} {
		if _, err := os.Stat(filepath.Join(sdk, need)); err != nil {
			return "sdk/typescript is not built: npm ci && npm run build there"
		}
	}
	spawn(t, env, node, filepath.Join("testdata", "worker.mjs"), sdk)
	return ""
}
