package breaker

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Many goroutines, one half-open breaker: never more probes at once than allowed, and it closes.
func TestCellHasOneProbeAtOnce(t *testing.T) {
	const successes = 100
	c := New(Policy{FailureThreshold: 1, SuccessThreshold: successes, OpenFor: s})
	fail(t, c, 1)
	later := noon.Add(s)

	var running, probes, closed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1_000_000 {
				if c.View(later).State == Closed {
					return
				}
				p, ok := c.Admit(later)
				if !ok || !p.Probe {
					continue
				}
				if n := running.Add(1); n > 1 {
					t.Errorf("%d probes at once, want 1", n)
				}
				probes.Add(1)
				running.Add(-1)
				if _, changed := c.Report(later, p, Success); changed {
					closed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if probes.Load() != successes || closed.Load() != 1 {
		t.Errorf("%d probes, closed %d times, want %d and once", probes.Load(), closed.Load(), successes)
	}
}

// Every change of state is returned once, and they form a chain.
func TestCellTellsEveryTransitionOnce(t *testing.T) {
	c := New(Policy{FailureThreshold: 3, SuccessThreshold: 2, OpenFor: time.Millisecond})
	var mu sync.Mutex
	seen := map[uint64]Transition{}
	saw := func(tr Transition, ok bool) {
		if !ok {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if other, twice := seen[tr.Epoch]; twice {
			t.Errorf("epoch %d began twice: %+v and %+v", tr.Epoch, other, tr)
		}
		seen[tr.Epoch] = tr
	}

	var clock atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				now := noon.Add(time.Duration(clock.Add(int64(10 * time.Microsecond))))
				if p, ok := c.Admit(now); ok {
					saw(p.Transition())
					saw(c.Report(now, p, Outcome((i+i/50+g)%3)))
				}
				if i%500 == 499 {
					saw(c.Force(now, State(i/500%2*3), "ann", "test", time.Millisecond))
					c.SetPolicy(Policy{FailureThreshold: 2, SuccessThreshold: 2, OpenFor: time.Millisecond})
				}
			}
		})
	}
	wg.Wait()

	last := c.Snapshot()
	for e := uint64(2); e <= last.Epoch; e++ {
		tr, ok := seen[e]
		if !ok {
			t.Fatalf("nobody was told how epoch %d of %d began", e, last.Epoch)
		}
		if prev, ok := seen[e-1]; ok && prev.To != tr.From {
			t.Errorf("epoch %d began from %s, but %d was %s", e, tr.From, e-1, prev.To)
		}
	}
	if last.Epoch < 10 {
		t.Errorf("only %d epochs: the test tests nothing", last.Epoch)
	}
}

func TestCellDoesNotAllocateWhileClosed(t *testing.T) {
	c := New(Default())
	if n := testing.AllocsPerRun(100, func() {
		p, _ := c.Admit(noon)
		c.Report(noon, p, Success)
	}); n != 0 {
		t.Errorf("Admit and Report allocate %v times, want 0", n)
	}
}

func BenchmarkClosed(b *testing.B) {
	c := New(Default())
	b.ReportAllocs()
	for b.Loop() {
		p, _ := c.Admit(noon)
		c.Report(noon, p, Success)
	}
}

func BenchmarkClosedParallel(b *testing.B) {
	c := New(Default())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, _ := c.Admit(noon)
			c.Report(noon, p, Success)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	c := New(Default())
	c.Force(noon, ForcedOpen, "ann", "benchmark", 0)
	b.ReportAllocs()
	for b.Loop() {
		c.Admit(noon)
	}
}
