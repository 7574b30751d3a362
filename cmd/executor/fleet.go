package main

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/wire"
)

// A fleet is what was heard of executors, workers and breakers, folded. It is told the time, asks nobody and is bounded:
// what it hears comes from the network.
type fleet struct {
	executors map[string]*heardExecutor
	workers   map[string]*heardWorker
	breakers  map[string]heardBreaker // as the event said that was last heard of each
	changes   []topChange             // of breakers, the newest last
}

const (
	maxHeard   = 10_000                  // executors, workers, and breakers each
	maxChanges = 100                     // of breakers
	rateWindow = 6                       // presences that a rate is worked out of: five seconds
	silence    = 3500 * time.Millisecond // after it an executor does not live any more
)

type heardExecutor struct {
	executor.Presence
	history []tallies // the newest last
}

// tallies are those of one Presence.
type tallies struct {
	at   time.Time
	by   map[string]executor.ToolTally
	more bool // there were others
}

type heardWorker struct {
	wire.Heartbeat
	at time.Time
}

type heardBreaker struct {
	at    time.Time
	state string
}

func newFleet() *fleet {
	return &fleet{executors: map[string]*heardExecutor{}, workers: map[string]*heardWorker{}, breakers: map[string]heardBreaker{}}
}

// presence takes in what an executor says of itself.
func (f *fleet) presence(now time.Time, p executor.Presence) {
	x := f.executors[p.Executor]
	if x == nil {
		if len(f.executors) >= maxHeard {
			return
		}
		x = new(heardExecutor)
		f.executors[p.Executor] = x
	}
	t := tallies{now, make(map[string]executor.ToolTally, len(p.Tools)), p.MoreTools > 0}
	for _, line := range p.Tools {
		t.by[line.Tool] = line
	}
	if len(x.history) == rateWindow {
		x.history = append(x.history[:0], x.history[1:]...)
	}
	x.Presence, x.history = p, append(x.history, t)
}

// beat takes in a heartbeat. One that is older than what is known of the worker is not news.
func (f *fleet) beat(now time.Time, hb wire.Heartbeat) {
	w := f.workers[hb.Worker]
	switch {
	case w != nil && hb.Seq < w.Seq && hb.State != wire.Hello:
	case hb.State == wire.Bye:
		delete(f.workers, hb.Worker)
	case w != nil || len(f.workers) < maxHeard:
		f.workers[hb.Worker] = &heardWorker{hb, now}
	}
}

// changed takes in the change of a breaker.
func (f *fleet) changed(now time.Time, ev wire.Event) {
	if _, known := f.breakers[ev.Tool]; known || len(f.breakers) < maxHeard {
		f.breakers[ev.Tool] = heardBreaker{now, ev.BreakerState}
	}
	if len(f.changes) == maxChanges {
		f.changes = append(f.changes[:0], f.changes[1:]...)
	}
	f.changes = append(f.changes, topChange{at: now, Time: now.UTC().Format(time.RFC3339), Tool: ev.Tool, Breaker: ev.BreakerState, Because: ev.Because, Executor: ev.Executor})
}

// expire forgets who was silent for too long.
func (f *fleet) expire(now time.Time) {
	maps.DeleteFunc(f.executors, func(_ string, x *heardExecutor) bool { return now.Sub(x.history[len(x.history)-1].at) > silence })
	maps.DeleteFunc(f.workers, func(_ string, w *heardWorker) bool {
		return now.Sub(w.at) > time.Duration(w.EveryMs)*time.Millisecond*7/2
	})
}

// A topView is the fleet at a moment, as --json prints it.
type topView struct {
	Time      string        `json:"timestamp"`
	Away      bool          `json:"away,omitempty"` // the bus: what stands here is old
	Executors []topExecutor `json:"executors"`
	Workers   []topWorker   `json:"workers"`
	Tools     []topTool     `json:"tools"`
	MoreTools int           `json:"more_tools,omitempty"` // called less, and told of by nobody
	Changes   []topChange   `json:"breaker_changes"`      // the newest first
}

type topExecutor struct {
	Executor string  `json:"executor"`
	InFlight int     `json:"in_flight"`
	Turns    int     `json:"turns"`
	Breakers string  `json:"breakers"`
	Rate     float64 `json:"attempts_per_second"`
}

type topWorker struct {
	Worker   string `json:"worker"`
	Running  int    `json:"running"`
	Capacity int    `json:"capacity"`
	Leaked   int    `json:"leaked,omitempty"`
	Draining bool   `json:"draining,omitempty"`
	Tools    int    `json:"tools"`
	SDK      string `json:"sdk,omitempty"`
}

// A topTool is one tool over all executors. Rates are those of the last five seconds.
type topTool struct {
	Tool     string  `json:"tool"`
	Breaker  string  `json:"breaker"`
	Workers  int     `json:"workers"`
	InFlight int     `json:"in_flight"`
	Attempts int64   `json:"attempts"` // since the executors started
	Rate     float64 `json:"attempts_per_second"`
	Errors   float64 `json:"errors_per_second"`
	Refused  float64 `json:"refused_per_second"` // not sent: an open breaker, arguments that do not fit
	MeanMs   float64 `json:"mean_ms"`
}

