//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/toolbus/toolbus/internal/cli"
)

// executor top shows what two programs are about, as JSON and on a terminal, until q is pressed.
func TestTop(t *testing.T) {
	p, url := dev(t)
	screen := watch(t, url)
	r := make(chan ran, 1)
	go func() { r <- run(t, url, "top", "--json") }()
	for range 3 {
		if c := run(t, url, "call", "calculator", `{"expression": "2 * 3"}`); c.code != cli.ExitOK {
			t.Fatalf("call = %d\n%s", c.code, c.err)
		}
	}
	got := <-r
	var v struct {
		Executors, Workers []any
		Tools              []struct {
			Tool     string
			Attempts int
			Breaker  string
		}
	}
	if err := json.Unmarshal([]byte(got.out), &v); err != nil || got.code != cli.ExitOK || len(v.Executors) != 1 || len(v.Workers) == 0 {
		t.Fatalf("top --json = %d, %v\n%s%s", got.code, err, got.out, got.err)
	}
	for _, tool := range v.Tools {
		if tool.Tool == "calculator" && (tool.Attempts != 3 || tool.Breaker != "closed") {
			t.Errorf("top --json shows %+v, want 3 attempts and a closed breaker", tool)
		}
	}
	screen.shows("calculator")
	screen.press("b")
	screen.shows("all closed")
	screen.press("q")
	if err := screen.cmd.Wait(); err != nil {
		t.Errorf("top ended with %v after q", err)
	}
	p.stop(syscall.SIGINT, cli.ExitOK)
}

// A pty is a terminal with executor top on it.
type pty struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	out    transcript
}

func watch(t *testing.T, url string) *pty {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &pty{t: t, master: master, cmd: exec.Command(program(t, "executor"), "top")}
	s.cmd.Env = append(environ(t), "TOOLBUS_NATS_URL="+url, "TERM=xterm-256color")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = s.out.Write(b[:n])
			if err != nil {
				return // the program has left its terminal
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended, most often
		master.Close()
		<-read
	})
	return s
}

func (s *pty) press(key string) {
	if _, err := s.master.WriteString(key); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until the terminal was sent a text.
func (s *pty) shows(text string) {
	s.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		out, more := s.out.look()
		if strings.Contains(out, text) {
			return
		}
		select {
		case <-more:
		case <-late.C:
			s.t.Fatalf("the terminal does not show %q but %q", text, out)
		}
	}
}
