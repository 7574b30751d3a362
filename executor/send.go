package executor

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// send carries out turn.Send: look at the arguments, ask the breaker, choose a worker, publish.
func (j *job) send(now time.Time, do *turn.Effect) *fault.Fault {
	if !do.Retry {
		j.turnTo(do)
	}
	a := j.begin(now, do)
	if j.run.turn.Stopping(j.index()) { // what came before it in the queue stopped the turn: its Stop follows
		return nil
	}
	if f := j.allow(now, do.Retry); f != nil {
		return f
	}
	switch j.gate.enter(now, &j.pass, a) {
	case breaker.Pass:
		return j.launch(now, a)
	case breaker.Ask:
		return nil
	}
	return j.circuitOpen(now)
}

// allow says what keeps an attempt from being made at all: arguments that do not fit, or a budget that is used up.
func (j *job) allow(now time.Time, again bool) *fault.Fault {
	if again {
		if !j.ready.state.budget.Withdraw(now) {
			return fault.New(fault.Overloaded, retry.BudgetSpent)
		}
		return nil
	}
	if f := j.check(); f != nil {
		return f
	}
	j.ready.state.budget.Deposit(now)
	return nil
}

// limit is what the worker is told of the time it has.
func (a *attempt) limit(d time.Duration) {
	if d == a.ready.tool.Timeout {
		a.head[1] = a.ready.timeout
		return
	}
	a.head[1] = millis(d)
}

// millis is d as the header Tb-Timeout-Ms has it.
func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// launch sends an attempt that was let through.
func (j *job) launch(now time.Time, a *attempt) *fault.Fault {
	j.asked = true
	if tr, changed := j.pass.local.Transition(); changed {
		j.changed(now, tr)
	}
	if len(j.args) > j.run.e.bus.Inline() && j.blob == "" {
		a.store(j.args)
		return nil
	}
	return a.publish(now, nil)
}

// publish sends the attempt to the worker with the least to do, or to the queue group where none is known. What was held up
// on its way, by a breaker, a store or workers that refused it, until its turn had ended is not sent any more.
func (a *attempt) publish(now time.Time, tried []*peer) *fault.Fault {
	j, e := a.job, a.job.run.e
	if j.run.turn.Ended() {
		f := fault.New(fault.Deadline, "the turn's deadline passed before %s was sent", a.tool())
		f.Execution = fault.NotStarted
		return f
	}
	h := headers.Get().(wire.Header)
	defer func() {
		clear(h)
		headers.Put(h)
	}()
	a.header(h)
	body := j.args
	if j.blob != "" {
		h[wire.HeaderBlob], body = []string{j.blob}, nil
	}
	subject := a.ready.state.subject
	if p := e.peers.pick(now, j.workers(), tried); p != nil {
		subject, a.direct = p.subject, true
		h[wire.HeaderTool] = a.ready.state.named
		a.hold(p)
	}
	ticket, f := e.bus.Ask(subject, a.tool(), a, h, body)
	a.ticket = ticket
	if f != nil {
		a.release()
		return f
	}
	a.out = true
	return nil
}

// headers are maps for the headers of attempts: the bus keeps none.
var headers = sync.Pool{New: func() any { return make(wire.Header, 8) }}

// header puts the headers of an attempt into h: two on a plain call.
func (a *attempt) header(h wire.Header) {
	r := a.job.run
	h[wire.HeaderCall] = a.head[:1:1]
	h[wire.HeaderTimeout] = a.head[1:]
	if a.key != "" {
		h[wire.HeaderKey] = []string{a.key}
	}
	if s := r.req.Session; s != "" {
		h[wire.HeaderSession] = []string{s}
	}
	maps.Copy(h, a.traced())
}

// store puts arguments that do not fit a message under a claim check, away from whoever called.
func (a *attempt) store(args []byte) {
	j, e := a.job, a.job.run.e
	e.fetches.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
		defer cancel()
		ref, f := e.bus.PutBlob(ctx, args, blobTTL)
		j.run.mu.Lock()
		defer j.run.mu.Unlock()
		if j.now != a {
			return
		}
		now := time.Now()
		if f == nil {
			j.blob = ref.String()
			f = a.publish(now, nil)
		} else {
			f.Execution = fault.NotStarted
			j.report(now, breaker.Report{}) // the store's failure says nothing of the tool
		}
		if f != nil {
			j.fail(now, f)
		}
	})
}

const (
	blobTimeout = 10 * time.Second // to store or fetch one claim check
	blobTTL     = time.Hour        // longer than any retry of a call
)

// stop tells the attempt's worker to stop; where the worker is not known, all workers of the tool. The fault is that of an
// attempt that nobody has: there is no answer to wait for. A cancel asks for no reply: else the server's word that nobody
// hears the cancel would look as if nobody had heard the call.
func (j *job) stop() *fault.Fault {
	a, e := j.now, j.run.e
	switch {
	case a == nil:
		return nil
	case !a.out:
		return &fault.Fault{Kind: fault.Unavailable, Message: "it was not sent", Execution: fault.NotStarted}
	}
	subject := e.bus.Subjects().Cancel(a.tool())
	if a.peer != nil {
		subject = e.bus.Subjects().To(a.peer.id)
	}
	h := wire.Header{
		wire.HeaderFrame: {string(wire.Cancel)},
		wire.HeaderCall:  {a.ref()},
	}
	if f := e.bus.Publish(subject, h, nil); f != nil {
		e.log.Warn("cancel was not sent", "tool", a.tool(), "turn", j.run.req.ID, "why", f.Message)
	}
	return nil
}
