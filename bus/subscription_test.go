package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

func TestSubscriptionDrain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.InProcess(t)
		c, w := natstest.Connect(t, s), natstest.Connect(t, s)
		var handled atomic.Int32
		running, release := make(chan struct{}), make(chan struct{})
		sub, err := w.Subscribe("work", "", func(*nats.Msg) {
			if handled.Add(1) == 1 {
				close(running)
				<-release
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = c.Publish("work", nil, nil)
		}
		if err := c.NATS().FlushTimeout(time.Minute); err != nil { // all three are before the end of the subscription
			t.Fatal(err)
		}
		<-running

		short, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if err := sub.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain while a handler runs = %v, want the context's end", err)
		}
		close(release)
		if err := sub.Drain(t.Context()); err != nil || handled.Load() != 3 {
			t.Errorf("Drain = %v after %d messages, want nil after 3", err, handled.Load())
		}
		if err := sub.Drain(t.Context()); err != nil {
			t.Errorf("second Drain = %v", err)
		}
	})
}

func TestSubscribeBadSubject(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	if _, err := c.Subscribe("a..b", "", echo); !errors.Is(err, nats.ErrBadSubject) {
		t.Errorf("Subscribe = %v", err)
	}
}

// A handler that runs may still ask and answer while its connection is drained.
func TestDrain(t *testing.T) {
	s := natstest.Server(t)
	replier(t, s, "other", echo)
	running, release := make(chan struct{}), make(chan struct{})
	var w *bus.Conn
	w = replier(t, s, "tb.v1.call.x", func(m *nats.Msg) {
		close(running)
		<-release
		frame, f := w.Request(context.Background(), "other", "o", nil, []byte("asked"))
		if f != nil {
			t.Errorf("Request while draining = %v", f)
		}
		if f := w.Respond(m.Reply, nil, frame.Data); f != nil {
			t.Errorf("Respond while draining = %v", f)
		}
	})
	c := natstest.Connect(t, s)
	got := make(frames, 1)
	ticket := c.Open("x", got)
	defer ticket.Close()
	if f := c.Send(ticket, "tb.v1.call.x", nil, nil); f != nil {
		t.Fatal(f)
	}
	next(t, running)
	drained := make(chan error)
	go func() { drained <- w.Drain(t.Context()) }()
	close(release)
	if err := next(t, drained); err != nil {
		t.Errorf("Drain = %v", err)
	}
	if f := next(t, got); string(f.Data) != "asked" {
		t.Errorf("answer = %q", f.Data)
	}
	if f := w.Publish("y", nil, nil); f == nil {
		t.Error("Publish after Drain went well")
	}
	if err := w.Drain(t.Context()); err != nil {
		t.Errorf("second Drain = %v", err)
	}
}

func TestDrainEndsWithContext(t *testing.T) {
	s := natstest.Server(t)
	running, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	w := replier(t, s, "x", func(*nats.Msg) { close(running); <-release })
	if f := natstest.Connect(t, s).Publish("x", nil, nil); f != nil {
		t.Fatal(f)
	}
	next(t, running)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Drain = %v, want the context's end", err)
	}
	next(t, w.Closed())
}
