package executor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// A record is one turn as the executor tells it: its journal, and what follows from that.
type record struct {
	p      *play
	id     string
	events []wire.Event
	began  time.Time
	req    *wire.TurnRequest
	calls  map[string]*callRecord
	out    *wire.Outcome
	noMore time.Duration // nothing may begin after it, since the start
}

// A callRecord is one call of it.
type callRecord struct {
	call    tool.Call
	started map[int]int // the event that tells of an attempt, by its number
	leg     map[int]int // how many alternatives had been chosen before an attempt
	legs    int
	first   int // event of the first attempt; -1 where none was made
	settled int // event
	result  *tool.Result
	late    *tool.Result
	stopped bool // it was cancelled by itself
}

// prove compares what the executor and its callers say of each turn with what the actors did.
//
//	every turn has one outcome, every call one result, in order; and the journal makes the same outcome
//	a value was given by a worker for that call, or is its default
//	nothing begins after the deadline or a cancel
//	a write without keys is not run again after a run of which nobody knows; with keys each try has the same key
//	calls begin when their inputs have ended, with those in their arguments
//	workers got what the journal says that was sent, and nothing else
//	late results are kept of calls that ran on after the outcome, and of each of those
func (p *play) prove() {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.ledger.turns); n != len(p.turns) {
		p.t.Errorf("%d turns have a journal, want %d", n, len(p.turns))
	}
	for _, d := range p.turns {
		r := &record{p: p, id: d.req.ID, events: p.ledger.turns[d.req.ID]}
		r.read()
		if r.out == nil {
			continue
		}
		if d.out != nil {
			r.same("its caller got", d.out)
		}
		r.restored()
		r.whole()
		for _, c := range r.calls {
			r.values(c)
			r.runs(c)
			r.inputs(c)
			r.kept(c)
		}
		if p.t.Failed() {
			for i := range r.events {
				b, _ := json.Marshal(r.events[i])
				p.t.Logf("%s", b)
			}
			return // one is enough to look at
		}
	}
	for of, ds := range p.deeds {
		if id, _, _ := strings.Cut(of, "/"); p.ledger.turns[id] == nil {
			p.t.Errorf("a worker got %s/%d, and there is no such turn", of, ds[0].attempt)
		}
	}
}

func (r *record) errorf(format string, args ...any) {
	r.p.t.Helper()
	r.p.t.Errorf(r.id+": "+format, args...)
}

// read takes the journal in.
func (r *record) read() {
	r.calls, r.noMore = map[string]*callRecord{}, time.Hour
	take := func(calls []tool.Call) {
		for _, c := range calls {
			r.calls[c.ID] = &callRecord{call: c, started: map[int]int{}, leg: map[int]int{}, first: -1, settled: -1}
		}
	}
	for i := range r.events {
		ev := &r.events[i]
		at := time.Duration(ev.AtMs * float64(time.Millisecond))
		c := r.calls[ev.Call]
		if ev.Seq != int64(i+1) || c == nil && ev.Call != "" {
			r.errorf("event %d is %s number %d of call %q", i+1, ev.Type, ev.Seq, ev.Call)
			return
		}
		switch ev.Type {
		case wire.TurnStarted:
			r.req = ev.Request
			r.began, _ = time.Parse(time.RFC3339Nano, ev.Time)
			r.noMore = time.Duration(r.req.DeadlineMs) * time.Millisecond
			take(ev.Request.Calls)
		case wire.CallsAdded:
			take(ev.Request.Calls)
		case wire.CancelRequested:
			if ev.Call == "" {
				r.noMore = min(r.noMore, at)
			} else {
				c.stopped = true
			}
		case wire.AttemptStarted:
			r.p.did["attempts"]++
			if at > r.noMore || at == r.noMore && r.out != nil || c.stopped || c.result != nil {
				r.errorf("attempt %d of %s began at %v, want none after %v, or after its cancel or result", ev.Attempt, ev.Call, at, r.noMore)
			}
			if ev.Attempt != len(c.started)+1 {
				r.errorf("attempt %d of %s came after %d others", ev.Attempt, ev.Call, len(c.started))
			}
			c.started[ev.Attempt], c.leg[ev.Attempt] = i, c.legs
			if c.first < 0 {
				c.first = i
			}
		case wire.AlternativeChosen:
			c.legs++
		case wire.CallSettled:
			r.p.did[string("result: "+ev.Result.Status)]++
			if c.result != nil {
				r.errorf("%s was settled twice", ev.Call)
			}
			c.result, c.settled = ev.Result, i
		case wire.LateResult:
			if c.late != nil || r.out == nil {
				r.errorf("%s has two late results, or one before the end", ev.Call)
			}
			c.late = ev.Result
		case wire.TurnEnded:
			r.p.did["turn: "+ev.Outcome.Status]++
			if r.out != nil {
				r.errorf("it ended twice")
			}
			r.out = ev.Outcome
		case wire.ProgressEvent, wire.PartialEvent, wire.ToolError, wire.CallReady:
			if r.out != nil {
				r.errorf("%s after the end", ev.Type)
			}
		}
	}
	if r.req == nil || r.out == nil {
		r.errorf("its %d events have no start or no end", len(r.events))
	}
}

