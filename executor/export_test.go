package executor

import (
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
)

// AddLate hands calls to a turn after d, all of which its timer is late.
func (e *Executor) AddLate(turn string, d time.Duration, calls ...tool.Call) *fault.Fault {
	r := e.find(turn)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alarm.timer.Stop()
	time.Sleep(d)
	return r.add(calls)
}

// Peers is how many workers the executor remembers.
func (e *Executor) Peers() int {
	n := 0
	e.peers.byID.Range(func(_, _ any) bool { n++; return true })
	return n
}

// Held is how many attempts stand on the accounts of workers.
func (e *Executor) Held() int {
	n := 0
	e.peers.byID.Range(func(_, v any) bool {
		p := v.(*peer)
		p.mu.Lock()
		n += len(p.attempts)
		p.mu.Unlock()
		return true
	})
	return n
}

// KnownTools is how many tools the executor keeps a state of.
func (e *Executor) KnownTools() int {
	n := 0
	e.tools.Range(func(_, _ any) bool { n++; return true })
	return n
}

// Runs is how many turns the executor knows.
func (e *Executor) Runs() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// Lookup is what the executor's turns ask of tools.
func (e *Executor) Lookup() func(name string) *turn.Tool { return e.lookup }

// MaxKeeping is how many bytes of late results may be on their way to the journal.
const MaxKeeping = maxKeeping

// Keeping counts n more of them, and says how many there are.
func (e *Executor) Keeping(n int64) int64 { return e.keeping.Add(n) }
