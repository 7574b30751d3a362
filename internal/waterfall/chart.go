package waterfall

import (
	"cmp"
	"math"
	"slices"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// What is drawn at most. What is left out is counted.
const (
	maxRows     = 1000 // calls
	maxAttempts = 30   // of one call
	maxNotes    = 20   // beside the attempts, of one call
	maxMs       = 1e11 // three years: what is said to be later is no time
)

// A chart is a turn as it is drawn. Times are in milliseconds since it began.
type chart struct {
	turn, status, sentence string

	end      float64 // the last moment that is spoken of
	took     float64 // when the turn ended, and end where it has not
	deadline float64 // when it came before all had ended; else NaN
	ended    bool

	rows []*row
	left int // calls that are not in rows

	notes []note // of the turn itself
	by    map[string]*row
}

// A row is one call.
type row struct {
	call, tool string
	status     tool.Status // "" while it has none
	fallback   string
	sentence   string

	added, ready, settled float64 // NaN where they did not come
	late                  tool.Status
	lateAt                float64
	attempts              []*attempt
	leftAttempts          int
	notes                 []note
}

// An attempt is one try.
type attempt struct {
	n                    int
	tool, worker         string
	from, to             float64 // to is NaN while it runs
	ok                   bool
	kind, class, message string
	decision, because    string
	breaker              string
	delay                float64 // that was waited for the next one
	untilNext            float64 // when the next began, or was to begin; NaN where none was
	progress             string  // the last word of it
	pieces               int
	afterTurn            float64 // when the turn ended under it; NaN where it did not
}

// A note is something that was said of a call or of the turn.
type note struct {
	at   float64
	text string
}

// lay makes a chart of events.
func lay(events []wire.Event) *chart {
	c := &chart{deadline: math.NaN(), by: map[string]*row{}}
	at := 0.0
	for _, ev := range inOrder(lastTurn(events)) {
		at = moment(ev.AtMs, at)
		c.end = max(c.end, at)
		c.take(ev, at)
	}
	c.finish()
	return c
}

// lastTurn is the events of the last turn, where several had that id one after the other: each numbers its own.
func lastTurn(events []wire.Event) []wire.Event {
	last, turns := 0, 0
	for i := range events {
		if events[i].Type == wire.TurnStarted {
			last = i
			turns++
		}
	}
	if turns < 2 {
		return events
	}
	return events[last:]
}

// inOrder is the events by their number, each once. What has no number stays behind what came before it.
func inOrder(events []wire.Event) []*wire.Event {
	type numbered struct {
		seq int64
		ev  *wire.Event
	}
	var last int64
	list := make([]numbered, 0, len(events))
	for i := range events {
		ev := &events[i]
		if ev.Seq > 0 {
			last = ev.Seq
		}
		list = append(list, numbered{last, ev})
	}
	slices.SortStableFunc(list, func(a, b numbered) int { return cmp.Compare(a.seq, b.seq) })
	out := make([]*wire.Event, 0, len(list))
	for _, n := range list {
		if k := len(out); k > 0 && n.ev.Seq > 0 && same(out[k-1], n.ev) {
			continue
		}
		out = append(out, n.ev)
	}
	return out
}

func same(a, b *wire.Event) bool {
	return a.Seq == b.Seq && a.Type == b.Type && a.Call == b.Call && a.Attempt == b.Attempt
}

// moment is a time that an event gives, or where that is none the time of the event before.
func moment(ms, before float64) float64 {
	if !(ms >= 0 && ms <= maxMs) {
		return before
	}
	return ms
}

// span is a duration, or 0 where it is none.
func span(ms float64) float64 { return moment(ms, 0) }

func (c *chart) take(ev *wire.Event, at float64) {
	if c.turn == "" {
		c.turn = ev.Turn
	}
	switch ev.Type {
	case wire.TurnStarted, wire.CallsAdded:
		if ev.Request != nil {
			for i := range ev.Request.Calls {
				if r := c.row(ev.Request.Calls[i].ID, at); r != nil && r.tool == "" {
					r.tool = ev.Request.Calls[i].Tool
				}
			}
		}
	case wire.TurnClosed:
		c.note(at, "closed: no more calls are added")
	case wire.TurnDeadline:
		c.deadline = at
	case wire.CancelRequested:
		if ev.Call == "" {
			c.note(at, cancelText(ev))
		}
	case wire.TurnEnded:
		c.turnEnded(ev, at)
	case wire.BreakerChanged:
		if ev.Call == "" {
			c.note(at, breakerText(ev))
		}
	}
	if ev.Call == "" {
		return
	}
	if r := c.row(ev.Call, at); r != nil {
		r.take(ev, at)
	}
}

// row is that of a call, made where there is none. It is nil where there are too many.
func (c *chart) row(call string, at float64) *row {
	if call == "" {
		return nil
	}
	r, ok := c.by[call]
	if ok {
		return r
	}
	if len(c.rows) == maxRows {
		c.left++
		return nil
	}
	r = &row{call: call, added: at, ready: math.NaN(), settled: math.NaN(), lateAt: math.NaN()}
	c.by[call] = r
	c.rows = append(c.rows, r)
	return r
}

func (c *chart) note(at float64, text string) {
	if len(c.notes) < maxNotes {
		c.notes = append(c.notes, note{at, text})
	}
}

func (c *chart) turnEnded(ev *wire.Event, at float64) {
	c.ended, c.took = true, at
	out := ev.Outcome
	if out == nil {
		return
	}
	c.status, c.sentence = out.Status, out.Sentence
	for i := range out.Results {
		res := &out.Results[i]
		if r := c.row(res.Call, 0); r != nil && r.status == "" {
			r.settle(res, at)
		}
	}
}

// finish fills in what can be known when all is read.
func (c *chart) finish() {
	for _, r := range c.rows {
		for _, a := range r.attempts {
			c.end = max(c.end, a.from)
			if !math.IsNaN(a.to) {
				c.end = max(c.end, a.to)
			}
		}
		if !math.IsNaN(r.settled) {
			c.end = max(c.end, r.settled)
		}
	}
	if !c.ended {
		c.took = c.end
	}
	for _, r := range c.rows {
		r.finish(c)
	}
}
