package main

import (
	"math"
	"slices"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/retry"
)

// The tool: 40 workers of 40 ms, which is 1,000 calls a second at most, behind a queue. 20 replicas bring 700.
const (
	replicas  = 20
	offered   = 700.0
	workers   = 40
	service   = 40 * time.Millisecond
	room      = 2000 // in the queue
	timeout   = 500 * time.Millisecond
	sickFrom  = 30 * time.Second
	sickUntil = 40 * time.Second
	ends      = 164 * time.Second
)

// A strategy is what replicas do about failures, and what workers do about calls that nobody waits for any more.
type strategy struct {
	name   string
	retry  bool
	budget func() *retry.Budget // of one replica; nil: none
	guard  kind
	drop   bool // the worker drops a call whose time is over before it begins
}

// three is the default policy with one attempt less: three retries.
func three() retry.Policy {
	p := retry.Default()
	p.MaxAttempts = 4
	return p
}

func tenth() *retry.Budget { return retry.BudgetOf(0.1, 0) }

// divided is the shipping budget, but the retries that each replica has in any case are divided among all.
func divided() *retry.Budget {
	return retry.BudgetOf(retry.BudgetRatio, retry.BudgetPerSecond/float64(replicas))
}

var strategies = []strategy{
	{name: "no retry", guard: unguarded},
	{name: "naive: 3 retries", guard: unguarded, retry: true},
	{name: "naive + deadline", guard: unguarded, retry: true, drop: true},
	{name: "budget 10 %", guard: unguarded, retry: true, budget: tenth},
	{name: "budget as shipped", guard: unguarded, retry: true, budget: retry.NewBudget},
	{name: "budget, floor divided", guard: unguarded, retry: true, budget: divided},
	{name: "naive + local breakers", guard: local, retry: true},
	{name: "budget + local", guard: local, retry: true, budget: retry.NewBudget},
	{name: "budget + shared", guard: shared, retry: true, budget: retry.NewBudget},
	{name: "budget + shared + deadline", guard: shared, retry: true, budget: retry.NewBudget, drop: true},
}

// A course is what a run came to, second by second.
type course struct {
	offered, attempts, good []float64
	seconds                 int // that are looked at; the last ones see calls that are not over
	failed                  int
	trips, probes           int
	writes, conflicts       int
}

// A request is one attempt at the tool.
type request struct {
	ends time.Time
	over bool // somebody was told how it went
	tell func(breaker.Outcome)
}

// A pool is the tool.
type pool struct {
	*clock
	slow  float64 // how many times longer a call takes while it is sick
	drop  bool
	busy  int
	queue []*request
}

// load is one run that lasts so long. Slow is how many times longer the tool takes for ten seconds.
func load(s strategy, slow float64, lasts time.Duration, seed uint64) *course {
	c := newClock(seed)
	f := newFleet(c, s.guard, replicas, breaker.Policy{OpenFor: 2 * time.Second})
	p := &pool{clock: c, slow: slow, drop: s.drop}
	out := &course{seconds: int(lasts/time.Second) - 4}
	for _, list := range []*[]float64{&out.offered, &out.attempts, &out.good} {
		*list = make([]float64, int(lasts/time.Second)+1)
	}
	count := func(list []float64) { list[int(c.passed()/time.Second)]++ }

	policy := three()
	calls := 0
	for _, g := range f.guards {
		var budget *retry.Budget
		if s.budget != nil {
			budget = s.budget()
		}
		c.poisson(offered/replicas, lasts-3*time.Second, func() {
			count(out.offered)
			if budget != nil {
				budget.Deposit(c.now)
			}
			calls++
			id := string(rune('a'+calls%26)) + time.Duration(calls).String()
			var first time.Time // failure
			var attempt func(n int)
			again := func(n int) {
				if first.IsZero() {
					first = c.now
				}
				wait, ok, _ := policy.Next(retry.Step{Attempt: n, Since: c.now.Sub(first), Roll: retry.Roll(seed, id, n+1), Remaining: retry.NoDeadline})
				if !s.retry || !ok || budget != nil && !budget.Left(c.now) {
					out.failed++
					return
				}
				c.after(wait, func() { attempt(n + 1) })
			}
			attempt = func(n int) {
				if n > 1 && budget != nil && !budget.Withdraw(c.now) {
					out.failed++
					return
				}
				g.admit(func(report func(breaker.Report)) {
					if report == nil {
						out.failed++ // circuit_open is not retried
						return
					}
					count(out.attempts)
					sent := c.now
					p.take(&request{ends: c.now.Add(timeout), tell: func(o breaker.Outcome) {
						report(breaker.Report{Outcome: o, Took: c.now.Sub(sent)})
						if o == breaker.Success {
							count(out.good)
							return
						}
						again(n)
					}})
				})
			}
			attempt(1)
		})
	}
	c.run(lasts - time.Millisecond)
	out.trips, out.probes, out.writes, out.conflicts = f.trips, f.probes, f.writes, f.conflicts
	return out
}

