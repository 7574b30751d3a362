package httptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// serve is a server of one handler.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// open makes a tool that may ask the server on this machine.
func open(t *testing.T, cfg Config) *endpoint {
	t.Helper()
	cfg.AllowPrivate = true
	return openAs(t, cfg, tool.Manifest{ID: "t", Effect: tool.Read})
}

func openAs(t *testing.T, cfg Config, m tool.Manifest) *endpoint {
	t.Helper()
	e, problems := build(cfg, &m)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	t.Cleanup(e.client.CloseIdleConnections)
	return e
}

// ask is one call. The result is as text, bytes with their content type.
func ask(t *testing.T, h worker.Handler, args string) (string, *fault.Fault) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return askCtx(ctx, t, h, args)
}

func askCtx(ctx context.Context, t *testing.T, h worker.Handler, args string) (string, *fault.Fault) {
	t.Helper()
	v, err := h.Handle(ctx, &worker.Call{Tool: "t", Args: json.RawMessage(args), Key: "t1/c1", Header: wire.Header{"traceparent": {"00-a-b-01"}}})
	if err != nil {
		var f *fault.Fault
		if !errors.As(err, &f) {
			t.Fatalf("error %v is no fault", err)
		}
		return "", f
	}
	switch v := v.(type) {
	case json.RawMessage:
		return string(v), nil
	case worker.Bytes:
		return v.ContentType + " " + string(v.Data), nil
	}
	t.Fatalf("result %T", v)
	return "", nil
}

// seen is what arrived, as JSON.
func seen(w http.ResponseWriter, r *http.Request) {
	body := new(strings.Builder)
	_, _ = fmt.Fprint(body, r.Method, " ", r.RequestURI)
	b := make([]byte, 1<<16)
	n, _ := r.Body.Read(b)
	if n > 0 {
		fmt.Fprint(body, " ", string(b[:n]))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body.String())
}
