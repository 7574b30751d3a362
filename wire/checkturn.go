package wire

import (
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// Check says everything that is wrong with a request to run a turn, or nil: 1 to MaxCalls calls, none only where it is
// open; legal ids and tool names, no call id twice; texts that fit into a header; durations from 0 to MaxMs; choices that
// there are; retry policies and defaults as a manifest may have them. An id may be empty: then the executor makes one.
//
// It looks at each call alone. What calls have to do with one another (unknown ids, circles, what arguments refer to) is
// for package turn. Arguments are not looked at: bad ones are the fault of one call, not of the turn (tool.ParseArgs).
// The error is an *Error.
func (r *TurnRequest) Check() error {
	var p problems
	if r.ID != "" {
		p.id("id", r.ID)
	}
	p.text("session", r.Session, 256)
	p.between("deadline_ms", r.DeadlineMs, 0, MaxMs)
	p.oneOf("deadline_mode", r.DeadlineMode, DeadlineSoft, DeadlineHard)
	p.between("parallel", int64(r.Parallel), 0, MaxCalls)
	p.between("tool_parallel", int64(r.ToolParallel), 0, MaxCalls)
	p.oneOf("on_failure", r.OnFailure, FailureContinue, FailureStop)
	p.oneOf("on_client_loss", r.OnClientLoss, LossContinue, LossCancel)
	if len(r.Calls) == 0 && !r.Open {
		p.add("calls: expected at least one, got none; only a turn with open may begin without calls")
	}
	p.calls(r.Calls)
	return p.err()
}

// Check says everything that is wrong with what is said to a turn, or nil: a call id that is legal where there is one,
// calls as TurnRequest.Check wants them, a Seq that is not negative. What a frame asks for beyond that (calls and a Seq
// with AddFrame, a Seq with CloseFrame) is for whoever reads the frame. The error is an *Error.
func (c *TurnControl) Check() error {
	var p problems
	if c.Call != "" {
		p.id("call", c.Call)
	}
	p.between("seq", c.Seq, 0, maxInt)
	p.calls(c.Calls)
	return p.err()
}

func (p *problems) calls(calls []tool.Call) {
	p.count("calls", len(calls), MaxCalls)
	ids := make(names, min(len(calls), MaxCalls))
	for i := range calls[:min(len(calls), MaxCalls)] {
		if id := calls[i].ID; id != "" {
			p.unique(ids, "calls", i, id, tool.CheckID)
		}
		n := len(p.list)
		p.call(&calls[i])
		p.within(n, "calls[%d].", i)
	}
}

func (p *problems) call(c *tool.Call) {
	p.target(c.Tool, c.TimeoutMs, c.BreakerKey)
	p.text("key", c.Key, maxKey)
	p.after(c)
	p.join(c)
	p.manifest(&tool.Manifest{Effect: c.Effect, Retry: c.Retry, Default: c.Default, FallbackOn: c.FallbackOn})
	p.count("alternatives", len(c.Alternatives), tool.MaxAlternatives)
	for i, a := range c.Alternatives[:min(len(c.Alternatives), tool.MaxAlternatives)] {
		n := len(p.list)
		p.target(a.Tool, a.TimeoutMs, a.BreakerKey)
		p.manifest(&tool.Manifest{Retry: a.Retry})
		p.within(n, "alternatives[%d].", i)
	}
}

// target is what a call and an alternative have in common.
func (p *problems) target(name string, timeoutMs int64, breakerKey string) {
	if err := tool.CheckName(name); err != nil {
		p.add("tool: %v", err)
	}
	p.between("timeout_ms", timeoutMs, 0, MaxMs)
	p.text("breaker_key", breakerKey, maxKey)
}

func (p *problems) after(c *tool.Call) {
	p.count("after", len(c.After), MaxCalls)
	if len(c.After) == 0 {
		return
	}
	at := make(map[string]int, min(len(c.After), MaxCalls))
	for i, id := range c.After[:min(len(c.After), MaxCalls)] {
		if first, twice := at[id]; twice {
			p.add("after[%d]: %s is also after[%d]", i, quote(id), first)
			continue
		}
		at[id] = i
		if err := tool.CheckID(id); err != nil {
			p.add("after[%d]: %v", i, err)
		} else if id == c.ID {
			p.add("after[%d]: %s is the call itself; name another", i, quote(id))
		}
	}
}

func (p *problems) join(c *tool.Call) {
	if _, ok := c.Join.Need(len(c.After)); !ok {
		p.add("join: expected all, any, available or a number from 1, got %s", quote(string(c.Join)))
	}
	p.between("join_by_ms", c.JoinByMs, 0, MaxMs)
	if c.JoinByMs != 0 && c.Join != tool.JoinAvailable {
		p.add("join_by_ms: only with join available, which begins with what is there by then, got %d", c.JoinByMs)
	}
}

// manifest holds what a call says in a manifest's place to a manifest's rules.
func (p *problems) manifest(m *tool.Manifest) {
	if m.Effect == "" && m.Retry == nil && m.Default == nil && m.FallbackOn == nil {
		return
	}
	m.ID = "it" // a manifest has one
	for _, problem := range tool.Check(m) {
		field := problem.Field
		if rest, ok := strings.CutPrefix(field, "retry_policy"); ok {
			field = "retry" + rest
		}
		p.add("%s: %s", field, problem.Message)
	}
}

// Check says everything that is wrong with an answer to AddFrame or CloseFrame, or nil: a fault where it is not OK, and
// none where it is. The error is an *Error.
func (r *TurnReply) Check() error {
	var p problems
	if r.OK && r.Fault != nil {
		p.add("fault: expected none beside ok, got %s", quote(string(r.Fault.Kind)))
	}
	if !r.OK && r.Fault == nil {
		p.add("fault: expected one, since it is not ok")
	}
	return p.err()
}

// Check says everything that is wrong with a question for a late result, or nil. The error is an *Error.
func (q *LateQuery) Check() error {
	var p problems
	if q.Turn != "" {
		p.id("turn", q.Turn)
	}
	p.id("call", q.Call)
	return p.err()
}

// Check says everything that is wrong with a late result, or nil: version 1, and either a result with the ids of its turn
// and call, or a fault. The error is an *Error, CodeVersion where another version wrote it.
func (r *LateRecord) Check() error {
	if r.V != Version {
		return refuse(CodeVersion, "late result of version %d: expected %d", r.V, Version)
	}
	var p problems
	if r.Turn != "" || r.Fault == nil {
		p.id("turn", r.Turn)
	}
	p.text("session", r.Session, 256)
	p.text("timestamp", r.Time, maxTime)
	switch {
	case r.Result != nil && r.Fault != nil:
		p.add("fault: expected none beside a result, got %s", quote(string(r.Fault.Kind)))
	case r.Result == nil && r.Fault == nil:
		p.add("result: expected one, or a fault")
	case r.Result != nil:
		n := len(p.list)
		p.id("call", r.Result.Call)
		if err := tool.CheckName(r.Result.Tool); err != nil {
			p.add("tool: %v", err)
		}
		p.word("status", string(r.Result.Status))
		p.within(n, "result.")
	}
	return p.err()
}

// Check says what is wrong with a question for a journal, or nil. The error is an *Error.
func (q *TraceQuery) Check() error {
	var p problems
	p.id("turn", q.Turn)
	return p.err()
}

// Check says everything that is wrong with a page, or nil: version 1, at most MaxEvents events that pass Event.Check and
// are of the turn that the page is of. The error is an *Error, CodeVersion where another version wrote the page or an
// event in it.
func (g *Page) Check() error {
	if g.V != Version {
		return refuse(CodeVersion, "page of version %d: expected %d", g.V, Version)
	}
	var p problems
	p.id("turn", g.Turn)
	p.count("events", len(g.Events), MaxEvents)
	for i := range g.Events[:min(len(g.Events), MaxEvents)] {
		e := &g.Events[i]
		if e.V != Version {
			return refuse(CodeVersion, "events[%d]: event of version %d: expected %d", i, e.V, Version)
		}
		n := len(p.list)
		p.event(e)
		if e.Turn != g.Turn {
			p.add("turn: expected %s, as the page says, got %s", quote(g.Turn), quote(e.Turn))
		}
		p.within(n, "events[%d].", i)
	}
	return p.err()
}

// Check says everything that is wrong with an event, or nil: version 1, and a type, a turn and a Seq; a call that is legal
// where there is one. A type of a later version passes. The error is an *Error, CodeVersion where another version wrote
// it.
func (e *Event) Check() error {
	if e.V != Version {
		return refuse(CodeVersion, "event of version %d: expected %d", e.V, Version)
	}
	var p problems
	p.event(e)
	return p.err()
}

func (p *problems) event(e *Event) {
	p.word("type", e.Type)
	p.id("turn", e.Turn)
	if e.Call != "" {
		p.id("call", e.Call)
	}
	p.between("seq", e.Seq, 0, maxInt)
	p.between("attempt", int64(e.Attempt), 0, MaxAttempt)
}

// word checks a word of an open set: later versions may have others.
func (p *problems) word(field, s string) {
	if s == "" || !isLine(s, 64) {
		p.add("%s: expected one line of 1 to 64 bytes, got %s", field, quote(s))
	}
}
