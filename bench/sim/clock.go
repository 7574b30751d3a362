package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// A clock is virtual time and what is to happen in it. Whatever is due at the same moment happens in the order in which
// it was asked for, and all dice are one seeded generator: the same seed gives the same run.
type clock struct {
	now   time.Time
	queue []event
	n     uint64
	dice  *rand.Rand
}

type event struct {
	at time.Time
	n  uint64
	do func()
}

// begun is when every run begins. It is not zero, which the breaker takes for never.
var begun = time.Unix(1_000_000_000, 0)

func newClock(seed uint64) *clock {
	return &clock{now: begun, dice: rand.New(rand.NewPCG(seed, 42))}
}

// passed is the time since the run began.
func (c *clock) passed() time.Duration { return c.now.Sub(begun) }

// after has do happen in d.
func (c *clock) after(d time.Duration, do func()) {
	c.n++
	c.queue = append(c.queue, event{c.now.Add(max(d, 0)), c.n, do})
	for i := len(c.queue) - 1; i > 0; {
		up := (i - 1) / 2
		if !c.queue[i].before(&c.queue[up]) {
			return
		}
		c.queue[i], c.queue[up] = c.queue[up], c.queue[i]
		i = up
	}
}

func (e *event) before(o *event) bool {
	if e.at.Equal(o.at) {
		return e.n < o.n
	}
	return e.at.Before(o.at)
}

// run lets happen what is due within d of the beginning.
func (c *clock) run(d time.Duration) {
	end := begun.Add(d)
	for len(c.queue) > 0 && !c.queue[0].at.After(end) {
		e := c.pop()
		c.now = e.at
		e.do()
	}
	c.now = end
}

func (c *clock) pop() event {
	q := c.queue
	first, last := q[0], len(q)-1
	q[0], q[last] = q[last], event{}
	c.queue = q[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if q[child].before(&q[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		q[i], q[least] = q[least], q[i]
		i = least
	}
}

// about is an exponentially distributed time with this mean.
func (c *clock) about(mean time.Duration) time.Duration {
	return time.Duration(-float64(mean) * math.Log(1-c.dice.Float64()))
}

// poisson has do happen at random, so often a second on average, until d after the beginning.
func (c *clock) poisson(perSecond float64, until time.Duration, do func()) {
	mean := time.Duration(float64(time.Second) / perSecond)
	var next func()
	next = func() {
		if c.passed() >= until {
			return
		}
		do()
		c.after(c.about(mean), next)
	}
	c.after(c.about(mean), next)
}
