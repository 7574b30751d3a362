package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/demo"
	toolotel "github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/worker"
)

func (p *program) dev() *cobra.Command {
	var files string
	c := &cobra.Command{
		Use:   "dev",
		Short: "Everything in one process: NATS with JetStream, an executor, demo tools",
		Long: `Start NATS with JetStream on disk, an executor and demo tools, for trying things out. Workers and clients in other
processes join on the printed address. The NATS server is its own, so the flags that say how to reach one are not used.
Ctrl-C stops.`,
		Example: `  executor dev
  executor dev --port -1 --store-dir "$(mktemp -d)"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.runDev(cmd.Context(), files) },
	}
	f := c.Flags()
	f.StringVar(&files, "files", ".", "`folder` that the demo tool file_search looks in")
	seen := p.bindListeners(f)
	dir, port := f.String("store-dir", "", "where NATS keeps its files (default below the user's data folder)"), f.Int("port", 0, "port of NATS, -1 for any free one (default 4222)")
	c.PreRun = func(*cobra.Command, []string) {
		seen()
		if f.Changed("store-dir") {
			p.cfg.StoreDir = *dir
		}
		if f.Changed("port") {
			p.cfg.Port = *port
		}
	}
	return c
}

func (p *program) runDev(ctx context.Context, files string) error {
	began := time.Now()
	look, err := p.lookOut(ctx, "warn")
	if err != nil {
		return err
	}
	defer look.Close()
	server, err := p.embed(dataDir("dev"))
	if err != nil {
		return err
	}
	defer server.Shutdown()
	look.server = server
	c, err := p.join(ctx, server, "executor")
	if err != nil {
		return err
	}
	defer c.Close()
	page, stopPage, err := demo.ServePage(ctx)
	if err != nil {
		return err
	}
	defer stopPage()

	// Demo tools stop after the executor, which may still be waiting for them.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	w, ended, err := p.demoWorker(serving, server, demo.Config{Dir: files, PageURL: page, Only: harmless()})
	if err != nil {
		return err
	}
	crashed := make(chan struct{})
	go func() {
		defer close(crashed)
		p.keepCrashing(serving, server.ClientURL())
	}()
	h, err := p.start(ctx, c, true)
	if err != nil {
		return err
	}
	p.greet(began, server, c, w, page)
	err = h.wait()
	stop()
	<-crashed
	return errors.Join(err, <-ended)
}

// harmless is the demo tools that do not kill the process that they run in.
func harmless() []string {
	return slices.DeleteFunc(demo.Names(), func(name string) bool { return name == "crash" })
}

// demoWorker runs the demo tools that cfg names.
func (p *program) demoWorker(ctx context.Context, server *bus.Server, cfg demo.Config) (*worker.Worker, <-chan error, error) {
	c, err := p.join(ctx, server, "demo worker")
	if err != nil {
		return nil, nil, err
	}
	tools, err := demo.Tools(cfg)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	w, err := worker.New(worker.Config{
		Bus: c, Tools: tools, Grace: time.Second, Observer: toolotel.NewWorkerTracer(p.tracing(), c.ID()), Logger: p.log,
	})
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		defer c.Close()
		ended <- w.Run(ctx)
	}()
	select {
	case <-w.Ready():
		return w, ended, nil
	case err := <-ended:
		return nil, nil, err
	}
}

// greet says what is there and what to try.
func (p *program) greet(began time.Time, server *bus.Server, c *bus.Conn, w *worker.Worker, page string) {
	at, flag := server.ClientURL(), ""
	if at != "nats://127.0.0.1:4222" {
		flag = " --nats-url " + at
	}
	fmt.Fprintf(p.out, "toolbus is ready after %s\n", since(began))
	fmt.Fprintf(p.out, "  nats      %s\n  executor  %s\n  worker    %s\n  page      %s\n\n", at, c.ID(), w.ID(), page)
	me := self()
	fmt.Fprintln(p.out, "In another terminal, try:")
	for _, line := range []string{
		`tools`,
		`call calculator '{"expression": "2 * (3 + 4)"}'`,
		`call file_search '{"query": "func main"}'`,
		`call flaky '{"fail_times": 2}'`,
		`turn run examples/trip.yaml     # several calls, some of which need others`,
		`call slow '{"seconds": 60}'     # cut off at its timeout`,
		`call crash                      # its worker dies under it`,
		`call calculater '{}'            # a name that nobody has`,
		`call http_fetch '{"url": "` + page + `"}'`,
	} {
		command, note, _ := strings.Cut(line, "#")
		if note != "" {
			note = "   #" + note
		}
		fmt.Fprintln(p.out, "  "+me+" "+strings.TrimSpace(command)+flag+note)
	}
	fmt.Fprintln(p.out, "Ctrl-C stops.")
}

// self is how the user started this program, so that the lines above can be copied as they stand.
func self() string {
	name := os.Args[0]
	switch {
	case strings.Contains(name, "go-build"): // its binary is gone when it ends
		return "go run ./cmd/executor"
	case strings.ContainsRune(name, filepath.Separator):
		return name
	}
	return "executor"
}

// crashWorker is the process that the demo tool crash kills: it runs nothing else.
func (p *program) crashWorker() *cobra.Command {
	return &cobra.Command{
		Use: "crash-worker", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, p.in) // it ends with the process that started us, whatever becomes of that
				cancel()
			}()
			_, ended, err := p.demoWorker(ctx, nil, demo.Config{Only: []string{"crash"}})
			if err != nil {
				return err
			}
			return <-ended
		},
	}
}

// keepCrashing keeps a crash worker running until ctx ends.
func (p *program) keepCrashing(ctx context.Context, url string) {
	self, err := os.Executable()
	if err != nil {
		p.log.Warn("the demo tool crash is not there", "why", err)
		return
	}
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		began := time.Now()
		if err := crashOnce(ctx, self, url, p.cfg.Prefix); err != nil && ctx.Err() == nil {
			p.log.Info("the crash worker is started again", "ended", err)
		}
		if time.Since(began) > 5*time.Second {
			wait = 100 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func crashOnce(ctx context.Context, self, url, prefix string) error {
	args := []string{"crash-worker", "--nats-url", url, "--log-level", "error"}
	if prefix != "" {
		args = append(args, "--prefix", prefix)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for us, and we tell it
	hold, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer hold.Close()
	return cmd.Run()
}
