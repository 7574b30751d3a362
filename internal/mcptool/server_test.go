package mcptool

import (
	"context"
	"encoding/json"

	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/internal/natstest"
)

// mode is the variable that makes this test binary an MCP server, a good one or one of the others.
const mode = "MCPTOOL_TEST_SERVER"

func TestMain(m *testing.M) {
	if how := os.Getenv(mode); how != "" {
		serve(how)
		os.Exit(0)
	}
	natstest.Main(m)
}

// serve is the program that the tests bridge.
func serve(how string) {
	ctx := context.Background()
	var out io.WriteCloser = os.Stdout
	switch how {
	case "crash":
		fmt.Fprintln(os.Stderr, "no such database")
		os.Exit(3)
	case "silent":
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	case "deaf": // reads nothing and does not end
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "started")
		select {}
	case "stubborn": // ends for nothing but SIGKILL, and neither does what it started
		signal.Ignore(syscall.SIGTERM)
		child := exec.Command("sh", "-c", `trap "" TERM; exec 9>"$0"; echo started >&9; exec sleep 600`, os.Getenv("FIFO"))
		if err := child.Start(); err != nil {
			panic(err)
		}
	case "garbage":
		out = litter{os.Stdout}
	case "flood":
		go func() {
			for i := 0; ; i++ {
				fmt.Fprintln(os.Stderr, strings.Repeat("x", 10_000), i)
			}
		}()
	}
	s := newServer(how)
	_ = s.Run(ctx, &mcp.IOTransport{Reader: os.Stdin, Writer: out})
	if how == "stubborn" {
		select {}
	}
}

// litter prints what is no MCP around every message.
type litter struct{ io.WriteCloser }

func (l litter) Write(b []byte) (int, error) {
	_, err := fmt.Fprintf(l.WriteCloser, "\n\x1b[31mhello\x1b[0m\n{\"not\":\"a message\"}\n[1,2]\n{{{\n%s\r\nbye\n", strings.TrimSpace(string(b)))
	return len(b), err
}

// newServer has a tool for everything that can happen. Mode legacy does not know the revision of 2026-07-28.
func newServer(how string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1.2.3"}, &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler), PageSize: 3})
	goOn := make(chan struct{})
	anything := json.RawMessage(`{"type":"object"}`)
	add := func(name string, a *mcp.ToolAnnotations, f func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: anything, Annotations: a, Description: "Does " + name + "."}, f)
	}
	say := func(name string, r *mcp.CallToolResult) {
		add(name, nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return r, nil })
	}
	text := func(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }
	fails := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{text(s)}, StructuredContent: map[string]string{"not": "this"}}
	}

	add("echo", &mcp.ToolAnnotations{ReadOnlyHint: true, Title: "Echo"}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: r.Params.Arguments, Content: []mcp.Content{text(string(r.Params.Arguments))}}, nil
	})
	add("meta", &mcp.ToolAnnotations{IdempotentHint: true}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: map[string]any{"traceparent": r.Params.Meta["traceparent"], "token": r.Params.Meta["progressToken"] != nil}}, nil
	})
	say("text", &mcp.CallToolResult{Content: []mcp.Content{text("hello")}})
	say("json", &mcp.CallToolResult{Content: []mcp.Content{text(` {"n":12345678901234567890} `)}})
	say("nothing", &mcp.CallToolResult{Content: []mcp.Content{}})
	say("image", &mcp.CallToolResult{Content: []mcp.Content{text("see"), &mcp.ImageContent{Data: []byte{1, 2}, MIMEType: "image/png"}}})
	say("no.such dots", &mcp.CallToolResult{Content: []mcp.Content{text("odd")}})
	say("fails", fails("the disk is full"))
	say("silently", &mcp.CallToolResult{IsError: true, Content: []mcp.Content{}})
	say("ts_args", fails("MCP error -32602: Input validation error: Invalid arguments for tool x: path is required"))
	say("ts_args_inside", fails("MCP error -32602: the city is not on the map"))
	say("ts_unknown", fails("MCP error -32602: Tool nope not found"))
	say("ts_other", fails("MCP error -32603: oh no"))
	for name, e := range map[string]*jsonrpc.Error{
		"rpc_args":    {Code: -32602, Message: "bad city"},
		"rpc_unknown": {Code: -32602, Message: `unknown tool "x"`},
		"rpc_other":   {Code: -32000, Message: "backend down", Data: json.RawMessage(`{"host":"db1"}`)},
		"rpc_url":     {Code: -32042, Message: "sign in first", Data: json.RawMessage(`{}`)},
	} {
		add(name, nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, e })
	}
	add("asks", nil, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		_, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "name?"})
		return nil, err
	})
	add("steps", &mcp.ToolAnnotations{ReadOnlyHint: true}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		err := r.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: r.Params.GetProgressToken(), Progress: 1, Total: 2, Message: "half"})
		if strings.Contains(string(r.Params.Arguments), "wait") {
			<-goOn // what is said last may come after the answer, and is then for nobody
		}
		return &mcp.CallToolResult{Content: []mcp.Content{text("done")}}, err
	})
	add("go", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		close(goOn)
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	add("hangs", nil, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		note(r, "began")
		<-ctx.Done()
		note(r, "cancelled")
		return nil, ctx.Err()
	})
	add("dies", nil, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "out of memory")
		os.Exit(7)
		return nil, nil
	})
	add("pid", nil, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: map[string]int{"pid": os.Getpid()}}, nil
	})
	add("learn", nil, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		say("learned", &mcp.CallToolResult{Content: []mcp.Content{text("new")}})
		s.RemoveTools("text")
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	s.AddTool(&mcp.Tool{Name: "oddschema", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
		})
	if how == "legacy" {
		s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
				if method == "server/discover" {
					return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "Method not found"}
				}
				return next(ctx, method, r)
			}
		})
	}
	return s
}

// note writes a word to the file that the call names: what the test awaits.
func note(r *mcp.CallToolRequest, word string) {
	var args struct{ Fifo string }
	if json.Unmarshal(r.Params.Arguments, &args) != nil || args.Fifo == "" {
		return
	}
	f, err := os.OpenFile(args.Fifo, os.O_WRONLY, 0)
	if err == nil {
		fmt.Fprintln(f, word)
		f.Close()
	}
}

// program is a bridge's configuration for this binary as a server.
func program(how string, env ...string) Config {
	return Config{Command: []string{os.Args[0]}, Env: append([]string{mode + "=" + how}, env...), Name: how}
}

func open(t *testing.T, cfg Config) *Bridge {
	t.Helper()
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// site serves the test server over HTTP.
func site(t *testing.T, how string, o mcp.StreamableHTTPOptions, around func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	s := newServer(how)
	o.Logger = slog.New(slog.DiscardHandler)
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &o)
	if around != nil {
		h = around(h)
	}
	site := httptest.NewServer(h)
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
	})
	return site
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited 20 s for %s", what)
		panic("unreachable")
	}
}
