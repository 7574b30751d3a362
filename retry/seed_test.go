package retry

import (
	"slices"
	"testing"
	"time"

	"github.com/toolbus/toolbus/tool"
)

const ms = time.Millisecond

func TestSeed000_7_2_DelaysAreRight(t *testing.T) {
	var got []time.Duration
	for attempt := 1; attempt <= 5; attempt++ {
		got = append(got, Default().Delay(attempt, 0.5)) // the middle of the dice: no jitter
	}
	want := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms}
	if !slices.Equal(got, want) {
		t.Errorf("delays = %v, want %v", got, want)
	}
}

func TestSeed000_7_2_JitterWithinTenPercent(t *testing.T) {
	p := Default()
	for attempt := 2; attempt <= 5; attempt++ {
		base := p.Base(attempt - 1)
		if got, want := p.Delay(attempt, 0), base*9/10; got != want {
			t.Errorf("Delay(%d, 0) = %s, want %s", attempt, got, want)
		}
		if got, want := p.Delay(attempt, 1), base*11/10; got != want {
			t.Errorf("Delay(%d, 1) = %s, want %s", attempt, got, want)
		}
	}
	// The seed's last example is above the cap: jitter comes after it.
	if got, want := p.Delay(5, 0.6125), 818*ms; got != want {
		t.Errorf("Delay(5, 0.6125) = %s, want %s", got, want)
	}
}

func TestSeed000_7_2_MaxAttemptsRespected(t *testing.T) {
	if got := attempts(Default(), 0); got != 5 {
		t.Errorf("%d attempts that fail at once, want 5", got)
	}
}

func TestSeed000_7_2_MaxTotalTimeRespected(t *testing.T) {
	tests := []struct {
		takes time.Duration
		want  int
	}{
		{0, 5},        // 1.5 s of waiting
		{100 * ms, 5}, // and 300 ms of running
		{200 * ms, 4}, // the fifth would start after 2.1 s
		{600 * ms, 4}, // the last one starts after 1.9 s
		{700 * ms, 3},
		{30 * time.Second, 2}, // the time begins at the first failure: a tool that timed out gets its one retry
	}
	for _, tt := range tests {
		if got := attempts(Default(), tt.takes); got != tt.want {
			t.Errorf("%d attempts that fail after %s, want %d", got, tt.takes, tt.want)
		}
	}
}

// attempts is how many attempts of this length a call gets.
func attempts(p Policy, takes time.Duration) int {
	since := time.Duration(0)
	for n := 1; ; n++ {
		delay, ok, _ := p.Next(Step{Attempt: n, Since: since, Roll: 0.5, Remaining: NoDeadline})
		if !ok {
			return n
		}
		since += delay + takes
	}
}

// The manifest of seed 000 §2.2, and the call has the last word.
func TestSeed000_7_2_ToolOverridesWork(t *testing.T) {
	manifest := &tool.RetryPolicy{
		Strategy:       "exponential_backoff",
		InitialDelayMs: new(int64(50)),
		MaxDelayMs:     new(int64(2000)),
		Multiplier:     new(2.0),
		JitterPercent:  new(15.0),
		MaxAttempts:    new(3),
		MaxTotalTimeMs: new(int64(5000)),
	}
	call := &tool.RetryPolicy{MaxAttempts: new(7)}

	want := Policy{Exponential, 50 * ms, 2000 * ms, 2, 15, 3, 5000 * ms}
	if got := Merge(Default(), nil, manifest); got != want {
		t.Errorf("Merge(manifest) = %+v, want %+v", got, want)
	}
	want.MaxAttempts = 7
	if got := Merge(Default(), manifest, nil, call); got != want {
		t.Errorf("Merge(manifest, call) = %+v, want %+v", got, want)
	}
	if got := Merge(Default()); got != Default() {
		t.Errorf("Merge() = %+v, want the defaults", got)
	}
}

func TestSeed001_Strategies(t *testing.T) {
	p := Policy{Initial: 100 * ms, Max: time.Minute, Multiplier: 3}
	tests := []struct {
		strategy Strategy
		want     []time.Duration
	}{
		{Constant, []time.Duration{0, 100 * ms, 100 * ms, 100 * ms, 100 * ms}},
		{Linear, []time.Duration{0, 100 * ms, 200 * ms, 300 * ms, 400 * ms}},
		{Exponential, []time.Duration{0, 100 * ms, 300 * ms, 900 * ms, 2700 * ms}},
		{"", []time.Duration{0, 100 * ms, 300 * ms, 900 * ms, 2700 * ms}},
		{None, []time.Duration{0, 0, 0, 0, 0}},
	}
	for _, tt := range tests {
		p.Strategy = tt.strategy
		var got []time.Duration
		for retry := range tt.want {
			got = append(got, p.Base(retry))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: Base(0..4) = %v, want %v", tt.strategy, got, tt.want)
		}
	}
}
