package turn

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A world is all that is around a turn: workers, breakers, callers and a clock. What attempt n of call x comes to depends on
// the seed, x and n alone, so that a turn that is restored finds the same world.
type world struct {
	failf  func(format string, args ...any)
	seed   uint64
	cfg    Config
	limits bool // attempts may have less time than the plan says, which no journal tells

	turn  *Turn
	now   time.Duration
	since time.Duration // when the turn was restored
	queue []delivery    // what is still to come, the soonest first
	check checker

	journal []wire.Event
	steps   []moment
}

// A delivery is what happens to the turn at a time.
type delivery struct {
	at    time.Duration
	ev    Event
	calls []tool.Call // not an event, but calls that are added
}

// A moment is one step of the turn, with all that followed from it at once.
type moment struct {
	did      delivery
	before   []delivery // the world's queue, without did
	stopping bool       // an attempt was told to stop before it, and has not ended
	from, to int        // its events in the journal
	after    bool       // stopping, after it
}

const worldGrace = 250 * time.Millisecond

// dice is a number below n that belongs to these words.
func (w *world) dice(n int, word string, attempt int) int {
	return int(retry.Roll(w.seed, word, attempt) * float64(n))
}

// send is what becomes of an attempt.
func (w *world) send(call, attempt int, at time.Duration) {
	id := w.turn.Call(call).ID
	dice := func(n int, what string) int { return w.dice(n, id+what, attempt) }
	tell := func(after time.Duration, ev Event) {
		ev.Call, ev.Attempt = call, attempt
		w.deliver(delivery{at: at + after, ev: ev})
	}
	end := time.Duration(dice(6_000, "end")) * time.Millisecond
	tell(0, Event{Kind: Accepted, Worker: workerOf(id, attempt)})
	if w.limits && dice(4, "limited") == 0 {
		tell(end/4, Event{Kind: Limited, Timeout: time.Duration(dice(3000, "limit")) * time.Millisecond})
	}
	if dice(3, "progress") == 0 {
		tell(end/3, Event{Kind: Progressed, Progress: &wire.ProgressRecord{Done: 1}})
	}
	for n := range dice(3, "pieces") {
		tell(end/2, Event{Kind: Pieced, Value: fmt.Appendf(nil, "%d", n), Seq: n + 1})
	}
	answer := Event{Kind: Succeeded, Value: fmt.Appendf(nil, `{"x":"%s#%d"}`, id, attempt)}
	switch dice(10, "how") {
	case 0, 1, 2, 3:
		kinds := slices.DeleteFunc(fault.Kinds(), func(k fault.Kind) bool { return k == fault.Cancelled || k == fault.Deadline }) // which are ours to say
		answer = Event{Kind: Failed, Fault: fault.New(kinds[dice(len(kinds), "kind")], "it broke")}
	case 4:
		answer.Value, answer.Type = []byte{0x01}, wire.MsgPack
	case 5:
		return // silence
	}
	tell(end, answer)
	switch dice(6, "again") {
	case 0: // twice
		tell(end, answer)
	case 1: // and once more, otherwise, much later
		tell(end+3*time.Second, Event{Kind: Failed, Fault: fault.New(fault.Upstream, "it broke later")})
	}
}

// stop is what a worker says to a stop, at once, in time, too late or never.
func (w *world) stop(call, attempt int) {
	id := w.turn.Call(call).ID
	f := fault.New(fault.Cancelled, "stopped")
	f.Execution = fault.Stopped
	if after := w.dice(4, id+"stop", attempt); after > 0 {
		w.deliver(delivery{at: w.now + time.Duration(after)*110*time.Millisecond, ev: Event{Kind: Failed, Call: call, Attempt: attempt, Fault: f}})
	}
}

func workerOf(id string, attempt int) string { return fmt.Sprintf("w-%s-%d", id, attempt) }

func (w *world) deliver(d delivery) {
	k, _ := slices.BinarySearchFunc(w.queue, d, func(a, b delivery) int {
		return cmp.Or(cmp.Compare(a.at, b.at), -1) // after those of the same time
	})
	w.queue = slices.Insert(w.queue, k, d)
}

func (w *world) start() {
	t, err := New(w.cfg)
	if err != nil {
		w.failf("New: %v", err)
	}
	w.turn, w.check = t, newChecker(w)
	w.step(delivery{}, func() []Effect { return t.Start(nil, start) })
}

// play goes on until nothing can happen any more.
func (w *world) play() {
	for n := 0; ; n++ {
		if n > 20_000 {
			w.failf("the turn does not end: %d steps", n)
		}
		wake := w.turn.Wake()
		if !wake.IsZero() && (len(w.queue) == 0 || wake.Sub(start) <= w.queue[0].at) {
			w.now = max(w.now, wake.Sub(start))
			w.do(delivery{at: w.now, ev: Event{Kind: Due}})
			continue
		}
		if len(w.queue) == 0 {
			return
		}
		d := w.queue[0]
		w.queue = slices.Clone(w.queue[1:])
		w.now = max(w.now, d.at)
		w.do(d)
	}
}

