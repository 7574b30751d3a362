package retry

import (
	"sync"
	"time"
)

// The budget that a tool has unless told otherwise (design §6).
const (
	BudgetRatio     = 0.2 // retries for each first attempt
	BudgetPerSecond = 10  // and besides, so that a tool that is seldom called is retried at all
)

// BudgetSpent is the reason to give when Withdraw refuses.
const BudgetSpent = "the retry budget of this tool is used up: too many of its calls are failing"

// minBurst is the least that a budget can save up.
const minBurst = 100

// A Budget bounds the retries of all calls of one tool: a bucket of tokens, of which each first attempt adds a part and
// each retry takes one. Over any stretch of time,
//
//	retries ≤ ratio × first attempts + perSecond × seconds + burst
//
// where burst, the most that can be saved up, is what ten seconds bring and at least 100. It starts with one second's
// worth. Each executor has its own; they are not shared, but Split among those that live, so that perSecond and burst hold
// for all of them together. Safe for concurrent use. Make one with NewBudget or BudgetOf.
type Budget struct {
	ratio, perSecond, burst float64 // for all executors together

	mu     sync.Mutex
	among  float64 // executors
	tokens float64
	last   time.Time // when tokens was right; zero before the first use
}

// NewBudget is the budget that a tool has unless told otherwise.
func NewBudget() *Budget { return BudgetOf(BudgetRatio, BudgetPerSecond) }

// BudgetOf is a budget of ratio retries for each first attempt plus perSecond a second. Negative numbers count as zero.
func BudgetOf(ratio, perSecond float64) *Budget {
	ratio, perSecond = within(ratio, 0, 1e6), within(perSecond, 0, 1e6)
	return &Budget{
		ratio:     ratio,
		perSecond: perSecond,
		among:     1,
		burst:     max(minBurst, 10*perSecond),
		tokens:    perSecond,
	}
}

// Split gives this executor its part of perSecond and burst, which are for so many executors. One or less is one.
func (b *Budget) Split(executors int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.among = float64(max(executors, 1))
	b.tokens = min(b.tokens, b.most())
}

// most is what can be saved up: always enough for one retry.
func (b *Budget) most() float64 { return max(b.burst/b.among, 1) }

// Deposit counts one first attempt.
func (b *Budget) Deposit(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	b.tokens = min(b.tokens+b.ratio, b.most())
}

// Withdraw pays for one retry, before it is waited for. Where it says false, do not retry, and say BudgetSpent.
func (b *Budget) Withdraw(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if !b.payable() {
		return false
	}
	b.tokens--
	return true
}

// Left says whether Withdraw would pay. Another call may be faster: only Withdraw decides.
func (b *Budget) Left(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.payable()
}

func (b *Budget) payable() bool { return b.tokens >= 1-1e-9 } // five times 0.2 is one

// refill adds what the time since last brings. Callers may be a little out of order: time only goes forward.
func (b *Budget) refill(now time.Time) {
	if b.last.IsZero() {
		b.last = now
	}
	if passed := now.Sub(b.last); passed > 0 {
		b.tokens = min(b.tokens+passed.Seconds()*b.perSecond/b.among, b.most())
		b.last = now
	}
}
