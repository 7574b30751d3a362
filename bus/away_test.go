package bus_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

// A server that is away cannot say whether more messages are on their way, so nobody waits for its word.
func TestDrainWithoutServer(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	sub, err := c.Subscribe("x", "", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	away := make(chan struct{})
	defer c.OnDisconnect(func() { close(away) })()
	s.Shutdown()
	<-away
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := sub.Drain(ctx); err != nil {
		t.Errorf("Subscription.Drain = %v, want nil", err)
	}
	if err := c.Drain(ctx); err != nil {
		t.Errorf("Conn.Drain = %v, want nil", err)
	}
}
