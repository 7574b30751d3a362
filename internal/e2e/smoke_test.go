//go:build unix

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/internal/cli"
)

// The README's main job, for `make smoke`: start, look, call, call wrongly, stop.
func TestSmoke(t *testing.T) {
	began := time.Now()
	p, url := dev(t)
	t.Logf("executor dev was ready after %v, and says itself: %.40s", time.Since(began), &p.out)
	if r := run(t, url, "tools"); r.code != cli.ExitOK || !strings.Contains(r.out, "calculator") {
		t.Errorf("tools = %d\n%s%s, want calculator in it", r.code, r.out, r.err)
	}
	if r := run(t, url, "call", "calculator", `{"expression": "2 * (3 + 4)"}`); r.code != cli.ExitOK || !strings.Contains(r.out, `"value": 14`) {
		t.Errorf("call = %d\n%s%s, want 14", r.code, r.out, r.err)
	}
	if r := run(t, url, "call", "flaky", `{"fail_times": 1}`); r.code != cli.ExitOK || !strings.Contains(r.err, "retry in ") {
		t.Errorf("call = %d\n%s%s, want a retry", r.code, r.out, r.err)
	}
	if r := run(t, url, "call", "calculator", `{"expresion": 3}`); r.code != cli.ExitFailed || !strings.Contains(r.err, "/expresion: ") || !strings.Contains(r.err, "/expression") {
		t.Errorf("call = %d\n%s%s, want every violation", r.code, r.out, r.err)
	}
	w := start(t, launch{path: program(t, "toolworker"), dir: "../..", args: []string{
		"exec", "--nats-url", url, "--manifest", "examples/tools/disk.yaml", "--", "sh", "examples/tools/disk.sh"}})
	w.says("serving tool disk")
	if r := run(t, url, "call", "disk"); r.code != cli.ExitOK || !strings.Contains(r.out, `"mounted": "/`) {
		t.Errorf("call = %d\n%s%s, want file systems", r.code, r.out, r.err)
	}
	w.stop(syscall.SIGTERM, cli.ExitOK)
	p.stop(syscall.SIGINT, cli.ExitOK)
}
