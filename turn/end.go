package turn

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// settle gives a call its one result. After the turn's end it is a late one.
func (t *Turn) settle(at time.Duration, i int, r tool.Result) {
	c := &t.calls[i]
	c.complete(at, &r)
	if t.ended {
		t.late(at, i, r)
		return
	}
	t.unschedule(i)
	t.put(i, r)
	if t.cfg.Recorded {
		res := r
		t.record(at, &wire.Event{Type: wire.CallSettled, Call: c.call.ID, Tool: c.call.Tool, Attempt: int(c.attempt), Result: &res})
	}
	if t.cancelled || t.overdue {
		return // each of the others ends by itself
	}
	if t.stops(i) {
		t.stopFor(at, i)
	}
	if t.stopped > 0 {
		return
	}
	for _, d := range c.dependents {
		t.calls[d].count(&t.results[i])
		t.join(at, int(d))
	}
}

// final says that the call has its result. Its attempt may be out still.
func (t *Turn) final(i int) bool { return i < len(t.results) && t.results[i].Status != "" }

// stops says that the result of call i ends the turn.
func (t *Turn) stops(i int) bool {
	return t.stopped == 0 && t.cfg.Request.OnFailure == wire.FailureStop && t.escalates(i)
}

// put writes the result down, and gives the call's place back.
func (t *Turn) put(i int, r tool.Result) {
	c := &t.calls[i]
	if r.Status == tool.Cancelled {
		c.excused = true
	}
	t.room()
	t.results[i] = r
	c.state = settled
	t.left--
	if c.placed {
		c.placed = false
		t.places--
		t.occupy(c, -1)
	}
	c.parts, c.filled, c.history = nil, nil, nil
}

// room makes room for the results, when the first is there or near: a turn under way needs none.
func (t *Turn) room() {
	if t.end == nil {
		t.end = new(ending)
	}
	if len(t.calls) == 1 {
		t.results = t.end.only[:]
	}
	if n := len(t.calls) - len(t.results); n > 0 {
		t.results = append(slices.Grow(t.results, n), make([]tool.Result, n)...)
	}
}

// complete fills in what every result says.
func (c *call) complete(at time.Duration, r *tool.Result) {
	r.Call, r.Tool, r.Attempts = c.call.ID, c.call.Tool, c.history
	if c.state != pending {
		r.DurationMs = ms(at - c.began)
	}
	if f := r.Fault; f != nil && c.ran > severityOf(fault.NotStarted) && f.Run() == fault.NotStarted {
		g := *f // the last attempt did not run, but one before it did, or may have
		g.Execution, r.Fault = executions[c.ran], &g
	}
	r.Sentence = sentenceOf(r, c.effect(int(c.at)))
}

// late is the end of a call whose turn has ended.
func (t *Turn) late(at time.Duration, i int, r tool.Result) {
	c := &t.calls[i]
	c.state = settled
	c.parts, c.filled = nil, nil
	res := &r
	t.record(at, &wire.Event{Type: wire.LateResult, Call: c.call.ID, Tool: c.call.Tool, Attempt: int(c.attempt), Result: res})
	if c.quiet && r.Fault != nil {
		return
	}
	t.out = append(t.out, Effect{Kind: KeepLate, Call: i, Attempt: int(c.attempt), Result: res})
}

// escalates says that somebody has to look at the call: it is required, it gave no value, and neither the deadline nor a
// cancel is why.
func (t *Turn) escalates(i int) bool {
	c, r := &t.calls[i], &t.results[i]
	switch {
	case r.Status.HasValue(), c.optional(), c.excused:
		return false
	case r.Status == tool.Cancelled, r.Status == tool.NeverStarted:
		return false
	}
	return r.Fault == nil || r.Fault.Kind != fault.Deadline
}

// expire ends the turn at its deadline. What runs goes on to its own timeout and is not told to stop (seed 000 §4.2),
// unless the request says so.
func (t *Turn) expire(at time.Duration) {
	t.record(at, &wire.Event{Type: wire.TurnDeadline})
	t.overdue, t.open = true, false
	for i := range t.calls {
		t.endAtDeadline(at, i)
	}
	t.finish(at)
}

