package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The comparison is fair only if the stores that gobreaker gets are: of many that lock, one holds.
func TestStoresLockProperly(t *testing.T) {
	check := func(t *testing.T, newStore func() store) {
		const replicas, each = 8, 25
		inside := 0
		var wg sync.WaitGroup
		for range replicas {
			s := newStore()
			wg.Go(func() {
				for range each {
					if err := s.Lock("l"); err != nil {
						t.Error(err)
						return
					}
					inside++ // the race detector sees where two hold it
					if err := s.Unlock("l"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if inside != replicas*each {
			t.Errorf("%d turns under the lock, want %d", inside, replicas*each)
		}
	}
	t.Run("memory", func(t *testing.T) {
		m := newMemory()
		check(t, func() store { return m })
	})
	t.Run("Redis", func(t *testing.T) {
		db, _, stop, err := startRedis(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		if db == nil {
			t.Skip("there is no redis-server in PATH")
		}
		check(t, func() store { return &shelf{db: db, tokens: map[string]string{}} })
	})
}

// Both sides must pass as what they are: one replica, a dead backend, and a breaker that opens; then a probe, and no more
// than one.
func TestRigsOpenAndProbe(t *testing.T) {
	m := newMemory()
	for _, k := range []maker{
		{"gobreaker", theirsIn(func() func() store { return func() store { return m } })},
		{"ours", startOurs},
	} {
		t.Run(k.name, func(t *testing.T) {
			b := &backend{}
			b.sick.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			r, err := k.make(ctx, spec{1, threshold, 300 * time.Millisecond, b})
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			until := func(want string, f func(said) bool) {
				for !f(r.call(ctx, 0, "")) {
					if ctx.Err() != nil {
						t.Fatalf("no call was %s", want)
					}
				}
			}
			until("refused", func(s said) bool { return s.refused })
			if n := b.ran.Load(); n < threshold {
				t.Errorf("it opened after %d calls, want %d at least", n, threshold)
			}
			b.sick.Store(false)
			until("let through", func(s said) bool { return s.ok })
		})
	}
}