type topChange struct {
	at       time.Time
	Time     string `json:"timestamp"`
	Tool     string `json:"tool"`
	Breaker  string `json:"breaker"`
	Because  string `json:"because,omitempty"`
	Executor string `json:"executor,omitempty"`
}

// look is the fleet now: everything by name, and changes the newest first.
func (f *fleet) look(now time.Time) topView {
	f.expire(now)
	v := topView{Time: now.UTC().Format(time.RFC3339), Executors: []topExecutor{}, Workers: []topWorker{}, Tools: []topTool{}, Changes: slices.Clone(f.changes)}
	if v.Changes == nil {
		v.Changes = []topChange{}
	}
	slices.Reverse(v.Changes)

	tools := map[string]*toolSum{}
	sum := func(name string) *toolSum {
		s := tools[name]
		if s == nil {
			s = &toolSum{topTool: topTool{Tool: name, Breaker: breaker.Closed.String()}}
			tools[name] = s
		}
		return s
	}
	for _, w := range f.workers {
		v.Workers = append(v.Workers, topWorker{w.Worker, w.Running, w.Capacity, w.Leaked, w.Draining, len(w.Tools), w.SDK})
		for _, l := range w.Tools {
			sum(l.ID).Workers++
		}
	}
	for name, b := range f.breakers { // of which executors say more below, unless there are more tools than they tell of
		if b.state != breaker.Closed.String() {
			sum(name).Breaker = b.state
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.executors)) {
		x := f.executors[id]
		e := topExecutor{x.Executor, x.InFlight, x.Turns, x.Breakers, 0}
		for name, d := range x.rates() {
			s := sum(name)
			s.add(d)
			s.state(d.Breaker, x.history[len(x.history)-1].at, f.breakers[name])
			e.Rate += d.rate
		}
		v.Executors = append(v.Executors, e)
		v.MoreTools = max(v.MoreTools, x.MoreTools) // others may tell of the same ones
	}
	for _, s := range tools {
		v.Tools = append(v.Tools, s.done())
	}
	slices.SortFunc(v.Workers, func(a, b topWorker) int { return cmp.Compare(a.Worker, b.Worker) })
	slices.SortFunc(v.Tools, func(a, b topTool) int { return cmp.Compare(a.Tool, b.Tool) })
	return v
}

// A difference is what one executor did at one tool, for each second.
type difference struct {
	executor.ToolTally
	rate, errors, refused, tookMs float64
}

// rates are those of all tools that the executor's last Presence tells of. What it has not told of before has none yet,
// unless it had told of all tools: then it is new, and began at zero.
func (x *heardExecutor) rates() map[string]difference {
	last := x.history[len(x.history)-1]
	all := make(map[string]difference, len(last.by))
	for name, now := range last.by {
		d := difference{ToolTally: now}
		for _, then := range x.history[:len(x.history)-1] {
			was, told := then.by[name]
			if !told && then.more {
				continue
			}
			if s := last.at.Sub(then.at).Seconds(); s > 0 {
				d.rate, d.errors = grown(was.Attempts, now.Attempts)/s, grown(was.Errors, now.Errors)/s
				d.refused, d.tookMs = grown(was.Refused, now.Refused)/s, max(0, now.TookMs-was.TookMs)/s
			}
			break
		}
		all[name] = d
	}
	return all
}

// grown is how much a count has grown: not less than nothing, whatever was said.
func grown(was, now int64) float64 { return max(0, float64(now)-float64(was)) }

// A toolSum is a topTool on its way.
type toolSum struct {
	topTool
	tookMs float64
	told   bool // an executor told of its breaker
}

func (s *toolSum) add(d difference) {
	s.InFlight += max(0, d.InFlight)
	s.Attempts += max(0, d.ToolTally.Attempts)
	s.Rate += d.rate
	s.Errors += d.errors
	s.Refused += d.refused
	s.tookMs += d.tookMs
}

// state takes in how an executor sees the breaker; the worst that one of them sees is shown. What it said before the
// last change was heard does not count.
func (s *toolSum) state(seen string, at time.Time, heard heardBreaker) {
	if at.Before(heard.at) {
		return
	}
	if seen = cmp.Or(seen, breaker.Closed.String()); !s.told || badness(seen) > badness(s.Breaker) {
		s.Breaker = seen
	}
	s.told = true
}

func (s *toolSum) done() topTool {
	if s.Rate > 0 {
		s.MeanMs = s.tookMs / s.Rate
	}
	return s.topTool
}

// badness orders the states of a breaker.
func badness(state string) int {
	return slices.Index([]string{
		breaker.Closed.String(), breaker.Disabled.String(), breaker.ForcedClosed.String(), breaker.HalfOpen.String(), breaker.Open.String(), breaker.ForcedOpen.String(),
	}, state)
}
