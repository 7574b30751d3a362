//go:build unix

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that has no bound of its own.
const patience = 20 * time.Second

// A process is a program that a test started. It ends with the test.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	out  transcript
	err  transcript
	over chan struct{} // closed when it has ended and its output is read
}

// A launch says how to start one.
type launch struct {
	path  string
	args  []string
	env   []string
	dir   string
	stdin io.Reader
}

// start starts a program, in an environment without settings of ours.
func start(t testing.TB, l launch) *process {
	t.Helper()
	p := &process{t: t, name: filepath.Base(l.path) + " " + strings.Join(l.args, " "), over: make(chan struct{})}
	p.cmd = exec.Command(l.path, l.args...)
	p.cmd.Dir, p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = l.dir, l.stdin, &p.out, &p.err
	p.cmd.Env = append(environ(t), l.env...)
	p.cmd.SysProcAttr = ownGroup()
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.over)
		_ = p.cmd.Wait() // how it ended is in its ProcessState
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.over
		if t.Failed() {
			t.Logf("%s (pid %d): exit code %d\n%s%s", p.name, p.pid(), p.cmd.ProcessState.ExitCode(), &p.out, &p.err)
		}
	})
	return p
}

// environ is ours, without what would change what the programs do or where they write.
func environ(t testing.TB) []string {
	home := t.TempDir()
	env := []string{"XDG_DATA_HOME=" + home, "XDG_CONFIG_HOME=" + home}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TOOLBUS_") && !strings.HasPrefix(v, "NATS_") && !strings.HasPrefix(v, "OTEL_") {
			env = append(env, v)
		}
	}
	return env
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process with SIGKILL, and is when that was.
func (p *process) kill() time.Time {
	at := time.Now()
	p.signal(syscall.SIGKILL)
	return at
}

// wait is the exit code, which must come within d.
func (p *process) wait(d time.Duration) int {
	p.t.Helper()
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-p.over:
		return p.cmd.ProcessState.ExitCode()
	case <-late.C:
		p.t.Fatalf("%s had not ended after %v", p.name, d)
		return -1
	}
}

// stop tells the process to end in good order, which must come to the given exit code.
func (p *process) stop(s syscall.Signal, code int) {
	p.t.Helper()
	p.signal(s)
	if got := p.wait(patience); got != code {
		p.t.Errorf("%s ended with exit code %d after %v, want %d", p.name, got, s, code)
	}
}

// says waits until the process has written a text to standard output or standard error.
func (p *process) says(text string) {
	p.t.Helper()
	if !p.saysOrEnds(text) {
		p.t.Fatalf("%s did not say %q", p.name, text)
	}
}

func (p *process) saysOrEnds(text string) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		out, moreOut := p.out.look()
		err, moreErr := p.err.look()
		if strings.Contains(out, text) || strings.Contains(err, text) {
			return true
		}
		select {
		case <-moreOut:
		case <-moreErr:
		case <-late.C:
			return false
		case <-p.over:
			return strings.Contains(p.out.String(), text) || strings.Contains(p.err.String(), text)
		}
	}
}

// A transcript is what a process has written so far.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at the next write
}

func (s *transcript) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
	return s.text.Write(b)
}

func (s *transcript) look() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return s.text.String(), s.more
}

func (s *transcript) String() string {
	text, _ := s.look()
	return text
}

// A ran is a program that has ended.
type ran struct {
	code     int
	out, err string
}

// run runs the executor program to its end.
func run(t testing.TB, url string, args ...string) ran {
	t.Helper()
	return runWith(t, nil, url, args...)
}

func runWith(t testing.TB, stdin io.Reader, url string, args ...string) ran {
	t.Helper()
	p := begin(t, stdin, url, args...)
	return ran{p.wait(patience), p.out.String(), p.err.String()}
}

// begin starts the executor program.
func begin(t testing.TB, stdin io.Reader, url string, args ...string) *process {
	t.Helper()
	return start(t, launch{path: program(t, "executor"), args: args, env: []string{"TOOLBUS_NATS_URL=" + url}, stdin: stdin})
}

// until waits for something of which no signal tells: what a process of another program has done.
func until(t testing.TB, what string, within time.Duration, done func() bool) {
	t.Helper()
	if !eventually(t.Context(), within, done) {
		t.Fatalf("%s: not within %v", what, within)
	}
}

func eventually(ctx context.Context, within time.Duration, done func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(within)
	defer late.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// living are the processes that a test asks about: those with this parent or in this group. The dead that nobody has
// collected do not count.
func living(t testing.TB, ask func(pid, parent, group int) bool) (pids []int) {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,pgid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.Lines(string(out)) {
		var pid, parent, group int
		var state string
		n, _ := fmt.Sscan(text, &pid, &parent, &group, &state)
		if n == 4 && !strings.HasPrefix(state, "Z") && ask(pid, parent, group) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func children(t testing.TB, of int) []int {
	t.Helper()
	return living(t, func(_, parent, _ int) bool { return parent == of })
}

func alive(t testing.TB, who int) bool {
	t.Helper()
	return len(living(t, func(pid, _, _ int) bool { return pid == who })) > 0
}

func groupAlive(t testing.TB, which int) bool {
	t.Helper()
	return len(living(t, func(_, _, group int) bool { return group == which })) > 0
}
