//go:build unix

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

// One of two executors is killed in mid-call. Its client learns that nobody knows how it ended; the other goes on.
func TestExecutorKilled(t *testing.T) {
	url := natstest.URL(t)
	b := newBench(t)
	b.worker(url, "w1", b.manifest("pause", tool.Write))
	executors := map[string]*process{}
	for range 2 {
		p := serve(t, url)
		executors[idOf(p)] = p
	}
	p := begin(t, nil, url, "call", "pause", "--events", `{"seconds":60}`)
	b.await("start", 1)
	p.says("AttemptStarted")
	id := regexp.MustCompile(`"executor":"([^"]+)"`).FindStringSubmatch(p.err.String())[1]
	killed := executors[id].kill()
	<-executors[id].over

	c := newCaller(t, url)
	for i := range 20 {
		if e := c.call(fmt.Sprintf("t%d", i), "pause", 0); !e.ok() || e.events[0].Executor == id {
			t.Errorf("%v by %s, want a success by the other executor", e, e.events[0].Executor)
		}
	}
	code := p.wait(client.Silence + 2*time.Second)
	t.Logf("SIGKILL of the executor to the client's end: %v", time.Since(killed))
	if code != cli.ExitUnavailable || !strings.Contains(p.err.String(), "has gone silent: what ran is unknown") {
		t.Errorf("exit code %d\n%s, want 3 and that the outcome is unknown", code, &p.err)
	}
}

func TestNoExecutor(t *testing.T) {
	r := run(t, natstest.URL(t), "call", "calculator")
	if r.code != cli.ExitUnavailable || !strings.Contains(r.err, "no executor is running: start one with `executor serve` or `executor dev`") {
		t.Errorf("exit code %d, %s, want 3 and what to start", r.code, r.err)
	}
}

// An executor that is told to stop lets its turns end.
func TestExecutorDrains(t *testing.T) {
	url := natstest.URL(t)
	b := newBench(t)
	b.worker(url, "w1", b.manifest("pause", tool.Write))
	p := serve(t, url)
	c := newCaller(t, url)
	var calls []<-chan end
	for i := range 4 {
		calls = append(calls, c.calling(fmt.Sprintf("under-way-%d", i), "pause", 0.8))
	}
	b.await("start", len(calls))
	p.signal(syscall.SIGTERM)
	until(t, "new turns are refused", patience, func() bool { return c.call("", "pause", 0).kind() == fault.Unavailable })
	for _, l := range b.lines("end") {
		if strings.HasPrefix(l.call, "under-way-") {
			t.Errorf("%s ended before the executor stopped taking turns: this shows nothing", l.call)
		}
	}
	for _, done := range calls {
		if e := ends(t, done); !e.ok() {
			t.Errorf("%v, want a success", e)
		}
	}
	if code := p.wait(patience); code != cli.ExitOK {
		t.Errorf("exit code %d, want 0", code)
	}
}
