package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/command"
	"github.com/toolbus/toolbus/internal/httptool"
	"github.com/toolbus/toolbus/internal/mcptool"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

const runLong = `Run serves tools of all sorts in one process: commands, HTTP endpoints, OpenAPI documents and MCP servers.

  tools:
    - exec: {command: [python3, wordcount.py]}
      manifest: wordcount.yaml
    - http: weather.yaml
    - openapi: {spec: petstore.yaml, server: "https://pets.example.com/v1"}
    - mcp: {command: [npx, -y, "@modelcontextprotocol/server-memory"]}

Files and folders count from the folder of the configuration. What all the fields mean is in docs/bridges.md.`

func runCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "run CONFIG",
		Short:   "Run tools of all sorts from one configuration file",
		Long:    runLong,
		Example: "  toolworker run tools.yaml\n  toolworker check tools.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, err := o.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			entries, err := readConfig(args[0])
			if err != nil {
				return &failure{cli.ExitFailed, err}
			}
			b, err := openAll(cmd.Context(), entries, log)
			if err != nil {
				return &failure{cli.ExitFailed, err}
			}
			defer b.close()
			o.follow = b.follow
			return o.serve(cmd.Context(), b.tools(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

// An entry is one item of a configuration, checked as far as can be without starting anything.
type entry struct {
	section
	name  string // "tools[2] (exec)"
	tools []worker.Tool
	lines *command.Lines // to be started; its tool is the one of tools
	mcp   *mcptool.Config
	notes []string
}

// readConfig reads a configuration. The error names every entry that is wrong.
func readConfig(file string) ([]*entry, error) {
	s, err := openSection(file, "configuration")
	if err != nil {
		return nil, err
	}
	var top struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := s.into(&top); err != nil {
		return nil, err
	}
	if len(top.Tools) == 0 {
		return nil, tool.Problems{s.say("tools", "is missing or empty; list what to serve")}
	}
	var entries []*entry
	var errs []error
	for i, raw := range top.Tools {
		e := &entry{section: section{file: file, doc: s.doc, at: fmt.Sprintf("/tools/%d", i), raw: raw}, name: fmt.Sprintf("tools[%d]", i)}
		if err := e.read(); err != nil {
			errs = append(errs, e.wrong(err))
			continue
		}
		entries = append(entries, e)
	}
	errs = append(errs, twice(entries)...)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return entries, nil
}

// wrong names the entry in what is wrong with it.
func (e *entry) wrong(err error) error {
	var problems tool.Problems
	if errors.As(err, &problems) {
		return fmt.Errorf("%s cannot be used:\n%w", e.name, err)
	}
	return fmt.Errorf("%s: %w", e.say("", "%s cannot be used", e.name), err)
}

// twice finds tools that two entries have.
func twice(entries []*entry) []error {
	var errs []error
	of := map[string]*entry{}
	for _, e := range entries {
		for _, t := range e.tools {
			if other := of[t.Manifest.ID]; other != nil {
				errs = append(errs, e.wrong(fmt.Errorf("%s has the tool %s already", other.name, t.Manifest.ID)))
				continue
			}
			of[t.Manifest.ID] = e
		}
	}
	return errs
}

func (e *entry) read() error {
	members, err := e.members()
	if err != nil {
		return err
	}
	var sorts []string
	for _, key := range sorted(members) {
		switch key {
		case "exec", "http", "openapi", "mcp":
			sorts = append(sorts, key)
		case "manifest":
		default:
			return tool.Problems{e.say(key, "unknown key; known are exec, http, openapi, mcp and manifest")}
		}
	}
	if len(sorts) != 1 {
		return tool.Problems{e.say("", "expected one of exec, http, openapi and mcp, got %s", or(strings.Join(sorts, " and "), "none"))}
	}
	sort := sorts[0]
	e.name += " (" + sort + ")"
	of := e.member(sort, members[sort])
	manifest, has := members["manifest"]
	if has && (sort == "openapi" || sort == "mcp") {
		return tool.Problems{e.say("manifest", "what is behind %s says itself what its tools are; remove it", sort)}
	}
	switch sort {
	case "exec":
		return e.exec(of, manifest)
	case "http":
		return e.http(of, manifest)
	case "openapi":
		return e.openapi(of)
	}
	return e.mcpServer(of)
}

// from is a path that counts from the folder of the configuration.
func (e *entry) from(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(e.file), path)
}

// manifestOf reads the manifest of an entry, which stands there or in a file of its own.
func (e *entry) manifestOf(raw json.RawMessage) (*tool.Manifest, error) {
	if raw == nil {
		return nil, tool.Problems{e.say("manifest", "is missing; give a file, or the manifest itself")}
	}
	var file string
	if json.Unmarshal(raw, &file) == nil {
		return readManifest(e.from(file))
	}
	return e.member("manifest", raw).manifest()
}

// An execSection is what stands under exec.
type execSection struct {
	Command   []string `json:"command"`
	Dir       string   `json:"dir"`
	Env       []string `json:"env"`
	Mode      string   `json:"mode"` // call or lines
	Pool      int      `json:"pool"`
	Parallel  int      `json:"parallel"`
	MaxOutput int64    `json:"max_output"`
	GraceMs   int64    `json:"grace_ms"`
	Strict    bool     `json:"strict"`
}

func (e *entry) exec(s section, manifest json.RawMessage) error {
	var c execSection
	err := s.into(&c)
	m, err2 := e.manifestOf(manifest)
	if err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	if len(c.Command) == 0 {
		return tool.Problems{s.say("command", "is missing; give a list such as [python3, wordcount.py]")}
	}
	if c.MaxOutput < 0 || c.GraceMs < 0 || c.GraceMs > 60_000 {
		return tool.Problems{s.say("", "expected max_output of at least 1, and grace_ms from 1 to 60000")}
	}
	if c.Mode != "" && c.Mode != "call" && c.Mode != "lines" {
		return tool.Problems{s.say("mode", "expected call or lines, got %.40q", c.Mode)}
	}
	if c.Mode != "lines" && (c.Pool != 0 || c.Parallel != 0) {
		return tool.Problems{s.say("", "pool and parallel go with mode: lines")}
	}
	cmd := command.Command{
		Path: c.Command[0], Args: c.Command[1:], Dir: or(e.from(c.Dir), filepath.Dir(e.file)), Env: c.Env,
		MaxOutput: c.MaxOutput, Grace: time.Duration(c.GraceMs) * time.Millisecond, Strict: c.Strict,
	}
	if c.Mode != "lines" {
		e.tools = []worker.Tool{{Manifest: *m, Handler: cmd}}
		return cmd.Check()
	}
	e.lines = &command.Lines{Command: cmd, Pool: c.Pool, Parallel: c.Parallel}
	e.tools = []worker.Tool{{Manifest: *m}}
	return e.lines.Check()
}

func (e *entry) http(s section, manifest json.RawMessage) error {
	var file string
	if json.Unmarshal(s.raw, &file) == nil && file != "" {
		if manifest != nil {
			return tool.Problems{e.say("manifest", "the file %s is a manifest with an http section; remove one of them", file)}
		}
		t, err := openHTTP(e.from(file))
		e.tools = []worker.Tool{t}
		return err
	}
	var cfg httptool.Config
	err := s.into(&cfg)
	m, err2 := e.manifestOf(manifest)
	if err != nil || err2 != nil {
		return errors.Join(err, err2)
	}
	t, err := withHTTP(e.section, cfg, m)
	e.tools = []worker.Tool{t}
	return err
}

func (e *entry) openapi(s section) error {
	var c struct {
		Spec string `json:"spec"`
		httptool.SpecConfig
	}
	if err := s.into(&c); err != nil {
		return err
	}
	if c.Spec == "" {
		return tool.Problems{s.say("spec", "is missing; give the file of an OpenAPI document")}
	}
	spec, err := openSpec(e.from(c.Spec), c.SpecConfig)
	if err != nil {
		return err
	}
	e.tools, e.notes = spec.Tools, spec.Notes
	return nil
}

func (e *entry) mcpServer(s section) error {
	var c struct {
		Command        []string          `json:"command"`
		Dir            string            `json:"dir"`
		Env            []string          `json:"env"`
		URL            string            `json:"url"`
		Headers        map[string]string `json:"headers"`
		Prefix         string            `json:"prefix"`
		Only           []string          `json:"only"`
		TimeoutMs      int64             `json:"timeout_ms"`
		StartTimeoutMs int64             `json:"start_timeout_ms"`
		Concurrency    int               `json:"concurrency"`
	}
	if err := s.into(&c); err != nil {
		return err
	}
	if (len(c.Command) == 0) == (c.URL == "") {
		return tool.Problems{s.say("", "expected either command or url")}
	}
	if c.TimeoutMs < 0 || c.StartTimeoutMs < 0 || c.Concurrency < 0 {
		return tool.Problems{s.say("", "timeout_ms, start_timeout_ms and concurrency: expected 1 or more")}
	}
	e.mcp = &mcptool.Config{
		Command: c.Command, Env: c.Env, URL: c.URL, Header: c.Headers, Prefix: c.Prefix, Only: c.Only, Concurrency: c.Concurrency,
		Timeout: time.Duration(c.TimeoutMs) * time.Millisecond, StartTimeout: time.Duration(c.StartTimeoutMs) * time.Millisecond,
	}
	if len(c.Command) > 0 {
		e.mcp.Dir = or(e.from(c.Dir), filepath.Dir(e.file))
	}
	return e.mcp.Check()
}

// An open configuration is its entries under way.
type opened struct {
	parts  []*part
	closer []func()
}

// A part is the tools of one entry.
type part struct {
	tools  []worker.Tool
	bridge *mcptool.Bridge // whose tools may change; nil for other entries
}

// openAll starts what is to be started. MCP servers start at the same time. After an error nothing runs any more.
func openAll(ctx context.Context, entries []*entry, log *slog.Logger) (*opened, error) {
	o := &opened{parts: make([]*part, len(entries))}
	errs := make([]error, len(entries))
	var mu sync.Mutex
	var starting sync.WaitGroup
	for i, e := range entries {
		p := &part{tools: e.tools}
		o.parts[i] = p
		for _, note := range e.notes {
			log.Warn("openapi", "entry", e.name, "note", note)
		}
		keep := func(end func()) {
			mu.Lock()
			defer mu.Unlock()
			o.closer = append(o.closer, end)
		}
		switch {
		case e.lines != nil:
			l := *e.lines
			l.Logger = log.With("tool", e.tools[0].Manifest.ID)
			pool, err := l.Start()
			if errs[i] = err; err == nil {
				keep(pool.Close)
				p.tools = []worker.Tool{{Manifest: e.tools[0].Manifest, Handler: pool}}
			}
		case e.mcp != nil:
			starting.Go(func() {
				cfg := *e.mcp
				cfg.Logger = log
				b, err := mcptool.Open(ctx, cfg)
				if errs[i] = err; err == nil {
					keep(b.Close)
					p.bridge = b
				}
			})
		}
	}
	starting.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = entries[i].wrong(err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// close ends everything, at the same time.
func (o *opened) close() {
	var ending sync.WaitGroup
	for _, end := range o.closer {
		ending.Go(end)
	}
	ending.Wait()
}

// tools are all that there are now.
func (o *opened) tools() []worker.Tool {
	var all []worker.Tool
	for _, p := range o.parts {
		if p.bridge != nil {
			all = append(all, p.bridge.Tools()...)
			continue
		}
		all = append(all, p.tools...)
	}
	return all
}

// follow gives the worker the tools whenever those of an MCP server change.
func (o *opened) follow(ctx context.Context, w *worker.Worker, log *slog.Logger) {
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	for _, p := range o.parts {
		if p.bridge == nil {
			continue
		}
		watching.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-p.bridge.Changed():
				}
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		})
	}
	defer watching.Wait()
	keepUp(ctx, changed, log, func() (string, error) {
		tools := o.tools()
		return names(tools), w.SetTools(tools)
	})
}

// setAgain is when tools that the worker could not take are given to it again: NATS may have been away.
const setAgain = 10 * time.Second

// keepUp sets the tools whenever they changed, until that goes well or ctx ends.
func keepUp(ctx context.Context, changed <-chan struct{}, log *slog.Logger, set func() (now string, err error)) {
	var again <-chan time.Time
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
		now, err := set()
		if err != nil {
			if again = time.After(setAgain); err.Error() != told {
				told = err.Error()
				log.Error("the tools changed, and the worker keeps the old ones", "error", err, "again_in", setAgain)
			}
			continue
		}
		again, told = nil, ""
		log.Info("the tools changed", "now", now)
	}
}
