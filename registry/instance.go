package registry

import (
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// An Instance is one live worker. The pointer is the same for as long as the worker lives, also when it was away for a
// moment in between, so a caller may hang counts of its own on it. Its methods may be called at any time by anyone; after
// the worker has left they tell what it said last.
type Instance struct {
	ID  string
	SDK string // e.g. toolbus-go/0.1.0; "" where it does not say

	capacity atomic.Int64
	running  atomic.Int64
	leaked   atomic.Int64
	draining atomic.Bool
	seen     atomic.Int64 // Unix nanoseconds
}

// Capacity is how many calls it runs at once; 0 where it does not say.
func (i *Instance) Capacity() int { return int(i.capacity.Load()) }

// Running is how many calls it ran at its last heartbeat, up to a second ago, whoever sent them.
func (i *Instance) Running() int { return int(i.running.Load()) }

// Leaked is how many of its handlers went on after their end was asked for.
func (i *Instance) Leaked() int { return int(i.leaked.Load()) }

// Draining says that it takes no new calls.
func (i *Instance) Draining() bool { return i.draining.Load() }

// LastSeen is when its last heartbeat came in, by the clock of this machine.
func (i *Instance) LastSeen() time.Time { return time.Unix(0, i.seen.Load()) }

// hear takes in what changes with every beat.
func (i *Instance) hear(now time.Time, hb *wire.Heartbeat) {
	i.capacity.Store(int64(hb.Capacity))
	i.running.Store(int64(hb.Running))
	i.leaked.Store(int64(hb.Leaked))
	i.draining.Store(hb.Draining)
	i.seen.Store(now.UnixNano())
}
