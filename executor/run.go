package executor

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// A run is one turn on its way. Everything below mu is under it.
type run struct {
	e        *Executor
	req      wire.TurnRequest
	header   wire.Header
	done     func(*wire.Outcome)
	observer Observer
	trace    Trace // nil: nobody follows it
	began    time.Time
	recorded bool         // somebody looks
	only     [1]tool.Call // most turns have one

	mu     sync.Mutex
	turn   turn.Turn
	alarm  *alarm    // nil where it never was set, or was let go
	wakeAt time.Time // what alarm is set to; zero where it is not
	queue  *queue    // what is being carried out; nil where nothing is
	jobs   []*job    // by the index of the call; nil for one that has not begun
	room   [1]*job
	first  job   // most turns need no other
	blank  []job // for calls that have not begun
	calls  int   // that the executor counts for it
	seq    int64
	door   *door // what came for an open turn; nil where nothing did
	over   bool
}

// A queue is effects that are carried out in order. What follows from one comes last.
type queue struct{ effects []turn.Effect }

var queues = sync.Pool{New: func() any { return &queue{make([]turn.Effect, 0, 16)} }}

// maxQueue is the longest queue that is worth keeping.
const maxQueue = 1024

// start begins the turn. The error is a *turn.PlanError. r.mu is held.
func (r *run) start() error {
	e := r.e
	r.follow()
	r.recorded = r.observer != nil || r.trace != nil || e.cfg.Observer != nil || e.cfg.Journal != nil
	err := r.turn.Init(turn.Config{
		Request: &r.req, Deadline: e.cfg.TurnTimeout, Grace: e.cfg.Grace,
		Parallel: e.cfg.Parallel, ToolParallel: e.cfg.ToolParallel, KeepsLate: e.cfg.Journal != nil, Recorded: r.recorded, Tools: e.lookup,
	})
	if err != nil {
		return err
	}
	r.jobs = r.room[:]
	r.began = time.Now()
	q := queues.Get().(*queue)
	q.effects = r.turn.Start(q.effects, r.began)
	r.carry(r.began, q)
	return nil
}

// cancel tells the run that its caller wants no results.
func (r *run) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(time.Now(), turn.Event{Kind: turn.CancelTurn})
}

// lost tells the run that its client is gone.
func (r *run) lost() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(time.Now(), turn.Event{Kind: turn.ClientLost})
}

// due is the word of an alarm. One that was let go in the moment in which it went off has none.
func (r *run) due(a *alarm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.alarm != a {
		return
	}
	r.wakeAt = time.Time{}
	r.apply(time.Now(), turn.Event{Kind: turn.Due})
}

// apply takes an event to the turn and carries out what it asks for. r.mu is held.
func (r *run) apply(now time.Time, ev turn.Event) {
	if r.over {
		return
	}
	if q := r.queue; q != nil { // an effect speaks: what follows waits its turn
		q.effects = r.turn.Step(q.effects, now, ev)
		return
	}
	q := queues.Get().(*queue)
	q.effects = r.turn.Step(q.effects, now, ev)
	r.carry(now, q)
}

// carry carries out effects, and those that follow from them.
func (r *run) carry(now time.Time, q *queue) {
	r.queue = q
	for i := 0; i < len(q.effects); i++ {
		r.do(now, &q.effects[i])
	}
	r.queue = nil
	clear(q.effects)
	if q.effects = q.effects[:0]; cap(q.effects) <= maxQueue {
		queues.Put(q)
	}
	r.wake(now)
}

// do carries out one effect. One that fails becomes an event in its turn.
func (r *run) do(now time.Time, do *turn.Effect) {
	switch do.Kind {
	case turn.Send:
		j := r.job(do.Call)
		if f := j.send(now, do); f != nil {
			j.fail(now, f)
		}
	case turn.Stop:
		j := r.job(do.Call)
		if f := j.stop(); f != nil {
			j.fail(now, f)
		}
	case turn.Ended:
		r.job(do.Call).ended(now, do)
	case turn.Record:
		r.record(now, do.Record)
	case turn.Finish:
		r.finish(do.Outcome)
	case turn.KeepLate:
		r.keep(now, do.Result)
	case turn.Over:
		r.end()
	}
}