// same compares an outcome with that of the journal, as bytes on the wire.
func (r *record) same(whose string, out *wire.Outcome) {
	got, err := wire.Marshal(wire.JSON, out)
	want, err2 := wire.Marshal(wire.JSON, r.out)
	if err != nil || err2 != nil || !bytes.Equal(got, want) {
		r.errorf("%s\n%s\nwant that of the journal,\n%s", whose, got, want)
	}
}

func (r *record) restored() {
	back, err := turn.Restore(turn.Config{
		Grace: wire.CancelGrace, KeepsLate: true, Recorded: true, Tools: r.p.stage.exec.Lookup(),
	}, r.began, r.events)
	if err != nil {
		r.errorf("Restore: %v", err)
		return
	}
	if out := back.Outcome(); out != nil {
		r.same("restored, the outcome is", out)
	} else {
		r.errorf("restored, it has not ended")
	}
}

// whole holds of the outcome by itself.
func (r *record) whole() {
	if len(r.out.Results) != len(r.calls) {
		r.errorf("%d results, want one for each of %d calls", len(r.out.Results), len(r.calls))
	}
	for i := range r.out.Results {
		res := &r.out.Results[i]
		c := r.calls[res.Call]
		if c == nil || c.call.ID != fmt.Sprintf("c%d", i+1) && !r.req.Open || res.Status == "" || c.result == nil || c.result.Status != res.Status {
			r.errorf("result %d is %+v, want that of call %d, and as it was settled", i, res, i+1)
		}
	}
	slack := time.Millisecond
	if took := time.Duration(r.out.DurationMs * float64(time.Millisecond)); took > r.noMore+wire.CancelGrace+slack {
		r.errorf("it took %v, want at most %v and the grace", took, r.noMore)
	}
}

// values holds of what came of a call.
func (r *record) values(c *callRecord) {
	for _, res := range []*tool.Result{c.result, c.late} {
		if res == nil {
			continue
		}
		of := r.id + "/" + c.call.ID
		gave := r.p.gave[of]
		switch res.Status {
		case tool.Success, tool.ViaFallback:
			if !gave[string(res.Value)] {
				r.errorf("%s has the value %s, which no worker gave", of, res.Value)
			}
		case tool.PartialValue:
			var parts []json.RawMessage
			if err := json.Unmarshal(res.Value, &parts); err != nil || len(parts) == 0 {
				r.errorf("%s has the pieces %s", of, res.Value)
			}
			for _, part := range parts {
				if !gave[string(part)] {
					r.errorf("%s has the piece %s, which no worker gave", of, part)
				}
			}
		case tool.Defaulted:
			if v := string(res.Value); v != string(c.call.Default) && !(c.call.Default == nil && v == `{"x":"of the manifest"}`) {
				r.errorf("%s has the default %s, want %s", of, v, c.call.Default)
			}
		default:
			if res.Value != nil {
				r.errorf("%s is %s with a value, %s", of, res.Status, res.Value)
			}
		}
	}
}

