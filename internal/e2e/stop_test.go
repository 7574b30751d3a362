//go:build unix

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/internal/cli"
)

// Ctrl-C ends `executor dev` and all that it started.
func TestDevStops(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			p, url := dev(t)
			var started []int
			until(t, "the worker of crash is there", patience, func() bool {
				started = children(t, p.pid())
				return len(started) == 1
			})
			until(t, "crash can be called", patience, func() bool { return strings.Contains(run(t, url, "workers").out, " crash") })
			began := time.Now()
			p.signal(sig)
			code := p.wait(3 * time.Second)
			if sig != syscall.SIGKILL && code != cli.ExitOK {
				t.Errorf("exit code %d, want 0", code)
			}
			until(t, "its child is gone", 3*time.Second, func() bool { return !alive(t, started[0]) })
			t.Logf("%v: %v", sig, time.Since(began))
		})
	}
}
