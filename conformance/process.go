package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxStderr is how much of what a worker says last is kept, in bytes.
const maxStderr = 16 << 10

// A process is a worker under test.
type process struct {
	cmd    *exec.Cmd
	stderr tail
	done   chan struct{} // closed when it has ended
	err    error         // of Wait; read it after done
}

// startProcess starts a worker with the environment that README.md promises it.
func startProcess(cfg *Config, url, prefix string) (*process, error) {
	p := &process{cmd: exec.Command(cfg.Command[0], cfg.Command[1:]...), done: make(chan struct{})}
	p.cmd.Dir = cfg.Dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TOOLBUS_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "TOOLBUS_NATS_URL="+url, "TOOLBUS_PREFIX="+prefix, fmt.Sprint("TOOLBUS_CONCURRENCY=", concurrency))
	p.cmd.Stdout, p.cmd.Stderr = &p.stderr, &p.stderr
	p.cmd.WaitDelay = time.Second
	group(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("conformance: start the worker: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill ends the process with all that it started, and waits for it.
func (p *process) kill() {
	killGroup(p.cmd)
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// code is the exit code once the process has ended; -1 where a signal did it.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

func (p *process) terminate() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	data  []byte
	total int // bytes that were ever written
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b...)
	t.total += len(b)
	if over := len(t.data) - maxStderr; over > 0 {
		t.data = append(t.data[:0], t.data[over:]...)
	}
	return len(b), nil
}

// mark is where the text stands now; since gives what came after a mark, or the end of it.
func (t *tail) mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

func (t *tail) since(mark int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := min(t.total-mark, len(t.data))
	return strings.ToValidUTF8(string(t.data[len(t.data)-fresh:]), "\uFFFD")
}
