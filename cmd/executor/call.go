package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
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
		Long: "Call one tool through an executor. Arguments are one JSON object: as it stands, from a file (@FILE) or from\n" +
			"standard input (-). The result goes to standard output, what happens on the way to standard error.\n" +
			"Ctrl-C cancels the call. Exit code 0: success, 1: the call failed, 3: nobody there to ask.",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			given := ""
			if len(args) == 2 {
				given = args[1]
			}
			raw, err := p.arguments(given)
			if err != nil {
				return err
			}
			if _, f := tool.ParseArgs(raw); f != nil {
				return p.failed(&tool.Result{Tool: args[0], Status: tool.Failed, Fault: f}, asJSON)
			}
			show := p.show
			if quiet || asJSON {
				show = nil
			}
			if events {
				show = p.showEvent
			}
			return p.runCall(cmd.Context(), wire.TurnRequest{
				Session: session, DeadlineMs: deadline.Milliseconds(),
				Calls: []tool.Call{{ID: "c1", Tool: args[0], Args: raw, TimeoutMs: timeout.Milliseconds(), Key: key}},
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

// arguments is what the user gave, from where they said.
func (p *program) arguments(given string) ([]byte, error) {
	from, path := p.in, ""
	switch {
	case given == "":
		return []byte("{}"), nil
	case given == "-":
	case strings.HasPrefix(given, "@"):
		path = given[1:]
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
		defer file.Close()
		from = file
	default:
		return []byte(given), nil
	}
	raw, err := io.ReadAll(io.LimitReader(from, tool.MaxArgs+1))
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if len(raw) > tool.MaxArgs {
		return nil, fmt.Errorf("arguments: more than %d MiB, which is the limit", tool.MaxArgs>>20)
	}
	return raw, nil
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
	if r.Status != tool.Success && r.Status != tool.PartialValue {
		return p.failed(r, asJSON)
	}
	if asJSON {
		return cli.PrintJSON(p.out, r)
	}
	if show != nil {
		fmt.Fprintf(p.err, "✓ %s (%s)\n", r.Sentence, spell(r.DurationMs))
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
	var v any
	d := json.NewDecoder(strings.NewReader(string(r.Value)))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return string(r.Value)
	}
	var b strings.Builder
	if cli.PrintJSON(&b, v) != nil {
		return string(r.Value)
	}
	return strings.TrimSpace(b.String())
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
	text := r.Sentence
	if text == "" {
		text = f.Message
	}
	fmt.Fprintf(p.err, "✗ %s: %s\n", f.Kind, plainText(text))
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

// show prints an event as a line for people.
func (p *program) show(ev *wire.Event) {
	switch ev.Type {
	case wire.AttemptStarted:
		on := ""
		if ev.Worker != "" {
			on = " on " + ev.Worker
		}
		fmt.Fprintf(p.err, "%9s  attempt %d%s\n", spell(ev.AtMs), ev.Attempt, on)
	case wire.ProgressEvent:
		fmt.Fprintf(p.err, "%9s  %s\n", spell(ev.AtMs), progressLine(ev.Progress))
	case wire.PartialEvent:
		fmt.Fprintf(p.err, "%9s  piece %d, %d bytes\n", spell(ev.AtMs), ev.PieceSeq, len(ev.Piece))
	case wire.ToolError:
		then := ev.Decision
		if ev.Decision == "retry" {
			then = "retry in " + spell(ev.DelayMs)
		}
		fmt.Fprintf(p.err, "%9s  %s (%s): %s → %s, because %s\n", spell(ev.AtMs), ev.Error.Kind, ev.Classification, plainText(ev.Error.Message), then, ev.Because)
	case wire.BreakerChanged:
		fmt.Fprintf(p.err, "%9s  %s\n", spell(ev.AtMs), ev.Decision)
	}
}

func progressLine(r *wire.ProgressRecord) string {
	line := fmt.Sprintf("progress %g", r.Done)
	if r.Total > 0 {
		line = fmt.Sprintf("progress %3.0f %%", 100*r.Done/r.Total)
	}
	if r.Message != "" {
		line += "  " + plainText(r.Message)
	}
	return line
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
