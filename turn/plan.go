package turn

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A node is one call as the plan has it.
type node struct {
	call       *tool.Call
	own        leg
	alts       []leg
	deps       []int32 // calls that it waits for
	dependents []int32 // calls that wait for it
	need       int16   // how many of deps must give a value
	depth      int16   // of the longest chain that leads to it
}

// A leg is one tool that can do a call: its own, or an alternative.
type leg struct {
	tool    *Tool
	policy  *retry.Policy
	timeout time.Duration
	fill    *tool.Template // what is to be filled in in its arguments; nil: nothing
}

func (n *node) leg(i int) *leg {
	if i == 0 {
		return &n.own
	}
	return &n.alts[i-1]
}

// handed is what the call hands to a leg: arguments, as they are before anything is filled in, and the key of the breaker.
// An alternative without arguments has none.
func (n *node) handed(leg int) (args []byte, breakerKey string) {
	switch {
	case leg == 0:
		return n.call.Args, n.call.BreakerKey
	case n.call.Alternatives == nil:
		return nil, "" // the manifest named it
	}
	a := &n.call.Alternatives[leg-1]
	return a.Args, a.BreakerKey
}

func (n *node) optional() bool { return n.call.Optional || n.own.tool.Optional }

// dflt is the value that stands in for the call's; nil where there is none.
func (n *node) dflt() []byte {
	if n.call.Default != nil {
		return n.call.Default
	}
	return n.own.tool.Default
}

// covers is the value that stands in for the call's after the fault. The manifest's does not cover for arguments that are
// wrong: whoever wrote them is to hear of it.
func (n *node) covers(f *fault.Fault) []byte {
	if n.call.Default == nil && (f.Kind == fault.InvalidArguments || f.Kind == fault.TruncatedCall) {
		return nil
	}
	return n.dflt()
}

func (n *node) fallbackOn() []string {
	if n.call.FallbackOn != nil {
		return n.call.FallbackOn
	}
	return n.own.tool.FallbackOn
}

// effect is what a second run on a leg does. An alternative that does not say so does what the call does.
func (n *node) effect(leg int) tool.Effect {
	if leg > 0 && n.leg(leg).tool.Effect != tool.Undeclared {
		return n.leg(leg).tool.Effect
	}
	return cmp.Or(n.call.Effect, n.own.tool.Effect)
}

// A PlanError is everything that is wrong with a plan.
type PlanError struct{ Problems []PlanProblem }

// A PlanProblem is one mistake. Field is where it is, as in calls[2].after[0].
type PlanProblem struct {
	Field   string `json:"field"`
	Call    string `json:"call,omitempty"` // the id, where it is about one call
	Message string `json:"message"`

	i int // the call
}

// Error is all of them, a line each.
func (e *PlanError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Field + ": " + p.Message
	}
	return strings.Join(lines, "\n")
}

// maxProblems is how many mistakes of one plan are told.
const maxProblems = 100

// Check says everything that is wrong with the plan of a request, as New does: the error is a *PlanError. Nothing is asked
// about tools. It looks at what calls have to do with each other; wire.TurnRequest.Check looks at each by itself.
func Check(req *wire.TurnRequest) error {
	_, err := New(Config{Request: req})
	return err
}

// A planner puts calls into a turn's plan.
type planner struct {
	t        *Turn
	first    int // the index of the first call that is new
	problems []PlanProblem
}

func (p *planner) say(i int, field, format string, args ...any) {
	if len(p.problems) >= maxProblems {
		return
	}
	at, id := "calls", ""
	if i >= 0 {
		at, id = fmt.Sprintf("calls[%d]", i-p.first), p.t.calls[i].call.ID
		if field != "" {
			at += "." + field
		}
	}
	p.problems = append(p.problems, PlanProblem{at, id, fmt.Sprintf(format, args...), i})
}

// extend adds calls to the plan. Where something is wrong with them, the plan is as it was.
func (t *Turn) extend(calls []tool.Call) error {
	p := planner{t: t, first: len(t.calls)}
	if n := len(t.calls) + len(calls); n > wire.MaxCalls {
		p.say(-1, "", "at most %d calls are allowed in a turn, got %d", wire.MaxCalls, n)
		return &PlanError{p.problems}
	}
	if t.calls == nil && len(calls) == 1 {
		t.calls, t.queue = t.one[:0], t.oneReady[:0]
	}
	t.calls, t.queue = slices.Grow(t.calls, len(calls)), slices.Grow(t.queue, len(calls))
	calls = Name(calls, len(t.calls), func(id string) bool { _, taken := t.search(id, len(t.calls)); return taken })
	for i := range calls {
		t.calls = append(t.calls, call{node: node{call: &calls[i]}, slot: -1})
	}
	p.index()
	for i := p.first; i < len(t.calls); i++ {
		p.tools(i)
		p.inputs(i)
	}
	p.order()
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b PlanProblem) int { return a.i - b.i })
		t.retract(p.first)
		return &PlanError{p.problems}
	}
	for i := p.first; i < len(t.calls); i++ {
		for _, d := range t.calls[i].deps {
			t.calls[d].dependents = append(t.calls[d].dependents, int32(i))
		}
	}
	t.left += len(calls)
	return nil
}