// job is what is kept of a call, made when it is first asked for.
func (r *run) job(call int) *job {
	if n := r.turn.Len() - len(r.jobs); n > 0 {
		r.jobs = append(r.jobs, make([]*job, n)...)
	}
	if j := r.jobs[call]; j != nil {
		return j
	}
	j := &r.first
	if call > 0 {
		if len(r.blank) == 0 {
			r.blank = make([]job, min(r.turn.Len()-1, jobBlock))
		}
		j, r.blank = &r.blank[0], r.blank[1:]
	}
	j.run, j.call = r, int32(call)
	r.jobs[call] = j
	return j
}

// jobBlock is how many jobs are made at once, at most.
const jobBlock = 16

// wake sets the alarm to when the turn wants to be woken.
func (r *run) wake(now time.Time) {
	at := r.turn.Wake()
	if at.Equal(r.wakeAt) {
		return
	}
	if !r.wakeAt.IsZero() && !r.alarm.timer.Stop() {
		r.alarm = nil // it goes off right now: let go
	}
	switch {
	case at.IsZero():
		r.e.disarm(r.alarm)
		r.alarm = nil
	case r.alarm == nil:
		r.alarm = r.e.arm(r, at.Sub(now))
	default:
		r.alarm.timer.Reset(at.Sub(now))
	}
	r.wakeAt = at
}

// finish hands over the outcome. Where nothing is out any more the run has left before: its caller may use its id again.
func (r *run) finish(out *wire.Outcome) {
	r.settle(r.calls - len(out.Running))
	r.e.ending.Add(1)
	defer r.e.ending.Done()
	if slices.ContainsFunc(r.queue.effects, func(do turn.Effect) bool { return do.Kind == turn.Over }) {
		r.end()
	}
	r.done(out)
}

// settle takes n calls off the executor's count.
func (r *run) settle(n int) {
	r.calls -= n
	r.e.calls.Add(-int64(n))
}

// keep has a late result kept, away from whoever brought it.
func (r *run) keep(now time.Time, res *tool.Result) {
	if r.calls > 0 {
		r.settle(1)
	}
	j := r.e.cfg.Journal
	if j == nil {
		return
	}
	rec := &wire.LateRecord{V: wire.Version, Turn: r.req.ID, Session: r.req.Session, Time: stamp(now), Result: res}
	log := r.e.log.With("turn", rec.Turn, "call", res.Call)
	size := int64(len(res.Value))
	if r.e.keeping.Add(size) > maxKeeping {
		r.e.keeping.Add(-size)
		log.Error("a late result was not kept: those that were being kept were too large", "bytes", size)
		return
	}
	if !r.e.keeps.run(func() {
		defer r.e.keeping.Add(-size)
		ctx, cancel := context.WithTimeout(r.e.life, keepTimeout)
		defer cancel()
		if err := j.Keep(ctx, rec); err != nil {
			log.Error("a late result was not kept", "error", err)
		}
	}) {
		r.e.keeping.Add(-size)
		log.Error("a late result was not kept: too many others were being kept")
	}
}

const (
	keepTimeout = 30 * time.Second // to keep one late result
	maxKeeping  = 4 * wire.MaxBlob // bytes of values that are being kept at once
)

// end is the end of the run. It may be said twice.
func (r *run) end() {
	if r.over {
		return
	}
	r.over = true
	if r.trace != nil {
		r.trace.Over()
	}
	r.settle(r.calls)
	r.e.leave(r)
}

// record completes an event of the turn and shows it.
func (r *run) record(now time.Time, ev *wire.Event) {
	switch ev.Type {
	case wire.TurnStarted:
		ev.Executor, ev.Traceparent = r.e.ID(), wire.Get(r.header, wire.HeaderTraceparent)
	case wire.AttemptStarted:
		if call, ok := r.turn.Find(ev.Call); ok {
			ev.Worker = r.job(call).worker()
		}
	}
	r.show(now, ev)
}

// show gives an event its number and shows it to who wants to see it.
func (r *run) show(now time.Time, ev *wire.Event) {
	r.seq++
	ev.V, ev.Seq, ev.Turn, ev.Time = wire.Version, r.seq, r.req.ID, stamp(now)
	if j := r.e.cfg.Journal; j != nil {
		j.Write(ev)
	}
	if o := r.e.cfg.Observer; o != nil {
		o.Event(ev)
	}
	if r.trace != nil {
		r.trace.Event(ev)
	}
	if r.observer != nil {
		r.observer.Event(ev)
	}
}

// at is a time as events have it, in milliseconds since the start.
func (r *run) at(now time.Time) float64 { return float64(now.Sub(r.began).Microseconds()) / 1000 }

// stamp is a time as records have it.
func stamp(now time.Time) string { return now.UTC().Format(time.RFC3339Nano) }
