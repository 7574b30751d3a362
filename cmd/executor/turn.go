package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (p *program) turn() *cobra.Command {
	c := &cobra.Command{
		Use:   "turn",
		Short: "Run a turn: several calls, some of which need others' results, and a deadline",
		Long: `Run a turn: several calls, some of which need others' results, and a deadline. A plan file says which (docs/turns.md
has all that may stand in one):

  deadline: 5s
  calls:
    - id: flights
      tool: flight_search
      args: {from: ZRH, to: LIS}
    - id: booking
      tool: book_trip
      args: {flight: {$from: flights, pointer: /flights/0/id}}`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(p.turnRun(), p.turnValidate())
	return c
}

// A turnShow says how a turn is shown.
type turnShow struct{ asJSON, quiet, values bool }

func (p *program) turnRun() *cobra.Command {
	var deadline time.Duration
	var id, session string
	var show turnShow
	c := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the turn that a plan file describes",
		Long: `Run the turn that a plan file describes; - is standard input. What happens on the way goes to standard error, the
results to standard output. Ctrl-C cancels the turn, and prints what there is.

Exit codes: 0 every call gave a value, 1 anything else, 2 a mistake in the plan or on the command line, 3 nobody there to
ask.`,
		Example: `  executor turn run examples/trip.yaml
  executor turn run examples/trip.yaml --values --deadline 2s
  executor turn run - --json < plan.json`,
		Args: oneFile, ValidArgsFunction: planFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if deadline < 0 || millis(deadline) > wire.MaxMs {
				return fmt.Errorf("--deadline: expected a time such as 2s or 500ms, 596h at most, got %v", deadline)
			}
			if id != "" {
				if err := tool.CheckID(id); err != nil {
					return fmt.Errorf("--turn: %w", err)
				}
			}
			req, err := p.plan(args[0])
			if err != nil {
				return errCode{cli.ExitUsage, err}
			}
			if deadline > 0 {
				req.DeadlineMs = millis(deadline)
			}
			if session != "" {
				req.Session = session
			}
			if id != "" {
				req.ID = id
			}
			if req.ID == "" {
				req.ID = nuid.Next()
			}
			if err := req.Check(); err != nil {
				return errCode{cli.ExitUsage, err}
			}
			return p.runTurn(cmd.Context(), req, show)
		},
	}
	f := c.Flags()
	f.DurationVar(&deadline, "deadline", 0, "of the whole turn (default the plan's, else 5m)")
	f.StringVar(&session, "session", "", "session the turn belongs to (default the plan's)")
	f.StringVar(&id, "turn", "", "id of the turn (default the plan's, else a new one)")
	f.BoolVar(&show.values, "values", false, "print the value of each call")
	f.BoolVar(&show.asJSON, "json", false, "print every event as one line of JSON, the last of them with the outcome")
	f.BoolVarP(&show.quiet, "quiet", "q", false, "print nothing on the way")
	return c
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("expected one plan file, or - for standard input, got %d words", len(args))
	}
	return nil
}

// planFiles lets the shell complete the names of plan files.
func planFiles(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

// plan reads a plan file.
func (p *program) plan(path string) (*wire.TurnRequest, error) {
	req, _, err := p.planAndLines(path)
	return req, err
}

// planAndLines is a plan, and where its fields stand.
func (p *program) planAndLines(path string) (*wire.TurnRequest, func(field string) int, error) {
	data, err := p.read("plan", path, tool.MaxDocumentBytes)
	if err != nil {
		return nil, nil, err
	}
	if path == "-" {
		path = "stdin"
	}
	return readPlanAndLines(path, data)
}

// read is a file, or standard input where path is -, of at most max bytes.
func (p *program) read(what, path string, max int64) ([]byte, error) {
	from := p.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, max+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("%s: more than %d MiB, which is the limit", what, max>>20)
	}
	return data, nil
}

func (p *program) runTurn(ctx context.Context, req *wire.TurnRequest, show turnShow) error {
	c, err := p.connect(ctx, "turn")
	if err != nil {
		return err
	}
	defer c.Close()
	each, stop := p.watchTurn(req, show)
	out, err := client.New(c).Stream(ctx, *req, each)
	stop()
	if err != nil {
		return err
	}
	if !show.asJSON {
		p.printOutcome(out, show.values)
	}
	if out.Status != wire.Completed {
		return errCode{cli.ExitFailed, errSilent}
	}
	return nil
}

// watchTurn shows events as they come, until stop is called.
func (p *program) watchTurn(req *wire.TurnRequest, show turnShow) (each func(*wire.Event), stop func()) {
	nothing := func() {}
	switch {
	case show.asJSON:
		return func(ev *wire.Event) { _ = cli.PrintJSONLine(p.out, ev) }, nothing
	case show.quiet:
		return nil, nothing
	}
	if width, height, ok := terminal(p.err); ok {
		b := newBoard(p.err, width, height, req.Calls)
		return b.take, b.close
	}
	s := newScreen(p.err)
	s.many = true
	return s.show, nothing
}

// adviseOn says what can be done about the calls that failed for good.
func (p *program) adviseOn(out *wire.Outcome) {
	begun := false
	for i := range out.Results {
		r := &out.Results[i]
		if r.Status != tool.Failed || r.Fault == nil || len(r.Fault.Suggestions) == 0 {
			continue
		}
		if !begun {
			fmt.Fprintln(p.err, "\nWhat can be done:")
			begun = true
		}
		for _, s := range r.Fault.Suggestions {
			fmt.Fprintf(p.err, "  %s → %s\n", cut(r.Call, 40), plainText(s))
		}
	}
}

