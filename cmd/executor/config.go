package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/cli"
)

// A Config is the settings of the executor program, as its YAML file and the environment write them. Zero values work.
type Config struct {
	cli.Config `yaml:",inline"`

	LogLevel  string `yaml:"log_level" env:"TOOLBUS_LOG_LEVEL"`
	LogFormat string `yaml:"log_format" env:"TOOLBUS_LOG_FORMAT"`

	TurnTimeout time.Duration `yaml:"turn_timeout" env:"TOOLBUS_TURN_TIMEOUT"`   // deadline of turns that bring none; 0 is 5m
	MaxInFlight int           `yaml:"max_in_flight" env:"TOOLBUS_MAX_IN_FLIGHT"` // calls under way at once; 0 is 100000
	MaxTurns    int           `yaml:"max_turns" env:"TOOLBUS_MAX_TURNS"`         // turns under way at once; 0 is max_in_flight
	Drain       time.Duration `yaml:"drain" env:"TOOLBUS_DRAIN"`                 // how long a stop waits for calls; 0 is 30s
	Replicas    int           `yaml:"replicas" env:"TOOLBUS_REPLICAS"`           // of streams and buckets; 0 is 3 in a cluster, else 1

	// Of turns that do not say themselves: how many of their calls run at once, in all and of any one tool. 0 is no limit.
	Parallel     int `yaml:"parallel" env:"TOOLBUS_PARALLEL"`
	ToolParallel int `yaml:"tool_parallel" env:"TOOLBUS_TOOL_PARALLEL"`

	Journal JournalConfig `yaml:"journal"`
	Late    LateConfig    `yaml:"late"`

	// Where operators are answered, host:port. Empty is nowhere.
	MetricsAddr string `yaml:"metrics_addr" env:"TOOLBUS_METRICS_ADDR"` // /metrics, /healthz, /readyz, /loglevel
	PprofAddr   string `yaml:"pprof_addr" env:"TOOLBUS_PPROF_ADDR"`     // /debug/pprof

	// Embedded starts a NATS server in this process.
	Embedded bool   `yaml:"embedded" env:"TOOLBUS_EMBEDDED"`
	StoreDir string `yaml:"store_dir" env:"TOOLBUS_STORE_DIR"` // of the embedded server
	Host     string `yaml:"host" env:"TOOLBUS_HOST"`           // it listens on; empty is 127.0.0.1
	Port     int    `yaml:"port" env:"TOOLBUS_PORT"`           // 0 is 4222
}

// A JournalConfig is what is kept of what happens to turns.
type JournalConfig struct {
	Retention time.Duration `yaml:"retention" env:"TOOLBUS_JOURNAL_RETENTION"` // 0 is 24h
	Content   bool          `yaml:"content" env:"TOOLBUS_JOURNAL_CONTENT"`     // arguments and values too: whoever may ask for a trace can read them
}

// A LateConfig is what is kept of results that come after their turn.
type LateConfig struct {
	Retention time.Duration `yaml:"retention" env:"TOOLBUS_LATE_RETENTION"` // 0 is 24h
}

// load reads the file, where there is one, and the environment over it.
func load(file string) (Config, error) {
	var c Config
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("configuration: %w", err)
		}
		if err := parse(file, data, &c); err != nil {
			return c, err
		}
	}
	if err := cli.ReadEnv(&c); err != nil {
		return c, err
	}
	return c, c.check()
}

