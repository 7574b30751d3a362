package breaker

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Cell is a breaker that many goroutines share. While it is closed an admission is one atomic load, and so is the
// report of a success where no failure stands; everything else takes a lock of its own. Make one with New.
type Cell struct {
	// fast is the epoch while every call is let through, shifted left by one; the lowest bit says that a success would
	// change nothing. It is zero where the machine has to be asked, and written under mu only.
	fast atomic.Uint64

	mu      sync.Mutex
	machine Machine
}

// New is a closed breaker.
func New(p Policy) *Cell {
	c := &Cell{machine: *NewMachine(p)}
	c.publish()
	return c
}

// Admit says whether a call may go now. Report its permit when it has ended, whatever happened.
func (c *Cell) Admit(now time.Time) (Permit, bool) {
	if f := c.fast.Load(); f != 0 {
		return Permit{Epoch: f >> 1}, true
	}
	return c.admit(now)
}

func (c *Cell) admit(now time.Time) (Permit, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.publish()
	return c.machine.Admit(now)
}

// Report says how the call with this permit went, and returns the change of state that this caused, if any. Each change
// is returned to exactly one caller.
func (c *Cell) Report(now time.Time, p Permit, o Outcome) (Transition, bool) {
	if !p.Probe && (o == Neutral || o == Success && c.fast.Load() == p.Epoch<<1|1) {
		return Transition{}, false
	}
	return c.report(now, p, o)
}

func (c *Cell) report(now time.Time, p Permit, o Outcome) (Transition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.publish()
	return c.machine.Report(now, p, o)
}

// Force puts the breaker into a state by hand: see Machine.Force.
func (c *Cell) Force(now time.Time, s State, who, why string, for_ time.Duration) (Transition, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.publish()
	return c.machine.Force(now, s, who, why, for_)
}

// SetPolicy changes the rules and keeps the state: see Machine.SetPolicy.
func (c *Cell) SetPolicy(p Policy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.machine.SetPolicy(p)
}

// View is what there is to show now.
func (c *Cell) View(now time.Time) View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.View(now)
}

// Snapshot is what the breaker remembers, as a copy.
func (c *Cell) Snapshot() Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Snapshot()
}

// publish sets fast to what the machine has become. The caller holds mu.
func (c *Cell) publish() {
	c.fast.Store(c.machine.fast())
}

// fast is the word that Cell reads instead of asking: see there.
func (m *Machine) fast() uint64 {
	r := &m.rec
	switch {
	case r.State == Closed:
	case (r.State == ForcedClosed || r.State == Disabled) && r.Hold == 0:
	default:
		return 0
	}
	word := r.Epoch << 1
	if r.Failures == 0 {
		word |= 1
	}
	return word
}