// Name is calls with an id each: one that has none becomes c<n>, n from first+1 on, unless that is taken. Those of the caller
// stay as they are. A nil taken takes none.
func Name(calls []tool.Call, first int, taken func(id string) bool) []tool.Call {
	if !slices.ContainsFunc(calls, func(c tool.Call) bool { return c.ID == "" }) {
		return calls
	}
	calls = slices.Clone(calls)
	for i := range calls {
		for n := first + i + 1; calls[i].ID == ""; n++ {
			id := "c" + strconv.Itoa(n)
			if (taken == nil || !taken(id)) && !slices.ContainsFunc(calls, func(c tool.Call) bool { return c.ID == id }) {
				calls[i].ID = id
			}
		}
	}
	return calls
}

func (t *Turn) retract(first int) {
	for _, c := range t.calls[first:] {
		if i, ok := t.ids[c.call.ID]; ok && i >= first {
			delete(t.ids, c.call.ID)
		}
	}
	clear(t.calls[first:])
	t.calls = t.calls[:first]
}

// fewCalls are found without an index.
const fewCalls = 16

func (p *planner) index() {
	t := p.t
	if len(t.calls) > fewCalls && t.ids == nil {
		t.ids = make(map[string]int, len(t.calls))
		for i := range p.first {
			t.ids[t.calls[i].call.ID] = i
		}
	}
	for i := p.first; i < len(t.calls); i++ {
		id := t.calls[i].call.ID
		if first, twice := t.search(id, i); twice {
			p.say(i, "id", "%s is also the id of call %d: give each call an id of its own", id, first+1)
		} else if t.ids != nil {
			t.ids[id] = i
		}
	}
}

// search is the index of the call of that id among the first n.
func (t *Turn) search(id string, n int) (int, bool) {
	if t.ids != nil {
		i, ok := t.ids[id]
		return i, ok && i < n
	}
	for i := range t.calls[:n] {
		if t.calls[i].call.ID == id {
			return i, true
		}
	}
	return 0, false
}

// tools works out the legs of a call.
func (p *planner) tools(i int) {
	n, c := &p.t.calls[i].node, p.t.calls[i].call
	n.own = p.leg(c.Tool, c.TimeoutMs, c.Retry)
	n.own.fill = p.template(i, "args", c.Args, false)
	if c.Alternatives == nil {
		for _, name := range n.own.tool.Alternatives {
			n.alts = append(n.alts, p.leg(name, 0, nil))
		}
		return
	}
	if len(c.Alternatives) > tool.MaxAlternatives {
		p.say(i, "alternatives", "at most %d are allowed, got %d", tool.MaxAlternatives, len(c.Alternatives))
		return
	}
	for k, a := range c.Alternatives {
		l := p.leg(a.Tool, a.TimeoutMs, a.Retry)
		l.fill = p.template(i, fmt.Sprintf("alternatives[%d].args", k), a.Args, true)
		n.alts = append(n.alts, l)
	}
}

func (p *planner) leg(name string, timeoutMs int64, over *tool.RetryPolicy) leg {
	tl := p.t.tool(name)
	l := leg{tool: tl, policy: &tl.Policy, timeout: tl.Timeout}
	if over != nil {
		l.policy = new(retry.Merge(tl.Policy, over))
	}
	if timeoutMs > 0 {
		l.timeout = time.Duration(timeoutMs) * time.Millisecond
	}
	return l
}

func (t *Turn) tool(name string) *Tool {
	if t.cfg.Tools != nil {
		if tl := t.cfg.Tools(name); tl != nil {
			return tl
		}
	}
	return Unknown(name)
}

func (p *planner) template(i int, field string, raw []byte, alternative bool) *tool.Template {
	fill, errs := tool.ParseTemplate(raw)
	for _, err := range errs {
		p.say(i, field, "%v", err)
	}
	if fill == nil {
		return nil
	}
	for _, h := range fill.Holes() {
		if h.Arg && !alternative {
			p.say(i, field, "%s: $arg stands for a part of the call's own arguments, so only those of an alternative may hold it; for another call's result use $from", cmp.Or(h.At, "/"))
		}
	}
	return fill
}

