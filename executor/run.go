package executor

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// A run is one call on its way. Everything below mu is under it.
type run struct {
	e        *Executor
	id       string // of the turn
	call     tool.Call
	session  string
	header   wire.Header
	began    time.Time
	done     func(tool.Result)
	observer Observer

	mu     sync.Mutex
	turn   turn.Turn
	state  *toolState
	ready  *ready
	timer  *time.Timer
	now    *attempt // the attempt that is out; nil between attempts
	first  attempt  // most runs need no other
	blob   string   // the claim check of arguments that do not fit a message
	gate   *gate
	pass   pass
	asked  bool // pass is to be reported
	failed bool // a failure of this call was reported
	over   bool
	seq    int64
}

// An attempt is one try as the bus sees it. Its fields are under the run's lock, except what never changes.
type attempt struct {
	run    *run
	n      int
	ref    string // its wire.CallRef
	sent   time.Time
	ticket bus.Ticket

	peer     *peer       // who has it; nil where nobody said yet
	direct   bool        // sent to that worker by choice
	reported bool        // the worker itself said how it ended
	out      bool        // sent, and not refused: somebody may have it
	fetching bool        // its answer came and is being fetched or checked: nothing else counts any more
	heard    atomic.Bool // a frame came
	denied   atomic.Bool // the worker, asked about it, did not know it
	bounces  int         // refusals so far
	tried    []*peer     // who refused it
	waits    int         // how often all workers were full
	pieces   int         // bytes of the pieces that came
	news     news
	head     [2]string // what its headers Tb-Call and Tb-Timeout-Ms say
}

// maxWait bounds how long a tool may ask all executors to wait.
const maxWait = time.Hour

// maxBounces is how many workers may refuse one attempt before the refusal counts as its failure.
const maxBounces = 8

// start checks the call and sends its first attempt. r.mu is held.
func (r *run) start(now time.Time, deadline time.Duration) {
	if deadline <= 0 {
		deadline = r.e.cfg.TurnTimeout
	}
	if err := tool.CheckName(r.call.Tool); err != nil {
		r.refuse(now, fault.New(fault.ToolNotFound, "%v", err))
		return
	}
	if len(r.call.Args) == 0 {
		r.call.Args = []byte("{}")
	}
	r.state, r.ready = r.e.tool(r.call.Tool, r.e.cat.Tool(r.call.Tool))
	r.gate = r.e.gates.gate(keyOf(r.call.Tool, r.call.BreakerKey), r.ready.breaker)
	if r.observed() { // an event is made only where somebody looks
		r.emit(now, &wire.Event{Type: wire.TurnStarted, Executor: r.e.ID()})
	}
	if f := r.check(); f != nil {
		r.refuse(now, f)
		return
	}
	policy := &r.ready.policy
	if r.call.Retry != nil {
		policy = new(retry.Merge(*policy, r.call.Retry))
	}
	timeout := r.ready.timeout
	if r.call.TimeoutMs > 0 {
		timeout = time.Duration(r.call.TimeoutMs) * time.Millisecond
	}
	r.state.budget.Deposit(now)
	r.carry(now, r.turn.Start(now, turn.Plan{
		Call: r.call.ID, Tool: r.call.Tool,
		Timeout: timeout, Idle: r.ready.idle, Grace: r.e.cfg.Grace, Deadline: now.Add(deadline),
		Policy: policy, Seed: seed(r.id), Effect: r.ready.effect, KeepsKeys: r.ready.keeps, Overrides: r.ready.overrides,
	}))
}

// check says what is wrong with the call before anything runs.
func (r *run) check() *fault.Fault {
	if r.call.TimeoutMs < 0 || r.call.TimeoutMs > maxTimeoutMs {
		return fault.New(fault.InvalidArguments, "timeout_ms: expected 1 to %d, got %d", maxTimeoutMs, r.call.TimeoutMs)
	}
	if r.ready.compiled != nil {
		return r.ready.compiled.CheckArgs(r.call.Args)
	}
	_, f := tool.ParseArgs(r.call.Args)
	return f
}

const maxTimeoutMs = 24 * 60 * 60 * 1000

// seed makes jitter differ from turn to turn and be the same for each turn.
func seed(turn string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(turn))
	return h.Sum64()
}

// refuse ends a run that sends nothing.
func (r *run) refuse(now time.Time, f *fault.Fault) {
	f.Tool = r.call.Tool
	if f.Kind == fault.ToolNotFound {
		r.suggest(f)
	}
	r.emit(now, &wire.Event{
		Type: wire.ToolError, Error: f, Classification: string(f.Spec().Class),
		Decision: string(recovery.Fail), Because: "it was not sent",
	})
	r.finish(now, &tool.Result{
		Call: r.call.ID, Tool: r.call.Tool, Status: tool.Failed, Fault: f, Sentence: f.Message,
		DurationMs: float64(now.Sub(r.began).Microseconds()) / 1000,
	})
}

