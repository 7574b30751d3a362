package turn

import (
	"math"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Turn is some calls on their way. Make one with New or Restore; one that is started must not be copied. It is for one
// goroutine at a time.
//
// Times are kept as what has passed since the turn began, in whole microseconds, which is what the journal can tell.
type Turn struct {
	cfg   Config
	calls []call
	ids   map[string]int // nil where the calls are few

	began    time.Time
	deadline time.Duration // never where there is none
	open     bool          // calls may be added

	cancelled bool
	lost      bool // it is cancelled because its client is gone
	stopped   int  // the call whose failure stopped the turn, from 1; 0 where none did
	overdue   bool
	ended     bool
	over      bool
	stale     bool // restored: what follows from the journal is to be worked out

	left    int     // calls without a result
	queue   []int32 // calls that are ready, in the order in which they became so, then in request order
	places  int     // calls that have begun and have no result yet
	busy    map[string]int
	live    int // attempts that are out
	timers  []timer
	results []tool.Result
	end     *ending        // nil until the first attempt has ended, or there is a result
	spare   []tool.Attempt // room for the first attempts of calls
	out     []Effect

	one      [1]call
	oneTimer [1]timer
	oneReady [1]int32
}

// An ending is what is needed only towards the end.
type ending struct {
	outcome wire.Outcome
	only    [1]tool.Result  // of a turn of one call
	attempt [1]tool.Attempt // the first of that call
}

// never is a time that does not come.
const never time.Duration = math.MaxInt64

// New checks the plan and makes a turn of it, not yet started. The error is a *PlanError: everything that is wrong.
func New(cfg Config) (*Turn, error) {
	t := new(Turn)
	if err := t.Init(cfg); err != nil {
		return nil, err
	}
	return t, nil
}

// Init is New in a place of the caller's: t must be the zero Turn.
func (t *Turn) Init(cfg Config) error {
	req := cfg.Request
	t.cfg, t.open, t.deadline = cfg, req.Open, never
	t.timers = t.oneTimer[:0]
	if d := time.Duration(req.DeadlineMs) * time.Millisecond; d > 0 {
		t.deadline = d
	} else if cfg.Deadline > 0 {
		t.deadline = whole(cfg.Deadline)
	}
	if req.Parallel > 0 {
		t.cfg.Parallel = req.Parallel
	}
	if req.ToolParallel > 0 {
		t.cfg.ToolParallel = req.ToolParallel
	}
	if len(req.Calls) == 0 && !req.Open {
		return &PlanError{[]PlanProblem{{Field: "calls", Message: "a turn needs at least one call, unless it is open"}}}
	}
	return t.extend(req.Calls)
}

// Start begins the turn. What is to do is appended to out, as by every method that takes one.
func (t *Turn) Start(out []Effect, now time.Time) []Effect {
	t.out, t.began = out, now
	if t.cfg.Recorded {
		t.record(0, &wire.Event{Type: wire.TurnStarted, Request: t.cfg.Request})
	}
	t.enter(0, 0)
	return t.close(0)
}

// enter takes the calls from first on into the turn: those that wait for nothing are ready.
func (t *Turn) enter(at time.Duration, first int) {
	t.sit(at, first)
	for i := first; i < len(t.calls); i++ {
		t.join(at, i)
	}
}

// Step tells the turn what happened.
func (t *Turn) Step(out []Effect, now time.Time, ev Event) []Effect {
	t.out = out
	at := t.since(now)
	t.clock(at)
	switch ev.Kind {
	case Due:
		t.due(at)
	case CancelTurn:
		t.cancelTurn(at, "")
	case ClientLost:
		t.cancelTurn(at, clientGone)
	case Close:
		t.closeDoor(at)
	default:
		if ev.Call >= 0 && ev.Call < len(t.calls) {
			t.step(at, ev)
		}
	}
	return t.close(at)
}

// clock does what the time alone brings, before anything that happens at it: what a journal broke off before, and the
// deadline, after which nothing may begin, however late Due comes.
func (t *Turn) clock(at time.Duration) {
	if t.stale {
		t.stale = false
		t.catchUp(at)
	}
	if at >= t.deadline && !t.ended && !t.cancelled {
		t.expire(at)
	}
}

// step takes in what speaks of one call.
func (t *Turn) step(at time.Duration, ev Event) {
	c := &t.calls[ev.Call]
	switch ev.Kind {
	case CancelCall:
		t.cancelCall(at, ev.Call)
		return
	case Judged:
		if c.state == judging {
			t.judged(at, ev)
		}
		return
	}
	if ev.Attempt != int(c.attempt) || !c.out() {
		return // it speaks of an attempt that was given up
	}
	if ev.Worker != "" {
		c.worker = ev.Worker
	}
	c.heardAt = at
	switch ev.Kind {
	case Progressed:
		if ev.Progress != nil && !t.ended {
			t.record(at, &wire.Event{Type: wire.ProgressEvent, Call: c.call.ID, Tool: c.tool().Name, Attempt: int(c.attempt), Worker: c.worker, Progress: ev.Progress})
		}
	case Pieced:
		t.piece(at, c, ev)
	case Limited:
		if c.state == running {
			c.timeout = min(c.timeout, at-c.sentAt+ev.Timeout)
			t.schedule(ev.Call, c.limit())
		}
	case Succeeded:
		t.succeed(at, ev.Call, ev)
	case Failed:
		t.failed(at, ev.Call, ev.Fault)
	}
}

// close is the end of every step: what can begin begins, and what has ended is told.
func (t *Turn) close(at time.Duration) []Effect {
	for t.fill(at) {
	}
	if t.left == 0 && !t.open && !t.ended {
		t.finish(at)
	}
	if t.ended && t.live == 0 && !t.over {
		t.over = true
		t.out = append(t.out, Effect{Kind: Over})
	}
	out := t.out
	t.out = nil
	return out
}

// Add hands over more calls to an open turn. The error is a *PlanError, or a *fault.Fault where the turn takes no more;
// then nothing was added.
func (t *Turn) Add(out []Effect, now time.Time, calls []tool.Call) ([]Effect, error) {
	first, at := len(t.calls), t.since(now)
	t.out = out
	t.clock(at)
	if err := t.admit(calls); err != nil {
		return t.close(at), err
	}
	added := make([]tool.Call, 0, len(calls))
	for i := first; i < len(t.calls); i++ {
		added = append(added, *t.calls[i].call)
	}
	t.record(at, &wire.Event{Type: wire.CallsAdded, Request: &wire.TurnRequest{ID: t.cfg.Request.ID, Calls: added}})
	t.enter(at, first)
	return t.close(at), nil
}

func (t *Turn) admit(calls []tool.Call) error {
	switch {
	case t.ended || t.cancelled || t.stopped > 0:
		return fault.New(fault.InvalidArguments, "the turn has ended, or is about to: no call can be added")
	case !t.open:
		return fault.New(fault.InvalidArguments, "the turn is closed: calls can be added to open turns, until they are closed")
	}
	return t.extend(calls)
}

func (t *Turn) closeDoor(at time.Duration) {
	if !t.open || t.ended {
		return
	}
	t.open = false
	t.record(at, &wire.Event{Type: wire.TurnClosed})
}

func (t *Turn) since(now time.Time) time.Duration {
	return max(0, now.Sub(t.began).Truncate(time.Microsecond))
}

// Wake is when Due is wanted next, and zero where no time is waited for. It changes only in Start, Step and Add.
func (t *Turn) Wake() time.Time {
	at := t.next()
	if !t.ended && !t.cancelled {
		at = min(at, t.deadline)
	}
	switch {
	case t.stale:
		return t.began
	case t.over || at == never:
		return time.Time{}
	}
	return t.began.Add(at)
}

// Len is how many calls were handed over.
func (t *Turn) Len() int { return len(t.calls) }

// Call is a call as it was handed over, its ID filled in. It is only to be read.
func (t *Turn) Call(i int) *tool.Call { return t.calls[i].call }

// Find is the index of the call of that id.
func (t *Turn) Find(id string) (int, bool) { return t.search(id, len(t.calls)) }

// Attempt is the number of the attempt of a call that is out or was out last; 0 before the first.
func (t *Turn) Attempt(call int) int { return int(t.calls[call].attempt) }

// Left is how much time the attempt of a call that is out has left.
func (t *Turn) Left(call int, now time.Time) time.Duration {
	c := &t.calls[call]
	return t.began.Add(c.sentAt + c.timeout).Sub(now)
}

// Stopping says that the attempt of a call that is out was told to stop: it must not be sent to anyone now.
func (t *Turn) Stopping(call int) bool { return t.calls[call].state == stopping }

// Ended says that the outcome is there.
func (t *Turn) Ended() bool { return t.ended }

// Outcome is what the turn ended with, and nil before.
func (t *Turn) Outcome() *wire.Outcome {
	if !t.ended {
		return nil
	}
	return &t.end.outcome
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
