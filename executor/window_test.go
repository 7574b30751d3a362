package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

// A probed is a tool that counts its probes. It stops each when its time is over, as workers do.
type probed struct {
	limit int

	mu      sync.Mutex
	now     map[uint64]int // by half-open epoch
	most    int
	ran     int
	tooMany int // that came while the limit was running
}

func (p *probed) run(epoch uint64, d time.Duration) {
	p.mu.Lock()
	p.now[epoch]++
	p.ran++
	p.most = max(p.most, p.now[epoch])
	if p.now[epoch] > p.limit {
		p.tooMany++
	}
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	p.now[epoch]--
	p.mu.Unlock()
}

// A seat is an executor, as far as breakers go, with a line to the store and a caller.
type seat struct {
	t      *testing.T
	conn   *bus.Conn
	line   *kvstate.Line
	policy *breaker.Policy
	tool   *probed
	rng    *rand.Rand
	mu     sync.Mutex // guards rng

	gates *gates
	quit  func()
}

func (s *seat) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

func (s *seat) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	gs := newGates(s.line, s.conn, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	all.Go(func() { gs.run(ctx) })
	all.Go(func() { s.call(ctx, gs) })
	s.gates = gs
	s.quit = func() {
		cancel()
		gs.shut()
		all.Wait()
	}
}

// call calls the tool, which is ill but for some of its probes, until ctx ends. What runs then goes on and tells nobody.
func (s *seat) call(ctx context.Context, gs *gates) {
	for ctx.Err() == nil {
		now, g := time.Now(), gs.gate("tool", s.policy)
		var p pass
		if g.enter(now, &p, callFunc(func(p pass, ok bool) bool {
			if !ok || p.probe == nil {
				return false
			}
			left := time.Until(p.probe.until)
			if left <= 0 || s.roll(10) == 0 { // too late, or its caller is gone
				return false
			}
			d := min(left, time.Duration(s.roll(4000))*time.Millisecond)
			outcome := []breaker.Outcome{breaker.Success, breaker.Success, breaker.Failure, breaker.Neutral}[s.roll(4)]
			go func() {
				s.tool.run(p.epoch, d)
				if ctx.Err() == nil && s.roll(10) > 0 { // else it is lost
					g.report(time.Now(), &p, breaker.Report{Outcome: outcome}, "")
				}
			}()
			return true
		})) == breaker.Pass {
			g.report(now, &p, breaker.Report{Outcome: breaker.Failure}, "")
		}
		time.Sleep(time.Duration(20+s.roll(60)) * time.Millisecond)
	}
}

// trouble does something to the seat.
func (s *seat) trouble() string {
	upTo := func(d time.Duration) func() time.Duration {
		return func() time.Duration { return time.Duration(s.roll(int(d))) }
	}
	some := func() bool { return s.roll(3) == 0 }
	switch s.roll(8) {
	case 0:
		s.quit()
		s.line.Trouble(kvstate.Trouble{})
		s.start()
		return "crash"
	case 1:
		s.line.Trouble(kvstate.Trouble{There: upTo(6 * time.Second), Back: upTo(time.Second), Feed: upTo(6 * time.Second)})
		return "paused"
	case 2:
		s.line.Trouble(kvstate.Trouble{Away: true})
		return "away"
	case 3:
		s.line.Trouble(kvstate.Trouble{Lost: func() error {
			switch s.roll(3) {
			case 0:
				return kvstate.ErrConflict // a lie, as after a partition
			case 1:
				return errors.New("the answer was lost")
			}
			return nil
		}})
		return "lost answers"
	case 4:
		s.line.Trouble(kvstate.Trouble{Feed: upTo(4 * time.Second), Drop: some})
		return "slow feed"
	case 5:
		s.line.Trouble(kvstate.Trouble{There: upTo(900 * time.Millisecond), Lost: func() error {
			if some() {
				return errors.New("the answer was lost")
			}
			return nil
		}})
		return "slow and lossy"
	}
	s.line.Trouble(kvstate.Trouble{})
	return "well"
}

// While executors crash, are held up, lose answers and hear late, there are never more probes of one half-open
// epoch at the tool than the limit. With a limit of more than one, those of the epoch before may still run: a failed one
// does not stop the others. Those that an executor lets through alone, because the store is away, are not the
// fleet's and do not count here.
//
// TOOLBUS_LONG=1 looks at 10,000 windows. TOOLBUS_SEED takes the seed that a run printed.
func TestProbesNeverExceedTheLimit(t *testing.T) {
	windows := 150
	if os.Getenv("TOOLBUS_LONG") != "" {
		windows = 5_000
	}
	seed := seedOf(t)
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint("limit ", limit), func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) { probeWindows(t, seed, limit, windows) })
		})
	}
}

func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("TOOLBUS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("TOOLBUS_SEED: ", err)
		}
	}
	t.Logf("TOOLBUS_SEED=%d", seed)
	return seed
}

func probeWindows(t *testing.T, seed uint64, limit, windows int) {
	server, memory := natstest.InProcess(t), kvstate.NewMemory()
	policy := &breaker.Policy{FailureThreshold: 3, SuccessThreshold: 2, OpenFor: time.Second, OpenMost: time.Second, Probes: limit, ProbeLease: 3 * time.Second}
	tool := &probed{limit: limit, now: map[uint64]int{}}
	var seats []*seat
	for i := range 5 {
		s := &seat{t: t, conn: natstest.Connect(t, server), line: memory.Line(), policy: policy, tool: tool, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		s.start()
		seats = append(seats, s)
	}
	began := time.Now()
	rng, did := rand.New(rand.NewPCG(seed, 99)), map[string]int{}

	// A window is a half-open epoch that is told on a line without trouble.
	seen, last, opened := 0, uint64(0), time.Now()
	var longest time.Duration
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = memory.Line().Follow(ctx, func(u kvstate.Update) {
			var v breaker.Shared
			if u.Synced || wire.Decode(u.Value, &v) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			e := (&breaker.Seen{}).Next(time.Now(), v, u.Revision).Epoch()
			if e == last {
				return
			}
			last = e
			if v.State == breaker.HalfOpen.String() {
				seen++
				opened = time.Now()
			} else if v.State == breaker.Closed.String() || v.State == breaker.Open.String() {
				longest = max(longest, time.Since(opened))
				opened = time.Now()
			}
		})
	}()
	for {
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		did[seats[rng.IntN(len(seats))].trouble()]++
		mu.Lock()
		done := seen >= windows
		mu.Unlock()
		if done {
			break
		}
		mu.Lock()
		stuck := time.Since(opened)
		mu.Unlock()
		if stuck > 5*time.Minute {
			t.Errorf("nothing has happened for %v, after %d windows", stuck, seen)
			break
		}
	}
	for _, s := range seats {
		s.quit()
	}
	cancel()
	<-ended
	time.Sleep(10 * time.Second) // what runs at the tool ends
	synctest.Wait()
	t.Logf("%d windows in %v, %d probes, %d at once at most; the longest stay in one state took %v; %v", seen, time.Since(began).Round(time.Second), tool.ran, tool.most, longest.Round(time.Millisecond), did)
	if tool.tooMany > 0 {
		t.Errorf("%d of %d probes came while %d were running, want none", tool.tooMany, tool.ran, limit)
	}
	if tool.ran < windows/2 {
		t.Errorf("%d probes in %d windows: that was not much of a test", tool.ran, seen)
	}
}
