package turn

import (
	"slices"
	"time"
)

// A timer is a call that waits for a time. Turn.timers is a binary heap of them, the soonest first, in which every call
// knows its place. Of those that are due at once the first in request order comes first, whatever the heap's past.
type timer struct {
	at time.Duration
	i  int32 // the call
}

func (a timer) before(b timer) bool { return a.at < b.at || a.at == b.at && a.i < b.i }

// next is when the soonest of them is due.
func (t *Turn) next() time.Duration {
	if len(t.timers) == 0 {
		return never
	}
	return t.timers[0].at
}

// whole is d in whole microseconds, which is what the turn reads off its clock: a time between two of them would be asked
// for and never be there.
func whole(d time.Duration) time.Duration {
	if rest := d % time.Microsecond; rest > 0 && d < never-time.Microsecond {
		return d + time.Microsecond - rest
	}
	return d
}

// schedule makes call i wait for at, and for no other time any more.
func (t *Turn) schedule(i int, at time.Duration) {
	c := &t.calls[i]
	at = whole(at)
	if c.slot < 0 {
		c.slot = int32(len(t.timers))
		if len(t.timers) == cap(t.timers) {
			t.timers = slices.Grow(t.timers, min(len(t.calls)-len(t.timers), maxSpare))
		}
		t.timers = append(t.timers, timer{at, int32(i)})
	}
	t.timers[c.slot].at = at
	t.fix(int(c.slot))
}

// unschedule makes call i wait for no time.
func (t *Turn) unschedule(i int) {
	k, last := int(t.calls[i].slot), len(t.timers)-1
	if k < 0 {
		return
	}
	t.swap(k, last)
	t.timers = t.timers[:last]
	t.calls[i].slot = -1
	if k < last {
		t.fix(k)
	}
}

func (t *Turn) fix(k int) {
	h := t.timers
	for k > 0 && h[k].before(h[(k-1)/2]) {
		t.swap(k, (k-1)/2)
		k = (k - 1) / 2
	}
	for {
		least := k
		for _, child := range [2]int{2*k + 1, 2*k + 2} {
			if child < len(h) && h[child].before(h[least]) {
				least = child
			}
		}
		if least == k {
			return
		}
		t.swap(k, least)
		k = least
	}
}

func (t *Turn) swap(a, b int) {
	h := t.timers
	h[a], h[b] = h[b], h[a]
	t.calls[h[a].i].slot, t.calls[h[b].i].slot = int32(a), int32(b)
}
