package client

import (
	"slices"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A round is some calls whose results are waited for together. It belongs to its turn's lock until it is done.
type round struct {
	at      map[string]int // where the result of a call goes that has none yet
	results []tool.Result
	fault   *fault.Fault  // why they will not come
	done    chan struct{} // closed when all have come, or will not
}

func newRound(calls []tool.Call) *round {
	r := &round{
		at:      make(map[string]int, len(calls)),
		results: make([]tool.Result, len(calls)),
		done:    make(chan struct{}),
	}
	for i, c := range calls {
		r.at[c.ID] = i
	}
	if len(calls) == 0 {
		close(r.done)
	}
	return r
}

// settle takes a result in.
func (r *round) settle(res tool.Result) {
	i, ok := r.at[res.Call]
	if !ok {
		return
	}
	r.results[i] = res
	delete(r.at, res.Call)
	if len(r.at) == 0 {
		close(r.done)
	}
}

// fail gives up on what is still missing.
func (r *round) fail(f *fault.Fault) {
	if len(r.at) == 0 {
		return
	}
	r.fault = f
	clear(r.at)
	close(r.done)
}

func (t *Turn) await(r *round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds = append(t.rounds, r)
}

func (t *Turn) forget(r *round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds = slices.DeleteFunc(t.rounds, func(o *round) bool { return o == r })
}

// take takes one event in, on the turn's goroutine.
func (t *Turn) take(ev *wire.Event) {
	if ev.Type == wire.TurnEnded {
		t.settleAll(ev.Outcome)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.begun:
	default:
		close(t.begun)
	}
	if t.missed(ev) {
		f := fault.New(fault.WorkerLost, "events of turn %s were lost on their way, perhaps with results: close the turn, its outcome has them all", t.id)
		for _, r := range t.rounds {
			r.fail(f)
		}
	}
	if ev.Type != wire.CallSettled || ev.Result == nil {
		return
	}
	for _, r := range t.rounds {
		r.settle(*ev.Result)
	}
}

// settleAll gives the calls that are waited for the results of the outcome.
func (t *Turn) settleAll(out *wire.Outcome) {
	if out == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rounds {
		for _, res := range out.Results {
			r.settle(res)
		}
	}
}

// missed reports whether there were events between the last one and this that did not come: Seq counts them. Alive has
// the Seq of the event before it, or none.
func (t *Turn) missed(ev *wire.Event) bool {
	next := t.last + 1
	if ev.Type == wire.Alive {
		next = t.last
	}
	t.last = max(t.last, ev.Seq)
	return ev.Seq > next
}
