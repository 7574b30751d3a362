//go:build unix

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// lostWithin is how soon a killed worker must be noticed.
const lostWithin = 500 * time.Millisecond

// The example tools of the repository, from a second process.
func TestExampleTool(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("this test needs python3: ", err)
	}
	_, url := dev(t)
	w := start(t, launch{path: program(t, "toolworker"), dir: "../..", args: []string{
		"exec", "--nats-url", url, "--manifest", "examples/tools/wordcount.yaml", "--", "python3", "examples/tools/wordcount.py"}})
	w.says("serving tool wordcount")
	r := run(t, url, "call", "wordcount", `{"text":"to be or not to be","top":1}`)
	if r.code != cli.ExitOK || !strings.Contains(r.out, `"words": 6`) {
		t.Errorf("call = %d\n%s%s, want 6 words", r.code, r.out, r.err)
	}
	r = run(t, url, "call", "wordcount", `{"top":1000}`)
	if r.code != cli.ExitFailed || !strings.Contains(r.err, "/top: ") || !strings.Contains(r.err, "/text") {
		t.Errorf("call = %d\n%s, want both violations", r.code, r.err)
	}
}

// Plain NATS on either side: a request without headers reaches a worker, and a bare replier is a tool.
func TestPlainNATS(t *testing.T) {
	_, url := dev(t)
	c := newCaller(t, url)
	nc := c.conn.NATS()
	m, err := nc.Request("tb.v1.call.calculator", []byte(`{"expression":"6*7"}`), 5*time.Second)
	if err != nil || !strings.Contains(string(m.Data), `"value":42`) {
		t.Errorf("a bare request = %v, %v, want 42", m, err)
	}
	sub, err := nc.QueueSubscribe("tb.v1.call.plain", "workers", func(m *nats.Msg) { _ = m.Respond([]byte(`{"got":` + string(m.Data) + `}`)) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if r := run(t, url, "call", "plain", "-q", `{"a":1}`); r.code != cli.ExitOK || !strings.Contains(r.out, `"got"`) {
		t.Errorf("a bare replier: %d\n%s%s", r.code, r.out, r.err)
	}
}

// A worker is killed in mid-call. A read goes to the other worker; a write does not run twice.
func TestWorkerKilled(t *testing.T) {
	_, url := dev(t)
	c := newCaller(t, url)
	s := newSpy(t, c.conn)
	for _, tc := range []struct {
		effect tool.Effect
		after  time.Duration // how long the call has run by then: before its worker's first word, or between two pings
	}{
		{tool.Read, 0},
		{tool.Read, 400 * time.Millisecond},
		{tool.Write, 0},
		{tool.Write, 300 * time.Millisecond},
		{tool.Write, 450 * time.Millisecond},
	} {
		effect, id := tc.effect, fmt.Sprintf("%s-%d", tc.effect, tc.after.Milliseconds())
		t.Run(id, func(t *testing.T) {
			b := newBench(t)
			name, turn := "pause_"+id, "killed-"+id
			manifest := b.manifest(name, effect)
			workers := map[string]*process{"a-" + id: nil, "b-" + id: nil}
			for worker := range workers {
				workers[worker] = b.worker(url, worker, manifest)
			}
			done := c.calling(turn, name, 1)
			first := b.await("start", 1)
			<-time.NewTimer(tc.after).C
			killed := workers[first.worker].kill()
			e := ends(t, done)

			lost := e.event(wire.ToolError)
			if lost == nil || lost.Error.Kind != fault.WorkerLost {
				t.Fatalf("%v: the first fault is %+v, want worker_lost", e, lost)
			}
			took := since(t, lost, killed)
			t.Logf("SIGKILL to worker_lost: %v", took)
			if took >= lostWithin {
				t.Errorf("worker_lost came %v after SIGKILL, want less than %v", took, lostWithin)
			}
			if lost.Worker != first.worker {
				t.Errorf("worker %q was lost, want %q", lost.Worker, first.worker)
			}
			until(t, "the command dies with its worker", time.Second, func() bool { return !alive(t, first.group) })

			starts := b.lines("start")
			switch effect {
			case tool.Read:
				if !e.ok() || len(starts) != 2 || starts[1].worker == first.worker {
					t.Errorf("%v, started as %+v, want a success by the other worker", e, starts)
				}
			case tool.Write:
				if e.kind() != fault.WorkerLost || e.result.Fault.Run() != fault.Unknown {
					t.Errorf("%v, want worker_lost, and that the outcome is unknown", e)
				}
				// What runs next went out after anything that was to be sent again.
				if next := c.call("next-"+id, name, 0); !next.ok() {
					t.Errorf("the next call: %v", next)
				}
				if n := b.starts()[turn+"/c1"]; n != 1 {
					t.Errorf("it was started %d times, want 1", n)
				}
			}
			if n := s.ended(turn); n != 1 {
				t.Errorf("the turn ended %d times, want 1", n)
			}
		})
	}
}

// A worker hangs (SIGSTOP) in mid-call. What it says when it goes on is too late to be a second result.
func TestWorkerHangs(t *testing.T) {
	_, url := dev(t)
	c := newCaller(t, url)
	s := newSpy(t, c.conn)
	for _, effect := range []tool.Effect{tool.Read, tool.Write} {
		t.Run(string(effect), func(t *testing.T) {
			b := newBench(t)
			name := "hang_" + string(effect)
			manifest := b.manifest(name, effect)
			workers := map[string]*process{}
			for _, id := range []string{"c_" + string(effect), "d_" + string(effect)} {
				workers[id] = b.worker(url, id, manifest)
			}
			turn := "hung-" + string(effect)
			done := c.calling(turn, name, 0.3)
			first := b.await("start", 1)
			stopped := time.Now()
			goOn := workers[first.worker].pause()
			e := ends(t, done)

			lost := e.event(wire.ToolError)
			if lost == nil || lost.Error.Kind != fault.WorkerLost {
				t.Fatalf("%v: the first fault is %+v, want worker_lost", e, lost)
			}
			took := since(t, lost, stopped)
			t.Logf("SIGSTOP to worker_lost: %v", took)
			if took > 1500*time.Millisecond {
				t.Errorf("worker_lost came %v after SIGSTOP, want at most 1.5 s", took)
			}
			want := fault.WorkerLost
			if effect == tool.Read {
				want = ""
			}
			if e.kind() != want {
				t.Errorf("%v, want %q", e, want)
			}

			before := s.answered(name)
			goOn()
			until(t, "the late answer is on the wire", patience, func() bool { return s.answered(name) > before })
			if next := c.call("next-"+turn, name, 0); !next.ok() { // its answer comes behind the late one
				t.Errorf("the next call: %v", next)
			}
			if n := s.ended(turn); n != 1 {
				t.Errorf("the turn ended %d times, want 1", n)
			}
		})
	}
}
