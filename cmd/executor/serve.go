package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/kvstate"
	toolotel "github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/registry"
)

func (p *program) serve() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run turns that come over NATS until told to stop",
		Long: `Run turns that come over NATS. Start as many as you like: they share the work as a queue group.

The first Ctrl-C or SIGTERM drains: no new turns are taken, and those under way may end (drain in the settings, 30 s).
The second one stops at once.`,
		Example: `  executor serve --nats-url nats://nats.example:4222 --creds executor.creds
  executor serve --config toolbus.yaml
  executor serve --embedded --store-dir /var/lib/toolbus   # with a NATS server of its own`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.runServe(cmd.Context())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	seen := p.bindListeners(f)
	embedded, dir, port := f.Bool("embedded", false, "start a NATS server in this process"), f.String("store-dir", "", "where the embedded server keeps its files"), f.Int("port", 0, "port of the embedded server (default 4222)")
	c.PreRun = func(*cobra.Command, []string) {
		seen()
		if f.Changed("embedded") {
			p.cfg.Embedded = *embedded
		}
		if f.Changed("store-dir") {
			p.cfg.StoreDir = *dir
		}
		if f.Changed("port") {
			p.cfg.Port = *port
		}
	}
	return c
}

func (p *program) runServe(ctx context.Context) error {
	look, err := p.lookOut(ctx, "info")
	if err != nil {
		return err
	}
	defer look.Close()
	var server *bus.Server
	if p.cfg.Embedded {
		if server, err = p.embed(dataDir("serve")); err != nil {
			return err
		}
		defer server.Shutdown()
		look.server = server
	}
	c, err := p.join(ctx, server, "executor")
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := p.start(ctx, c, server != nil)
	if err != nil {
		return err
	}
	p.log.Info("executor is ready", "id", c.ID())
	err = h.wait()
	p.log.Info("executor has stopped", "id", c.ID())
	return err
}

func (p *program) tracing() toolotel.TraceConfig {
	return toolotel.TraceConfig{Prefix: p.cfg.Prefix, Logger: p.log}
}

// embed starts the NATS server of this process.
func (p *program) embed(dir string) (*bus.Server, error) {
	if problem := portProblem(p.cfg.Port); problem != "" {
		return nil, errCode{cli.ExitUsage, errors.New("--port: " + problem)}
	}
	if p.cfg.StoreDir != "" {
		dir = p.cfg.StoreDir
	}
	s, err := bus.StartServer(bus.ServerConfig{Dir: dir, Host: p.cfg.Host, Port: p.cfg.Port, Logger: p.log})
	if err != nil {
		return nil, errCode{cli.ExitUnavailable, err}
	}
	return s, nil
}

// join connects to server, or where there is none, as the settings say.
func (p *program) join(ctx context.Context, server *bus.Server, name string) (*bus.Conn, error) {
	if server == nil {
		return p.connect(ctx, name)
	}
	return bus.Connect(ctx, bus.Config{Server: server, Name: "toolbus " + name, Prefix: p.cfg.Prefix, Logger: p.log})
}

// toolBucket is where manifests are kept over restarts.
func (p *program) toolBucket() kvstate.Config {
	return kvstate.Config{Bucket: p.bucket("TOOLS"), Replicas: p.cfg.Replicas}
}

// A house is the registry and the executor of this process, running.
type house struct {
	exec  *executor.Executor
	ended chan error
}

// start brings up registry, journal and executor, and returns when turns are taken. embedded says that the server is our
// own.
func (p *program) start(ctx context.Context, c *bus.Conn, embedded bool) (*house, error) {
	manifests, err := kvstate.New(c, p.toolBucket())
	if err != nil {
		return nil, err
	}
	breakers, err := kvstate.New(c, p.breakerBucket())
	if err != nil {
		return nil, err
	}
	kept := p.journal(c, embedded)
	claims := &need{ensure: c.EnsureTopology, lack: "large arguments and results will be refused: they need JetStream", have: "large arguments and results are taken"}
	traces := &need{ensure: kept.Ensure, lack: "turns leave no journal, and late results are not kept, until its streams can be made", have: "turns are journalled"}
	names := &need{ensure: manifests.Ensure, lack: "manifests are not kept over restarts", have: "manifests are kept"}
	health := &need{ensure: breakers.Ensure, lack: "circuit breakers are not shared: this executor decides alone", have: "circuit breakers can be shared"}
	streams := &supply{log: p.log, needs: []*need{claims, traces, names, health}}
	streams.first(ctx)
	if streams.drop(names) {
		manifests = nil
	}
	if streams.drop(health) {
		breakers = nil
	}
	kept.supplied = streams.goOn(c)

	// The registry outlives the executor: calls under way need it while they drain.
	known, forget := context.WithCancel(context.WithoutCancel(ctx))
	reg := registry.New(registry.Config{Bus: c, Store: manifests, Logger: p.log, Advise: true})
	ex, err := executor.New(executor.Config{
		Bus: c, Registry: reg, Breakers: breakers, Journal: kept, Observer: p.look.observer(), TurnTimeout: p.cfg.TurnTimeout,
		MaxInFlight: p.cfg.MaxInFlight, MaxTurns: p.cfg.MaxTurns, Parallel: p.cfg.Parallel, ToolParallel: p.cfg.ToolParallel,
		Trace: toolotel.NewTracer(p.tracing()), Logger: p.log,
	})
	if err != nil {
		forget()
		kept.close()
		return nil, err
	}
	h := &house{exec: ex, ended: make(chan error, 1)}
	watching := make(chan error, 1)
	go func() { watching <- reg.Run(known) }()
	select {
	case <-reg.Ready():
	case err := <-watching:
		forget()
		kept.close()
		return nil, err
	}
	go func() {
		err := ex.Run(ctx, p.cfg.Drain)
		kept.close()
		forget()
		h.ended <- errors.Join(err, <-watching)
	}()
	select {
	case <-ex.Ready():
		p.look.up(ctx, c, reg, ex, kept)
		return h, nil
	case err := <-h.ended:
		return nil, err
	}
}

// wait returns when the executor has drained.
func (h *house) wait() error { return <-h.ended }

// dataDir is where an embedded server keeps its files unless told otherwise.
func dataDir(name string) string {
	base := os.Getenv("XDG_DATA_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			home = os.TempDir()
		}
		base = filepath.Join(home, ".local", "share")
	}
	return filepath.Join(base, "toolbus", name)
}

// since is a duration as people read it.
func since(t time.Time) string { return fmt.Sprintf("%.2f s", time.Since(t).Seconds()) }
