//go:build unix

package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

// quickBreaker is a line of a manifest: calls that come when the executor is back and the worker is not open its breaker.
const quickBreaker = "circuit_breaker: {timeout_ms: 300}"

// The NATS server dies and comes back. Everybody finds it again, and a call that was under way has one end.
func TestServerRestarts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seconds float64 // of the call under way
	}{
		{"the call ends while the server is away", 0.3},
		{"the call ends when the server is back", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, port := t.TempDir(), natstest.FreePort(t)
			url := fmt.Sprintf("nats://127.0.0.1:%d", port)
			server := natsServer(t, dir, port)
			b := newBench(t)
			w := b.worker(url, "w1", b.manifest("pause", tool.Write, quickBreaker))
			ex := serve(t, url)
			c := newCaller(t, url)

			done := c.calling("flying", "pause", tc.seconds)
			b.await("start", 1)
			server.kill()
			<-server.over
			if tc.seconds < 1 {
				b.await("end", 1)
			}
			away := time.Now()
			server = natsServer(t, dir, port)
			until(t, "calls work again", patience, func() bool { return c.call("", "pause", 0).ok() })
			t.Logf("calls worked again %v after the server's new start", time.Since(away))

			e := ends(t, done)
			t.Logf("the call under way: %v", e)
			if k := e.kind(); k != "" && k != fault.WorkerLost {
				t.Errorf("%v, want a success, or that the outcome is unknown", e)
			}
			if n := b.starts()["flying/c1"]; n != 1 {
				t.Errorf("the write was started %d times, want 1", n)
			}
			for _, p := range []*process{ex, w, server} {
				p.stop(syscall.SIGTERM, cli.ExitOK)
			}
		})
	}
}

// Without a server there is nothing to wait for: who is told to stop does so.
func TestStopWithoutServer(t *testing.T) {
	port := natstest.FreePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	server := natsServer(t, t.TempDir(), port)
	b := newBench(t)
	stopping := []*process{b.worker(url, "w1", b.manifest("pause", tool.Read)), serve(t, url)}
	server.kill()
	<-server.over
	began := time.Now()
	for _, p := range stopping {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range stopping {
		code := p.wait(patience * 2)
		t.Logf("%.16s ended after %v", p.name, time.Since(began))
		if code != cli.ExitOK || time.Since(began) > 3*time.Second {
			t.Errorf("%s ended with exit code %d after %v, want 0 and less than 3 s", p.name, code, time.Since(began))
		}
	}
}
