//go:build unix

package mcptool

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// words is a fifo: what others write into it, line by line. It ends when nobody holds it any more.
type words struct {
	path string
	said chan string
}

func newWords(t *testing.T) *words {
	t.Helper()
	w := &words{filepath.Join(t.TempDir(), "fifo"), make(chan string, 10)}
	if err := syscall.Mkfifo(w.path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(w.path, os.O_RDWR, 0) // so that it outlives each writer
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			w.said <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = f.SetReadDeadline(time.Now())
		<-done
		f.Close()
	})
	return w
}

func (w *words) args() string { return fmt.Sprintf(`{"fifo":%q}`, w.path) }

func TestDeathInMidCall(t *testing.T) {
	b := open(t, program("good"))
	got, f := call(t.Context(), t, b, "dies", "{}")
	if f == nil || f.Kind != fault.WorkerLost || f.Run() != fault.Unknown || !strings.Contains(got, "exit status 7") || !strings.Contains(got, "out of memory") {
		t.Errorf("dies = %s, want worker_lost, unknown, and why", got)
	}
	for { // while it is away, calls are refused as ones that did not run
		got, f := call(t.Context(), t, b, "text", "{}")
		if f == nil {
			break
		}
		if f.Kind != fault.Unavailable || f.Run() != fault.NotStarted {
			t.Fatalf("while it is away: %s, want unavailable, not started", got)
		}
		time.Sleep(10 * time.Millisecond) // as callers do, who are told when to come back
	}
}

func TestKilledBetweenCalls(t *testing.T) {
	b := open(t, program("good"))
	first := pidOf(t, b)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	s := b.session
	b.mu.Unlock()
	if s != nil {
		await(t, s.ended, "the end of the session")
	}
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if _, f := call(t.Context(), t, b, "text", "{}"); f == nil {
			if second := pidOf(t, b); second == first {
				t.Error("the dead server answered")
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("it was not started again within 20 s")
}

func pidOf(t *testing.T, b *Bridge) int {
	t.Helper()
	got, _ := call(t.Context(), t, b, "pid", "{}")
	var r struct{ Pid int }
	if err := json.Unmarshal([]byte(got), &r); err != nil || r.Pid == 0 {
		t.Fatalf("pid = %s", got)
	}
	return r.Pid
}

func TestStartFails(t *testing.T) {
	for _, c := range []struct{ how, want string }{
		{"crash", "the program ended (exit status 3); it said last: no such database"},
		{"silent", "is it an MCP server that speaks over stdio?"},
		{"deaf", "is it an MCP server that speaks over stdio?"},
	} {
		cfg := program(c.how)
		cfg.StartTimeout, cfg.Grace = 300*time.Millisecond, 50*time.Millisecond
		b, err := Open(t.Context(), cfg)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.how, err, c.want)
		}
	}
}

func TestCloseKillsTheGroup(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	started, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		f, err := os.Open(fifo)
		if err != nil {
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		_, _ = r.ReadString('\n')
		close(started)
		_, _ = io.Copy(io.Discard, r)
	}()
	cfg := program("stubborn", "FIFO="+fifo)
	cfg.Grace = 100 * time.Millisecond
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	await(t, started, "the grandchild")
	pid := pidOf(t, b)
	began := time.Now()
	b.Close()
	await(t, gone, "the death of the grandchild")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v, want a few hundred milliseconds", took)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d lives on", pid)
	}
	if got, f := call(t.Context(), t, b, "text", "{}"); f == nil || f.Kind != fault.Unavailable {
		t.Errorf("after Close: %s, want unavailable", got)
	}
}

// Close is not held up by a call that does not end.
func TestCloseInMidCall(t *testing.T) {
	b, err := Open(t.Context(), program("good"))
	if err != nil {
		t.Fatal(err)
	}
	w := newWords(t)
	ended := make(chan string, 1)
	go func() {
		got, _ := call(t.Context(), t, b, "hangs", w.args())
		ended <- got
	}()
	await(t, w.said, "the call")
	b.Close()
	if got := await(t, ended, "the call's end"); !strings.HasPrefix(got, "worker_lost unknown") {
		t.Errorf("the call ended as %s, want worker_lost, unknown", got)
	}
}

// A safe is a buffer for many writers.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func TestTheLogIsBounded(t *testing.T) {
	var out safe
	l := newLineLog(slog.New(slog.NewTextHandler(&out, nil)), "it says")
	for i := range 10_000 {
		fmt.Fprintf(l, "\x1b[1m%s %d\n", strings.Repeat("ü", 5000), i)
	}
	fmt.Fprint(l, "last words")
	l.flush()
	if n := out.b.Len(); n > 200*maxLine {
		t.Errorf("the log has %d bytes", n)
	}
	if got := l.last(); got != "last words" {
		t.Errorf("last = %q", got)
	}
	if strings.Contains(out.b.String(), "\x1b") || !strings.Contains(out.b.String(), "lines_dropped") {
		t.Error("it has control characters, or does not say that lines were dropped")
	}
}

func TestPipeLines(t *testing.T) {
	for line, want := range map[string]int{
		``: 0, `hello`: 0, `{}`: 0, `{"a":1}`: 0, `{"jsonrpc":"2.0"`: 0, `[]`: 0, `[1]`: 0, `null`: 0,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                                 1,
		`[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"x"}]`:                2,
		`{"jsonrpc":"2.0","id":` + strconv.Quote(strings.Repeat("x", 9)) + `,"method":"ping"}`: 1,
	} {
		if got := len(parse([]byte(line))); got != want {
			t.Errorf("%q = %d messages, want %d", line, got, want)
		}
	}
	p := &pipe{lines: bufio.NewReaderSize(io.MultiReader(io.LimitReader(zeros{}, maxMessage+5), strings.NewReader("\n next \nlast")), 64<<10)}
	for _, want := range []string{"(a line of more than", "next", "last"} {
		if got, _ := p.line(); !strings.HasPrefix(string(got), want) {
			t.Errorf("line %.40q, want %q", got, want)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
