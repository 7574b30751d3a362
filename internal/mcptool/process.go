package mcptool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/toolbus/toolbus/internal/procgroup"
)

// pipeWait is how long pipes may stay open once the whole group is dead.
const pipeWait = 500 * time.Millisecond

// A process is one run of the program, and leads a process group.
type process struct {
	cmd   *exec.Cmd
	group *procgroup.Group
	tail  *lineLog      // its stderr
	ended chan struct{} // closed when it has ended, its group is dead and it is collected
}

// base are the variables that every program gets: those that MCP clients are used to pass on.
var base = []string{"PATH", "HOME", "LANG", "TZ", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR"}

// checkCommand says why the program cannot be started, as far as can be known, and gives its short name.
func checkCommand(c *Config) (string, error) {
	if c.Dir != "" {
		if info, err := os.Stat(c.Dir); err != nil {
			return "", fmt.Errorf("mcp: dir: %w", err)
		} else if !info.IsDir() {
			return "", fmt.Errorf("mcp: dir: %s is not a directory", c.Dir)
		}
	}
	path := c.Command[0]
	if c.Dir != "" && filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("mcp: command %s: %w; install it, or give its path", c.Command[0], errors.Unwrap(err))
	}
	for _, v := range c.Env {
		if name, _, _ := strings.Cut(v, "="); name == "" || strings.ContainsRune(v, 0) {
			return "", fmt.Errorf("mcp: env: %q is not a name", name)
		}
	}
	for _, arg := range slices.Backward(c.Command) { // npx -y @scope/server DIR: the package says most
		if strings.Contains(arg, "server") && !strings.HasPrefix(arg, "-") {
			return filepath.Base(arg), nil
		}
	}
	return filepath.Base(c.Command[0]), nil
}

func environ(names []string) []string {
	var env []string
	for _, name := range append(slices.Clone(base), names...) {
		if strings.Contains(name, "=") {
			env = append(env, name)
		} else if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

func startProcess(cfg *Config, log *slog.Logger, stdin, stdout *os.File) (*process, error) {
	p := &process{
		cmd:   exec.Command(cfg.Command[0], cfg.Command[1:]...),
		tail:  newLineLog(log, "the server says"),
		ended: make(chan struct{}),
	}
	p.cmd.Dir = cfg.Dir
	p.cmd.Env = environ(cfg.Env)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, p.tail
	p.cmd.WaitDelay = pipeWait
	p.group = procgroup.Lead(p.cmd)

	started := make(chan error, 1)
	go func() {
		// Linux kills the program when the thread that started it ends, so that thread stays ours until it is over.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.group.Wait()
			p.tail.flush()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cfg.Command[0], err)
	}
	return p, nil
}

func (p *process) kill() { p.group.Signal(syscall.SIGKILL) }

// end waits for the program, whose input is closed, and ends it with more and more force.
func (p *process) end(grace time.Duration) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t := time.NewTimer(grace)
		select {
		case <-p.ended:
			t.Stop()
			return
		case <-t.C:
			p.group.Signal(sig)
		}
	}
	<-p.ended
}

// state is how the program ended. Read it after ended.
func (p *process) state() string { return p.cmd.ProcessState.String() }
