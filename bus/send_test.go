package bus_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

func TestRefusedMessages(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "tb.v1.call.x", echo)
	c := natstest.Connect(t, s)
	ok := "tb.v1.call.x"
	for _, tt := range []struct {
		name, subject string
		h             wire.Header
		data          []byte
		want          string
	}{
		{"no subject", "", nil, nil, "expected 1 to 512 bytes"},
		{"5000 bytes", "tb." + strings.Repeat("x", 5000), nil, nil, "expected 1 to 512 bytes"},
		{"wildcard", "tb.*.x", nil, nil, "without blanks and wildcards"},
		{"full wildcard", "tb.>", nil, nil, "without blanks and wildcards"},
		{"blank", "tb. x", nil, nil, "without blanks"},
		{"NUL", "tb.\x00", nil, nil, "without blanks"},
		{"CRLF", "tb.x\r\nPUB y 0\r\n", nil, nil, "without blanks"},
		{"UTF-8", "tb.é", nil, nil, "printable ASCII"},
		{"empty token", "tb..x", nil, nil, "no empty token"},
		{"dot first", ".tb", nil, nil, "no empty token"},
		{"dot last", "tb.", nil, nil, "no empty token"},
		{"CRLF in a header", ok, wire.Header{"Tb-Key": {"a\r\nNats-Rollup: all"}}, nil, "line break"},
		{"NUL in a header", ok, wire.Header{"Tb-Key": {"a\x00"}}, nil, "line break or NUL"},
		{"large payload", ok, nil, make([]byte, 1<<20+1), "payload of 1048577 bytes is larger than the 1048576"},
		{"large with headers", ok, wire.Header{"Tb-Key": {"k"}}, make([]byte, 1<<20), "payload of 1048576 bytes"},
	} {
		f := c.Publish(tt.subject, tt.h, tt.data)
		if f == nil || f.Kind != fault.InvalidArguments || f.Run() != fault.NotStarted || !strings.Contains(f.Message, tt.want) {
			t.Errorf("%s: Publish = %v, want invalid_arguments, not started, with %q", tt.name, f, tt.want)
		}
		if f != nil && len(f.Message) > 300 {
			t.Errorf("%s: the message is %d bytes long", tt.name, len(f.Message))
		}
	}
	ticket := c.Open(strings.Repeat("long", 1000), make(frames))
	defer ticket.Close()
	if f := c.Send(ticket, ok, nil, nil); f == nil || f.Kind != fault.InvalidArguments {
		t.Errorf("Send with a tool of 4000 bytes = %v", f)
	}
	if _, f := c.Request(t.Context(), ok, "x", nil, nil); f != nil {
		t.Errorf("the connection did not survive: %v", f)
	}
}

func TestOutgoingHeaders(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Connect(t, s)
	got := make(chan *nats.Msg, 1)
	replier(t, s, "x", func(m *nats.Msg) { got <- m })
	if f := c.Publish("x", wire.Header{"Nats-Rollup": {"all"}, "nats-ttl": {"1"}, "X-Secret": {"s"}, "Tb-Call": {"t/c/1"}}, nil); f != nil {
		t.Fatal(f)
	}
	if h := next(t, got).Header; len(h) != 1 || h.Get("Tb-Call") != "t/c/1" {
		t.Errorf("headers on the wire = %v, want Tb-Call alone", h)
	}
}

func TestRespondOnlyToReplies(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	for _, tt := range []struct {
		reply string
		ok    bool
	}{
		{c.Subjects().Reply("x", "e", "1"), true},
		{c.Subjects().Res("x", "t", "c", 1), true},
		{c.NATS().NewInbox(), true},
		{"_INBOX.abc", true},
		{"", false},
		{"$JS.API.STREAM.PURGE.TURNS", false},
		{"$KV.breaker.x", false},
		{"tb.v1.call.x", false},
		{"_INBOX.>", false},
	} {
		if f := c.Respond(tt.reply, nil, nil); (f == nil) != tt.ok {
			t.Errorf("Respond(%q) = %v, want ok %v", tt.reply, f, tt.ok)
		}
	}
}

const twoUsers = `
authorization { users: [
  { user: worker, password: w, permissions: { publish: "tb.v1.reply.x.>", subscribe: ["tb.v1.call.x workers", "_INBOX_w.>"] } }
  { user: all, password: a }
] }`

func TestPermissions(t *testing.T) {
	s := configured(t, twoUsers)
	log, lines := logged()
	w := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "worker", Password: "w", InboxName: "w", Logger: log})

	if _, err := w.Subscribe("tb.v1.call.x", "workers", echo); err != nil {
		t.Errorf("Subscribe to its own tool: %v", err)
	}
	for _, queue := range []string{"", "workers"} {
		_, err := w.Subscribe("tb.v1.call.y", queue, echo)
		if err == nil || bus.Fault(err).Kind != fault.Denied {
			t.Errorf("Subscribe to another tool in queue %q = %v, want denied", queue, err)
		}
	}

	ticket := w.Open("x", make(frames))
	defer ticket.Close()
	if f := w.Send(ticket, "tb.v1.call.x", nil, nil); f == nil || f.Kind != fault.Denied || f.Run() != fault.NotStarted {
		t.Errorf("Send by a user without replies = %v, want denied, not started", f)
	}

	if f := w.Publish("tb.v1.call.y", nil, nil); f != nil {
		t.Errorf("Publish = %v, want nil: the server says it later", f)
	}
	for !strings.Contains(next(t, lines), `subject=tb.v1.call.y error=nats: permissions violation: Permissions Violation for Publish`) {
	}
	if err := w.PermissionError("tb.v1.call.y"); err == nil {
		t.Error("PermissionError of a refused subject = nil")
	}
	if err := w.PermissionError("tb.v1.reply.x.e.1"); err != nil {
		t.Errorf("PermissionError of an allowed subject = %v", err)
	}
}
