package executor

import (
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// A job is one call of a run: the attempts at it. It is under the run's lock, but for run and call, which never change.
type job struct {
	run    *run
	call   int32 // its index
	asked  bool  // pass is to be reported
	failed bool  // a failure of this call was reported to gate

	// Of the tool that is asked now: the call's own, or an alternative.
	ready *ready
	gate  *gate
	args  []byte
	blob  string // the claim check of args that do not fit a message

	now   *attempt // the attempt that is out; nil between attempts
	first attempt  // most calls need no other
	pass  pass
}

// An attempt is one try as the bus sees it. Its fields are under the run's lock, except what never changes.
type attempt struct {
	job    *job
	ready  *ready // of the tool that was asked
	n      int
	sent   time.Duration // since the executor was born
	ticket bus.Ticket

	peer     *peer       // who has it; nil where nobody said yet
	direct   bool        // sent to that worker by choice
	reported bool        // the worker itself said how it ended
	out      bool        // sent, and not refused: somebody may have it
	fetching bool        // its answer came and is being fetched or checked: nothing else counts any more
	heard    atomic.Bool // a frame came
	denied   atomic.Bool // the worker, asked about it, did not know it
	events   *events     // nil where nothing happened on its way
	key      string      // the caller's idempotency key
	head     [2]string   // what its headers Tb-Call and Tb-Timeout-Ms say
}

// events are what most attempts do not see.
type events struct {
	bounces int     // refusals so far
	tried   []*peer // who refused it
	waits   int     // how often all workers were full
	pieces  int     // bytes of the pieces that came
	news    news
}

func (a *attempt) seen() *events {
	if a.events == nil {
		a.events = new(events)
	}
	return a.events
}

// ref is its wire.CallRef.
func (a *attempt) ref() string { return a.head[0] }

func (j *job) index() int { return int(j.call) }

// id is the call's.
func (j *job) id() string { return j.run.turn.Call(j.index()).ID }

// maxWait bounds how long a tool may ask all executors to wait.
const maxWait = time.Hour

// maxBounces is how many workers may refuse one attempt before the refusal counts as its failure.
const maxBounces = 8

// tool is the name of the tool that was asked.
func (a *attempt) tool() string { return a.ready.tool.Name }

// begin makes the attempt that do asks for.
func (j *job) begin(now time.Time, do *turn.Effect) *attempt {
	a := &j.first
	if a.n > 0 {
		a = new(attempt)
	}
	a.job, a.ready, a.n, a.sent, a.key = j, j.ready, do.Attempt, now.Sub(j.run.e.born), do.Key
	a.head[0] = wire.CallRef{Turn: j.run.req.ID, Call: j.id(), Attempt: do.Attempt}.String()
	a.limit(do.Timeout)
	a.ready.state.tally.out.Add(1)
	j.now = a
	return a
}

// turnTo makes do's tool the one that is asked.
func (j *job) turnTo(do *turn.Effect) {
	rd, e := do.Tool.Shell.(*ready), j.run.e
	e.keep(rd.state)
	j.ready, j.args, j.blob, j.failed = rd, do.Args, "", false
	j.gate = e.gates.gate(keyOf(rd.tool.Name, do.BreakerKey), rd.breaker)
}

// check says what is wrong with the arguments before anything runs.
func (j *job) check() *fault.Fault {
	if j.ready.compiled != nil {
		return j.ready.compiled.CheckArgs(j.args)
	}
	if _, f := tool.ParseArgs(j.args); f != nil {
		return f
	}
	return nil
}

// workers are the live workers of the tool.
func (j *job) workers() []*registry.Instance {
	if t := j.run.e.cat.Tool(j.ready.tool.Name); t != nil {
		return t.Workers
	}
	return nil
}

// worker is who has the attempt that is out, where it is known.
func (j *job) worker() string {
	if a := j.now; a != nil && a.peer != nil {
		return a.peer.id
	}
	return ""
}

// fail brings it to the turn that the attempt that is out has failed.
func (j *job) fail(now time.Time, f *fault.Fault) {
	j.apply(now, turn.Event{Kind: turn.Failed, Fault: f})
}

// apply brings an event of the attempt that is out, or was out last, to the turn.
func (j *job) apply(now time.Time, ev turn.Event) {
	ev.Call, ev.Attempt = j.index(), j.run.turn.Attempt(j.index())
	j.run.apply(now, ev)
}

// ended carries out turn.Ended: the attempt is over, and worker and breaker are told of.
func (j *job) ended(now time.Time, do *turn.Effect) {
	rep := breaker.Report{}
	worked := do.Verdict == nil && (do.Status == tool.Success || do.Status == tool.ViaFallback)
	if worked {
		rep.Outcome = breaker.Success
	}
	if v := do.Verdict; v != nil {
		rep.Inferred = true
		if v.Breaker {
			rep.Outcome = breaker.Failure
		}
		if do.Fault.Kind == fault.RateLimited {
			rep.Wait = min(do.Fault.RetryAfter(), maxWait)
		}
	}
	if a := j.now; a != nil {
		rep.Inferred, rep.Took = rep.Inferred && !a.reported, now.Sub(j.run.e.born)-a.sent
		if a.peer != nil && a.direct { // who was not chosen may have given another's name
			switch {
			case worked:
				a.peer.ended(now, "")
			case do.Verdict != nil:
				a.peer.ended(now, do.Fault.Kind)
			}
		}
		a.count(do, rep.Took)
		a.release()
		j.now = nil
	}
	j.report(now, rep)
	if do.Verdict != nil {
		j.apply(now, turn.Event{Kind: turn.Judged, Circuit: j.gate.view(now).State, Budget: j.ready.state.budget.Left(now)})
	}
}

// report tells the breaker how the attempt ended that was let through.
func (j *job) report(now time.Time, rep breaker.Report) {
	if !j.asked {
		return
	}
	j.asked = false
	if rep.Outcome == breaker.Failure {
		if j.failed && j.pass.probe == nil && j.gate.policy.Load().Distinct {
			rep.Outcome = breaker.Neutral
		}
		j.failed = true
	}
	if tr, changed := j.gate.report(now, &j.pass, rep, j.run.req.ID); changed {
		j.changed(now, tr)
	}
}

// changed tells people that a tool's breaker is in another state.
func (j *job) changed(now time.Time, tr breaker.Transition) {
	name := j.ready.tool.Name
	j.run.e.log.Warn(tr.Event(name), "from", tr.From.String(), "to", tr.To.String(), "why", tr.Why)
	if j.run.recorded {
		j.run.show(now, &wire.Event{
			Type: wire.BreakerChanged, AtMs: j.run.at(now), Call: j.id(), Tool: name, BreakerState: tr.To.String(), Decision: tr.Event(name), Because: tr.Why,
		})
	}
}

// hold puts the attempt on a worker's account, and under the watch.
func (a *attempt) hold(p *peer) {
	e := a.job.run.e
	for !p.hold(a) {
		p = e.peers.get(p.id)
	}
	a.peer = p
	e.watch.need()
}

// release takes the attempt off the bus and off its worker's account.
func (a *attempt) release() {
	a.ticket.Close()
	if a.peer != nil {
		a.peer.release(a)
	}
}