// printOutcome prints a line for each call, and the sentence of the turn.
func (p *program) printOutcome(out *wire.Outcome, values bool) {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CALL\tSTATUS\tATTEMPTS\tTOOK\tVALUE\tWHAT HAPPENED")
	for i := range out.Results {
		r := &out.Results[i]
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", cut(r.Call, 40), cut(string(r.Status), 24), len(r.Attempts), spell(r.DurationMs), sizeOf(r), cut(r.Sentence, 120))
	}
	w.Flush()
	for i := range out.Results {
		if r := &out.Results[i]; values && r.Value != nil {
			fmt.Fprintf(p.out, "\n%s:\n%s\n", cut(r.Call, 60), plainText(readable(r)))
		}
	}
	fmt.Fprintf(p.out, "\n%s: %s (%s)\n", cut(out.Status, 24), plainText(out.Sentence), spell(out.DurationMs))
	if len(out.Running) > 0 {
		fmt.Fprintln(p.err, "\nStill running; what they come to is kept for a day:")
		for _, call := range out.Running {
			fmt.Fprintf(p.err, "  executor late %s/%s\n", cut(out.Turn, 80), cut(call, 80))
		}
	}
	p.adviseOn(out)
	fmt.Fprintf(p.err, "\nHow it went:  executor trace %s\n", cut(out.Turn, 80))
}

// sizeOf is how large a value is, as people read it.
func sizeOf(r *tool.Result) string {
	switch n := len(r.Value); {
	case r.Value == nil:
		return "-"
	case n < 10_000:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}

// A validation is what turn validate says as JSON.
type validation struct {
	OK       bool          `json:"ok"`
	Calls    int           `json:"calls"`
	Problems []planProblem `json:"problems"`
	Warnings []planProblem `json:"warnings"`
}

// A planProblem is one mistake. Line is 0, and Field empty, where there is none to name.
type planProblem struct {
	Line    int    `json:"line,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

func (p *program) turnValidate() *cobra.Command {
	var asJSON, tools bool
	c := &cobra.Command{
		Use:   "validate FILE",
		Short: "Say everything that is wrong with a plan file",
		Long: `Say everything that is wrong with a plan file, each mistake with its line; - is standard input. Nothing is sent.
With --tools those who are there now are asked whether they know the tools of the plan; a tool that nobody knows is a
warning, for it may come.

Exit codes: 0 no mistakes, 2 mistakes, 3 nobody there to ask.`,
		Example: `  executor turn validate examples/trip.yaml
  executor turn validate examples/trip.yaml --tools --json`,
		Args: oneFile, ValidArgsFunction: planFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, lineOf, err := p.planAndLines(args[0])
			v := validation{OK: err == nil, Problems: []planProblem{}, Warnings: []planProblem{}}
			var problems tool.Problems
			switch {
			case errors.As(err, &problems):
				for _, problem := range problems {
					v.Problems = append(v.Problems, planProblem{problem.Line, problem.Field, problem.Message})
				}
			case err != nil:
				return errCode{cli.ExitUsage, err}
			default:
				v.Calls = len(req.Calls)
			}
			if v.OK && tools {
				if v.Warnings, err = p.unknownTools(cmd.Context(), req); err != nil {
					return err
				}
				for i := range v.Warnings {
					v.Warnings[i].Line = lineOf(v.Warnings[i].Field)
				}
			}
			return p.sayValidation(args[0], v, problems, asJSON)
		},
	}
	c.Flags().BoolVar(&tools, "tools", false, "ask who is there whether they know the tools")
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) sayValidation(file string, v validation, problems tool.Problems, asJSON bool) error {
	if asJSON {
		if err := cli.PrintJSON(p.out, v); err != nil {
			return err
		}
	} else {
		for _, w := range v.Warnings {
			fmt.Fprintln(p.err, plainText(tool.Problem{File: file, Line: w.Line, Field: w.Field, Message: w.Message}.String()))
		}
	}
	switch {
	case !v.OK && asJSON:
		return errCode{cli.ExitUsage, errSilent}
	case !v.OK:
		fmt.Fprintln(p.err, plainText(problems.Error()))
		return errCode{cli.ExitUsage, errSilent}
	case !asJSON:
		fmt.Fprintf(p.out, "%s: %s, no mistakes\n", plainText(file), countOf(v.Calls, "call"))
	}
	return nil
}

// countOf is "1 call" or "3 calls".
func countOf(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// unknownTools says which tools of a plan nobody knows, and of arguments without references what their schema says.
func (p *program) unknownTools(ctx context.Context, req *wire.TurnRequest) ([]planProblem, error) {
	warnings := []planProblem{}
	err := p.catalogue(ctx, func(r *registry.Registry) error {
		look := func(field, name string, args []byte) {
			t := r.Tool(name)
			if t == nil {
				hint := ""
				if near := r.Nearest(name); len(near) > 0 {
					hint = "; did you mean " + strings.Join(near, " or ") + "?"
				}
				warnings = append(warnings, planProblem{Field: field + ".tool", Message: "nobody knows " + name + hint})
				return
			}
			if t.Compiled == nil || refers(args) {
				return
			}
			if f := t.Compiled.CheckArgs(args); f != nil {
				warnings = append(warnings, planProblem{Field: field + ".args", Message: plainText(f.Message)})
			}
		}
		for i := range req.Calls {
			c := &req.Calls[i]
			field := fmt.Sprintf("calls[%d]", i)
			look(field, c.Tool, c.Args)
			for k, a := range c.Alternatives {
				args := a.Args
				if args == nil {
					args = c.Args
				}
				look(fmt.Sprintf("%s.alternatives[%d]", field, k), a.Tool, args)
			}
		}
		return nil
	})
	return warnings, err
}

// refers says that arguments hold something to be filled in, or may: what they are is not known yet.
func refers(args []byte) bool { return strings.Contains(string(args), `"$`) }
