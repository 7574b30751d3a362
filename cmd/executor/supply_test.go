package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

// Each change is said once, and that time will not mend it, too. The next look comes sooner where time may mend something.
func TestSupplyLooks(t *testing.T) {
	var log strings.Builder
	answers := map[string]error{}
	ask := func(name string) *need {
		return &need{ensure: func(context.Context) error { return answers[name] }, lack: "no " + name, have: name + " is there"}
	}
	a, b := ask("a"), ask("b")
	s := &supply{needs: []*need{a, b}, log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, at slog.Attr) slog.Attr {
			if at.Key != slog.MessageKey {
				return slog.Attr{}
			}
			return at
		},
	}))}
	for i, step := range []struct {
		a, b error
		said string
		next time.Duration
	}{
		{errors.New("away"), nil, `msg="no a"`, soonerLook},
		{errors.New("still away"), nil, "", soonerLook},
		{fmt.Errorf("a: %w", bus.ErrCannotServe), nil, `msg="no a"`, laterLook},
		{errors.New("away again"), nil, "", soonerLook},
		{nil, nil, `msg="a is there"`, laterLook},
		{nil, fmt.Errorf("b: %w", bus.ErrCannotServe), `msg="no b"`, laterLook},
		{nil, fmt.Errorf("b: %w", bus.ErrCannotServe), "", laterLook},
	} {
		log.Reset()
		answers["a"], answers["b"] = step.a, step.b
		next := s.look(t.Context())
		if said := strings.TrimSpace(log.String()); said != step.said || next != step.next {
			t.Errorf("look %d said %q and comes again after %v, want %q and %v", i, said, next, step.said, step.next)
		}
	}
	if s.drop(a) || !s.drop(b) || len(s.needs) != 1 {
		t.Errorf("%d needs are left, want a alone: b is hopeless", len(s.needs))
	}
}

// JetStream that comes back empty has its streams again.
func TestSupplyAfterReconnect(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	made := make(chan error, 10)
	sup := &supply{log: slog.New(slog.DiscardHandler), needs: []*need{{ensure: func(ctx context.Context) error {
		err := c.EnsureTopology(ctx)
		made <- err
		return err
	}}}}
	sup.first(t.Context())
	end := sup.goOn(c)
	t.Cleanup(end)
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	if err := c.JetStream().DeleteStream(t.Context(), "TB_BLOBS"); err != nil {
		t.Fatal(err)
	}
	if err := c.NATS().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	for err := <-made; err != nil; err = <-made { // a server that is not done with deleting refuses
		t.Log(err)
	}
	if _, err := c.JetStream().Stream(t.Context(), "TB_BLOBS"); err != nil {
		t.Errorf("after the reconnect: %v, want the stream anew", err)
	}
}
