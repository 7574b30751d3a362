package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/waterfall"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (p *program) trace() *cobra.Command {
	var asJSON, inOTel bool
	var svg string
	var width int
	c := &cobra.Command{
		Use:   "trace TURN",
		Short: "Show how a turn went: attempts, waits, decisions, late results",
		Long: `Show how a turn went, as its journal has it: each call with its attempts, what went wrong, what was decided and why,
what it waited for, and what came late. Values are not in the journal unless the executor is told to keep them.

With --otel it prints the id of the turn's OpenTelemetry trace instead, to look up where your traces are.`,
		Example: `  executor trace 7XkQ2mVd9hB1sYtR
  executor trace 7XkQ2mVd9hB1sYtR --svg turn.svg
  executor trace 7XkQ2mVd9hB1sYtR --otel
  executor trace 7XkQ2mVd9hB1sYtR --json | jq 'select(.type == "ToolError")'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("expected the id of one turn, got %d words", len(args))
			}
			return tool.CheckID(args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			events, err := p.traceOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				for i := range events {
					if err := cli.PrintJSONLine(p.out, &events[i]); err != nil {
						return err
					}
				}
				return nil
			}
			if inOTel {
				return p.printTraceID(events)
			}
			if svg != "" {
				return p.writeSVG(svg, events)
			}
			if width <= 0 {
				width = columns(p.out)
			}
			return waterfall.Text(p.out, events, width, colourful(p.out))
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print every event as one line of JSON")
	f.BoolVar(&inOTel, "otel", false, "print the id of its OpenTelemetry trace")
	f.StringVar(&svg, "svg", "", "write a picture to this `file`; - is standard output")
	f.IntVar(&width, "width", 0, "in columns (default the terminal's, or what COLUMNS says, else 100)")
	c.MarkFlagsMutuallyExclusive("json", "svg", "otel")
	return c
}

func (p *program) traceOf(ctx context.Context, turn string) ([]wire.Event, error) {
	c, err := p.connect(ctx, "trace")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	events, err := client.New(c).Trace(ctx, turn)
	if err != nil {
		return nil, err
	}
	if len(events) == 0 {
		return nil, fault.New(fault.NotFound, "there is no journal of turn %s: it was never there, or is too long ago", turn)
	}
	return events, nil
}

// printTraceID prints the trace that the turn is in. Where it was not sampled, nobody but the client may know of it.
func (p *program) printTraceID(events []wire.Event) error {
	for i := range events {
		parts := strings.Split(events[i].Traceparent, "-") // version, trace, span, flags
		if events[i].Type != wire.TurnStarted || len(parts) < 4 {
			continue
		}
		fmt.Fprintln(p.out, parts[1])
		if flags, err := strconv.ParseUint(parts[3], 16, 8); err == nil && flags&1 == 0 {
			fmt.Fprintln(p.err, "executor: the turn was not sampled: there are no spans of it here (see OTEL_TRACES_SAMPLER)")
		}
		return nil
	}
	return fault.New(fault.NotFound, "turn %s is in no trace: its client sent none, and the executor that ran it exports none (see OTEL_TRACES_EXPORTER)", events[0].Turn)
}

func (p *program) writeSVG(path string, events []wire.Event) error {
	var b bytes.Buffer
	if err := waterfall.SVG(&b, events); err != nil {
		return err
	}
	if path == "-" {
		_, err := b.WriteTo(p.out)
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return errCode{cli.ExitFailed, fmt.Errorf("--svg: %w", err)}
	}
	fmt.Fprintf(p.err, "wrote %s\n", plainText(path))
	return nil
}

func (p *program) late() *cobra.Command {
	var asJSON bool
	var wait time.Duration
	c := &cobra.Command{
		Use:   "late [TURN/]CALL",
		Short: "Print the result of a call that came after its turn had ended",
		Long: `Print the result of a call that came after its turn had ended. It is kept for a day. Without TURN it is that of
whichever turn had such a call last.

Exit codes: 0 it is there and is a value, 1 it is not there or is a failure, 2 a mistake on the command line, 3 nobody
there to ask.`,
		Example: `  executor late hotels
  executor late 7XkQ2mVd9hB1sYtR/hotels --wait 30s --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("expected one call, as CALL or TURN/CALL, got %d words", len(args))
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			turn, call, both := strings.Cut(args[0], "/")
			if !both {
				turn, call = "", args[0]
			}
			if err := tool.CheckID(call); err != nil {
				return err
			}
			if both {
				if err := tool.CheckID(turn); err != nil {
					return err
				}
			}
			if wait < 0 {
				return fmt.Errorf("--wait: expected a time such as 30s, got %v", wait)
			}
			rec, err := p.lateOf(cmd.Context(), turn, call, wait)
			if err != nil {
				return err
			}
			return p.sayLate(rec, asJSON)
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print the whole record as JSON")
	f.DurationVar(&wait, "wait", 0, "wait so long for a result that is not there yet")
	return c
}

// askEvery is how often somebody is asked who waits for a late result.
const askEvery = 250 * time.Millisecond

// lateOf asks for a late result, and goes on asking for as long as the user waits.
func (p *program) lateOf(ctx context.Context, turn, call string, wait time.Duration) (*wire.LateRecord, error) {
	c, err := p.connect(ctx, "late")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	end := time.Now().Add(wait)
	for {
		rec, err := client.New(c).Late(ctx, turn, call)
		if err == nil && rec.Result == nil {
			err = fault.New(fault.NotFound, "there is no late result of %s", call)
			if rec.Fault != nil {
				err = rec.Fault
			}
		}
		if err == nil || fault.Of(err).Kind != fault.NotFound || !time.Now().Add(askEvery).Before(end) {
			return rec, err
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (p *program) sayLate(rec *wire.LateRecord, asJSON bool) error {
	r := rec.Result
	good := r.Status.HasValue() && r.Status != tool.PartialValue
	switch {
	case asJSON:
		if err := cli.PrintJSON(p.out, rec); err != nil {
			return err
		}
	case !r.Status.HasValue():
		return p.failed(r, false)
	default:
		fmt.Fprintf(p.err, "%s %s (%s after it was sent, in turn %s)\n", mark(r.Status), plainText(r.Sentence), spell(r.DurationMs), cut(rec.Turn, 80))
		fmt.Fprintln(p.out, plainText(readable(r)))
	}
	if !good {
		return errCode{cli.ExitFailed, errSilent}
	}
	return nil
}
