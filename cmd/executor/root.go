package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
)

// A program is what the commands share: where they read and write, and the settings.
type program struct {
	in       io.Reader
	out, err io.Writer

	nats   cli.NATSFlags
	file   string
	level  string
	format string

	cfg  Config
	log  *slog.Logger
	look *lookout // while it serves
}

// errCode is an error with the code to exit with.
type errCode struct {
	code int
	err  error
}

func (e errCode) Error() string { return e.err.Error() }
func (e errCode) Unwrap() error { return e.err }

// errSilent ends a command that has said all there is to say.
var errSilent = errors.New("")

// run is main without the process.
func run(ctx context.Context, args []string, in io.Reader, out, errw io.Writer) int {
	p := &program{in: in, out: out, err: errw}
	root := p.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		fmt.Fprintln(errw, "executor: "+text)
	}
	var coded errCode
	if errors.As(err, &coded) {
		return coded.code
	}
	var f *fault.Fault
	if errors.As(err, &f) {
		if f.Kind == fault.Unavailable || f.Kind == fault.WorkerLost {
			return cli.ExitUnavailable
		}
		return cli.ExitFailed
	}
	fmt.Fprintf(errw, "see %s --help\n", cmd.CommandPath())
	return cli.ExitUsage
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "executor",
		Short: "Run the tool calls of AI agents over NATS",
		Long: `Executor runs the tool calls of AI agents over NATS: it sends each call to a worker, and gives back one result
whatever breaks on the way.

Settings come from flags, else from the environment (TOOLBUS_NATS_URL for --nats-url, and so on), else from the file that
--config names, else they are the defaults. "executor config check" prints what holds.`,
		Example: `  executor dev                                             # all in one process, to try it out
  executor call calculator '{"expression": "2 * (3 + 4)"}'
  executor turn run trip.yaml                              # several calls that need one another
  executor serve --nats-url nats://nats.example:4222       # for real`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if err := p.settle(); err != nil {
				return errCode{cli.ExitUsage, err}
			}
			return nil
		},
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.PersistentFlags().SortFlags = false
	p.nats.Bind(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.file, "config", "", "YAML `file` with settings; see executor config check")
	root.PersistentFlags().StringVar(&p.level, "log-level", "", "debug, info, warn or error (default warn; info for serve)")
	root.PersistentFlags().StringVar(&p.format, "log-format", "", "text or json (default text)")
	root.AddCommand(p.dev(), p.serve(), p.call(), p.turn(), p.trace(), p.late(), p.top(), p.tools(), p.workers(), p.breakers(), p.executors(), p.config(), p.version(), p.crashWorker())
	return root
}

// settle works out the settings: flags over environment over file over defaults.
func (p *program) settle() error {
	cfg, err := load(p.file)
	if err != nil {
		return err
	}
	cfg.Config = p.nats.Over(cfg.Config)
	if p.level != "" {
		cfg.LogLevel = p.level
	}
	if p.format != "" {
		cfg.LogFormat = p.format
	}
	p.cfg = cfg
	level := cfg.LogLevel
	if level == "" {
		level = "warn"
	}
	p.log, err = cli.Logger(p.err, level, cfg.LogFormat)
	return err
}

// connect connects as the settings say.
func (p *program) connect(ctx context.Context, name string) (*bus.Conn, error) {
	cfg, err := p.cfg.Bus()
	if err != nil {
		return nil, errCode{cli.ExitUsage, err}
	}
	cfg.Name, cfg.Logger = "toolbus "+name, p.log
	c, err := bus.Connect(ctx, cfg)
	if err != nil {
		return nil, errCode{cli.ExitUnavailable, err}
	}
	return c, nil
}

// catalogue connects and looks who is there: it calls show when the roll call has been answered.
func (p *program) catalogue(ctx context.Context, show func(*registry.Registry) error) error {
	c, err := p.connect(ctx, "list")
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	b, err := kvstate.Open(ctx, c, p.toolBucket())
	if err != nil {
		p.log.Warn("tools without workers are not known", "why", err)
	}
	r := registry.New(registry.Config{Bus: c, Store: b, Logger: p.log})
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	select {
	case <-r.Ready():
		err = show(r)
		cancel()
		return errors.Join(err, <-ended)
	case err := <-ended:
		cancel()
		return err
	}
}

func (p *program) version() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use: "version", Short: "Say what this is built from", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return cli.PrintJSON(p.out, cli.BuildOf(version))
			}
			fmt.Fprintln(p.out, "executor "+cli.Version(version))
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}
