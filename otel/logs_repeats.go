package otel

import (
	"sync"
	"time"
)

const (
	quietTime  = 10 * time.Second // a warning or error that was said is held back so long when it comes again
	maxRepeats = 1000             // lines that are remembered
)

// repeats holds back what was said a moment ago: the first of its kind passes, and then one in quietTime, with how many
// there were between.
type repeats struct {
	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	last time.Time
	held int
}

func newRepeats() *repeats { return &repeats{seen: map[string]*repeat{}} }

// pass says whether a line may be said, and how many like it were held back since the last.
func (r *repeats) pass(now time.Time, line string) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.seen[line]
	switch {
	case was == nil:
		if len(r.seen) >= maxRepeats {
			r.forget(now)
		}
		if len(r.seen) < maxRepeats {
			r.seen[line] = &repeat{last: now}
		}
		return 0, true
	case now.Sub(was.last) < quietTime:
		was.held++
		return 0, false
	}
	held, was.last, was.held = was.held, now, 0
	return held, true
}

// forget makes room, by what was not said for a while. What is being held back stays.
func (r *repeats) forget(now time.Time) {
	for line, was := range r.seen {
		if now.Sub(was.last) >= quietTime {
			delete(r.seen, line)
		}
	}
}
