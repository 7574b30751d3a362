package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A scenario is one row of the table for each size.
type scenario struct {
	name  string
	sizes []int
	run   func(ctx context.Context, c *config, m maker, replicas int) (string, error)
}

var scenarios = []scenario{
	{"failures recorded of 50 from each of %d replicas at once", []int{2, 4, 8, 16}, recorded},
	{"calls to a dead backend until all of %d refuse, as fast as they can", []int{1, 2, 4, 8, 16, 32}, burst},
	{"the same, %d replicas, 2 ms calls, 50 calls/s in all", []int{1, 8, 32}, paced},
	{"the same, %d replicas, 50 ms calls, 100 calls/s in all", []int{32}, slow},
	{"probes in one half-open window, %d replicas, one allowed", []int{1, 4, 16, 64}, probes},
	{"2 ms calls, %d replicas with 4 callers each", []int{2, 4, 8}, throughput},
	{"the store is away: what becomes of calls (%d replicas)", []int{2}, away},
	{"the record is lost: calls of 50 that run (%d replicas)", []int{2}, lost},
}

// compare runs every scenario on theirs and on ours.
func compare(ctx context.Context, c *config, r *report) error {
	db, version, stop, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer stop()
	makers := []maker{{"gobreaker, in memory", theirsIn(func() func() store {
		m := newMemory()
		return func() store { return m }
	})}}
	if db != nil {
		r.Notes["Redis"] = version
		makers = append(makers, maker{"gobreaker, Redis", theirsIn(func() func() store {
			return func() store { return &shelf{db: db, tokens: map[string]string{}} }
		})})
	} else {
		r.Notes["Redis"] = "SKIPPED: there is no redis-server in PATH. Install it (apt install redis-server) to have gobreaker measured on it too."
		fmt.Fprintln(c.out, "!!! SKIPPED Redis:", r.Notes["Redis"])
	}
	makers = append(makers, maker{"shared breakers (ours)", startOurs})
	r.Head = []string{"scenario"}
	for _, m := range makers {
		r.Head = append(r.Head, m.name)
	}
	for _, s := range scenarios {
		for _, n := range s.sizes {
			name := fmt.Sprintf(s.name, n)
			if !strings.Contains(name, c.only) {
				continue
			}
			row := []string{name}
			for _, m := range makers {
				fmt.Fprintf(c.out, "%s: %s\n", m.name, name)
				got, err := s.run(ctx, c, m, n)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", m.name, name, err)
				}
				if ctx.Err() != nil {
					return ctx.Err()
				}
				row = append(row, got)
			}
			r.add(row...)
		}
	}
	return nil
}

func (c *config) trials() int {
	if c.rounds > 0 {
		return c.rounds
	}
	return 5
}

// together has each replica do something, all at once.
func together(n int, f func(replica int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() { <-start; f(i) })
	}
	close(start)
	wg.Wait()
}

