package retry

import (
	"testing"
	"time"
)

func TestBudgetIsSplitAmongExecutors(t *testing.T) {
	now := time.Unix(0, 0)
	all := 0
	var parts [20]*Budget
	for i := range parts {
		parts[i] = NewBudget()
		parts[i].Split(len(parts))
	}
	for s := range 100 { // ten seconds without a first attempt
		for _, b := range parts {
			for b.Withdraw(now.Add(time.Duration(s) * 100 * time.Millisecond)) {
				all++
			}
		}
	}
	if most := 10*BudgetPerSecond + minBurst; all > most {
		t.Errorf("20 executors retried %d times in 10 s, want at most %d", all, most)
	}
	if all < 9*BudgetPerSecond {
		t.Errorf("20 executors retried %d times in 10 s, want about %d", all, 10*BudgetPerSecond)
	}
}