func (w *world) do(d delivery) {
	w.step(d, func() []Effect {
		now := start.Add(w.now)
		if d.calls == nil {
			return w.turn.Step(nil, now, d.ev)
		}
		if _, twice := w.turn.Find(d.calls[0].ID); twice {
			return nil // it was restored, and had them before
		}
		out, err := w.turn.Add(nil, now, d.calls)
		if err != nil && w.turn.open && !w.turn.stale {
			w.failf("Add: %v", err)
		}
		return out
	})
}

func (w *world) step(d delivery, act func() []Effect) {
	m := moment{did: d, before: slices.Clone(w.queue), stopping: w.anyStopping(), from: len(w.journal)}
	effects := act()
	for i := 0; i < len(effects); i++ {
		e := effects[i]
		w.check.effect(e)
		switch e.Kind {
		case Send:
			w.send(e.Call, e.Attempt, w.now)
		case Stop:
			w.stop(e.Call, e.Attempt)
		case Record:
			w.write(e.Record)
		case Ended:
			if e.Verdict != nil {
				id := w.turn.Call(e.Call).ID
				effects = w.turn.Step(effects, start.Add(w.now), Event{
					Kind: Judged, Call: e.Call, Attempt: e.Attempt, Budget: w.dice(8, id+"budget", e.Attempt) > 0,
					Circuit: []breaker.State{breaker.Closed, breaker.Closed, breaker.Closed, breaker.Open}[w.dice(4, id+"circuit", e.Attempt)],
				})
			}
		}
	}
	m.to, m.after = len(w.journal), w.anyStopping()
	w.steps = append(w.steps, m)
}

func (w *world) anyStopping() bool {
	return slices.ContainsFunc(w.turn.calls, func(c call) bool { return c.state == stopping })
}

func (w *world) write(ev *wire.Event) {
	ev.V, ev.Turn, ev.Seq = wire.Version, w.cfg.Request.ID, int64(len(w.journal)+1)
	if ev.Type == wire.AttemptStarted {
		ev.Worker = workerOf(ev.Call, ev.Attempt)
	}
	if err := ev.Check(); err != nil {
		w.failf("event %s: %v", ev.Type, err)
	}
	w.journal = append(w.journal, *ev)
}

// restored is the world at the moment in which the journal had n events, with the turn restored from those. same says that
// nothing is lost by that: no attempt was being stopped.
func (w *world) restored(n int) (back *world, same bool) {
	k := slices.IndexFunc(w.steps, func(m moment) bool { return m.to >= n })
	m := w.steps[k]
	t, err := Restore(w.cfg, start, w.journal[:n])
	if err != nil {
		w.failf("Restore of %d events of %d: %v", n, len(w.journal), err)
	}
	back = &world{failf: w.failf, seed: w.seed, cfg: w.cfg, limits: w.limits, turn: t, now: m.did.at, queue: slices.Clone(m.before)}
	back.now = wait(w.journal[n-1].AtMs)
	back.since = back.now
	back.check = newChecker(back)
	for i := range w.journal[:n] {
		back.check.remember(&w.journal[i])
		back.journal = append(back.journal, w.journal[i])
	}
	back.check.finished = back.check.ended
	for _, ev := range w.journal[m.from:n] {
		if ev.Type == wire.AttemptStarted {
			i, _ := t.Find(ev.Call)
			back.send(i, ev.Attempt, wait(ev.AtMs))
		}
	}
	if n < m.to && m.did.ev.Kind != Due { // it was in the middle of it
		back.queue = slices.Insert(back.queue, 0, m.did)
		return back, !m.stopping
	}
	return back, !m.after && (n == m.to || !m.stopping)
}

// A checker knows what must hold of every effect.
type checker struct {
	w         *world
	calls     map[string]*checked
	ended     int           // how often the journal said so
	finished  int           // how often Finish came
	at        time.Duration // when it came
	over      int
	late      bool // the deadline has come
	cancelled bool
	stopped   bool
	outcome   *wire.Outcome
}

type checked struct {
	call    *tool.Call
	i       int
	since   time.Duration // when it was handed over
	begun   bool
	out     bool
	attempt int
	result  *tool.Result
}

func newChecker(w *world) checker {
	c := checker{w: w, calls: map[string]*checked{}}
	return c
}

func (c *checker) effect(e Effect) {
	if c.over > 0 {
		c.w.failf("effect %d after Over", e.Kind)
	}
	switch e.Kind {
	case Send:
		c.send(e)
	case Stop:
		if x := c.of(e.Call); !x.out || e.Attempt != x.attempt {
			c.w.failf("Stop %s#%d, which is not out", x.call.ID, e.Attempt)
		}
	case Ended:
		x := c.of(e.Call)
		if !x.out || e.Attempt != x.attempt {
			c.w.failf("Ended %s#%d, which is not out", x.call.ID, e.Attempt)
		}
		x.out = false
	case Record:
		c.remember(e.Record)
	case Finish:
		if c.finished++; c.finished != 1 || c.ended != 1 {
			c.w.failf("Finish %d times, TurnEnded %d times", c.finished, c.ended)
		}
		c.at = c.w.now
	case Over:
		c.over++
		if c.finished != 1 {
			c.w.failf("Over before Finish")
		}
		for id, x := range c.calls {
			if x.out {
				c.w.failf("Over while %s#%d is out", id, x.attempt)
			}
		}
	}
}

