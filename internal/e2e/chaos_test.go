//go:build unix

package e2e

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
)

// What must hold of every call while workers are killed, told to stop and paused at random:
//
//	it ends exactly once, for its client and on the wire
//	a write is started at most once, and exactly once where the result says that it succeeded
//	what is said not to have started has not
//
// TOOLBUS_E2E_SEED takes the seed that a run printed.
func TestRandomKills(t *testing.T) {
	length := 10 * time.Second
	if testing.Short() {
		length = 3 * time.Second
	}
	seed := seeded(t)

	url := natstest.URL(t)
	serve(t, url)
	b := newBench(t)
	// The breaker takes part, but lets go soon enough for a test.
	const limits = "timeout_ms: 3000\ncircuit_breaker: {timeout_ms: 300}"
	s := newSlots(b, url, seed, limits)
	c := newCaller(t, url)
	wire := newSpy(t, c.conn)

	var over atomic.Bool
	var calls sync.WaitGroup
	var mu sync.Mutex
	var all []end
	for g := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(g+1)))
		calls.Go(func() {
			for i := 0; !over.Load(); i++ {
				name := []string{"read", "write"}[i%2]
				e := c.call(fmt.Sprintf("%s-%d-%d", name, g, i), name, float64(rng.IntN(150))/1000)
				mu.Lock()
				all = append(all, e)
				mu.Unlock()
			}
		})
	}
	s.trouble(length)
	over.Store(true)
	calls.Wait()

	for _, name := range []string{"read", "write"} {
		until(t, "the breaker of "+name+" lets calls through", patience, func() bool { return c.call("", name, 0).kind() != fault.CircuitOpen })
		for range 3 {
			if e := c.call("", name, 0); !e.ok() {
				t.Errorf("after it all: %v, want a success", e)
			}
		}
	}

	starts := b.starts()
	how := map[string]int{}
	for _, e := range all {
		name, n := e.turn[:4], starts[e.turn+"/c1"]
		how[fmt.Sprintf("%s %s %d×", name, cmp.Or(string(e.kind()), "success"), n)]++
		if e.result == nil {
			t.Errorf("%v: no result, although the executor was well", e)
			continue
		}
		if got := wire.ended(e.turn); got != 1 {
			t.Errorf("%v: the turn ended %d times, want 1", e, got)
		}
		if name == "writ" && n > 1 {
			t.Errorf("%v: a write was started %d times", e, n)
		}
		if e.ok() && n == 0 {
			t.Errorf("%v, but it was never started", e)
		}
		if f := e.result.Fault; f != nil && f.Run() == fault.NotStarted && len(e.result.Attempts) == 1 && n != 0 {
			t.Errorf("%v: said not to have started, and was started %d times", e, n)
		}
	}
	t.Logf("%d calls, %d workers: %v; %v", len(all), s.made, s.did, how)
	if len(all) < 100 || how["read success 1×"] == 0 || how["writ success 1×"] == 0 || s.did["SIGKILL"] == 0 {
		t.Error("that was not much of a test")
	}
}

// seeded is the seed of a random test: a new one, or what TOOLBUS_E2E_SEED says.
func seeded(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TOOLBUS_E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("TOOLBUS_E2E_SEED: ", err)
		}
	}
	t.Logf("TOOLBUS_E2E_SEED=%d", seed)
	return seed
}

// long is for how long a random test goes on where somebody has the time: what TOOLBUS_LONG says, five minutes where that
// is no duration, and 0 where it says nothing.
func long() time.Duration {
	text := os.Getenv("TOOLBUS_LONG")
	if d, err := time.ParseDuration(text); err == nil {
		return d
	}
	if text != "" {
		return 5 * time.Minute
	}
	return 0
}

// Slots are places for workers. When one ends another takes its place.
type slots struct {
	b    *bench
	url  string
	rng  *rand.Rand
	all  []slot
	made int
	did  map[string]int
}

type slot struct {
	manifest string
	worker   *process
}

// newSlots are three workers of a read and three of a write, which have their effects' names.
func newSlots(b *bench, url string, seed uint64, limits string) *slots {
	b.t.Helper()
	s := &slots{b: b, url: url, rng: rand.New(rand.NewPCG(seed, 0))}
	for _, effect := range []tool.Effect{tool.Read, tool.Write} {
		manifest := b.manifest(string(effect), effect, limits)
		for range 3 {
			s.all = append(s.all, slot{manifest, s.worker(manifest)})
		}
	}
	return s
}

func (s *slots) worker(manifest string) *process {
	s.made++
	return s.b.worker(s.url, fmt.Sprintf("w%d", s.made), manifest, "--concurrency", "4", "--log-level", "error")
}

// trouble does something to one worker after the other, and leaves all of them well.
func (s *slots) trouble(length time.Duration) {
	s.did = map[string]int{}
	over := time.NewTimer(length)
	defer over.Stop()
	for {
		i := s.rng.IntN(len(s.all))
		next := time.NewTimer(time.Duration(s.rng.IntN(200)) * time.Millisecond)
		select {
		case <-next.C:
		case <-over.C:
			next.Stop()
			return
		}
		w := s.all[i].worker
		switch n := s.rng.IntN(10); {
		case n < 6:
			s.did["SIGKILL"]++
			w.kill()
			<-w.over
			s.all[i].worker = s.worker(s.all[i].manifest)
		case n < 8:
			s.did["SIGTERM"]++
			w.stop(syscall.SIGTERM, 0)
			s.all[i].worker = s.worker(s.all[i].manifest)
		default:
			s.did["SIGSTOP"]++
			goOn := w.pause()
			nap := time.NewTimer(time.Duration(s.rng.IntN(1500)) * time.Millisecond)
			<-nap.C
			goOn()
		}
	}
}
