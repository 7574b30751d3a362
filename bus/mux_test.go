package bus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

func TestManyReplies(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "tb.v1.call.echo", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Tb-Frame": {"progress"}}, Data: []byte("half")})
		_ = m.Respond([]byte("whole"))
	})
	c := natstest.Connect(t, s)

	got := make(frames, 2)
	ticket := c.Open("echo", got)
	defer ticket.Close()
	if f := c.Send(ticket, c.Subjects().Call("echo"), nil, []byte("hi")); f != nil {
		t.Fatal(f)
	}
	for i, want := range []string{"progress half", "result whole"} {
		f := next(t, got)
		if text := string(f.Kind) + " " + string(f.Data); text != want {
			t.Errorf("frame %d = %q, want %q", i, text, want)
		}
	}
	if n := c.Orphans(); n != 0 {
		t.Errorf("Orphans() = %d, want 0", n)
	}
}

func TestLateAndForgedReplies(t *testing.T) {
	s := natstest.Server(t)
	c, w := natstest.Connect(t, s), natstest.Connect(t, s)
	got := make(frames, 10)

	closed := c.Open("echo", got)
	closed.Close()
	closed.Close()
	open := c.Open("echo", got)
	n := open.Reply()[len(c.Subjects().Reply("echo", c.ID(), "")):]
	for _, reply := range []string{
		closed.Reply(),
		c.Subjects().Reply("other", c.ID(), n),
		c.Subjects().Reply("echo", c.ID(), "zzzzzz"),
		c.Subjects().Reply("echo", c.ID(), "not-a-number"),
		open.Reply(),
	} {
		if f := w.Respond(reply, nil, []byte(reply)); f != nil {
			t.Fatal(f)
		}
	}

	// Replies of one publisher keep their order, so all the others came before the good one.
	if f := next(t, got); string(f.Data) != open.Reply() {
		t.Errorf("received %q, want %q alone", f.Data, open.Reply())
	}
	if o, s := c.Orphans(), c.Strays(); o != 3 || s != 1 {
		t.Errorf("Orphans(), Strays() = %d, %d, want 3, 1", o, s)
	}
}

func TestNoResponders(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	frame, f := c.Request(t.Context(), "tb.v1.call.nobody", "nobody", nil, nil)
	if !frame.NoResponders || f == nil || f.Kind != fault.Unavailable || f.Run() != fault.NotStarted {
		t.Errorf("Request = %+v, %v, want NoResponders and unavailable, not started", frame, f)
	}
}

func TestInboundHeaders(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "tb.v1.call.x", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{
			"Nats-Rollup": {"all"}, "nats-msg-id": {"1"}, "Nats-Service-Error": {"bad"}, "Nats-Service-Error-Code": {"400"}, "Other": {"o"},
		}})
	})
	c := natstest.Connect(t, s)
	frame, f := c.Request(t.Context(), "tb.v1.call.x", "x", nil, nil)
	if f != nil {
		t.Fatal(f)
	}
	want := wire.Header{"Nats-Service-Error": {"bad"}, "Nats-Service-Error-Code": {"400"}, "Other": {"o"}}
	if fmt.Sprint(frame.Header) != fmt.Sprint(want) || frame.Kind != wire.ErrorFrame {
		t.Errorf("frame = %s %v, want error %v", frame.Kind, frame.Header, want)
	}
}

// closer closes its ticket and opens another one when it receives.
type closer struct {
	c      *bus.Conn
	ticket bus.Ticket
	done   chan bus.Ticket
}

func (s *closer) Receive(bus.Frame) {
	s.ticket.Close()
	s.done <- s.c.Open("x", s)
}

func TestCloseInReceive(t *testing.T) {
	s := natstest.Server(t)
	c := replier(t, s, "tb.v1.call.x", func(m *nats.Msg) { echo(m); echo(m) })
	sink := &closer{c: c, done: make(chan bus.Ticket, 2)}
	sink.ticket = c.Open("x", sink)
	if f := c.Send(sink.ticket, "tb.v1.call.x", nil, nil); f != nil {
		t.Fatal(f)
	}
	next(t, sink.done).Close()
	if frame, f := c.Request(t.Context(), "tb.v1.call.x", "x", nil, nil); f != nil {
		t.Fatal(frame, f)
	}
	if len(sink.done) != 0 || c.Orphans() == 0 {
		t.Errorf("frames after Close = %d, orphans = %d, want 0 and some", len(sink.done), c.Orphans())
	}
}