func (t *Turn) endAtDeadline(at time.Duration, i int) {
	c := &t.calls[i]
	if c.unwant && !t.final(i) { // restored: it is to be told so still
		t.withdraw(at, i, t.cancelFault(c))
	}
	switch {
	case t.final(i):
		return
	case c.state == stopping && c.fault.Kind == fault.Cancelled:
		t.abandon(at, i, c.fault, c.fault.Message)
		return
	}
	f := fault.New(fault.Deadline, "the turn's deadline passed before %s answered", c.call.Tool)
	f.Execution = fault.Unknown
	switch c.state {
	case pending, ready:
		f.Message = "the turn's deadline passed before " + c.call.Tool + " could begin"
		f.Execution = fault.NotStarted
		t.settle(at, i, tool.Result{Status: tool.NeverStarted, Fault: c.name(f)})
		return
	case waiting, judging, decided:
		f.Execution = fault.NotStarted // the attempt that did not come to be; see complete
		t.settle(at, i, tool.Result{Status: tool.TimedOut, Fault: c.name(f)})
		return
	}
	f.Message += "; it goes on"
	if t.cfg.KeepsLate {
		f.Message += ", and what it comes to is kept"
	}
	if t.cfg.Request.DeadlineMode == wire.DeadlineHard {
		f.Message = fmt.Sprintf("the turn's deadline passed before %s answered, and it was told to stop; it may have run", c.call.Tool)
	}
	t.abandon(at, i, f, "the turn's deadline has passed")
}

// abandon settles a call whose attempt is out, and stays out.
func (t *Turn) abandon(at time.Duration, i int, f *fault.Fault, because string) {
	c := &t.calls[i]
	was, wake := *c, t.timers[c.slot].at
	r := tool.Result{Status: tool.TimedOut, Fault: c.name(f)}
	if f.Kind == fault.Cancelled {
		r.Status = tool.Cancelled
	} else if best := c.parts.best(); len(best) > 0 {
		r.Status, r.Value = tool.PartialValue, joined(best)
	}
	c.history = append(c.history[:len(c.history):len(c.history)], tool.Attempt{
		N: int(c.attempt), Tool: c.tool().Name, Worker: c.worker, Kind: f.Kind, Message: f.Message,
		StartMs: ms(c.sentAt - c.began), DurationMs: ms(at - c.sentAt),
		Decision: string(recovery.Fail), Because: because,
	})
	t.settle(at, i, r)
	c.state, c.parts, c.history = was.state, was.parts, was.history
	c.quiet = t.forsaken(i)
	if c.quiet && c.state == running {
		t.stop(at, i, f)
	} else {
		t.schedule(i, wake)
	}
}

// forsaken says that nobody wants to know what becomes of a call whose attempt is out at the turn's end.
func (t *Turn) forsaken(i int) bool {
	return t.cfg.Request.DeadlineMode == wire.DeadlineHard || t.results[i].Status == tool.Cancelled
}

func (t *Turn) cancelFault(c *call) *fault.Fault {
	f := fault.New(fault.Cancelled, "the caller cancelled %s", c.tool().Name)
	if t.lost {
		f.Message = c.tool().Name + " was cancelled, because " + clientGone
	}
	f.Execution = fault.NotStarted
	if c.out() {
		f.Execution = fault.Unknown
	}
	return f
}

// clientGone is why a turn is cancelled without the caller's word.
const clientGone = "the turn's client is gone"

// whoCancelled is what recovery is to know of a call that is told to stop where its caller did not wish it.
func (t *Turn) whoCancelled(c *call) string {
	switch {
	case t.lost:
		return clientGone
	case t.stopped > 0 && !t.cancelled && !c.unwant:
		return "the turn was stopped when " + t.calls[t.stopped-1].call.ID + " failed"
	}
	return ""
}

// cancelTurn is the caller's word that no result is wanted any more, unless there is a because. After the outcome it stops
// what still runs.
func (t *Turn) cancelTurn(at time.Duration, because string) {
	if t.cancelled {
		return
	}
	t.cancelled, t.lost, t.open = true, because != "", false
	if !t.ended {
		t.record(at, &wire.Event{Type: wire.CancelRequested, Because: because})
	}
	for i := range t.calls {
		t.withdraw(at, i, t.cancelFault(&t.calls[i]))
	}
}

