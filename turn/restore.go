package turn

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/wire"
)

// Restore makes a turn of its journal: the events that Record gave, each with its AtMs, the first of them TurnStarted.
// began is when it started, by the clock that will tell the time from now on. cfg.Request is not looked at: TurnStarted
// has it. Attempts that were out are out again, and wait for their answer until their time is up; what the journal breaks
// off before is done at the next Step or Add, and Wake asks for Due at once. The error says which event cannot be.
//
// What was decided is taken from the journal and not decided again, so it does not matter if a manifest has changed. What
// no event tells is lost: that a worker accepted an attempt, that one has less time (Limited), and that one was told to
// stop, which is told again.
func Restore(cfg Config, began time.Time, events []wire.Event) (*Turn, error) {
	if len(events) == 0 || events[0].Type != wire.TurnStarted || events[0].Request == nil {
		return nil, fmt.Errorf("turn: the journal does not begin with %s", wire.TurnStarted)
	}
	cfg.Request = events[0].Request
	t, err := New(cfg)
	if err != nil {
		return nil, fmt.Errorf("turn: restore: %w", err)
	}
	t.began = began
	t.sit(0, 0)
	for i := range events[1:] {
		if err := t.fold(&events[1+i]); err != nil {
			return nil, fmt.Errorf("turn: event %d of the journal, %s: %w", i+2, fault.Truncate(events[1+i].Type, 40), err)
		}
	}
	t.stale = !t.over
	return t, nil
}

// maxMs bounds the times of a journal, in milliseconds: three years, so that no sum of them overflows.
const maxMs = 1e11

// fold takes one event of the journal in. It changes what the event says, and what follows from that is left to the
// events that come after. An event of another vocabulary says nothing.
func (t *Turn) fold(ev *wire.Event) error {
	for _, v := range [...]float64{ev.AtMs, ev.DelayMs, ev.TimeoutMs} {
		if !(v >= 0 && v <= maxMs) {
			return fmt.Errorf("expected times from 0 to %g ms, got %g", float64(maxMs), v)
		}
	}
	at := wait(ev.AtMs)
	switch {
	case ev.Type == wire.CancelRequested && ev.Call == "":
		t.cancelled, t.lost, t.open = true, ev.Because != "", false
		return nil
	case ev.Type == wire.CallsAdded:
		return t.foldAdded(at, ev)
	case ev.Type == wire.TurnClosed:
		t.open = false
		return nil
	case ev.Type == wire.TurnDeadline:
		t.overdue, t.open = true, false
		return nil
	case ev.Type == wire.TurnEnded:
		return t.foldEnded(at)
	case ev.Call == "":
		return nil
	}
	i, ok := t.Find(ev.Call)
	if !ok {
		return fmt.Errorf("there is no call %q", fault.Truncate(ev.Call, 80))
	}
	return t.foldCall(at, i, ev)
}

func (t *Turn) foldAdded(at time.Duration, ev *wire.Event) error {
	switch {
	case ev.Request == nil:
		return errors.New("it names no calls")
	case !t.open:
		return errors.New("the turn takes no calls any more")
	}
	first := len(t.calls)
	if err := t.extend(ev.Request.Calls); err != nil {
		return err
	}
	t.sit(at, first)
	return nil
}

func (t *Turn) foldEnded(at time.Duration) error {
	switch {
	case t.ended:
		return errors.New("the turn has ended before")
	case t.left > 0:
		return fmt.Errorf("%d calls have no result yet", t.left)
	}
	t.ended, t.open = true, false
	t.sumUp(at)
	t.over = t.live == 0
	return nil
}

func (t *Turn) foldCall(at time.Duration, i int, ev *wire.Event) error {
	c := &t.calls[i]
	if is, ok := expects(ev.Type, c, t.final(i)); !ok {
		return fmt.Errorf("it cannot be: %s %s", c.call.ID, is)
	}
	switch ev.Type {
	case wire.CancelRequested:
		c.unwant = true
	case wire.CallReady:
		t.ready(at, i)
	case wire.CallSkipped:
		if t.stopped > 0 {
			c.excused = true
		} else {
			t.blame(i)
		}
	case wire.AttemptStarted:
		return t.foldStart(at, i, ev)
	case wire.ProgressEvent:
		c.heardAt = at
	case wire.PartialEvent:
		c.heardAt = at
		c.keep(ev.Piece)
	case wire.ToolError:
		return t.foldError(at, i, ev)
	case wire.RetryScheduled:
		c.state = waiting
		t.schedule(i, at+wait(ev.DelayMs))
	case wire.AlternativeChosen:
		c.fall()
		c.state = waiting
		t.schedule(i, at)
	case wire.CallSettled:
		return t.foldSettled(at, i, ev)
	case wire.LateResult:
		t.landed(i)
		c.state = settled
		t.over = t.ended && t.live == 0
	}
	return nil
}

