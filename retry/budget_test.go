package retry

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func withdrawAll(b *Budget, now time.Time) (n int) {
	for b.Withdraw(now) {
		n++
	}
	return n
}

func TestBudget(t *testing.T) {
	b := NewBudget()
	if got := withdrawAll(b, noon); got != 10 {
		t.Errorf("a new budget pays for %d retries, want 10", got)
	}
	if b.Left(noon) {
		t.Error("Left() = true after the last one, want false")
	}
	for range 50 {
		b.Deposit(noon)
	}
	if got := withdrawAll(b, noon); got != 10 {
		t.Errorf("50 calls pay for %d retries, want 10", got)
	}
	if got := withdrawAll(b, noon.Add(500*ms)); got != 5 {
		t.Errorf("half a second pays for %d retries, want 5", got)
	}
	if got := withdrawAll(b, noon); got != 0 {
		t.Errorf("an earlier time pays for %d retries, want 0", got)
	}
	if got := withdrawAll(b, noon.Add(time.Hour)); got != 100 {
		t.Errorf("an idle hour pays for %d retries, want 100", got)
	}
}

func TestBudgetBoundsAmplification(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratio := rapid.Float64Range(0, 2).Draw(t, "ratio")
		perSecond := rapid.Float64Range(0, 50).Draw(t, "per second")
		b := BudgetOf(ratio, perSecond)
		b.Deposit(noon)
		now, calls, retries := noon, 1, 0
		for range rapid.IntRange(1, 500).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-10, 100).Draw(t, "ms")) * ms)
			if rapid.Bool().Draw(t, "call") {
				b.Deposit(now)
				calls++
			} else if b.Withdraw(now) {
				retries++
			}
		}
		// The clock goes back at times; what counts is how far it came. It starts with one second's worth.
		limit := ratio*float64(calls) + perSecond*(b.last.Sub(noon).Seconds()+1) + 1e-6
		if float64(retries) > limit {
			t.Fatalf("%d retries for %d calls, want at most %v", retries, calls, limit)
		}
	})
}

func TestBudgetIsShared(t *testing.T) {
	b := BudgetOf(0, 1000)
	var paid atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				b.Deposit(noon)
				if b.Withdraw(noon) {
					paid.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := paid.Load(); got != 1000 {
		t.Errorf("paid for %d retries, want 1000", got)
	}
}

func BenchmarkBudget(b *testing.B) {
	budget := NewBudget()
	b.ReportAllocs()
	for b.Loop() {
		budget.Deposit(noon)
		budget.Withdraw(noon)
	}
}