// take takes a request in. One for which there is no room is refused: that is overloaded, which says nothing of the
// tool's health. One that takes too long is a timeout, which the worker confirms.
func (p *pool) take(q *request) {
	if len(p.queue) >= room {
		p.after(time.Millisecond, func() { q.tell(breaker.Neutral) })
		return
	}
	p.after(timeout, func() { q.end(breaker.Failure) })
	p.queue = append(p.queue, q)
	p.work()
}

func (q *request) end(o breaker.Outcome) {
	if !q.over {
		q.over = true
		q.tell(o)
	}
}

func (p *pool) work() {
	for p.busy < workers && len(p.queue) > 0 {
		q := p.queue[0]
		p.queue = p.queue[1:]
		if p.drop && !p.now.Before(q.ends) {
			continue
		}
		takes := service
		if t := p.passed(); t >= sickFrom && t < sickUntil {
			takes = time.Duration(float64(service) * p.slow)
		}
		p.busy++
		p.after(p.about(takes), func() {
			p.busy--
			q.end(breaker.Success)
			p.work()
		})
	}
}

func sum(list []float64) (s float64) {
	for _, v := range list {
		s += v
	}
	return s
}

// amplification is attempts for each call while the tool was sick, and in the worst second.
func (c *course) amplification() (during, peak float64) {
	from, to := int(sickFrom/time.Second), int(sickUntil/time.Second)
	for t := 5; t < c.seconds; t++ {
		peak = max(peak, c.attempts[t]/max(1, c.offered[t]))
	}
	return sum(c.attempts[from:to]) / sum(c.offered[from:to]), peak
}

// recovered is how many seconds after the tool was well again five seconds began in which nine of ten calls succeeded;
// never, if there were none.
func (c *course) recovered() float64 {
	well := int(sickUntil / time.Second)
next:
	for t := well; t+5 < c.seconds; t++ {
		for i := t; i < t+5; i++ {
			if c.good[i] < 0.9*c.offered[i] {
				continue next
			}
		}
		return float64(t - well)
	}
	return never
}

// after is the share of calls that succeeded once the tool was well again, in percent.
func (c *course) after() float64 {
	from := int(sickUntil / time.Second)
	return 100 * sum(c.good[from:c.seconds]) / sum(c.offered[from:c.seconds])
}

// loads is the table of all strategies, and their courses: the median of each second.
func loads(o options, title, what string, slow float64) (*table, []series) {
	t := &table{Title: title, Says: what, Head: []string{
		"", "amplification", "worst second", "recovers after, s", "good after, %", "failed calls", "opened", "probes", "writes",
	}}
	var all []series
	for _, s := range strategies {
		courses := make([]*course, o.runs)
		got := o.each(func(seed uint64) []float64 {
			c := load(s, slow, ends, seed)
			courses[seed-o.seed] = c
			during, peak := c.amplification()
			return []float64{during, peak, c.recovered(), c.after(), float64(c.failed), float64(c.trips), float64(c.probes), float64(c.writes)}
		})
		t.add(s.name, got...)
		all = append(all, series{s.name, middle(courses)})
	}
	return t, all
}

// A series is a course with a name.
type series struct {
	name   string
	course *course
}

// middle is the course of medians.
func middle(courses []*course) *course {
	m := &course{}
	for t := range courses[0].seconds {
		at := func(list func(*course) []float64) float64 {
			var v []float64
			for _, c := range courses {
				v = append(v, list(c)[t])
			}
			return median(v)
		}
		m.offered = append(m.offered, at(func(c *course) []float64 { return c.offered }))
		m.attempts = append(m.attempts, at(func(c *course) []float64 { return c.attempts }))
		m.good = append(m.good, at(func(c *course) []float64 { return c.good }))
	}
	return m
}

func mean(v []float64) float64 { return sum(v) / float64(len(v)) }

const never = math.MaxFloat64 // JSON knows no infinity

// median is the middle one; of an even number the upper.
func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func brownout(o options) (*table, []series) {
	return loads(o, "brownout", "20 replicas, 700 calls/s, the tool does 1,000; from 30 s to 40 s it takes ten times as long; timeout 500 ms", 10)
}

func hang(o options) (*table, []series) {
	return loads(o, "hang", "the same, but from 30 s to 40 s a call takes 250 times as long", 250)
}