// recorded: a threshold that nothing reaches, and failures from all replicas. How many does the shared record know of?
func recorded(ctx context.Context, _ *config, m maker, replicas int) (string, error) {
	const each = 50
	b := &backend{takes: time.Millisecond}
	r, err := m.make(ctx, spec{replicas, 1_000_000, time.Minute, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	b.sick.Store(true)
	together(replicas, func(i int) {
		for range each {
			r.call(ctx, i, "")
		}
	})
	got, err := r.recorded(ctx, "")
	if err != nil {
		return "", err
	}
	ran := int(b.ran.Load())
	if ran == 0 {
		return "", fmt.Errorf("no call reached the backend")
	}
	return fmt.Sprintf("%d of %d: %.1f %% lost", got, ran, 100*float64(ran-got)/float64(ran)), nil
}

const threshold = 5

// burst: a dead backend, and every replica calls again and again until it is refused.
func burst(ctx context.Context, c *config, m maker, replicas int) (string, error) {
	return leaked(ctx, c, m, replicas, 2*time.Millisecond, c.trials(), func(context.Context, *rand.Rand) {})
}

// paced: the same at the rate at which agents call tools.
func paced(ctx context.Context, c *config, m maker, replicas int) (string, error) {
	return leaked(ctx, c, m, replicas, 2*time.Millisecond, c.trials(), poisson(time.Second*time.Duration(replicas)/50))
}

// slow: calls that take as long as calls of tools do, so that some are always under way.
func slow(ctx context.Context, c *config, m maker, replicas int) (string, error) {
	return leaked(ctx, c, m, replicas, 50*time.Millisecond, min(c.trials(), 3), poisson(time.Second*time.Duration(replicas)/100))
}

// poisson waits for so long on average.
func poisson(each time.Duration) func(context.Context, *rand.Rand) {
	return func(ctx context.Context, dice *rand.Rand) {
		t := time.NewTimer(time.Duration(dice.ExpFloat64() * float64(each)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

func leaked(ctx context.Context, c *config, m maker, replicas int, takes time.Duration, trials int, pause func(context.Context, *rand.Rand)) (string, error) {
	b := &backend{takes: takes}
	r, err := m.make(ctx, spec{replicas, threshold, time.Minute, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	b.sick.Store(true)
	var all, took []int64
	for trial := range trials {
		before, began := b.ran.Load(), time.Now()
		key := fmt.Sprint("t", trial)
		together(replicas, func(i int) {
			dice := rand.New(rand.NewPCG(c.seed, uint64(trial*1000+i)))
			for ctx.Err() == nil {
				pause(ctx, dice)
				if s := r.call(ctx, i, key); s.refused {
					return
				}
			}
		})
		all, took = append(all, b.ran.Load()-before), append(took, time.Since(began).Milliseconds())
	}
	return spread(all) + " in " + spread(took) + " ms", nil
}

// probes: an open breaker whose time has come, a backend that is still dead, and all replicas call at once. The first
// probe fails, so no other should go.
func probes(ctx context.Context, c *config, m maker, replicas int) (string, error) {
	const openFor = 2 * time.Second
	b := &backend{takes: 20 * time.Millisecond}
	r, err := m.make(ctx, spec{replicas, threshold, openFor, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	b.sick.Store(true)
	var all []int64
	for trial := range min(c.trials(), 3) {
		key := fmt.Sprint("t", trial)
		for i := 0; ctx.Err() == nil; { // one after the other, so that nothing is in flight when it opens
			if !r.call(ctx, i, key).refused {
				continue
			}
			if i++; i == replicas {
				break
			}
		}
		time.Sleep(openFor + 100*time.Millisecond)
		before := b.ran.Load()
		together(replicas, func(i int) { r.call(ctx, i, key) })
		all = append(all, b.ran.Load()-before)
	}
	return spread(all), nil
}

// throughput: a well backend whose calls take 2 ms.
func throughput(ctx context.Context, _ *config, m maker, replicas int) (string, error) {
	const callers, lasts = 4, 3 * time.Second
	b := &backend{takes: 2 * time.Millisecond}
	r, err := m.make(ctx, spec{replicas, threshold, time.Minute, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	var mu sync.Mutex
	var took []time.Duration
	var bad atomic.Int64
	end := time.Now().Add(lasts)
	together(replicas*callers, func(i int) {
		var mine []time.Duration
		for time.Now().Before(end) && ctx.Err() == nil {
			began := time.Now()
			if !r.call(ctx, i%replicas, "").ok {
				bad.Add(1)
			}
			mine = append(mine, time.Since(began))
		}
		mu.Lock()
		took = append(took, mine...)
		mu.Unlock()
	})
	out := fmt.Sprintf("%.0f/s, p99 %s, max %s", float64(len(took))/lasts.Seconds(), ms(at(99, took)), ms(at(100, took)))
	if n := bad.Load(); n > 0 {
		out += fmt.Sprintf(", %d failed", n)
	}
	return out, nil
}

// away: 20 calls to a well backend while a part of the store does not answer; then the backend dies, too.
func away(ctx context.Context, _ *config, m maker, replicas int) (string, error) {
	b := &backend{}
	r, err := m.make(ctx, spec{replicas, threshold, time.Minute, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	for i := range replicas {
		if s := r.call(ctx, i, ""); !s.ok {
			return "", fmt.Errorf("before the outage: %w", s.err)
		}
	}
	var lines []string
	for _, o := range r.(outages).outages() {
		if err := o.begin(); err != nil {
			return "", err
		}
		calls := 20
		if o.name == "lock" {
			calls = 1 // each waits for five seconds
		}
		before, ok, most := b.ran.Load(), 0, time.Duration(0)
		var said error
		for i := range calls {
			began := time.Now()
			s := r.call(ctx, i%replicas, "")
			most = max(most, time.Since(began))
			if s.ok {
				ok++
			}
			said = s.err
		}
		line := fmt.Sprintf("%s: %d of %d ran, %d said to succeed, max %s", o.name, b.ran.Load()-before, calls, ok, ms(most))
		if said != nil {
			line += fmt.Sprintf(" (%v)", said)
		}
		if calls > 1 {
			line += ", " + dies(ctx, r, b, replicas)
		}
		lines = append(lines, line)
		if o.end != nil {
			if err := o.end(); err != nil {
				return "", err
			}
		}
	}
	return strings.Join(lines, "; "), nil
}

// dies has the backend die while the store is away, and each replica call it until it is refused, 100 times at most.
func dies(ctx context.Context, r rig, b *backend, replicas int) string {
	b.sick.Store(true)
	defer b.sick.Store(false)
	before, open := b.ran.Load(), make([]bool, replicas)
	for range 100 {
		for i := range replicas {
			open[i] = open[i] || r.call(ctx, i, "").refused
		}
		if !slices.Contains(open, false) {
			return fmt.Sprintf("then dead: %d calls reach it until all refuse", b.ran.Load()-before)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Sprintf("then dead: %d of 200 calls reach it, and it never opens", b.ran.Load()-before)
}

// lost: the record is gone from the store, and the backend is well.
func lost(ctx context.Context, _ *config, m maker, replicas int) (string, error) {
	b := &backend{}
	r, err := m.make(ctx, spec{replicas, threshold, time.Minute, b})
	if err != nil {
		return "", err
	}
	defer r.close()
	b.sick.Store(true)
	r.call(ctx, 0, "")
	b.sick.Store(false)
	if _, err := r.recorded(ctx, ""); err != nil { // it is there
		return "", err
	}
	if err := r.lose(ctx, ""); err != nil {
		return "", err
	}
	before := b.ran.Load()
	var said error
	for i := range 50 {
		if s := r.call(ctx, i%replicas, ""); s.err != nil {
			said = s.err
		}
	}
	out := fmt.Sprintf("%d of 50", b.ran.Load()-before)
	if said != nil {
		out += fmt.Sprintf(" (%v)", said)
	}
	return out, nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