// parse reads YAML strictly: all unknown keys and wrong types at once, each with its line.
func parse(file string, data []byte, c *Config) error {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	err := d.Decode(c)
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	var all *yaml.TypeError
	if !errors.As(err, &all) {
		return fmt.Errorf("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	said := make([]string, 0, len(all.Errors))
	for _, e := range all.Errors {
		line, what, _ := strings.Cut(strings.TrimPrefix(e, "line "), ": ")
		said = append(said, file+":"+line+": "+inWords(what))
	}
	return errors.New(strings.Join(said, "\n"))
}

// inWords is a complaint of the YAML library without the names of Go's types.
func inWords(what string) string {
	if key, _, ok := strings.Cut(what, " not found in type main."); ok {
		return strings.TrimPrefix(key, "field ") + " is not a setting"
	}
	for typ, want := range map[string]string{
		" into time.Duration": "a time such as 30s or 5m", " into int": "a whole number", " into bool": "true or false", " into string": "a text",
	} {
		if got, ok := strings.CutSuffix(what, typ); ok {
			_, got, _ = strings.Cut(got, " `") // what stands there, in quotes of theirs
			return "expected " + want + ", got " + strings.TrimSuffix(got, "`")
		}
	}
	return what
}

func (c *Config) check() error {
	var said []error
	bad := func(field, format string, args ...any) {
		said = append(said, fmt.Errorf(field+": "+format, args...))
	}
	for _, f := range []struct {
		field string
		d     time.Duration
	}{{"turn_timeout", c.TurnTimeout}, {"drain", c.Drain}} {
		if f.d < 0 || f.d > 24*time.Hour {
			bad(f.field, "expected 0s to 24h, got %v", f.d)
		}
	}
	for _, f := range []struct {
		field string
		d     time.Duration
	}{{"journal.retention", c.Journal.Retention}, {"late.retention", c.Late.Retention}} {
		if f.d < 0 || f.d > 365*24*time.Hour {
			bad(f.field, "expected 0s to 8760h, got %v", f.d)
		}
	}
	for _, f := range []struct {
		field string
		n     int
	}{{"max_in_flight", c.MaxInFlight}, {"max_turns", c.MaxTurns}, {"parallel", c.Parallel}, {"tool_parallel", c.ToolParallel}} {
		if f.n < 0 {
			bad(f.field, "expected 0 or more, got %d", f.n)
		}
	}
	for _, f := range []struct{ field, addr string }{{"metrics_addr", c.MetricsAddr}, {"pprof_addr", c.PprofAddr}} {
		if _, _, err := net.SplitHostPort(f.addr); f.addr != "" && err != nil {
			bad(f.field, "expected host:port, such as 127.0.0.1:9464, got %q", f.addr)
		}
	}
	if _, err := cli.Logger(io.Discard, c.LogLevel, c.LogFormat); err != nil {
		said = append(said, err)
	}
	if problem := portProblem(c.Port); problem != "" {
		bad("port", "%s", problem)
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		bad("replicas", "expected 0 to 5, got %d", c.Replicas)
	}
	if c.Embedded && (c.NATSURL != "" || c.NATSContext != "") {
		bad("embedded", "starts a server of its own: leave out nats_url and nats_context")
	}
	return errors.Join(said...)
}

// portProblem is what is wrong with the port of an embedded server, or empty.
func portProblem(port int) string {
	if port < -1 || port > 65535 {
		return fmt.Sprintf("expected 1 to 65535, 0 for 4222 or -1 for any free one, got %d", port)
	}
	return ""
}

// filled is c with the defaults that executor serve would use. What is empty then is not used at all.
func (c Config) filled() Config {
	orText := func(s *string, otherwise string) {
		if *s == "" {
			*s = otherwise
		}
	}
	orText(&c.Prefix, "tb")
	orText(&c.LogLevel, "info")
	orText(&c.LogFormat, "text")
	if c.TurnTimeout == 0 {
		c.TurnTimeout = 5 * time.Minute
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 100_000
	}
	if c.MaxTurns == 0 {
		c.MaxTurns = c.MaxInFlight
	}
	if c.Journal.Retention == 0 {
		c.Journal.Retention = 24 * time.Hour
	}
	if c.Late.Retention == 0 {
		c.Late.Retention = 24 * time.Hour
	}
	if c.Drain == 0 {
		c.Drain = 30 * time.Second
	}
	if !c.Embedded {
		if c.NATSContext == "" {
			orText(&c.NATSURL, bus.DefaultURL)
		}
		return c
	}
	orText(&c.StoreDir, dataDir("serve"))
	orText(&c.Host, "127.0.0.1")
	if c.Port == 0 {
		c.Port = 4222
	}
	return c
}

func (p *program) config() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at settings"}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a settings file and print what holds",
		Long: `Check a settings file, every key with its line, and print the settings that hold: flags over environment over the file
over the defaults. What it prints is itself a settings file.`,
		Example: `  executor config check toolbus.yaml
  TOOLBUS_DRAIN=5s executor config check`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				p.file = args[0]
				if err := p.settle(); err != nil {
					return errCode{cli.ExitFailed, err}
				}
			}
			enc := yaml.NewEncoder(p.out)
			enc.SetIndent(2)
			return enc.Encode(p.cfg.filled()) // it holds paths of secrets, never secrets
		},
	}
	c.AddCommand(check)
	return c
}
