package executor

import (
	"fmt"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/turn"
)

// let is the answer to an attempt that asked to be let through as a probe. It says whether the attempt goes.
func (a *attempt) let(p pass, ok bool) bool {
	j, r := a.job, a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if j.now != a {
		return false
	}
	now := time.Now()
	if !ok || p.probe != nil && !p.probe.until.After(now) { // held up for so long that another may be the probe by now
		j.fail(now, j.circuitOpen(now))
		return false
	}
	j.pass = p
	if p.probe != nil {
		if left := p.probe.until.Sub(now) - r.e.cfg.Grace; left < r.turn.Left(j.index(), now) {
			a.limit(left) // a probe ends before its lease does
			j.apply(now, turn.Event{Kind: turn.Limited, Timeout: left})
		}
	}
	if f := j.launch(now, a); f != nil {
		j.fail(now, f)
	}
	return true // what was let through is reported, whatever became of it
}

// circuitOpen is the fault of an attempt that was not let through.
func (j *job) circuitOpen(now time.Time) *fault.Fault {
	v, name := j.gate.view(now), j.ready.tool.Name
	kind, state := fault.CircuitOpen, v.State.String()
	f := fault.New(kind, "the circuit breaker of %s is %s (%s)", name, state, v.Reason)
	switch {
	case v.State == breaker.Closed && v.RetryIn > 0:
		f = fault.New(fault.RateLimited, "%s is not called: %s", name, v.Reason)
	case v.State == breaker.HalfOpen:
		f = fault.New(kind, "the circuit breaker of %s is half-open, and another call is its probe", name)
	}
	if v.RetryIn > 0 {
		f.Message += fmt.Sprintf("; a call may try again in %v", v.RetryIn.Round(time.Millisecond))
	}
	f.RetryAfterMs = v.RetryIn.Milliseconds()
	return f
}