// inputs works out which calls a call waits for.
func (p *planner) inputs(i int) {
	n, c := &p.t.calls[i].node, p.t.calls[i].call
	for k, id := range c.After {
		p.input(i, fmt.Sprintf("after[%d]", k), id)
	}
	for l := range 1 + len(n.alts) {
		if fill := n.leg(l).fill; fill != nil {
			field := "args"
			if l > 0 {
				field = fmt.Sprintf("alternatives[%d].args", l-1)
			}
			for _, h := range fill.Holes() {
				if !h.Arg {
					p.input(i, field, h.From)
				}
			}
		}
	}
	need, ok := c.Join.Need(len(n.deps))
	switch {
	case !ok:
		p.say(i, "join", "expected all, any, available or a number from 1, got %q", fault.Truncate(string(c.Join), 40))
	case need > len(n.deps):
		p.say(i, "join", "%d calls must give a value, and it waits for %d", need, len(n.deps))
	case c.JoinByMs > 0 && c.Join != tool.JoinAvailable:
		p.say(i, "join_by_ms", "only join: available begins by a time")
	}
	n.need = int16(min(need, wire.MaxCalls))
}

func (p *planner) input(i int, field, id string) {
	n := &p.t.calls[i].node
	d, ok := p.t.search(id, len(p.t.calls))
	switch {
	case !ok:
		p.say(i, field, "there is no call %q%s", fault.Truncate(id, 80), p.meant(id))
	case d == i:
		p.say(i, field, "a call cannot wait for itself")
	case !slices.Contains(n.deps, int32(d)):
		n.deps = append(n.deps, int32(d))
	}
}

// maxMeant is how many mistakes may be told before no more ids are guessed: a guess looks at every call.
const maxMeant = 10

func (p *planner) meant(id string) string {
	if len(p.problems) >= maxMeant {
		return ""
	}
	known := make([]string, 0, len(p.t.calls))
	for i := range p.t.calls {
		known = append(known, p.t.calls[i].call.ID)
	}
	if near := tool.Nearest(id, known, 1); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

// order finds cycles and chains that are too long. Only new calls can wait for new ones.
func (p *planner) order() {
	t := p.t
	waiting := false
	for i := p.first; i < len(t.calls); i++ {
		c := &t.calls[i]
		c.depth, waiting = 1, waiting || len(c.deps) > 0
	}
	if !waiting {
		return
	}
	waits := make([]int, len(t.calls)-p.first) // for how many new calls that are not placed yet
	heirs := make([][]int32, len(waits))
	var placed []int32
	for i := range waits {
		for _, d := range t.calls[p.first+i].deps {
			if k := int(d) - p.first; k >= 0 {
				waits[i]++
				heirs[k] = append(heirs[k], int32(i))
			}
		}
		if waits[i] == 0 {
			placed = append(placed, int32(i))
		}
	}
	deepest := -1
	for k := 0; k < len(placed); k++ {
		i := int(placed[k])
		c := &t.calls[p.first+i]
		c.depth = 1
		for _, d := range c.deps {
			c.depth = max(c.depth, t.calls[d].depth+1)
		}
		if deepest < 0 || c.depth > t.calls[deepest].depth {
			deepest = p.first + i
		}
		for _, h := range heirs[i] {
			if waits[h]--; waits[h] == 0 {
				placed = append(placed, h)
			}
		}
	}
	if len(placed) < len(waits) {
		p.cycles(waits)
	}
	if deepest >= 0 && t.calls[deepest].depth > wire.MaxPlanDepth {
		p.say(deepest, "after", "it is number %d of a chain of calls that wait for each other, at most %d are allowed", t.calls[deepest].depth, wire.MaxPlanDepth)
	}
}

// cycles tells of each cycle among the calls that could not be placed, with its path.
func (p *planner) cycles(waits []int) {
	t := p.t
	state := make([]uint8, len(waits)) // 0 not seen, 1 on the path, 2 done
	for start := range waits {
		if waits[start] == 0 || state[start] != 0 {
			continue
		}
		// Follow, from each call, one that it waits for and that could not be placed: that way never ends but in a cycle.
		var path []int
		for i := start; ; {
			if state[i] == 1 {
				p.cycle(path[slices.Index(path, i):])
			}
			if state[i] != 0 {
				break
			}
			state[i] = 1
			path = append(path, i)
			for _, d := range t.calls[p.first+i].deps {
				if k := int(d) - p.first; k >= 0 && waits[k] > 0 {
					i = k
					break
				}
			}
		}
		for _, i := range path {
			state[i] = 2
		}
	}
}

func (p *planner) cycle(path []int) {
	var names []string
	for _, i := range path {
		names = append(names, p.t.calls[p.first+i].call.ID)
	}
	names = append(names, names[0])
	if len(names) > 12 {
		names = append(append(names[:6:6], "…"), names[len(names)-5:]...)
	}
	p.say(p.first+path[0], "after", "these calls wait for each other: %s", strings.Join(names, " → "))
}
