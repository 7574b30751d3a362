package turn

import (
	"fmt"
	"slices"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// count takes note of an input that is final.
func (c *call) count(r *tool.Result) {
	c.final++
	if r.Status.HasValue() {
		c.got++
	}
}

// join sees whether a call has what it waits for, and how many of those can still come.
func (t *Turn) join(at time.Duration, i int) {
	c := &t.calls[i]
	if c.state != pending {
		return
	}
	to := len(c.deps) - int(c.final)
	switch {
	case c.call.Join == tool.JoinAvailable && to > 0:
	case int(c.got) >= int(c.need):
		t.makeReady(at, i)
	case int(c.got)+to < int(c.need):
		t.skip(at, i)
	}
}

func (t *Turn) makeReady(at time.Duration, i int) {
	c := &t.calls[i]
	t.ready(at, i)
	if t.cfg.Recorded {
		t.record(at, &wire.Event{Type: wire.CallReady, Call: c.call.ID, Tool: c.call.Tool})
	}
}

// ready puts a call into the queue for a place: calls that become ready at the same time stand in request order.
func (t *Turn) ready(at time.Duration, i int) {
	c := &t.calls[i]
	t.unschedule(i)
	c.state, c.began = ready, at
	k := len(t.queue)
	for k > 0 && t.calls[t.queue[k-1]].began == at && int(t.queue[k-1]) > i {
		k--
	}
	t.queue = slices.Insert(t.queue, k, int32(i))
}

// skip settles a call that cannot run, for what it waits for gives no value: with its default, or as skipped (seed 000
// §5). Blame goes to the first of those calls.
func (t *Turn) skip(at time.Duration, i int) {
	c := &t.calls[i]
	of := t.blame(i)
	t.record(at, &wire.Event{Type: wire.CallSkipped, Call: c.call.ID, Tool: c.call.Tool, BecauseOf: of.call.ID})
	r := tool.Result{Status: tool.Skipped, BecauseOf: of.call.ID}
	if v := c.dflt(); v != nil {
		r.Status, r.Value = tool.Defaulted, v
	}
	t.settle(at, i, r)
}

// blame is the first call that gives call i no value, and excuses i where all of those are excused.
func (t *Turn) blame(i int) *call {
	c := &t.calls[i]
	var of *call
	c.excused = true
	for _, d := range c.deps {
		if !t.final(int(d)) || t.results[d].Status.HasValue() {
			continue
		}
		c.excused = c.excused && t.calls[d].excused
		if of == nil {
			of = &t.calls[d]
		}
	}
	return of
}

// fill begins calls for which there is a place, in the order of the queue. It says whether any began.
func (t *Turn) fill(at time.Duration) bool {
	if len(t.queue) == 0 || t.ended || t.cancelled || t.stopped > 0 {
		return false
	}
	for k := 0; k < len(t.queue); k++ {
		i := t.queue[k]
		c := &t.calls[i]
		gone := c.state != ready // it was cancelled
		switch {
		case !gone && t.cfg.Parallel > 0 && t.places >= t.cfg.Parallel:
			return false
		case !gone && t.full(c):
			continue
		case k == 0:
			t.queue = t.queue[1:]
		default:
			t.queue = slices.Delete(t.queue, k, k+1)
		}
		if !gone {
			t.begin(at, int(i))
		}
		return true // begin may have put others into the queue
	}
	return false
}

func (t *Turn) full(c *call) bool {
	return t.cfg.ToolParallel > 0 && t.busy[c.call.Tool] >= t.cfg.ToolParallel
}

// occupy counts the calls of each tool, where that is limited. A call that fell back counts for its own tool.
func (t *Turn) occupy(c *call, n int) {
	if t.cfg.ToolParallel <= 0 {
		return
	}
	if t.busy == nil {
		t.busy = map[string]int{}
	}
	t.busy[c.call.Tool] += n
}

// arguments are those of the next attempt, filled in. They stay the same from try to try, for the key is the same too.
func (t *Turn) arguments(c *call) ([]byte, *fault.Fault) {
	mine, _ := c.handed(int(c.at))
	if !c.fallen() || len(mine) == 0 {
		return t.ownArguments(c)
	}
	l := c.leg()
	if l.fill == nil {
		return mine, nil
	}
	own, f := t.ownArguments(c)
	if f != nil {
		own = []byte("{}") // an alternative with arguments of its own may do without
	}
	if c.filled == nil {
		c.filled = new(filled)
	}
	if c.filled.leg == nil {
		c.filled.leg, f = t.fillIn(mine, l.fill, own)
	} else {
		f = nil
	}
	return c.filled.leg, f
}

// ownArguments are those of the call itself.
func (t *Turn) ownArguments(c *call) ([]byte, *fault.Fault) {
	switch {
	case c.own.fill == nil && len(c.call.Args) == 0:
		return []byte("{}"), nil
	case c.own.fill == nil:
		return c.call.Args, nil
	case c.filled != nil && c.filled.own != nil:
		return c.filled.own, nil
	}
	args, f := t.fillIn(c.call.Args, c.own.fill, nil)
	if f == nil {
		if c.filled == nil {
			c.filled = new(filled)
		}
		c.filled.own = args
	}
	return args, f
}

func (t *Turn) fillIn(raw []byte, fill *tool.Template, own []byte) ([]byte, *fault.Fault) {
	read := 0
	return fill.Fill(func(h tool.Hole) ([]byte, bool, string) {
		if h.Arg {
			v, ok := h.Pointer.Find(own)
			return v, ok, ""
		}
		i, ok := t.Find(h.From)
		if !ok || t.calls[i].state != settled {
			return nil, false, h.From + " has not ended yet"
		}
		r := &t.results[i]
		switch {
		case !r.Status.HasValue():
			return nil, false, h.From + " gave no value: " + string(r.Status)
		case r.ContentType != "" && r.ContentType != wire.JSON:
			return nil, false, "it is " + r.ContentType + ", and only JSON can be taken apart"
		}
		if read += len(r.Value); read > maxRead {
			return nil, false, fmt.Sprintf("all that is taken makes %d MiB to read through, which is the most: take a whole result once, or less of it", maxRead>>20)
		}
		v, ok := h.Pointer.Find(r.Value)
		return v, ok, ""
	})
}

// maxRead bounds how much of other results is read through to fill in the arguments of one attempt, in bytes.
const maxRead = wire.MaxBlob
