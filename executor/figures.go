package executor

import (
	"time"

	"github.com/toolbus/toolbus/breaker"
)

// Turns is how many turns are under way.
func (e *Executor) Turns() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// Breakers tells of every circuit breaker that this executor knows, as it sees it now. The key is the tool, or
// <tool>.<hash> for one partition of it.
func (e *Executor) Breakers(each func(key string, s breaker.State)) {
	now := time.Now()
	e.gates.each(func(g *gate) { each(g.key, g.view(now).State) })
}
