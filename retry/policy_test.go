package retry

import (
	"encoding/json"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/toolbus/toolbus/tool"
	"pgregory.net/rapid"
)

func TestMergeClampsNonsense(t *testing.T) {
	got := Merge(Default(), &tool.RetryPolicy{
		Strategy:       "hopeful",
		InitialDelayMs: new(int64(-5)),
		MaxDelayMs:     new(int64(math.MaxInt64)),
		Multiplier:     new(math.NaN()),
		JitterPercent:  new(1000.0),
		MaxAttempts:    new(-1),
		MaxTotalTimeMs: new(int64(math.MinInt64)),
	})
	want := Policy{Exponential, 0, MaxDelay, 1, 100, 1, 0}
	if got != want {
		t.Errorf("Merge(nonsense) = %+v, want %+v", got, want)
	}
}

func TestZeroPolicyTriesOnce(t *testing.T) {
	if got := attempts(Policy{}, 0); got != 1 {
		t.Errorf("%d attempts, want 1", got)
	}
}

// The vectors that every language replays.
func TestJitterVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/jitter.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Seed    string
		Call    string
		Attempt int
		Roll    float64
		DelayUs int64 `json:"delay_us"`
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		seed, err := strconv.ParseUint(r.Seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		roll := Roll(seed, r.Call, r.Attempt)
		if roll != r.Roll {
			t.Errorf("Roll(%d, %q, %d) = %v, want %v", seed, r.Call, r.Attempt, roll, r.Roll)
		}
		if got := Default().Delay(r.Attempt, roll).Microseconds(); got != r.DelayUs {
			t.Errorf("Delay(%d, %v) = %d µs, want %d µs", r.Attempt, roll, got, r.DelayUs)
		}
	}
}

func policies(t *rapid.T) Policy {
	return Policy{
		Strategy:      rapid.SampledFrom([]Strategy{Exponential, Linear, Constant, None, "", "odd"}).Draw(t, "strategy"),
		Initial:       time.Duration(rapid.Int64().Draw(t, "initial")),
		Max:           time.Duration(rapid.Int64().Draw(t, "max")),
		Multiplier:    rapid.Float64().Draw(t, "multiplier"),
		JitterPercent: rapid.Float64().Draw(t, "jitter"),
		MaxAttempts:   rapid.Int().Draw(t, "attempts"),
		MaxTotal:      time.Duration(rapid.Int64().Draw(t, "total")),
	}
}

func TestDelaysGrowUpToTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies(t)
		retry := rapid.Int().Draw(t, "retry")
		got := p.Base(retry)
		if got < 0 || got > max(p.Max, 0) || got > MaxDelay {
			t.Fatalf("Base(%d) = %s, want 0 to %s", retry, got, p.Max)
		}
		if retry < math.MaxInt && p.Base(retry+1) < got {
			t.Fatalf("Base(%d) = %s, less than Base(%d) = %s", retry+1, p.Base(retry+1), retry, got)
		}
	})
}

func TestJitterStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies(t)
		attempt, roll := rapid.IntRange(1, 100).Draw(t, "attempt"), rapid.Float64Range(0, 1).Draw(t, "roll")
		base := float64(p.Base(attempt - 1))
		j := base * p.inRange().JitterPercent / 100
		got := float64(p.Delay(attempt, roll))
		if slack := float64(time.Microsecond); got < base-j-slack || got > base+j+slack {
			t.Fatalf("Delay(%d, %v) = %v, want %v ± %v", attempt, roll, got, base, j)
		}
	})
}

func TestRollIsFairAndRepeats(t *testing.T) {
	const n = 10_000
	sum := 0.0
	for i := range n {
		r := Roll(7, strconv.Itoa(i), 2)
		if r < 0 || r >= 1 {
			t.Fatalf("Roll(7, %d, 2) = %v, want [0, 1)", i, r)
		}
		if again := Roll(7, strconv.Itoa(i), 2); again != r {
			t.Fatalf("Roll(7, %d, 2) = %v, then %v", i, r, again)
		}
		sum += r
	}
	if mean := sum / n; mean < 0.49 || mean > 0.51 {
		t.Errorf("mean of %d rolls = %v, want 0.5", n, mean)
	}
}

func BenchmarkDelay(b *testing.B) {
	p := Default()
	b.ReportAllocs()
	for b.Loop() {
		p.Delay(3, Roll(1, "01JD0000000000000000000000/search", 3))
	}
}