// expects says whether an event of that type can come next of a call, and if not, how the call stands.
func expects(kind string, c *call, final bool) (string, bool) {
	ok := true
	switch kind {
	case wire.CallReady:
		ok = c.state == pending
	case wire.CallSkipped:
		ok = c.state == pending || c.state == ready
	case wire.AttemptStarted:
		ok = c.state == ready || c.state == waiting
	case wire.ToolError:
		ok = !final && (c.state == ready || c.state == waiting || c.out())
	case wire.ProgressEvent, wire.PartialEvent:
		ok = !final && c.out()
	case wire.RetryScheduled:
		ok = c.state == decided && c.doing.Action == recovery.Retry
	case wire.AlternativeChosen:
		ok = c.state == decided && c.doing.Action == recovery.Alternative
	case wire.CancelRequested, wire.CallSettled:
		ok = !final
	case wire.LateResult:
		ok = final && c.out()
	}
	switch {
	case final && c.out():
		return "has its result, and an attempt of it is out", ok
	case final:
		return "has its result", ok
	case c.out():
		return "runs", ok
	case c.state == pending:
		return "waits for its inputs", ok
	case c.state == ready:
		return "waits for its place", ok
	}
	return "is between two attempts", ok
}

func (t *Turn) foldStart(at time.Duration, i int, ev *wire.Event) error {
	c := &t.calls[i]
	if ev.Attempt != int(c.attempt)+1 {
		return fmt.Errorf("expected attempt %d of %s, got %d", c.attempt+1, c.call.ID, ev.Attempt)
	}
	t.foldBegin(c)
	if _, f := t.arguments(c); f != nil { // they are as they were then, and stay so
		return f
	}
	c.attempt++
	c.tries++
	c.state, c.sentAt, c.heardAt, c.worker, c.timeout = running, at, at, ev.Worker, wait(ev.TimeoutMs)
	c.parts.setAside()
	t.live++
	t.schedule(i, c.limit())
	return nil
}

// foldBegin gives a call its place, where it has none.
func (t *Turn) foldBegin(c *call) {
	if c.placed {
		return
	}
	c.placed, c.firstAt = true, never
	t.places++
	t.occupy(c, 1)
}

func (t *Turn) foldError(at time.Duration, i int, ev *wire.Event) error {
	c := &t.calls[i]
	d := &recovery.Decision{Action: recovery.Action(ev.Decision), After: wait(ev.DelayMs), Because: ev.Because}
	switch {
	case ev.Error == nil:
		return errors.New("it has no error")
	case d.Action == recovery.Alternative && c.nextAlternative() == "":
		return fmt.Errorf("%s has no such alternative any more", c.call.ID)
	}
	t.foldBegin(c)
	was := c.out()
	if was {
		t.landed(i)
	}
	t.unschedule(i)
	c.suffer(at, ev.Error)
	if ev.Worker != "" {
		c.worker = ev.Worker
	}
	if was {
		t.note(at, c, ev.Error.Kind, ev.Error.Message, *d)
	}
	c.state, c.fault, c.doing = decided, ev.Error, d
	return nil
}

func (t *Turn) foldSettled(at time.Duration, i int, ev *wire.Event) error {
	c := &t.calls[i]
	if ev.Result == nil || ev.Result.Status == "" {
		return errors.New("it has no result")
	}
	if c.out() && t.overdue { // it goes on: see abandon
		was := *c
		t.put(i, *ev.Result)
		c.state, c.parts, c.history = was.state, was.parts, was.history
		c.quiet = t.forsaken(i)
		return nil
	}
	if c.out() {
		t.landed(i)
	}
	t.unschedule(i)
	t.put(i, *ev.Result)
	switch {
	case t.cancelled, t.overdue:
		return nil
	case t.stops(i):
		t.stopped, t.open = i+1, false
	}
	if t.stopped > 0 {
		return nil
	}
	for _, d := range c.dependents {
		t.calls[d].count(&t.results[i])
	}
	return nil
}

func wait(ms float64) time.Duration { return time.Duration(math.Round(ms*1000)) * time.Microsecond }

// sit is enter without what follows.
func (t *Turn) sit(at time.Duration, first int) {
	for i := first; i < len(t.calls); i++ {
		c := &t.calls[i]
		c.state = pending
		for _, d := range c.deps {
			if t.final(int(d)) {
				c.count(&t.results[d])
			}
		}
		if by := c.call.JoinByMs; by > 0 {
			t.schedule(i, at+time.Duration(by)*time.Millisecond)
		}
	}
}

// catchUp does what the journal breaks off before.
func (t *Turn) catchUp(at time.Duration) {
	switch {
	case t.ended:
		for i := range t.calls {
			if c := &t.calls[i]; c.quiet && c.state == running {
				t.stop(at, i, cmp.Or(t.results[i].Fault, t.cancelFault(c)))
			}
		}
	case t.cancelled:
		for i := range t.calls {
			t.withdraw(at, i, t.cancelFault(&t.calls[i]))
		}
	case t.overdue:
		for i := range t.calls {
			t.endAtDeadline(at, i)
		}
		t.finish(at)
	case t.stopped > 0:
		t.stopFor(at, t.stopped-1)
	case at < t.deadline:
		t.resume(at)
	}
}

// resume goes on where nothing has ended the turn.
func (t *Turn) resume(at time.Duration) {
	for i := range t.calls {
		c := &t.calls[i]
		switch {
		case c.unwant:
			t.withdraw(at, i, t.cancelFault(c))
		case c.state == decided:
			t.act(at, i, c.doing)
		}
	}
	for i := range t.calls {
		t.join(at, i)
	}
}
