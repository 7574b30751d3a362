package journal

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// leaveOut takes out of e what went into the tools and what came out of them, and says whether there was any. What e
// points to may be others', and is copied where something is taken out of it.
func leaveOut(e *wire.Event) (some bool) {
	some = e.Piece != nil
	e.Piece = nil
	if quotes(e.Error) {
		e.Error, some = unquoted(e.Error), true
	}
	if e.Result != nil && (e.Result.Value != nil || quotes(e.Result.Fault)) {
		r := *e.Result
		silence(&r)
		e.Result, some = &r, true
	}
	if e.Request != nil && slices.ContainsFunc(e.Request.Calls, hasContent) {
		r := *e.Request
		r.Calls = slices.Clone(r.Calls)
		for i := range r.Calls {
			withoutContent(&r.Calls[i])
		}
		e.Request, some = &r, true
	}
	if e.Outcome != nil && slices.ContainsFunc(e.Outcome.Results, isLong) {
		o := *e.Outcome
		o.Results = slices.Clone(o.Results)
		for i := range o.Results {
			if quotes(o.Results[i].Fault) {
				o.Sentence = ""
			}
			silence(&o.Results[i])
			o.Results[i].Attempts = nil // each is in events of its own
		}
		e.Outcome, some = &o, true
	}
	return some
}

func hasContent(c tool.Call) bool {
	return c.Args != nil || c.Default != nil || len(c.Alternatives) > 0
}

func isLong(r tool.Result) bool { return r.Value != nil || len(r.Attempts) > 0 || quotes(r.Fault) }

// silence takes out of a result what came out of the tool, and what its fault quotes.
func silence(r *tool.Result) {
	r.Value = nil
	if !quotes(r.Fault) {
		return
	}
	r.Fault = unquoted(r.Fault)
	r.Sentence = r.Fault.Message
	r.Attempts = slices.Clone(r.Attempts)
	for i := range r.Attempts {
		if k := r.Attempts[i].Kind; k == fault.InvalidArguments || k == fault.InvalidResult {
			r.Attempts[i].Message = r.Fault.Message
		}
	}
}

// quotes says that a fault shows parts of arguments or of a result: that is how it says what does not fit a schema.
func quotes(f *fault.Fault) bool { return f != nil && len(f.Violations) > 0 }

// unquoted is such a fault with the places that do not fit, and without what stands there.
func unquoted(f *fault.Fault) *fault.Fault {
	g := *f
	g.Violations = slices.Clone(f.Violations)
	at := ""
	for i := range g.Violations {
		g.Violations[i].Got = ""
		if i < 5 {
			at += " " + cmp.Or(fault.Truncate(g.Violations[i].Pointer, 80), "/")
		}
	}
	g.Message, g.Detail = string(f.Kind)+" at"+at, ""
	return &g
}

func withoutContent(c *tool.Call) {
	c.Args, c.Default = nil, nil
	c.Alternatives = slices.Clone(c.Alternatives)
	for i := range c.Alternatives {
		c.Alternatives[i].Args = nil
	}
}

// lessen is leaveOut for an event that would not fit into a message, and has it say so.
func lessen(e *wire.Event) {
	if leaveOut(e) {
		say(e, "arguments and values are left out, as they did not fit into a message")
	}
}

// strip leaves of an event what is short in any case.
func strip(e *wire.Event) {
	if e.Request != nil {
		r := *e.Request
		r.Calls = nil
		e.Request = &r
	}
	if e.Outcome != nil {
		o := *e.Outcome
		o.Results = nil
		e.Outcome = &o
	}
	if e.Result != nil {
		r := *e.Result
		r.Attempts, r.Fault = nil, brief(r.Fault)
		e.Result = &r
	}
	e.Error = brief(e.Error)
	say(e, "lists and details are left out, as they did not fit into a message")
}

func brief(f *fault.Fault) *fault.Fault {
	if f == nil {
		return nil
	}
	return &fault.Fault{Kind: f.Kind, Message: fault.Truncate(f.Message, 1000), Code: f.Code, Execution: f.Execution, Tool: f.Tool, Worker: f.Worker, Attempt: f.Attempt}
}

func say(e *wire.Event, what string) {
	if e.Because != "" {
		what = "; " + what
	}
	e.Because = fault.Truncate(e.Because, 4000) + what
}

var (
	idSize      = int(reflect.TypeFor[string]().Size())
	eventSize   = int(reflect.TypeFor[wire.Event]().Size())
	callSize    = int(reflect.TypeFor[tool.Call]().Size())
	altSize     = int(reflect.TypeFor[tool.Alternative]().Size())
	resultSize  = int(reflect.TypeFor[tool.Result]().Size())
	attemptSize = int(reflect.TypeFor[tool.Attempt]().Size())
)

// weigh is about how many bytes of memory e holds.
func weigh(e *wire.Event) int {
	n := eventSize + len(e.Piece) + len(e.Because) + weighFault(e.Error)
	if e.Progress != nil {
		n += len(e.Progress.Message)
	}
	if e.Request != nil {
		for i := range e.Request.Calls {
			c := &e.Request.Calls[i]
			n += callSize + len(c.Args) + len(c.Default)
			for _, id := range c.After {
				n += idSize + len(id)
			}
			for _, a := range c.Alternatives {
				n += altSize + len(a.Args)
			}
		}
	}
	if e.Result != nil {
		n += weighResult(e.Result)
	}
	if e.Outcome != nil {
		for i := range e.Outcome.Results {
			n += weighResult(&e.Outcome.Results[i])
		}
	}
	return n
}

func weighResult(r *tool.Result) int {
	n := resultSize + len(r.Value) + len(r.Sentence) + weighFault(r.Fault)
	for i := range r.Attempts {
		n += attemptSize + len(r.Attempts[i].Message)
	}
	return n
}

func weighFault(f *fault.Fault) int {
	if f == nil {
		return 0
	}
	return 200 + len(f.Message) + len(f.Detail) + 100*len(f.Violations)
}
