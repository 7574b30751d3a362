package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (p *program) call() *cobra.Command {
	var timeout, deadline time.Duration
	var key, session string
	var asJSON, events, quiet bool
	c := &cobra.Command{
		Use:   "call TOOL [JSON | @FILE | -]",
		Short: "Call one tool and print its result",
		Long: `Call one tool through an executor. Arguments are one JSON object: as it stands, from a file (@FILE) or from
standard input (-); without any it is {}. The result goes to standard output, what happens on the way to standard error.
Ctrl-C cancels the call.

Exit codes: 0 success, 1 the call failed, 2 a mistake on the command line, 3 nobody there to ask.

Where a call fails, the word in brackets says what is known of its run: not_started, stopped, done, or unknown, which
means that it may have run.`,
		Example: `  executor call calculator '{"expression": "2 * (3 + 4)"}'
  executor call table_query @query.json --timeout 2s
  echo '{"text": "hi"}' | executor call echo - --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if n := len(args); n < 1 || n > 2 {
				return fmt.Errorf("expected the name of a tool and its arguments as one JSON object in quotes, got %d words", n)
			}
			return nil
		},
		ValidArgsFunction: p.completeTool,
		RunE: func(cmd *cobra.Command, args []string) error {
			for flag, d := range map[string]time.Duration{"--timeout": timeout, "--deadline": deadline} {
				if d < 0 {
					return fmt.Errorf("%s: expected a time such as 2s or 500ms, got %v", flag, d)
				}
			}
			if err := tool.CheckName(args[0]); err != nil {
				return p.failed(&tool.Result{Tool: args[0], Status: tool.Failed, Fault: fault.New(fault.ToolNotFound, "%v", err)}, asJSON)
			}
			given := ""
			if len(args) == 2 {
				given = args[1]
			}
			raw, err := p.arguments(given)
			if err != nil {
				return errCode{cli.ExitUsage, err}
			}
			if _, f := tool.ParseArgs(raw); f != nil {
				return p.failed(&tool.Result{Tool: args[0], Status: tool.Failed, Fault: f}, asJSON)
			}
			show := newScreen(p.err).show
			if quiet || asJSON {
				show = nil
			}
			if events {
				show = p.showEvent
			}
			return p.runCall(cmd.Context(), wire.TurnRequest{
				Session: session, DeadlineMs: millis(deadline),
				Calls: []tool.Call{{ID: "c1", Tool: args[0], Args: raw, TimeoutMs: millis(timeout), Key: key}},
			}, show, asJSON)
		},
	}
	f := c.Flags()
	f.DurationVar(&timeout, "timeout", 0, "of one attempt (default the tool's own)")
	f.DurationVar(&deadline, "deadline", 0, "of the whole call, retries and waits included (default 5m)")
	f.StringVar(&key, "key", "", "idempotency key")
	f.StringVar(&session, "session", "", "session the call belongs to")
	f.BoolVar(&asJSON, "json", false, "print the whole result record as JSON")
	f.BoolVar(&events, "events", false, "print every event as one line of JSON on standard error")
	f.BoolVarP(&quiet, "quiet", "q", false, "print nothing on the way")
	return c
}

// millis is d in milliseconds, rounded up: a very short time must not become 0, which means the default.
func millis(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

// completeTool offers the names of tools to the shell. It is quick or silent.
func (p *program) completeTool(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 || p.settle() != nil {
		return nil, nothing
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var names []cobra.Completion
	_ = p.catalogue(ctx, func(r *registry.Registry) error {
		for _, t := range r.Tools() {
			names = append(names, cobra.CompletionWithDesc(t.Name, firstLine(t.Description)))
		}
		return nil
	})
	return names, nothing
}

// arguments is what the user gave, from where they said.
func (p *program) arguments(given string) ([]byte, error) {
	switch {
	case given == "":
		return []byte("{}"), nil
	case given == "-":
		return p.read("arguments", "-", tool.MaxArgs)
	case strings.HasPrefix(given, "@"):
		return p.read("arguments", given[1:], tool.MaxArgs)
	}
	return []byte(given), nil
}

func (p *program) runCall(ctx context.Context, req wire.TurnRequest, show func(*wire.Event), asJSON bool) error {
	if err := req.Check(); err != nil {
		return p.failed(&tool.Result{Tool: req.Calls[0].Tool, Status: tool.Failed, Fault: fault.New(fault.InvalidArguments, "%v", err)}, asJSON)
	}
	c, err := p.connect(ctx, "call")
	if err != nil {
		return err
	}
	defer c.Close()
	out, err := client.New(c).Stream(ctx, req, show)
	if err != nil {
		return err
	}
	r := &out.Results[0]
	if !r.Status.HasValue() {
		return p.failed(r, asJSON)
	}
	if asJSON {
		return cli.PrintJSON(p.out, r)
	}
	if show != nil {
		fmt.Fprintf(p.err, "%s %s (%s)\n", mark(r.Status), plainText(r.Sentence), spell(r.DurationMs))
	}
	fmt.Fprintln(p.out, readable(r))
	if r.Status == tool.PartialValue {
		return errCode{cli.ExitFailed, errSilent}
	}
	return nil
}

// readable is the value as a person wants it: JSON indented, other content as it is.
func readable(r *tool.Result) string {
	if r.ContentType != "" && r.ContentType != wire.JSON {
		return string(r.Value)
	}
	var b bytes.Buffer
	if json.Indent(&b, r.Value, "", "  ") != nil {
		return string(r.Value)
	}
	return b.String()
}

// failed prints why a call has no result, and what to do.
func (p *program) failed(r *tool.Result, asJSON bool) error {
	if asJSON {
		if err := cli.PrintJSON(p.out, r); err != nil {
			return err
		}
		return errCode{cli.ExitFailed, errSilent}
	}
	f := r.Fault
	if f == nil {
		f = fault.New(fault.Internal, "it ended as %s, and nobody said why", r.Status)
	}
	text := r.Sentence
	if text == "" {
		text = f.Message
	}
	fmt.Fprintf(p.err, "✗ %s [%s]: %s\n", f.Kind, f.Run(), plainText(text))
	for _, v := range f.Violations {
		at := v.Pointer
		if at == "" {
			at = "(the whole value)"
		}
		fmt.Fprintf(p.err, "    %s: expected %s, got %s\n", plainText(at), plainText(v.Expected), plainText(v.Got))
	}
	for _, s := range f.Suggestions {
		fmt.Fprintf(p.err, "  → %s\n", plainText(s))
	}
	return errCode{cli.ExitFailed, errSilent}
}

func (p *program) showEvent(ev *wire.Event) {
	b, err := json.Marshal(ev)
	if err == nil {
		fmt.Fprintln(p.err, string(b))
	}
}

// spell is a number of milliseconds as people read it.
func spell(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f s", ms/1000)
}

// plainText is s without what a terminal would act on: a tool's words are not to be trusted.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfeff:
			return '·'
		}
		return r
	}, s)
}