// runs holds of what actors did for a call.
func (r *record) runs(c *callRecord) {
	of := r.id + "/" + c.call.ID
	keys := map[int]*deed{} // by leg
	ran := map[int]*deed{}
	var unsure *deed
	for _, d := range slices.SortedStableFunc(slices.Values(r.p.deeds[of]), func(a, b *deed) int { return a.attempt - b.attempt }) {
		i, started := c.started[d.attempt]
		if !started || r.events[i].Tool != d.tool {
			r.errorf("%s got %s for %s, and the journal has no such attempt", d.a.id, d.ref, d.tool)
			continue
		}
		if at := d.began.Sub(r.began); at > r.noMore && !d.behind {
			r.errorf("%s began %s (%s) at %v, want nothing after %v", d.a.id, d.ref, d.tool, at, r.noMore)
		}
		if before := ran[d.attempt]; before != nil {
			r.errorf("attempt %s ran at %s (%s) and at %s (%s)", d.ref, before.a.id, before.how, d.a.id, d.how)
		}
		if unsure != nil && d.attempt > unsure.attempt {
			r.errorf("%s was sent to %s after %s, which wrote, and whose end (%s) nobody knows", d.ref, d.tool, unsure.ref, unsure.how)
		}
		if d.ran {
			ran[d.attempt] = d
			if !d.sure && r.writes(c, d) {
				unsure = d
			}
		}
		leg := c.leg[d.attempt]
		if first := keys[leg]; first == nil {
			keys[leg] = d
		} else if d.key != first.key || d.args != first.args {
			r.errorf("%s has the key %q and arguments %s, and %s %q and %s", d.ref, d.key, d.args, first.ref, first.key, first.args)
		}
	}
	for _, d := range keys {
		for _, e := range keys {
			if d.key == e.key && (d.tool != e.tool || d.args != e.args) {
				r.errorf("%s and %s have the key %q, with %s %s and %s %s", d.ref, e.ref, d.key, d.tool, d.args, e.tool, e.args)
			}
		}
	}
	for _, res := range []*tool.Result{c.result, c.late} {
		if res != nil {
			r.attempts(c, res, ran)
		}
	}
}

// writes says that a second run of the deed may do it twice. What stands in for a write is one, unless it says otherwise.
func (r *record) writes(c *callRecord, d *deed) bool {
	return d.tool == "buy" || d.tool == "ask" && c.leg[d.attempt] > 0 && (c.call.Tool == "buy" || c.call.Tool == "pay")
}

// attempts holds of the history of a result.
func (r *record) attempts(c *callRecord, res *tool.Result, ran map[int]*deed) {
	for _, a := range res.Attempts {
		if _, ok := c.started[a.N]; !ok {
			r.errorf("%s tells of attempt %d, and the journal has none", res.Call, a.N)
		}
		if a.N > 0 && !r.sawIt(c, a.N) && !slices.Contains(unseen, a.Kind) {
			r.errorf("attempt %d of %s ended with %q, and no worker got it", a.N, res.Call, a.Kind)
		}
		if d := ran[a.N]; a.Kind == "" && (d == nil || d.a.id != a.Worker || d.tool != a.Tool) {
			r.errorf("attempt %d of %s succeeded at %s, and it did not run there", a.N, res.Call, a.Worker)
		}
	}
	if n := len(c.started); res.Status != tool.NeverStarted && res.Status != tool.Skipped && n > len(res.Attempts) && c.late == nil {
		r.errorf("%s (%s) has %d attempts, want %d", res.Call, res.Status, len(res.Attempts), n)
	}
	if res.Fault == nil || res.Fault.Run() != fault.NotStarted {
		return
	}
	for _, d := range ran {
		if !d.behind && (d.how != "fails" || !d.sure) {
			r.errorf("%s says not_started (%s), and %s had %s (%s)", res.Call, res.Fault, d.a.id, d.ref, d.how)
		}
	}
}

// unseen are the ends of an attempt that no worker got: it was not sent, or lost on the way.
var unseen = []fault.Kind{
	fault.Unavailable, fault.Overloaded, fault.RateLimited, fault.CircuitOpen, fault.WorkerLost, fault.Timeout, fault.Cancelled, fault.Deadline,
}

func (r *record) sawIt(c *callRecord, attempt int) bool {
	return slices.ContainsFunc(r.p.deeds[r.id+"/"+c.call.ID], func(d *deed) bool { return d.attempt == attempt })
}

