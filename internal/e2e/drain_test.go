//go:build unix

package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

// A worker that is told to stop lets its calls end.
func TestWorkerDrains(t *testing.T) {
	_, url := dev(t)
	b := newBench(t)
	w := b.worker(url, "w1", b.manifest("pause", tool.Write))
	c := newCaller(t, url)
	var calls []<-chan end
	for i := range 4 {
		calls = append(calls, c.calling(fmt.Sprintf("t%d", i), "pause", 0.5))
	}
	b.await("start", len(calls))
	w.stop(syscall.SIGTERM, cli.ExitOK)
	for _, done := range calls {
		if e := ends(t, done); !e.ok() {
			t.Errorf("%v, want a success", e)
		}
	}
}

// Both workers are replaced, one after the other, under load. The tool is a write, so nothing that was lost could be
// sent again: every call must succeed by itself.
func TestRollingRestart(t *testing.T) {
	url := natstest.URL(t)
	serve(t, url)
	b := newBench(t)
	manifest := b.manifest("pause", tool.Write)
	workers := []*process{b.worker(url, "w1-0", manifest, "--concurrency", "8"), b.worker(url, "w2-0", manifest, "--concurrency", "8")}
	c := newCaller(t, url)
	s := newSpy(t, c.conn)

	const callers, least = 4, 200
	var n atomic.Int64
	rolling := make(chan struct{})
	all := make(chan end, 100_000)
	var wait sync.WaitGroup
	for range callers {
		wait.Go(func() {
			for {
				i := n.Add(1)
				select {
				case <-rolling:
					if i > least {
						return
					}
				default:
				}
				all <- c.call(fmt.Sprintf("t%d", i), "pause", 0.01)
			}
		})
	}
	for round := 1; round <= 3; round++ {
		for i, w := range workers {
			b.await("end", 10*round)
			w.stop(syscall.SIGTERM, cli.ExitOK)
			workers[i] = b.worker(url, fmt.Sprintf("w%d-%d", i+1, round), manifest, "--concurrency", "8")
		}
	}
	close(rolling)
	wait.Wait()
	close(all)

	starts := b.starts()
	t.Logf("%d calls during six restarts", len(all))
	for e := range all {
		if !e.ok() || starts[e.turn+"/c1"] != 1 || s.ended(e.turn) != 1 {
			t.Errorf("%v: started %d times, ended %d times, want a success and one of each", e, starts[e.turn+"/c1"], s.ended(e.turn))
		}
	}
}
