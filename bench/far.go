package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// The tools of the far side: plain and hold are bare repliers, the others run in a worker.
const (
	schema = `{"type":"object","additionalProperties":false,"required":["from","to","date"],"properties":{
		"from":{"type":"string","pattern":"^[A-Z]{3}$"},"to":{"type":"string","pattern":"^[A-Z]{3}$"},
		"date":{"type":"string","format":"date"},"passengers":{"type":"integer","minimum":1,"maximum":9},
		"cabin":{"enum":["economy","premium","business","first"]},"flexible":{"type":"boolean"}}}`
	args = `{"from":"VIE","to":"LIS","date":"2026-05-01","passengers":2,"cabin":"economy","flexible":true}`

	startedSubject   = "bench.started"   // a handler of wait began
	cancelledSubject = "bench.cancelled" // its context ended: when, in Unix nanoseconds
	releaseSubject   = "bench.release"   // answer all that is held
)

// A child is another process of this program.
type child struct {
	cmd  *exec.Cmd
	in   io.Closer
	line string // what it said first
}

// start runs this program as the far side; role is "server" or "collector", or "worker" or "executor" and a URL. The child ends with its stdin.
func start(role ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, append([]string{"far"}, role...)...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.in = in
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("the far side did not start: %w", err)
	}
	c.line = strings.TrimSpace(line)
	return c, nil
}

func (c *child) stop() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// kill is SIGKILL.
func (c *child) kill() error { return c.cmd.Process.Kill() }

// far is what a child does: it says where it is, and ends with its stdin.
func far(role []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	url := ""
	switch {
	case role[0] == "collector":
		return collector()
	case role[0] == "server":
		s, dir, err := server()
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		defer s.Shutdown()
		url = s.ClientURL()
		if err := repliers(ctx, url); err != nil {
			return err
		}
	case role[0] == "worker" && len(role) == 2:
		url = role[1]
	case role[0] == "executor" && len(role) == 2:
		return farExecutor(ctx, cancel, role[1])
	default:
		return errors.New("far: expected server or collector, or worker or executor and a URL")
	}
	w, err := work(ctx, url, worker.Config{Concurrency: 256})
	if err != nil {
		return err
	}
	if role[0] == "worker" {
		url = w.ID()
	}
	fmt.Println(url)
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started us has ended
	return nil
}

func server() (s *bus.Server, dir string, err error) {
	if dir, err = os.MkdirTemp("", "toolbus-bench-"); err != nil {
		return nil, "", err
	}
	s, err = bus.StartServer(bus.ServerConfig{Port: -1, Lazy: true, Dir: dir})
	return s, dir, err
}

func dial(ctx context.Context, url string) (*bus.Conn, error) {
	return bus.Connect(ctx, bus.Config{URL: url})
}

// repliers are two bare NATS services: plain echoes, hold keeps what it gets until it is told to answer.
func repliers(ctx context.Context, url string) error {
	c, err := dial(ctx, url)
	if err != nil {
		return err
	}
	nc := c.NATS()
	var held []string
	_, err1 := nc.QueueSubscribe("tb.v1.call.plain", "workers", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	_, err2 := nc.Subscribe("tb.v1.*.hold", func(m *nats.Msg) { held = append(held, m.Reply) })
	_, err3 := nc.Subscribe(releaseSubject, func(*nats.Msg) {
		for _, reply := range held {
			_ = nc.Publish(reply, []byte(`{"ok":true}`))
		}
		held = nil
	})
	return errors.Join(err1, err2, err3, nc.Flush())
}

// work starts a worker with the tools search and wait.
func work(ctx context.Context, url string, cfg worker.Config) (*worker.Worker, error) {
	c, err := dial(ctx, url)
	if err != nil {
		return nil, err
	}
	cfg.Bus = c
	cfg.Tools = append(cfg.Tools,
		worker.Tool{
			Manifest: tool.Manifest{ID: "search", Version: "1.0.0", Effect: tool.Read, Input: []byte(schema)},
			Handler:  worker.HandlerFunc(func(_ context.Context, call *worker.Call) (any, error) { return call.Args, nil }),
		},
		worker.Tool{
			Manifest: tool.Manifest{ID: "wait", Version: "1.0.0", Effect: tool.Read},
			Handler: worker.HandlerFunc(func(ctx context.Context, _ *worker.Call) (any, error) {
				_ = c.NATS().Publish(startedSubject, nil)
				<-ctx.Done()
				_ = c.NATS().Publish(cancelledSubject, fmt.Append(nil, time.Now().UnixNano()))
				return nil, ctx.Err()
			}),
		})
	return serve(ctx, cfg)
}

func serve(ctx context.Context, cfg worker.Config) (*worker.Worker, error) {
	w, err := worker.New(cfg)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }() // the process ends with it, or before it
	select {
	case <-w.Ready():
		return w, nil
	case err := <-ended:
		return nil, err
	}
}

// A near side is one connection with an executor on it.
type near struct {
	bus  *bus.Conn
	reg  *registry.Registry
	exec *executor.Executor
}

// join connects an executor that knows its tools from heartbeats.
func join(ctx context.Context, url string) (*near, error) {
	c, err := dial(ctx, url)
	if err != nil {
		return nil, err
	}
	n := &near{bus: c, reg: registry.New(registry.Config{Bus: c})}
	go func() { _ = n.reg.Run(ctx) }()
	<-n.reg.Ready()
	n.exec, err = executor.New(executor.Config{Bus: c, Registry: n.reg})
	return n, err
}

// await waits until so many workers of a tool are known.
func (n *near) await(name string, workers int) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		t := n.reg.Tool(name)
		if t == nil && workers == 0 || t != nil && t.Compiled != nil && len(t.Workers) == workers {
			return nil
		}
	}
	return fmt.Errorf("%d workers of %s did not show up", workers, name)
}

// shelf is a catalogue of tools with a manifest and without workers: their calls go to the queue group.
type shelf map[string]*registry.Tool

func newShelf(names ...string) (shelf, error) {
	s := shelf{}
	for _, name := range names {
		c, err := tool.Compile(tool.Manifest{ID: name, Version: "1.0.0", Effect: tool.Read, Input: []byte(schema)})
		if err != nil {
			return nil, err
		}
		s[name] = &registry.Tool{Name: name, Compiled: c}
	}
	return s, nil
}

func (s shelf) Tool(name string) *registry.Tool { return s[name] }
func (shelf) Nearest(string) []string           { return nil }
func (shelf) Gone(string)                       {}
