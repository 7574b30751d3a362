// Package turn is the life of one turn: a call out, its result back, and a deadline.
//
//	      Start                  the call has its result, or Due
//	───────────────►  open  ───────────────────────────────────────►  done
//	                  │  ▲
//	        Failed    └──┘    recovery: send again
//
// Step is told what happened and when, and returns what to do. Nothing here waits, sends or looks at a clock: a turn can
// be replayed from its events. What it returns:
//
//	Send      publish attempt N
//	Stop      tell the worker of attempt N to stop; its confirmation is waited for no longer than the grace
//	Wake      bring a Due event at that time; one is pending at most, a new one takes the place of the old
//	Errored   for the journal: an attempt failed, and what was decided
//	Finish    the turn is over: here is the result
//
// What always holds: exactly one Finish; an event that speaks of an attempt that was given up changes nothing; an attempt
// ends by its answer, its timeout or its worker's loss, whichever comes first.
package turn

import (
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// A Plan is a checked call and all that the turn must know of its tool.
type Plan struct {
	Call string
	Tool string

	Timeout  time.Duration // of one attempt, hard
	Idle     time.Duration // of one attempt without progress; 0 means no such limit
	Grace    time.Duration // how long a confirmation of a stop is waited for
	Deadline time.Time     // of the turn; zero means none

	Policy    *retry.Policy // only read
	Seed      uint64        // of the jitter
	Effect    tool.Effect
	KeepsKeys bool
	Overrides fault.Overrides
}

// An EventKind says what happened.
type EventKind uint8

// What can happen to a turn.
const (
	Accepted   EventKind = iota + 1 // a worker has the attempt
	Progressed                      // it told of progress
	Pieced                          // a piece of the result came
	Succeeded                       // the result came
	Failed                          // the attempt failed, wherever that was noticed
	Due                             // the time asked for by Wake has come
	CancelCall                      // the caller wants no result any more
	Limited                         // the attempt that is out has less time than the plan says
)

// An Event is what happened. Attempt says of which attempt it speaks; Due and CancelCall speak of none.
type Event struct {
	Kind    EventKind
	Attempt int
	Worker  string        // who answered, where it is known
	Value   []byte        // of Succeeded and Pieced
	Type    string        // content type of Value; "" is JSON
	Fault   *fault.Fault  // of Failed
	Budget  bool          // of Failed and Due: the tool's retry budget has a retry left
	Timeout time.Duration // of Limited: what is left, from now
}

// An EffectKind says what to do.
type EffectKind uint8

// What a turn can ask for.
const (
	Send EffectKind = iota + 1
	Stop
	Wake
	Errored
	Finish
)

// An Effect is what to do.
type Effect struct {
	Kind     EffectKind
	Attempt  int
	At       time.Time          // of Wake
	Timeout  time.Duration      // of Send: what the worker is given
	Fault    *fault.Fault       // of Errored
	Verdict  *fault.Verdict     // of Errored
	Decision *recovery.Decision // of Errored
	Result   *tool.Result       // of Finish
}

type state uint8

const (
	waiting  state = iota + 1 // for the time of the next attempt
	running                   // an attempt is out
	stopping                  // it was told to stop
	done
)

// A Turn is one call on its way. The zero value is not started; one that is started must not be copied. It is for one
// goroutine at a time.
type Turn struct {
	plan      Plan
	began     time.Time
	state     state
	cancelled bool

	attempt  int
	sentAt   time.Time
	timeout  time.Duration // of this attempt
	heardAt  time.Time     // the last sign of progress, for the idle limit
	worker   string
	wakeAt   time.Time // when the next attempt goes out, or the stop is given up
	stopping *fault.Fault

	ran          fault.Execution // of the attempts that failed, where one may have run
	firstFailure time.Time
	deaths       int

	pieces     [][]byte
	piecesSize int
	history    []tool.Attempt
	result     tool.Result
	out        []Effect
	room       [2]Effect // for out: most turns never ask for more at once
}

// Start begins the turn. The effects are valid until the next Step.
func (t *Turn) Start(now time.Time, p Plan) []Effect {
	*t = Turn{plan: p, began: now}
	t.out = t.room[:0]
	t.send(now)
	return t.out
}

// Attempt is the number of the attempt that is out or was out last.
func (t *Turn) Attempt() int { return t.attempt }

// Left is how much time the attempt that is out has left.
func (t *Turn) Left(now time.Time) time.Duration { return t.sentAt.Add(t.timeout).Sub(now) }

// Stopping says that the attempt that is out was told to stop: it must not be sent to anyone now.
func (t *Turn) Stopping() bool { return t.state == stopping }

// Worker is who has the attempt, where it is known.
func (t *Turn) Worker() string { return t.worker }

// Step tells the turn what happened. The effects are valid until the next Step.
func (t *Turn) Step(now time.Time, ev Event) []Effect {
	t.out = t.out[:0]
	if t.state == done {
		return nil
	}
	switch ev.Kind {
	case Due:
		t.due(now, ev)
		return t.out
	case CancelCall:
		t.cancel(now)
		return t.out
	}
	if ev.Attempt != t.attempt || t.state == waiting {
		return nil // it speaks of an attempt that was given up
	}
	if ev.Worker != "" {
		t.worker = ev.Worker
	}
	t.heardAt = now
	switch ev.Kind {
	case Pieced:
		t.keep(ev.Value)
	case Limited:
		t.timeout = min(t.timeout, now.Sub(t.sentAt)+ev.Timeout)
		t.wake(t.nextLimit())
	case Succeeded:
		t.succeed(now, ev)
	case Failed:
		t.failed(now, ev)
	}
	return t.out
}

func (t *Turn) send(now time.Time) {
	t.attempt++
	t.state, t.sentAt, t.heardAt, t.worker, t.timeout = running, now, now, "", t.plan.Timeout
	t.pieces, t.piecesSize = nil, 0
	t.out = append(t.out, Effect{Kind: Send, Attempt: t.attempt, Timeout: t.plan.Timeout})
	t.wake(t.nextLimit())
}

// nextLimit is when the running attempt or the turn has had its time.
func (t *Turn) nextLimit() time.Time {
	at := t.sentAt.Add(t.timeout)
	if idle := t.heardAt.Add(t.plan.Idle); t.plan.Idle > 0 && idle.Before(at) {
		at = idle
	}
	return t.sooner(at)
}

// sooner is at, or the turn's deadline where that comes first. A turn that was cancelled has no deadline but its grace.
func (t *Turn) sooner(at time.Time) time.Time {
	if d := t.plan.Deadline; !d.IsZero() && d.Before(at) && !t.cancelled {
		return d
	}
	return at
}

func (t *Turn) wake(at time.Time) { t.out = append(t.out, Effect{Kind: Wake, At: at}) }

func (t *Turn) due(now time.Time, ev Event) {
	if d := t.plan.Deadline; !d.IsZero() && !now.Before(d) && !t.cancelled {
		t.overdue(now)
		return
	}
	switch {
	case t.state == running && now.Before(t.nextLimit()):
		t.wake(t.nextLimit())
	case t.state == running:
		t.timedOut(now)
	case now.Before(t.wakeAt):
		t.wake(t.sooner(t.wakeAt))
	case t.state == waiting:
		t.send(now)
	case t.state == stopping:
		t.failed(now, Event{Fault: t.stopping, Budget: ev.Budget})
	}
}

// timedOut stops an attempt that used up its time. Its end comes as its confirmation, or after the grace.
func (t *Turn) timedOut(now time.Time) {
	f := fault.New(fault.Timeout, "%s did not answer within %v", t.plan.Tool, t.timeout)
	if now.Before(t.sentAt.Add(t.timeout)) {
		f = fault.New(fault.Timeout, "%s showed no progress for %v", t.plan.Tool, t.plan.Idle)
	}
	if len(t.pieces) > 0 {
		f.Kind = fault.Partial
	}
	t.stop(now, f)
}

func (t *Turn) stop(now time.Time, f *fault.Fault) {
	t.state, t.stopping, t.wakeAt = stopping, f, now.Add(t.plan.Grace)
	t.out = append(t.out, Effect{Kind: Stop, Attempt: t.attempt})
	t.wake(t.sooner(t.wakeAt))
}

// overdue ends the turn at its deadline. What runs goes on to its own timeout: it is not told to stop (seed 000 §4.2).
func (t *Turn) overdue(now time.Time) {
	f := fault.New(fault.Deadline, "the turn's deadline passed before %s answered", t.plan.Tool)
	status := tool.TimedOut
	f.Execution = fault.Unknown
	if t.state == waiting {
		f.Execution = fault.NotStarted
	}
	t.end(now, f.Kind, f.Message, recovery.Decision{Action: recovery.Fail, Because: "the turn's deadline has passed"})
	t.finish(now, tool.Result{Status: status, Fault: t.name(f)})
}

func (t *Turn) cancel(now time.Time) {
	if t.cancelled {
		return
	}
	t.cancelled = true
	f := fault.New(fault.Cancelled, "the caller cancelled %s", t.plan.Tool)
	switch t.state {
	case running:
		f.Execution = fault.Unknown
		t.stop(now, f)
	case stopping:
		t.stopping = f
	case waiting:
		f.Execution = fault.NotStarted
		t.finish(now, tool.Result{Status: tool.Cancelled, Fault: t.name(f)})
	}
}

func (t *Turn) keep(piece []byte) {
	if t.piecesSize += len(piece); t.piecesSize > maxPieces || len(t.pieces) == maxPieceCount {
		return // bounded: the result itself still comes whole
	}
	t.pieces = append(t.pieces, piece)
}

// What is kept of the pieces of one attempt.
const (
	maxPieces     = 4 << 20 // bytes
	maxPieceCount = 10_000
)

func (t *Turn) succeed(now time.Time, ev Event) {
	t.end(now, "", "", recovery.Decision{})
	t.finish(now, tool.Result{Status: tool.Success, Value: ev.Value, ContentType: ev.Type})
}

// failed is the one place where the end of an attempt leads on.
func (t *Turn) failed(now time.Time, ev Event) {
	f := ev.Fault
	if t.state == stopping {
		f = confirmed(t.stopping, f)
	}
	f = t.name(f)
	if f.Kind == fault.WorkerLost {
		t.deaths++
	}
	if t.firstFailure.IsZero() {
		t.firstFailure = now
	}
	if run := f.Run(); run != fault.NotStarted && t.ran != fault.Unknown {
		t.ran = run
	}
	verdict := t.plan.Overrides.Judge(f)
	d := recovery.Decide(recovery.Situation{
		Fault: f, Verdict: verdict,
		Effect: t.plan.Effect, KeepsKeys: t.plan.KeepsKeys,
		Policy: *t.plan.Policy, Attempt: t.attempt,
		Roll:         retry.Roll(t.plan.Seed, t.plan.Call, t.attempt+1),
		SinceFailure: now.Sub(t.firstFailure), Remaining: t.remaining(now),
		Deaths: t.deaths, Budget: ev.Budget, Pieces: len(t.pieces) > 0,
	})
	t.end(now, f.Kind, f.Message, d)
	t.out = append(t.out, Effect{Kind: Errored, Attempt: t.attempt, Fault: f, Verdict: &verdict, Decision: &d})

	switch {
	case d.Action == recovery.Retry && d.After == 0:
		t.send(now)
	case d.Action == recovery.Retry:
		t.state, t.wakeAt = waiting, now.Add(d.After)
		t.wake(t.wakeAt)
	case d.Action == recovery.AcceptPartial:
		t.finish(now, tool.Result{Status: tool.PartialValue, Value: joined(t.pieces), Fault: f})
	default:
		t.finish(now, tool.Result{Status: statusOf(f.Kind), Fault: f})
	}
}

// confirmed is the fault that we stopped an attempt for, with what the worker said of the stop.
func confirmed(stopped, answer *fault.Fault) *fault.Fault {
	if answer == nil || answer == stopped {
		return stopped
	}
	f := *stopped
	if answer.Execution != "" {
		f.Execution = answer.Execution
	}
	if answer.Detail != "" {
		f.Detail = answer.Detail
	}
	f.Worker = answer.Worker
	return &f
}

func statusOf(k fault.Kind) tool.Status {
	switch k {
	case fault.Cancelled:
		return tool.Cancelled
	case fault.Timeout:
		return tool.TimedOut
	}
	return tool.Failed
}

func (t *Turn) remaining(now time.Time) time.Duration {
	if t.plan.Deadline.IsZero() {
		return retry.NoDeadline
	}
	return t.plan.Deadline.Sub(now)
}

// name is f with the names of tool, worker and attempt on it.
func (t *Turn) name(f *fault.Fault) *fault.Fault {
	g := *f
	g.Tool, g.Attempt = t.plan.Tool, t.attempt
	if g.Worker == "" {
		g.Worker = t.worker
	}
	return &g
}

// end writes the attempt into the history.
func (t *Turn) end(now time.Time, k fault.Kind, message string, d recovery.Decision) {
	if t.state == waiting {
		return // it is in there
	}
	t.history = append(t.history, tool.Attempt{
		N: t.attempt, Tool: t.plan.Tool, Worker: t.worker, Kind: k, Message: message,
		StartMs: ms(t.sentAt.Sub(t.began)), DurationMs: ms(now.Sub(t.sentAt)),
		DelayMs: ms(d.After), Decision: string(d.Action), Because: d.Because,
	})
}

func (t *Turn) finish(now time.Time, r tool.Result) {
	t.state = done
	r.Call, r.Tool, r.Attempts = t.plan.Call, t.plan.Tool, t.history
	r.DurationMs = ms(now.Sub(t.began))
	if f := r.Fault; f != nil && t.ran != "" && f.Run() == fault.NotStarted {
		g := *f // the last attempt did not run, but one before it did, or may have
		g.Execution, r.Fault = t.ran, &g
	}
	r.Sentence = Sentence(&r)
	t.pieces, t.result = nil, r
	t.out = append(t.out, Effect{Kind: Finish, Attempt: t.attempt, Result: &t.result})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
