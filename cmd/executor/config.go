package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/toolbus/toolbus/internal/cli"
)

// A Config is the settings of the executor program, as its YAML file and the environment write them. Zero values work.
type Config struct {
	cli.Config `yaml:",inline"`

	LogLevel  string `yaml:"log_level" env:"TOOLBUS_LOG_LEVEL"`
	LogFormat string `yaml:"log_format" env:"TOOLBUS_LOG_FORMAT"`

	TurnTimeout time.Duration `yaml:"turn_timeout" env:"TOOLBUS_TURN_TIMEOUT"`   // deadline of turns that bring none; 0 is 5m
	MaxInFlight int           `yaml:"max_in_flight" env:"TOOLBUS_MAX_IN_FLIGHT"` // 0 is 100000
	Drain       time.Duration `yaml:"drain" env:"TOOLBUS_DRAIN"`                 // how long a stop waits for calls; 0 is 30s
	Replicas    int           `yaml:"replicas" env:"TOOLBUS_REPLICAS"`           // of streams and buckets; 0 is 3 in a cluster, else 1

	// Embedded starts a NATS server in this process.
	Embedded bool   `yaml:"embedded" env:"TOOLBUS_EMBEDDED"`
	StoreDir string `yaml:"store_dir" env:"TOOLBUS_STORE_DIR"` // of the embedded server
	Host     string `yaml:"host" env:"TOOLBUS_HOST"`           // it listens on; empty is 127.0.0.1
	Port     int    `yaml:"port" env:"TOOLBUS_PORT"`           // 0 is 4222
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
		what = strings.ReplaceAll(what, " not found in type main.Config", " is not a setting")
		said = append(said, file+":"+line+": "+what)
	}
	return errors.New(strings.Join(said, "\n"))
}

func (c *Config) check() error {
	var said []error
	bad := func(field, format string, args ...any) {
		said = append(said, fmt.Errorf(field+": "+format, args...))
	}
	for field, d := range map[string]time.Duration{"turn_timeout": c.TurnTimeout, "drain": c.Drain} {
		if d < 0 || d > 24*time.Hour {
			bad(field, "expected 0s to 24h, got %v", d)
		}
	}
	if c.MaxInFlight < 0 {
		bad("max_in_flight", "expected 0 or more, got %d", c.MaxInFlight)
	}
	if c.Port < -1 || c.Port > 65535 {
		bad("port", "expected 1 to 65535, got %d", c.Port)
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		bad("replicas", "expected 0 to 5, got %d", c.Replicas)
	}
	if c.Embedded && (c.NATSURL != "" || c.NATSContext != "") {
		bad("embedded", "starts a server of its own: leave out nats_url and nats_context")
	}
	return errors.Join(said...)
}

func (p *program) config() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Look at settings"}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a settings file and print what holds, with environment and flags over it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				p.file = args[0]
				if err := p.settle(); err != nil {
					return errCode{cli.ExitFailed, err}
				}
			}
			enc := yaml.NewEncoder(p.out)
			enc.SetIndent(2)
			return enc.Encode(p.cfg) // it holds paths of secrets, never secrets
		},
	}
	c.AddCommand(check)
	return c
}
