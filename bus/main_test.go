package bus_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// frames is a Sink that hands on what it receives.
type frames chan bus.Frame

func (ch frames) Receive(f bus.Frame) { ch <- f }

// next waits for one value, and fails the test where none comes.
func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
		panic("not reached")
	}
}

// replier answers subject with h on a connection of its own.
func replier(t testing.TB, s *bus.Server, subject string, h func(*nats.Msg)) *bus.Conn {
	t.Helper()
	c := natstest.Connect(t, s)
	if _, err := c.Subscribe(subject, "workers", h); err != nil {
		t.Fatal(err)
	}
	return c
}

func echo(m *nats.Msg) { _ = m.Respond(m.Data) }

// configured starts a server from a nats-server configuration.
func configured(t testing.TB, conf string) *bus.Server {
	t.Helper()
	return natstest.Start(t, bus.ServerConfig{ConfigFile: file(t, "nats.conf", `listen: "127.0.0.1:-1"`+"\n"+conf)})
}

func file(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// logged is a logger whose messages can be waited for.
func logged() (*slog.Logger, <-chan string) {
	ch := make(chan string, 100)
	return slog.New(handler(ch)), ch
}

type handler chan string

func (handler) Enabled(context.Context, slog.Level) bool { return true }
func (h handler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h handler) WithGroup(string) slog.Handler          { return h }
func (h handler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	select {
	case h <- text:
	default:
	}
	return nil
}
