//go:build unix

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// dev starts `executor dev` and waits until it is ready.
func dev(t testing.TB, args ...string) (p *process, url string) {
	t.Helper()
	args = append([]string{"dev", "--port", "-1", "--store-dir", t.TempDir()}, args...)
	p = start(t, launch{path: program(t, "executor"), args: args})
	p.says("Ctrl-C stops.")
	return p, regexp.MustCompile(`nats://\S+`).FindString(p.out.String())
}

// serve starts `executor serve` and waits until it is ready.
func serve(t testing.TB, url string) *process {
	t.Helper()
	p := begin(t, nil, url, "serve")
	p.says("executor is ready")
	return p
}

// idOf is the instance id of a serving executor.
func idOf(p *process) string {
	return regexp.MustCompile(`is ready" id=(\S+)`).FindStringSubmatch(p.err.String())[1]
}

// A bench is a folder with a tool that keeps a journal, for workers to share.
type bench struct {
	t       testing.TB
	journal string
}

func newBench(t testing.TB) *bench {
	return &bench{t, filepath.Join(t.TempDir(), "journal")}
}

// manifest writes the manifest of a tool that runs testdata/pause.sh. More lines may follow.
func (b *bench) manifest(id string, effect tool.Effect, more ...string) string {
	b.t.Helper()
	text := fmt.Sprintf("id: %s\nversion: 1.0.0\ndescription: Takes its time.\neffect: %s\n%s\n", id, effect, strings.Join(more, "\n"))
	file := filepath.Join(b.t.TempDir(), id+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return file
}

// worker starts `toolworker exec` and waits until it serves. Its id is also what it is called in the journal.
func (b *bench) worker(url, id, manifest string, flags ...string) *process {
	b.t.Helper()
	p := b.start(url, id, manifest, flags...)
	p.says("serving tool")
	return p
}

func (b *bench) start(url, id, manifest string, flags ...string) *process {
	b.t.Helper()
	script, err := filepath.Abs("testdata/pause.sh")
	if err != nil {
		b.t.Fatal(err)
	}
	args := append([]string{"exec", "--nats-url", url, "--id", id, "--manifest", manifest, "--env", "JOURNAL=" + b.journal, "--env", "WORKER=" + id}, flags...)
	return start(b.t, launch{path: program(b.t, "toolworker"), args: append(args, "--", "sh", script)})
}

// A line is what the tool wrote down: start, end or term.
type line struct {
	what, tool, call string
	attempt          int
	worker           string
	group            int
}

// lines is the journal so far; with what, only the lines of that kind.
func (b *bench) lines(what string) []line {
	data, err := os.ReadFile(b.journal)
	if err != nil && !os.IsNotExist(err) {
		b.t.Error(err)
	}
	var all []line
	for text := range strings.Lines(string(data)) {
		f := strings.Fields(text)
		if len(f) != 6 || !strings.HasSuffix(text, "\n") {
			continue // it is being written
		}
		attempt, _ := strconv.Atoi(f[3])
		group, _ := strconv.Atoi(f[5])
		if what == "" || what == f[0] {
			all = append(all, line{f[0], f[1], f[2], attempt, f[4], group})
		}
	}
	return all
}

// await waits until the journal has n lines of that kind, and is the last of them.
func (b *bench) await(what string, n int) line {
	b.t.Helper()
	until(b.t, fmt.Sprintf("%d × %s in the journal", n, what), patience, func() bool { return len(b.lines(what)) >= n })
	return b.lines(what)[n-1]
}

// starts counts how often a call was begun.
func (b *bench) starts() map[string]int {
	n := map[string]int{}
	for _, l := range b.lines("start") {
		n[l.call]++
	}
	return n
}

// A caller calls tools by the client package.
type caller struct {
	t    testing.TB
	conn *bus.Conn
	c    *client.Client
}

func newCaller(t testing.TB, url string) *caller {
	t.Helper()
	conn := natstest.Dial(t, bus.Config{URL: url})
	return &caller{t, conn, client.New(conn)}
}

// An end is how a call ended for its caller: a result, or an error where nobody said one.
type end struct {
	turn   string
	result *tool.Result
	err    error
	events []*wire.Event
}

func (e end) ok() bool { return e.result != nil && e.result.Status == tool.Success }

func (e end) String() string {
	if e.result == nil {
		return fmt.Sprintf("%s: %v", e.turn, e.err)
	}
	return fmt.Sprintf("%s: %s, %s", e.turn, e.result.Status, e.result.Sentence)
}

// kind is the fault's.
func (e end) kind() fault.Kind {
	switch {
	case e.err != nil:
		return fault.Of(e.err).Kind
	case e.result.Fault != nil:
		return e.result.Fault.Kind
	}
	return ""
}

// event is the first of a type, or nil.
func (e end) event(kind string) *wire.Event {
	for _, ev := range e.events {
		if ev.Type == kind {
			return ev
		}
	}
	return nil
}

// call calls a tool and waits for the end.
func (c *caller) call(turn, name string, seconds float64) end {
	e := end{turn: turn}
	out, err := c.c.Stream(context.Background(), wire.TurnRequest{
		ID:    turn,
		Calls: []tool.Call{{ID: "c1", Tool: name, Args: fmt.Appendf(nil, `{"seconds":%g}`, seconds)}},
	}, func(ev *wire.Event) { e.events = append(e.events, ev) })
	e.err = err
	if out != nil {
		e.result = &out.Results[0]
	}
	return e
}

// calling is call, on the way.
func (c *caller) calling(turn, name string, seconds float64) <-chan end {
	done := make(chan end, 1)
	go func() { done <- c.call(turn, name, seconds) }()
	return done
}

// ends is the end of a call that was calling.
func ends(t testing.TB, done <-chan end) end {
	t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case e := <-done:
		return e
	case <-late.C:
		t.Fatal("a call has not ended")
		return end{}
	}
}

