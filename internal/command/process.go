package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/toolbus/toolbus/internal/procgroup"
	"github.com/toolbus/toolbus/wire"
)

// Defaults of a Command, and how long pipes may stay open once the whole group is dead: only somebody who left the
// group can still hold one.
const (
	defaultMaxOutput = 8 << 20
	defaultMaxStderr = 64 << 10
	defaultGrace     = 200 * time.Millisecond
	pipeWait         = 500 * time.Millisecond
)

// errStart wraps why a program was never started.
var errStart = errors.New("start the command")

// A stop says why a process was ended before its time.
type stop int

const (
	notStopped stop = iota
	contextEnded
	tooMuch // it wrote more than it may
)

// A process is one run of a program, and leads a process group.
type process struct {
	cmd    *exec.Cmd
	grace  time.Duration
	stdout *output
	stderr *stderr
	group  *procgroup.Group
	enough <-chan struct{} // closed when what it wrote is more than it may, or not what it may
}

func newProcess(c Command, args []byte, callEnv []string, progress func(wire.ProgressRecord)) *process {
	if len(bytes.TrimSpace(args)) == 0 {
		args = []byte("{}")
	}
	p := &process{
		cmd:    exec.Command(c.Path, c.Args...),
		grace:  positive(c.Grace, defaultGrace),
		stdout: &output{max: positive(c.MaxOutput, defaultMaxOutput), full: make(chan struct{})},
		stderr: &stderr{max: positive(c.MaxStderr, defaultMaxStderr), progress: progress},
	}
	p.enough = p.stdout.full
	p.cmd.Dir = c.Dir
	p.cmd.Env = c.environ(callEnv)
	p.cmd.Stdin = bytes.NewReader(args)
	p.cmd.Stdout = p.stdout
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = pipeWait
	p.group = procgroup.Lead(p.cmd)
	return p
}

func positive[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// run returns when the program has ended, its group is dead and its output is read. The error is about the start alone;
// how the program ended is in p.cmd.ProcessState.
func (p *process) run(ctx context.Context) (stop, error) {
	// Linux kills the program when the thread that started it ends, so that thread stays ours until the program is over.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := p.cmd.Start(); err != nil {
		return notStopped, fmt.Errorf("%w: %w", errStart, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.group.Wait()
	}()
	why := p.watch(ctx, ended)
	<-ended
	p.stderr.flush()
	select {
	case <-p.enough:
		why = tooMuch
	default:
	}
	return why, nil
}

// watch returns once the program has ended, or was told to.
func (p *process) watch(ctx context.Context, ended <-chan struct{}) stop {
	select {
	case <-ended:
		return notStopped
	case <-p.enough:
		p.group.Signal(syscall.SIGKILL)
		return tooMuch
	case <-ctx.Done():
	}
	p.group.Signal(syscall.SIGTERM)
	grace := time.NewTimer(p.grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-p.enough:
	case <-grace.C:
	}
	p.group.Signal(syscall.SIGKILL)
	return contextEnded
}

// An output keeps what is written up to max bytes, and closes full at the first byte beyond.
type output struct {
	kept bytes.Buffer
	max  int64
	full chan struct{}
	over bool
}

func (o *output) Write(b []byte) (int, error) {
	if o.over {
		return len(b), nil
	}
	if int64(o.kept.Len()+len(b)) > o.max {
		o.over = true
		close(o.full)
		return len(b), nil
	}
	return o.kept.Write(b)
}
