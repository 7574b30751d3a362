package worker

import (
	"hash/maphash"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// seed makes sums of arguments that nobody outside can find a second text for.
var seed = maphash.MakeSeed()

const (
	nearest = 3                      // tool names that are suggested
	busy    = 50 * time.Millisecond  // when a full worker may be asked again
	away    = 500 * time.Millisecond // when one that leaves may
)

// takeCall is what a message that asks for a run leads to: a run, or an answer at once. It runs on the goroutine of a
// subscription and waits for nothing. Chosen says that the caller chose this worker.
func (w *Worker) takeCall(m *nats.Msg, h *heads, name string, chosen bool) {
	q, f := h.parse(name, m.Data)
	if !w.mayAnswer(m.Reply, q.tool) {
		return
	}
	c := caller{call: q.call, attempt: q.ref.Attempt, reply: m.Reply, progress: m.Reply}
	t := w.catalog.Load().tools[q.tool]
	if f == nil && q.progress != "" {
		c.progress = q.progress
		if !w.rule.Allows(q.progress, q.tool) {
			f = bad(wire.HeaderProgress, "expected a reply subject of %s or an inbox, got %.80q", q.tool, q.progress)
		}
	}
	if f != nil {
		w.answer(t, c, failed(f))
		return
	}
	if t == nil {
		w.answer(nil, c, w.unknown(q.tool))
		return
	}
	if a, now := w.admit(t, &q, c, chosen); now {
		w.answer(t, c, a)
	}
}

// mayAnswer is the first question about any message: whether its reply subject is one that a caller may choose. Where
// the tool is not known it is enough that it is right for one of ours.
func (w *Worker) mayAnswer(reply, name string) bool {
	allowed := false
	cat := w.catalog.Load()
	if cat.tools[name] != nil {
		allowed = w.rule.Allows(reply, name)
	} else {
		for _, t := range cat.order {
			allowed = allowed || w.rule.Allows(reply, t.name)
		}
	}
	if allowed {
		return true
	}
	w.mu.Lock()
	w.refused++
	w.mu.Unlock()
	w.log.Warn("message ignored: we do not answer there", "reply", fault.Truncate(reply, 200), "tool", fault.Truncate(name, tool.MaxName))
	return false
}

func (w *Worker) unknown(name string) answer {
	if name == "" {
		return nack(fault.ToolNotFound, 0, "header %s is missing: a call to a worker of one's choice must name the tool", wire.HeaderTool)
	}
	a := nack(fault.ToolNotFound, 0, "this worker has no tool %.80q", name)
	order := w.catalog.Load().order
	known := make([]string, len(order))
	for i, t := range order {
		known[i] = t.name
	}
	if near := tool.Nearest(name, known, nearest); len(near) > 0 {
		a.fault.Suggestions = near
	}
	return a
}

// admit decides about a call: it begins a run, gives the caller to one that is there, or says what to answer now.
func (w *Worker) admit(t *served, q *request, c caller, chosen bool) (a answer, now bool) {
	at := time.Now()
	sum := q.sum()
	w.mu.Lock()
	defer w.mu.Unlock()

	var m *memoItem
	if q.call != "" {
		if g := w.gone.get(q.call, at); g != nil && c.attempt <= g.val {
			f := fault.New(fault.Cancelled, "the call was cancelled before it came")
			f.Execution = fault.NotStarted
			return answer{frame: wire.Stopped, fault: f}, true
		}
		if m = w.memory.get(memoKey{t.name, q.call}, at); m != nil && c.attempt < m.val.attempt {
			return w.no(nack(fault.Cancelled, 0, "attempt %d is older than attempt %d", c.attempt, m.val.attempt)), true
		}
	}
	if q.key != q.call {
		m = w.memory.get(memoKey{t.name, q.key}, at)
	}
	if m != nil && (m.val.run != nil || m.val.done) {
		return w.repeat(m, sum, q, c, at)
	}

	switch {
	case w.quiet || w.phase == closed || w.phase == draining && chosen:
		return w.no(nack(fault.Overloaded, away, "this worker takes no more calls")), true
	case len(w.live) >= w.cfg.Concurrency:
		return w.no(nack(fault.Overloaded, busy, "this worker runs %d calls, which is all it may", len(w.live))), true
	}

	r := w.newRun(t, q, c, at)
	if q.key != "" {
		r.key = w.remember(r, q.key, 0, at)
		r.key.val.sum = sum
	}
	switch q.call {
	case "":
	case q.key:
		r.key.val.attempt = max(r.key.val.attempt, c.attempt)
	default:
		w.remember(r, q.call, c.attempt, at)
	}
	w.live[r] = struct{}{}
	w.calls++
	t.calls++
	r.start()
	return answer{}, false
}

// no counts a nack. w.mu is held.
func (w *Worker) no(a answer) answer {
	w.nacked++
	return a
}

// remember puts a run under a key for as long as it runs. w.mu is held.
func (w *Worker) remember(r *run, name string, attempt int, now time.Time) *memoItem {
	m := w.memory.hold(memoKey{r.tool.name, name}, now)
	m.val.run = r
	m.val.attempt = max(m.val.attempt, attempt)
	for _, held := range r.memos {
		if held == m {
			return m
		}
	}
	if r.memos == nil {
		r.memos = r.held[:0]
	}
	r.memos = append(r.memos, m)
	return m
}

// repeat is a call whose key is known: it gets the answer that was given, or waits for the run that is there.
// w.mu is held.
func (w *Worker) repeat(m *memoItem, sum uint64, q *request, c caller, now time.Time) (answer, bool) {
	if m.val.sum != sum {
		return failed(fault.New(fault.InvalidArguments, "the key %.80q was used with other arguments: choose another key for another call", q.key)), true
	}
	if m.val.done {
		w.repeats++
		a := m.val.answer
		m.val.attempt = max(m.val.attempt, c.attempt)
		w.memory.keep(m, m.val.size(), now)
		return a, true
	}
	r := m.val.run
	if !r.attach(c) {
		return w.no(nack(fault.Overloaded, wire.CancelGrace, "an earlier run for the key %.80q has not ended: ask again later", q.key)), true
	}
	w.repeats++
	if q.call != "" {
		w.remember(r, q.call, c.attempt, now)
	}
	return answer{}, false
}

// sum tells arguments apart. A claim check stands for what it was made of.
func (q *request) sum() uint64 {
	switch {
	case q.key == "":
		return 0
	case q.blob != nil:
		return maphash.String(seed, q.blob.Digest)
	}
	return maphash.Bytes(seed, q.args)
}

// finish is the end of a handler: its place is free, its answer is remembered if it lasts, and then its callers get it,
// unless they were answered before. In this order: who has the answer may ask again at once.
func (w *Worker) finish(r *run, a answer) {
	now := time.Now()
	w.mu.Lock()
	delete(w.live, r)
	if r.leaked {
		w.leaked--
	} else {
		w.ending.Add(1)
		defer w.ending.Done()
	}
	for _, m := range r.memos {
		if m.val.run != r {
			continue
		}
		m.val.run = nil
		if m == r.key && a.lasting() {
			m.val.done, m.val.answer = true, a
		}
		w.memory.keep(m, m.val.size(), now)
	}
	w.note(r.tool, a, now.Sub(r.begun), r.leaked)
	w.rest()
	w.mu.Unlock()

	r.end(a)
}

// abandon is the end of a call whose handler does not stop. The handler keeps its place. Its key is free for another run
// only where two at once do no harm.
func (w *Worker) abandon(r *run) {
	a := r.stopped(fault.Unknown)
	w.mu.Lock()
	if _, ok := w.live[r]; !ok || r.leaked {
		w.mu.Unlock()
		return
	}
	r.leaked = true
	w.leaked++
	w.note(r.tool, a, 0, false)
	if twice(r.tool.manifest) {
		for _, m := range r.memos {
			m.val.run = nil
			w.memory.keep(m, m.val.size(), time.Now())
		}
		r.memos = nil
	}
	w.mu.Unlock()

	r.end(a)
	r.log().Error("handler leaked: it goes on although its call is over", "why", a.fault.Message)
	w.mu.Lock()
	w.rest()
	w.mu.Unlock()
}

// note counts an ended call. What a leaked handler comes to was counted when it leaked. w.mu is held.
func (w *Worker) note(t *served, a answer, took time.Duration, leaked bool) {
	t.busy += took
	if a.fault != nil && !leaked {
		w.errors++
		t.errors++
		t.lastError = fault.Truncate(a.fault.Error(), 200)
	}
}