// Many callers share one connection; some give up at any moment.
func TestSharedMux(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "tb.v1.call.x", echo)
	c := natstest.Connect(t, s)
	var wg sync.WaitGroup
	for caller := range 32 {
		wg.Go(func() {
			for i := range 50 {
				want := fmt.Sprint(caller, "/", i)
				if i%5 == 0 {
					ticket := c.Open("x", make(firstOnly, 1))
					_ = c.Send(ticket, "tb.v1.call.x", nil, nil)
					ticket.Close()
					continue
				}
				frame, f := c.Request(t.Context(), "tb.v1.call.x", "x", nil, []byte(want))
				if f != nil || string(frame.Data) != want {
					t.Errorf("Request = %q, %v, want %q", frame.Data, f, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

type firstOnly chan bus.Frame

func (ch firstOnly) Receive(f bus.Frame) {
	select {
	case ch <- f:
	default:
	}
}

func TestRequestEndsWithContext(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.InProcess(t)
		replier(t, s, "tb.v1.call.slow", func(m *nats.Msg) {})
		c := natstest.Connect(t, s)

		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, f := c.Request(ctx, "tb.v1.call.slow", "slow", nil, nil)
		if f == nil || f.Kind != fault.Timeout || f.Run() != fault.Unknown || time.Since(start) != 10*time.Minute {
			t.Errorf("after %v: %v, want a timeout of unknown outcome after 10m", time.Since(start), f)
		}

		ctx, stop := context.WithCancel(t.Context())
		stop()
		if _, f = c.Request(ctx, "tb.v1.call.slow", "slow", nil, nil); f == nil || f.Kind != fault.Cancelled {
			t.Errorf("cancelled: %v", f)
		}
	})
}

func TestReconnect(t *testing.T) {
	cfg := bus.ServerConfig{Dir: t.TempDir(), Port: natstest.FreePort(t), Lazy: true}
	first := natstest.Start(t, cfg)

	c := natstest.Dial(t, bus.Config{URL: first.ClientURL()})
	w := natstest.Dial(t, bus.Config{URL: first.ClientURL()})
	if _, err := w.Subscribe("tb.v1.call.x", "workers", echo); err != nil {
		t.Fatal(err)
	}
	down, up, workerUp := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	c.OnDisconnect(func() { down <- struct{}{} })
	c.OnReconnect(func() { up <- struct{}{} })
	remove := c.OnReconnect(func() { t.Error("called after it was taken out") })
	remove()
	w.OnReconnect(func() { workerUp <- struct{}{} })
	ticket := c.Open("x", make(frames, 1))

	first.Shutdown()
	next(t, down)
	f := c.Send(ticket, "tb.v1.call.x", nil, nil)
	if f == nil || f.Kind != fault.Unavailable || f.Run() != fault.NotStarted || c.Connected() {
		t.Errorf("Send while disconnected = %v, connected %v, want unavailable, not started", f, c.Connected())
	}

	natstest.Start(t, cfg)
	next(t, up)
	next(t, workerUp)
	if err := w.NATS().FlushTimeout(5 * time.Second); err != nil { // its subscription is on the way before this is
		t.Fatal(err)
	}
	if _, f := c.Request(t.Context(), "tb.v1.call.x", "x", nil, nil); f != nil {
		t.Errorf("Request after the reconnect = %v", f)
	}
}

func TestAsk(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "tb.v1.call.echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	c := natstest.Connect(t, s)

	got, h := make(frames, 1), wire.Header{wire.HeaderCall: {"t/c/1"}}
	ticket, f := c.Ask(c.Subjects().Call("echo"), "echo", got, h, []byte("hi"))
	clear(h) // it is the caller's again
	if f != nil {
		t.Fatal(f)
	}
	defer ticket.Close()
	if frame := next(t, got); frame.Kind != wire.Result || string(frame.Data) != "hi" {
		t.Errorf("got %s %q, want result hi", frame.Kind, frame.Data)
	}

	ticket, f = c.Ask("tb.v1.call.*", "echo", got, nil, nil)
	if f == nil || f.Execution != fault.NotStarted || ticket != (bus.Ticket{}) {
		t.Errorf("Ask on a wildcard = %v, %v; want no ticket and a fault that says it was not sent", ticket, f)
	}
}
