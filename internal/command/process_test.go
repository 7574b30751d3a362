//go:build unix

package command

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// A trace is a pipe that processes hold open for as long as they live: its end is proof that they are gone.
type trace struct {
	path    string
	started chan string   // the first line that a process wrote
	gone    chan struct{} // closed when no process holds the pipe any more
}

func newTrace(t *testing.T) *trace {
	t.Helper()
	tr := &trace{path: filepath.Join(t.TempDir(), "fifo"), started: make(chan string, 1), gone: make(chan struct{})}
	if err := syscall.Mkfifo(tr.path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(tr.gone)
		f, err := os.Open(tr.path) // returns when the first process opens it
		if err != nil {
			return
		}
		defer f.Close()
		r := bufio.NewReader(f)
		line, _ := r.ReadString('\n')
		tr.started <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r)
	}()
	return tr
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited 20 s for %s", what)
		panic("unreachable")
	}
}

// stubborn is a script whose grandchild ignores SIGTERM and holds the trace, whose path is $1. $2 is what follows.
const stubborn = `
(trap "" TERM; exec 9>"$1"; echo started >&9; exec sleep 600) &
eval "$2"
`

func TestCallEndsTheWholeGroup(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after string // what the program does once the grandchild is there
		end   func(context.CancelFunc)
		kind  fault.Kind
	}{
		{"cancel", "wait", func(cancel context.CancelFunc) { cancel() }, fault.Cancelled},
		{"cancel, all ignore SIGTERM", `trap "" TERM; wait`, func(cancel context.CancelFunc) { cancel() }, fault.Cancelled},
		{"output beyond the cap", "cat /dev/zero", func(context.CancelFunc) {}, fault.InvalidResult},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr := newTrace(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan *fault.Fault, 1)
			go func() {
				_, f := runCtx(ctx, sh(stubborn, tr.path, tc.after), "{}")
				ended <- f
			}()
			await(t, tr.started, "the grandchild")
			tc.end(cancel)
			f := await(t, ended, "the end of the call")
			if f == nil || f.Kind != tc.kind || f.Execution != fault.Stopped {
				t.Errorf("fault %#v, want %s, stopped", f, tc.kind)
			}
			await(t, tr.gone, "the death of the grandchild")
		})
	}
}

func TestTimeout(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, f := runCtx(ctx, sh("echo working >&2; exec sleep 600"), "{}")
	if f == nil || f.Kind != fault.Timeout || f.Execution != fault.Stopped || f.Message != "the time was up and the command was killed" {
		t.Errorf("fault %#v, want timeout, stopped", f)
	}
}

func TestOverBeforeItBegan(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, f := runCtx(ctx, sh("true"), "{}"); f == nil || f.Kind != fault.Cancelled || f.Execution != fault.NotStarted {
		t.Errorf("fault %#v, want cancelled, not_started", f)
	}
}

func TestGraceLetsTheProgramTidyUp(t *testing.T) {
	tr := newTrace(t)
	c := sh(`trap 'echo tidied >&2; exit 0' TERM; exec 9>"$1"; echo started >&9; while :; do sleep 0.01; done`, tr.path)
	c.Grace = 20 * time.Second
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan *fault.Fault, 1)
	go func() {
		_, f := runCtx(ctx, c, "{}")
		ended <- f
	}()
	await(t, tr.started, "the program")
	cancel()
	// Some shells say before it that their sleep was terminated.
	f := await(t, ended, "the end of the call")
	if f == nil || f.Kind != fault.Cancelled || !strings.HasSuffix(f.Detail, "tidied") {
		t.Errorf("fault %#v, want cancelled with what the program said last", f)
	}
}

func TestWhatTheProgramLeavesBehindIsKilled(t *testing.T) {
	tr := newTrace(t)
	ended := make(chan string, 1)
	go func() {
		got, f := run(t, sh(stubborn, tr.path, `while [ ! -e "$1.go" ]; do sleep 0.01; done; echo 1`), "{}")
		if f != nil {
			got = f.Error()
		}
		ended <- got
	}()
	await(t, tr.started, "the grandchild")
	if err := os.WriteFile(tr.path+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := await(t, ended, "the end of the call"); got != "1" {
		t.Errorf("result %s, want 1", got)
	}
	await(t, tr.gone, "the death of the grandchild")
}

// A program that left the group on purpose lives on, but nobody waits for it.
func TestHeldPipesDoNotHoldTheCall(t *testing.T) {
	setsid, err := exec.LookPath("setsid")
	if err != nil {
		t.Skip("NO setsid IN PATH: pipes that are held from outside the group are not tested")
	}
	tr := newTrace(t)
	script := `"$2" sh -c 'exec 9>"$0"; echo $$ >&9; exec sleep 600' "$1" & while [ ! -e "$1.go" ]; do sleep 0.01; done; echo 1`
	ended := make(chan string, 1)
	go func() {
		got, f := run(t, sh(script, tr.path, setsid), "{}")
		if f != nil {
			got = f.Error()
		}
		ended <- got
	}()
	pid := await(t, tr.started, "the daemon")
	defer func() {
		_ = exec.Command("kill", "-KILL", pid).Run()
		await(t, tr.gone, "the death of the daemon")
	}()
	if err := os.WriteFile(tr.path+".go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := await(t, ended, "the end of the call"); got != "1" {
		t.Errorf("result %s, want 1", got)
	}
}

func TestOutputCap(t *testing.T) {
	c := sh(`printf 12345`)
	c.MaxOutput = 5
	if got, f := run(t, c, "{}"); f != nil || got != "12345" {
		t.Errorf("as much as is allowed = %s, %v, want it", got, f)
	}
	c.MaxOutput = 4
	if _, f := run(t, c, "{}"); f == nil || f.Kind != fault.InvalidResult || !strings.Contains(f.Message, "wrote more than 4 bytes") {
		t.Errorf("a byte too many = %v, want invalid_result", f)
	}
}

func TestManyAtOnce(t *testing.T) {
	c := sh("cat")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			args := `{"q":"` + strings.Repeat("x", i*10_000) + `"}`
			if got, f := run(t, c, args); f != nil || got != args {
				t.Errorf("call %d: %d bytes came back, %v, want %d", i, len(got), f, len(args))
			}
		})
	}
	wg.Wait()
}