// A spy counts on the wire what clients cannot see: a second end of a turn, and what workers answer too late.
type spy struct {
	mu      sync.Mutex
	turns   map[string]int
	answers map[string]int // of workers, by tool
	nc      *nats.Conn
}

func newSpy(t testing.TB, c *bus.Conn) *spy {
	t.Helper()
	s := &spy{turns: map[string]int{}, answers: map[string]int{}, nc: c.NATS()}
	sub, err := s.nc.Subscribe(c.Subjects().Replies("*"), func(m *nats.Msg) {
		name, _, _, _ := c.Subjects().ParseReply(m.Subject)
		var ev wire.Event
		s.mu.Lock()
		defer s.mu.Unlock()
		if name != wire.TurnToken {
			s.answers[name]++
		} else if wire.Decode(m.Data, &ev) == nil && ev.Type == wire.TurnEnded {
			s.turns[ev.Turn]++
		}
	})
	if err == nil {
		err = s.nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	return s
}

// ended is how often a turn has ended, as far as messages on their way to us say.
func (s *spy) ended(turn string) int {
	_ = s.nc.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turns[turn]
}

// answered is how many frames the workers of a tool have sent.
func (s *spy) answered(name string) int {
	_ = s.nc.Flush()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers[name]
}

// since is how long after a moment an event happened. The executor is on this machine: it is one clock.
func since(t testing.TB, ev *wire.Event, at time.Time) time.Duration {
	t.Helper()
	when, err := time.Parse(time.RFC3339Nano, ev.Time)
	if err != nil {
		t.Fatal(err)
	}
	return when.Sub(at)
}

// natsServer starts a NATS server that can be killed, and started again with the same port and folder.
func natsServer(t testing.TB, dir string, port int) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, launch{path: self, env: []string{serverDir + "=" + dir, serverPort + "=" + strconv.Itoa(port)}})
	p.says("listening on")
	return p
}

// pause stops a process with SIGSTOP until the returned func is called.
func (p *process) pause() (goOn func()) {
	p.signal(syscall.SIGSTOP)
	return func() { p.signal(syscall.SIGCONT) }
}