func (c *checker) of(i int) *checked { return c.calls[c.w.turn.Call(i).ID] }

func (c *checker) send(e Effect) {
	x, at := c.of(e.Call), c.w.now
	name := fmt.Sprintf("Send %s#%d", x.call.ID, e.Attempt)
	switch {
	case c.ended > 0, c.late, c.cancelled, c.stopped:
		c.w.failf("%s after the turn's end, deadline, cancel or stop", name)
	case c.w.turn.deadline != never && at >= c.w.turn.deadline:
		c.w.failf("%s at %v, the deadline is at %v", name, at, c.w.turn.deadline)
	case x.result != nil:
		c.w.failf("%s, which has its result", name)
	case x.out:
		c.w.failf("%s, while attempt %d is out", name, x.attempt)
	case e.Attempt != x.attempt+1:
		c.w.failf("%s, want attempt %d", name, x.attempt+1)
	case !c.fed(x, at):
		c.w.failf("%s before what it waits for is there", name)
	}
	x.out, x.begun, x.attempt = true, true, e.Attempt
	places, busy := 0, map[string]int{}
	for _, y := range c.calls {
		if y.begun && y.result == nil {
			places++
			busy[y.call.Tool]++
		}
	}
	req := c.w.cfg.Request
	if req.Parallel > 0 && places > req.Parallel || req.ToolParallel > 0 && busy[x.call.Tool] > req.ToolParallel {
		c.w.failf("%s: %d calls are under way, %d of %s", name, places, busy[x.call.Tool], x.call.Tool)
	}
}

// fed says whether the inputs of a call satisfy its join.
func (c *checker) fed(x *checked, at time.Duration) bool {
	node := &c.w.turn.calls[x.i]
	final, got := 0, 0
	for _, d := range node.deps {
		r := c.of(int(d)).result
		if r == nil {
			continue
		}
		final++
		if r.Status.HasValue() {
			got++
		}
	}
	if x.call.Join == tool.JoinAvailable {
		by := x.call.JoinByMs
		return final == len(node.deps) || by > 0 && at >= x.since+time.Duration(by)*time.Millisecond
	}
	need, _ := x.call.Join.Need(len(node.deps))
	return got >= need
}

// remember takes note of an event of the journal: of the one that goes on, or of one that was restored.
func (c *checker) remember(ev *wire.Event) {
	x := c.calls[ev.Call]
	switch ev.Type {
	case wire.TurnStarted, wire.CallsAdded:
		for i := range ev.Request.Calls {
			k := len(c.calls)
			id := cmp.Or(ev.Request.Calls[i].ID, fmt.Sprintf("c%d", k+1))
			c.calls[id] = &checked{call: c.w.turn.Call(k), i: k, since: wait(ev.AtMs)}
		}
	case wire.AttemptStarted:
		x.out, x.begun, x.attempt = true, true, ev.Attempt
	case wire.ToolError:
		x.out = false
	case wire.CallSettled:
		if x.result != nil {
			c.w.failf("%s is settled twice", ev.Call)
		}
		x.result = ev.Result
		if !c.late {
			x.out = false
		}
		c.stopped = c.stopped || c.w.cfg.Request.OnFailure == wire.FailureStop && !c.late && !c.cancelled && ev.Result.Status == tool.Failed && !c.w.turn.calls[x.i].optional()
	case wire.LateResult:
		if x.result == nil || c.ended == 0 {
			c.w.failf("late %s before its turn has ended", ev.Call)
		}
		x.out = false
	case wire.TurnDeadline:
		c.late = true
	case wire.CancelRequested:
		c.cancelled = c.cancelled || ev.Call == ""
	case wire.TurnEnded:
		if c.ended++; c.ended != 1 {
			c.w.failf("TurnEnded %d times", c.ended)
		}
		c.verify(ev.Outcome)
	}
}

// verify looks at the outcome: one result per call in request order.
func (c *checker) verify(o *wire.Outcome) {
	c.outcome = o
	t := c.w.turn
	if len(o.Results) != len(c.calls) {
		c.w.failf("%d results for %d calls", len(o.Results), len(c.calls))
	}
	for i, r := range o.Results {
		if r.Call != t.Call(i).ID || r.Status == "" || r.Sentence == "" {
			c.w.failf("result %d is of %q: %q %q", i, r.Call, r.Status, r.Sentence)
		}
		if c.of(i).result == nil {
			c.w.failf("Finish before %s is settled in the journal", r.Call)
		}
	}
}