// suggest puts the names that come near onto a tool_not_found.
func (r *run) suggest(f *fault.Fault) {
	near := r.e.cat.Nearest(r.call.Tool)
	if len(near) == 0 {
		return
	}
	f.Suggestions = nil
	for _, name := range near {
		f.Suggestions = append(f.Suggestions, "did you mean "+name+"?")
	}
}

// cancel tells the run that its caller wants no result.
func (r *run) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.apply(time.Now(), turn.Event{Kind: turn.CancelCall})
}

// due is the timer's.
func (r *run) due() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.apply(now, turn.Event{Kind: turn.Due, Budget: r.state != nil && r.state.budget.Left(now)})
}

// apply takes an event to the turn and carries out what it asks for.
func (r *run) apply(now time.Time, ev turn.Event) {
	if r.over || r.state == nil {
		return
	}
	if ev.Kind == turn.Failed {
		ev.Budget = r.state.budget.Left(now)
	}
	r.carry(now, r.turn.Step(now, ev))
}

// carry carries out effects. One that fails becomes an event in its turn.
func (r *run) carry(now time.Time, effects []turn.Effect) {
	var failed *fault.Fault
	for i := range effects {
		do := &effects[i]
		switch do.Kind {
		case turn.Send:
			failed = r.send(now, do)
		case turn.Stop:
			failed = r.stop()
		case turn.Wake:
			r.wake(now, do.At)
		case turn.Errored:
			r.errored(now, do)
		case turn.Finish:
			r.finish(now, do.Result)
		}
	}
	if failed != nil {
		r.apply(now, turn.Event{Kind: turn.Failed, Attempt: r.turn.Attempt(), Fault: failed})
	}
}

func (r *run) wake(now, at time.Time) {
	d := at.Sub(now)
	if r.timer == nil {
		r.timer = time.AfterFunc(d, r.due)
		return
	}
	r.timer.Reset(d)
}

// publish sends the attempt to the worker with the least to do, or to the queue group where none is known.
func (r *run) publish(now time.Time, a *attempt, tried []*peer) *fault.Fault {
	h := r.head(a)
	body := []byte(r.call.Args)
	if r.blob != "" {
		h[wire.HeaderBlob], body = []string{r.blob}, nil
	}
	a.ticket = r.e.bus.Open(r.call.Tool, a)
	subject := r.state.subject
	if p := r.e.peers.pick(now, r.workers(), tried); p != nil {
		subject, a.direct = r.e.bus.Subjects().To(p.id), true
		h[wire.HeaderTool] = []string{r.call.Tool}
		r.hold(a, p)
	}
	if r.observed() {
		ev := &wire.Event{Type: wire.AttemptStarted, Attempt: a.n}
		if a.peer != nil {
			ev.Worker = a.peer.id
		}
		r.emit(now, ev)
	}
	if f := r.e.bus.Send(a.ticket, subject, h, body); f != nil {
		r.release(a)
		return f
	}
	a.out = true
	return nil
}

// workers are the live workers of the tool.
func (r *run) workers() []*registry.Instance {
	if t := r.e.cat.Tool(r.call.Tool); t != nil {
		return t.Workers
	}
	return nil
}

// head is the headers of an attempt: two on a plain call.
func (r *run) head(a *attempt) wire.Header {
	h := make(wire.Header, 4+len(r.header))
	h[wire.HeaderCall] = a.head[:1:1]
	h[wire.HeaderTimeout] = a.head[1:]
	if r.call.Key != "" {
		h[wire.HeaderKey] = []string{r.call.Key}
	}
	if r.session != "" {
		h[wire.HeaderSession] = []string{r.session}
	}
	for k, v := range r.header {
		h[k] = v
	}
	return h
}

// hold puts the attempt on a worker's account, and under the watch.
func (r *run) hold(a *attempt, p *peer) {
	for !p.hold(a) {
		p = r.e.peers.get(p.id)
	}
	a.peer = p
	r.e.watch.need()
}

// release takes the attempt off the bus and off its worker's account.
func (r *run) release(a *attempt) {
	a.ticket.Close()
	if a.peer != nil {
		a.peer.release(a)
	}
}

// stop tells the attempt's worker to stop; where the worker is not known, all workers of the tool. The fault is that of an
// attempt that nobody has: there is no answer to wait for. A cancel asks for no reply: else the server's word that nobody
// hears the cancel would look as if nobody had heard the call.
func (r *run) stop() *fault.Fault {
	a := r.now
	switch {
	case a == nil:
		return nil
	case !a.out:
		return &fault.Fault{Kind: fault.Unavailable, Message: "it was not sent", Execution: fault.NotStarted}
	}
	subject := r.e.bus.Subjects().Cancel(r.call.Tool)
	if a.peer != nil {
		subject = r.e.bus.Subjects().To(a.peer.id)
	}
	h := wire.Header{
		wire.HeaderFrame: {string(wire.Cancel)},
		wire.HeaderCall:  {a.ref},
	}
	if f := r.e.bus.Publish(subject, h, nil); f != nil {
		r.e.log.Warn("cancel was not sent", "tool", r.call.Tool, "turn", r.id, "why", f.Message)
	}
	return nil
}

