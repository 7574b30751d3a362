package executor

import (
	"fmt"
	"strconv"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// send carries out turn.Send: ask the breaker, choose a worker, publish.
func (r *run) send(now time.Time, do *turn.Effect) *fault.Fault {
	if do.Attempt > 1 && !r.state.budget.Withdraw(now) {
		return fault.New(fault.Overloaded, retry.BudgetSpent)
	}
	a := &r.first
	if do.Attempt > 1 {
		a = new(attempt)
	}
	a.run, a.n, a.sent = r, do.Attempt, now
	a.ref = wire.CallRef{Turn: r.id, Call: r.call.ID, Attempt: do.Attempt}.String()
	a.limit(do.Timeout)
	r.now = a
	switch answer := r.gate.admit(now, &r.pass); {
	case answer == breaker.Pass:
		return r.launch(now, a)
	case answer == breaker.Ask && r.gate.ask(a.let):
		return nil
	}
	return r.circuitOpen(now)
}

// limit is what the worker is told of the time it has.
func (a *attempt) limit(d time.Duration) {
	a.head = [2]string{a.ref, strconv.FormatInt(max(d.Milliseconds(), 1), 10)}
}

// let is the answer to an attempt that asked to be let through as a probe. It says whether the attempt goes.
func (a *attempt) let(p pass, ok bool) bool {
	r := a.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.now != a {
		return false
	}
	now := time.Now()
	if !ok || p.probe != nil && !p.probe.until.After(now) { // held up for so long that another may be the probe by now
		r.apply(now, turn.Event{Kind: turn.Failed, Attempt: a.n, Fault: r.circuitOpen(now)})
		return false
	}
	r.pass = p
	if p.probe != nil {
		if left := p.probe.until.Sub(now) - r.e.cfg.Grace; left < r.turn.Left(now) {
			a.limit(left) // a probe ends before its lease does
			r.apply(now, turn.Event{Kind: turn.Limited, Attempt: a.n, Timeout: left})
		}
	}
	if f := r.launch(now, a); f != nil {
		r.apply(now, turn.Event{Kind: turn.Failed, Attempt: a.n, Fault: f})
	}
	return true // what was let through is reported, whatever became of it
}

// launch sends an attempt that was let through.
func (r *run) launch(now time.Time, a *attempt) *fault.Fault {
	r.asked = true
	if tr, changed := r.pass.local.Transition(); changed {
		r.changed(now, tr)
	}
	if len(r.call.Args) > r.e.bus.Inline() && r.blob == "" {
		r.e.store(a, r.call.Args)
		return nil
	}
	return r.publish(now, a, nil)
}

// circuitOpen is the fault of an attempt that was not let through.
func (r *run) circuitOpen(now time.Time) *fault.Fault {
	v := r.gate.view(now)
	kind, state := fault.CircuitOpen, v.State.String()
	f := fault.New(kind, "the circuit breaker of %s is %s (%s)", r.call.Tool, state, v.Reason)
	switch {
	case v.State == breaker.Closed && v.RetryIn > 0:
		f = fault.New(fault.RateLimited, "%s is not called: %s", r.call.Tool, v.Reason)
	case v.State == breaker.HalfOpen:
		f = fault.New(kind, "the circuit breaker of %s is half-open, and another call is its probe", r.call.Tool)
	}
	if v.RetryIn > 0 {
		f.Message += fmt.Sprintf("; a call may try again in %v", v.RetryIn.Round(time.Millisecond))
	}
	f.RetryAfterMs = v.RetryIn.Milliseconds()
	return f
}

// report tells the breaker how the attempt ended that was let through.
func (r *run) report(now time.Time, rep breaker.Report) {
	if !r.asked {
		return
	}
	r.asked = false
	if rep.Outcome == breaker.Failure {
		if r.failed && r.pass.probe == nil && r.gate.policy.Load().Distinct {
			rep.Outcome = breaker.Neutral
		}
		r.failed = true
	}
	if tr, changed := r.gate.report(now, &r.pass, rep, r.id); changed {
		r.changed(now, tr)
	}
}

// changed tells people that the tool's breaker is in another state.
func (r *run) changed(now time.Time, tr breaker.Transition) {
	r.e.log.Warn(tr.Event(r.call.Tool), "from", tr.From.String(), "to", tr.To.String(), "why", tr.Why)
	r.emit(now, &wire.Event{Type: wire.BreakerChanged, BreakerState: tr.To.String(), Decision: tr.Event(r.call.Tool), Because: tr.Why})
}