// inputs holds of when a call began, and with what.
func (r *record) inputs(c *callRecord) {
	if c.first < 0 {
		return
	}
	ended, got := 0, 0
	want := map[string]any{"me": c.call.ID}
	for _, id := range c.call.After {
		of, x := r.calls[id], any("none")
		if of.settled >= 0 && of.settled < c.first {
			ended++
			switch of.result.Status {
			case tool.Success, tool.ViaFallback, tool.Defaulted, tool.PartialValue:
				got++
				var v map[string]any
				if err := json.Unmarshal(of.result.Value, &v); err == nil && v["x"] != nil {
					x = v["x"]
				}
			}
		}
		if bytes.Contains(c.call.Args, []byte(`"`+id+`":{"$from"`)) {
			want[id] = x
		}
	}
	n := len(c.call.After)
	need, _ := c.call.Join.Need(n)
	byTime := c.call.JoinByMs > 0
	if got < need || c.call.Join == tool.JoinAvailable && ended < n && !byTime {
		r.errorf("%s began when %d of %d inputs had ended and %d had given a value; its join is %s", c.call.ID, ended, n, got, c.call.Join)
	}
	for _, d := range r.p.deeds[r.id+"/"+c.call.ID] {
		var args map[string]any
		if err := json.Unmarshal([]byte(d.args), &args); err != nil {
			r.errorf("%s has arguments %s: %v", d.ref, d.args, err)
		}
		expected := want
		if args["instead"] != nil {
			expected = map[string]any{"me": c.call.ID, "instead": true}
		}
		if !reflect.DeepEqual(args, expected) {
			r.errorf("%s has arguments %s, want %v", d.ref, d.args, expected)
		}
	}
}

// kept holds of what came late.
func (r *record) kept(c *callRecord) {
	id := c.call.ID
	kept := r.p.ledger.kept[r.id+"/"+id]
	runs := slices.Contains(r.out.Running, id)
	if runs && (c.late == nil || c.result.Status != tool.TimedOut && c.result.Status != tool.PartialValue) {
		r.errorf("%s runs on after the outcome, which says %s; its late result is %+v", id, c.result.Status, c.late)
		return
	}
	switch {
	case len(kept) > 1:
		r.errorf("%d late results of %s are kept", len(kept), id)
	case len(kept) == 1:
		r.p.did["calls kept late"]++
		if c.late == nil || !reflect.DeepEqual(kept[0].Result, c.late) || !runs && c.late.Fault != nil {
			r.errorf("%+v is kept of %s, which runs on: %t, its late result %+v", kept[0].Result, id, runs, c.late)
		}
	case c.late != nil && c.late.Fault == nil, runs && c.late.Fault.Kind != fault.Cancelled:
		r.errorf("%s came to %+v, and it was not kept", id, c.late)
	}
}

// mends waits until all is as it should be: breakers close, and every tool answers.
func (p *play) mends() {
	p.well.Store(true)
	for _, name := range chaosTools {
		for i := 0; ; i++ {
			r := p.stage.call(name, `{}`)
			if r.Status == tool.Success {
				break
			}
			if i == 20 {
				p.t.Errorf("%s: still %v, and all is well", name, r.Fault)
				break
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
}

// leavesNothing holds when all has ended.
func (p *play) leavesNothing() {
	time.Sleep(3 * time.Minute) // the watch forgets
	for _, name := range chaosTools {
		var v breaker.Shared
		e, err := p.line.Get(p.t.Context(), name)
		if err != nil {
			continue // nothing was ever reported
		}
		if err := wire.Decode(e.Value, &v); err != nil || len(v.Probes) != 0 {
			p.t.Errorf("%s: %v, %d probes were never settled", name, err, len(v.Probes))
		}
	}
	e := p.stage.exec
	if calls, runs, held, tickets := e.InFlight(), e.Runs(), e.Held(), openTickets(p.stage); calls+runs+held+tickets != 0 || e.Peers() > actors+1 {
		p.t.Errorf("in the end %d calls, %d turns, %d attempts of workers, %d tickets and %d peers, want none, and at most %d peers", calls, runs, held, tickets, e.Peers(), actors+1)
	}
}

// openTickets counts the requests that the stage's connection waits for.
func openTickets(st *stage) (n int) {
	shards := reflect.ValueOf(st.conn).Elem().FieldByName("mux").FieldByName("shards")
	for i := range shards.Len() {
		n += shards.Index(i).FieldByName("open").Len()
	}
	return n
}