// errored carries out turn.Errored: the attempt is over, and the breaker and the journal are told.
func (r *run) errored(now time.Time, do *turn.Effect) {
	rep := breaker.Report{Inferred: true}
	if do.Verdict.Breaker {
		rep.Outcome = breaker.Failure
	}
	if do.Fault.Kind == fault.RateLimited {
		rep.Wait = min(do.Fault.RetryAfter(), maxWait)
	}
	if a := r.now; a != nil {
		rep.Inferred, rep.Took = !a.reported, now.Sub(a.sent)
		if a.peer != nil && a.direct { // who was not chosen may have given another's name
			a.peer.ended(now, do.Fault.Kind)
		}
		r.release(a)
		r.now = nil
	}
	r.report(now, rep)
	if !r.observed() {
		return
	}
	r.emit(now, &wire.Event{
		Type: wire.ToolError, Attempt: do.Attempt, Worker: do.Fault.Worker, Error: do.Fault,
		Classification: string(do.Verdict.Class), BreakerState: r.gate.view(now).State.String(),
		RetryCount: do.Attempt - 1, Decision: string(do.Decision.Action), Because: do.Decision.Because,
		DelayMs: float64(do.Decision.After.Microseconds()) / 1000,
	})
	if do.Decision.Action == recovery.Retry {
		r.emit(now, &wire.Event{
			Type: wire.RetryScheduled, Attempt: do.Attempt + 1, Because: do.Decision.Because,
			DelayMs: float64(do.Decision.After.Microseconds()) / 1000,
		})
	}
}

// finish is the end of the run, and happens once.
func (r *run) finish(now time.Time, res *tool.Result) {
	if r.over {
		return
	}
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
	rep := breaker.Report{}
	if res.Status == tool.Success {
		rep.Outcome = breaker.Success
	}
	if a := r.now; a != nil {
		rep.Took = now.Sub(a.sent)
		if res.Status == tool.Success && a.peer != nil && a.direct {
			a.peer.ended(now, "")
		}
		r.release(a)
		r.now = nil
	}
	r.report(now, rep)
	if r.observed() {
		settled := *res // the event is the observer's to keep, and the run shall not be kept with it
		r.emit(now, &wire.Event{Type: wire.CallSettled, Result: &settled})
		r.emit(now, &wire.Event{Type: wire.TurnEnded, Outcome: &wire.Outcome{
			Turn: r.id, Status: outcomeOf(res.Status), Results: []tool.Result{*res},
			Sentence: res.Sentence, DurationMs: res.DurationMs,
		}})
	}
	r.e.ending.Add(1)
	r.e.leave(r)
	r.done(*res)
	r.e.ending.Done()
}

// outcomeOf is the status of a turn of one call.
func outcomeOf(s tool.Status) string {
	switch s {
	case tool.Success, tool.ViaFallback, tool.Defaulted:
		return "completed"
	case tool.PartialValue:
		return "partial"
	case tool.Cancelled:
		return "cancelled"
	case tool.TimedOut:
		return "timed_out"
	}
	return "escalated"
}

func (r *run) observed() bool { return r.observer != nil || r.e.cfg.Observer != nil }

// emit numbers an event and shows it to who wants to see it.
func (r *run) emit(now time.Time, ev *wire.Event) {
	if !r.observed() {
		return
	}
	r.seq++
	ev.V, ev.Seq, ev.Turn, ev.Call, ev.Tool = wire.Version, r.seq, r.id, r.call.ID, r.call.Tool
	ev.AtMs = float64(now.Sub(r.began).Microseconds()) / 1000
	ev.Time = now.UTC().Format(time.RFC3339Nano)
	if o := r.e.cfg.Observer; o != nil {
		o.Event(ev)
	}
	if r.observer != nil {
		r.observer.Event(ev)
	}
}

// store puts arguments that do not fit a message under a claim check, away from whoever called.
func (e *Executor) store(a *attempt, args []byte) {
	e.fetches.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
		defer cancel()
		ref, f := e.bus.PutBlob(ctx, args, blobTTL)
		r := a.run
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.over || r.now != a {
			return
		}
		now := time.Now()
		if f == nil {
			r.blob = ref.String()
			f = r.publish(now, a, nil)
		} else {
			f.Execution = fault.NotStarted
			r.report(now, breaker.Report{}) // the store's failure says nothing of the tool
		}
		if f != nil {
			r.apply(now, turn.Event{Kind: turn.Failed, Attempt: a.n, Fault: f})
		}
	})
}

const (
	blobTimeout = 10 * time.Second // to store or fetch one claim check
	blobTTL     = time.Hour        // longer than any retry of a call
)