// cancelCall is the caller's word that one result is not wanted.
func (t *Turn) cancelCall(at time.Duration, i int) {
	c := &t.calls[i]
	if c.unwant || c.state == settled {
		return
	}
	c.unwant = true
	if !t.ended {
		t.record(at, &wire.Event{Type: wire.CancelRequested, Call: c.call.ID, Tool: c.call.Tool})
	}
	t.withdraw(at, i, t.cancelFault(c))
}

// withdraw ends a call with the fault: at once where nothing is out, else when its attempt has stopped.
func (t *Turn) withdraw(at time.Duration, i int, f *fault.Fault) {
	c := &t.calls[i]
	switch c.state {
	case settled:
	case judging:
		t.note(at, c, c.fault.Kind, c.fault.Message, recovery.Decision{Action: recovery.Fail, Because: f.Message})
		t.settle(at, i, tool.Result{Status: statusOf(f.Kind), Fault: c.name(f)})
	case running:
		c.quiet = t.ended
		t.stop(at, i, f)
	case stopping:
		c.quiet = t.ended
		c.fault = f
	default:
		t.settle(at, i, tool.Result{Status: statusOf(f.Kind), Fault: c.name(f)})
	}
}

// stopFor ends the turn early, for call i has failed and the request says so.
func (t *Turn) stopFor(at time.Duration, i int) {
	t.stopped, t.open = i+1, false
	of := t.calls[i].call.ID
	for k := range t.calls {
		c := &t.calls[k]
		if t.final(k) {
			continue
		}
		if c.state == pending || c.state == ready {
			t.record(at, &wire.Event{Type: wire.CallSkipped, Call: c.call.ID, Tool: c.call.Tool, BecauseOf: of})
			c.excused = true
			t.settle(at, k, tool.Result{Status: tool.Skipped, BecauseOf: of})
			continue
		}
		f := t.cancelFault(c)
		f.Message = "the turn was stopped, because " + of + " failed"
		t.withdraw(at, k, f)
	}
}

// finish ends the turn with one result for every call.
func (t *Turn) finish(at time.Duration) {
	t.ended = true
	t.sumUp(at)
	if t.cfg.Recorded {
		out := t.end.outcome
		t.record(at, &wire.Event{Type: wire.TurnEnded, Outcome: &out})
	}
	t.out = append(t.out, Effect{Kind: Finish, Outcome: &t.end.outcome})
}

// sumUp makes the outcome of the results.
func (t *Turn) sumUp(at time.Duration) {
	t.room()
	o := wire.Outcome{Turn: t.cfg.Request.ID, Status: t.status(), Results: t.results, DurationMs: ms(at)}
	for i := range t.calls {
		if c := &t.calls[i]; c.out() && !c.quiet {
			o.Running = append(o.Running, c.call.ID)
		}
	}
	o.Sentence = t.sentence(o.Status)
	t.end.outcome = o
}

func (t *Turn) status() string {
	values, whole, cancelled := 0, 0, 0
	escalated := false
	for i := range t.results {
		r := &t.results[i]
		escalated = escalated || t.escalates(i)
		switch {
		case r.Status == tool.PartialValue:
			values++
		case r.Status.HasValue():
			values++
			whole++
		case r.Status == tool.Cancelled:
			cancelled++
		}
	}
	n := len(t.results)
	switch {
	case t.cancelled, n > 0 && cancelled == n:
		return wire.CancelledTurn
	case escalated:
		return wire.Escalated
	case t.overdue && values == 0:
		return wire.TimedOutTurn
	case t.overdue, whole < n:
		return wire.PartialTurn
	}
	return wire.Completed
}

// record writes into the journal.
func (t *Turn) record(at time.Duration, ev *wire.Event) {
	if !t.cfg.Recorded {
		return
	}
	ev.AtMs = ms(at)
	t.out = append(t.out, Effect{Kind: Record, Record: ev})
}
