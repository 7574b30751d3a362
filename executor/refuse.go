package executor

import (
	"errors"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// Bounds of what a refusal says, in bytes: of the whole of it, and of each call's part of that.
const (
	maxRefusal = 64 << 10
	leastWords = 200
	mostHints  = 10      // calls whose unknown tool is looked for among the known
	maxPlan    = 8 << 10 // of the mistakes of one plan
)

// refusal is the outcome of a turn that was not begun: each call failed, for that reason. A turn without calls has one
// result that names none, so that the reason is somewhere.
func (e *Executor) refusal(req *wire.TurnRequest, f *fault.Fault) *wire.Outcome {
	out := &wire.Outcome{Turn: fault.Truncate(req.ID, tool.MaxID), Status: wire.Escalated, Sentence: f.Message}
	if len(req.Calls) == 0 {
		out.Results = []tool.Result{{Status: tool.Failed, Fault: f, Sentence: f.Message}}
		return out
	}
	most := max(leastWords, maxRefusal/len(req.Calls))
	out.Results = make([]tool.Result, len(req.Calls))
	hints := 0
	for i := range req.Calls {
		c := &req.Calls[i]
		own := *f
		own.Message, own.Tool = fault.Truncate(f.Message, most), fault.Truncate(c.Tool, tool.MaxName)
		if err := tool.CheckName(c.Tool); err != nil && f.Kind == fault.InvalidArguments {
			own.Kind, own.Message = fault.ToolNotFound, err.Error()
			if hints++; hints <= mostHints {
				e.suggest(&own, c.Tool)
			}
		}
		out.Results[i] = tool.Result{
			Call: fault.Truncate(c.ID, tool.MaxID), Tool: own.Tool,
			Status: tool.Failed, Fault: &own, Sentence: own.Message,
		}
	}
	return out
}

// planFault is a *turn.PlanError, or what else kept calls from being taken in, as a fault.
func planFault(err error) *fault.Fault {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	var p *turn.PlanError
	if !errors.As(err, &p) {
		return fault.New(fault.InvalidArguments, "%v", err)
	}
	return fault.New(fault.InvalidArguments, "the plan cannot be run: %s",
		fault.Truncate(strings.ReplaceAll(p.Error(), "\n", "; "), maxPlan))
}

// suggest puts the names that come near onto a tool_not_found.
func (e *Executor) suggest(f *fault.Fault, name string) {
	near := e.cat.Nearest(fault.Truncate(name, 4*tool.MaxName))
	if len(near) == 0 {
		return
	}
	f.Suggestions = nil
	for _, name := range near {
		f.Suggestions = append(f.Suggestions, "did you mean "+name+"?")
	}
}
