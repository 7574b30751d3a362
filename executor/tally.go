package executor

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/turn"
)

// A ToolTally is what an executor counted of the attempts at one tool since it started. Who wants rates takes the
// difference of two Presences: one that got lost does no harm.
type ToolTally struct {
	Tool     string  `json:"tool"`
	InFlight int     `json:"in_flight,omitempty"`
	Attempts int64   `json:"attempts"`          // sent, and ended
	Errors   int64   `json:"errors,omitempty"`  // of those, how many failed
	Refused  int64   `json:"refused,omitempty"` // failed without being sent: an open breaker, arguments that do not fit
	TookMs   float64 `json:"took_ms"`           // of those sent, all together
	Breaker  string  `json:"breaker,omitempty"` // its state as this executor sees it; empty is closed
}

// maxTallies is how many tools a Presence tells of: those with the most to tell since the last one.
const maxTallies = 50

// A tally is what a toolState counts. It costs an attempt four additions, and no lock.
type tally struct {
	out, attempts, errors, refused, took atomic.Int64 // took is nanoseconds

	said int64 // attempts and refused when a Presence was last made: meet's alone
}

// ended counts the end of an attempt.
func (c *tally) ended(sent, failed bool, took time.Duration) {
	c.out.Add(-1)
	switch {
	case sent:
		c.attempts.Add(1)
		c.took.Add(int64(took))
		if failed {
			c.errors.Add(1)
		}
	case failed:
		c.refused.Add(1)
	}
}

// count counts the end of an attempt as the turn tells it.
func (a *attempt) count(do *turn.Effect, took time.Duration) {
	a.ready.state.tally.ended(a.out, do.Verdict != nil, took)
}

// tell fills in what a Presence says of turns, calls and tools.
func (e *Executor) tell(now time.Time, p *Presence) {
	p.InFlight = e.InFlight()
	e.mu.Lock()
	p.Turns = len(e.runs)
	e.mu.Unlock()

	type busy struct {
		*toolState
		out, sum, news int64
	}
	var all []busy
	e.tools.Range(func(_, v any) bool {
		s := v.(*toolState)
		b := busy{toolState: s, out: s.tally.out.Load(), sum: s.tally.attempts.Load() + s.tally.refused.Load()}
		if b.news, s.tally.said = b.sum-s.tally.said, b.sum; b.out > 0 || b.sum > 0 {
			all = append(all, b)
		}
		return true
	})
	p.MoreTools = max(0, len(all)-maxTallies)
	slices.SortFunc(all, func(a, b busy) int {
		return cmp.Or(cmp.Compare(b.news+b.out, a.news+a.out), cmp.Compare(b.sum, a.sum), cmp.Compare(a.name, b.name))
	})
	for _, b := range all[:min(len(all), maxTallies)] {
		t := ToolTally{
			Tool: b.name, InFlight: int(max(0, b.out)), Refused: b.tally.refused.Load(), Attempts: b.tally.attempts.Load(), Errors: b.tally.errors.Load(),
			TookMs: float64(b.tally.took.Load()/1000) / 1000,
		}
		if v, ok := e.gates.byKey.Load(b.name); ok {
			if s := v.(*gate).view(now).State; s != breaker.Closed {
				t.Breaker = s.String()
			}
		}
		p.Tools = append(p.Tools, t)
	}
}
