package retry

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNext(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name    string
		step    Step
		delay   time.Duration
		ok      bool
		because string
	}{
		{"the first retry", Step{Attempt: 1, Remaining: NoDeadline}, 100 * ms, true, "attempt 2 of 5 after 100ms"},
		{"the last retry", Step{Attempt: 4, Since: s, Remaining: NoDeadline}, 800 * ms, true, "attempt 5 of 5 after 800ms"},
		{"attempts used up", Step{Attempt: 5, Remaining: NoDeadline}, 0, false, "all 5 attempts are used up"},
		{"time used up", Step{Attempt: 4, Since: 1500 * ms, Remaining: NoDeadline}, 0, false,
			"the retry time of 2s is used up: 1.5s since the first failure, and the next wait is 800ms"},
		{"long past", Step{Attempt: 2, Since: time.Hour, Remaining: NoDeadline}, 0, false,
			"the retry time of 2s is used up: 1h0m0s since the first failure, and the next wait is 200ms"},
		{"just in time", Step{Attempt: 4, Since: 1200 * ms, Remaining: NoDeadline}, 800 * ms, true, "attempt 5 of 5 after 800ms"},
		{"does not fit before the deadline", Step{Attempt: 4, Remaining: 800 * ms}, 0, false,
			"the wait of 800ms does not fit: 800ms are left before the deadline"},
		{"fits before the deadline", Step{Attempt: 4, Remaining: 801 * ms}, 800 * ms, true, "attempt 5 of 5 after 800ms"},
		{"no time left", Step{Attempt: 1, Remaining: 0}, 0, false, "no time is left before the deadline"},
		{"a hint is a floor", Step{Attempt: 1, Hint: s, Remaining: NoDeadline}, 1050 * ms, true,
			"attempt 2 of 5 after 1.05s, as the tool asked"},
		{"a short hint changes nothing", Step{Attempt: 4, Hint: 50 * ms, Remaining: NoDeadline}, 800 * ms, true,
			"attempt 5 of 5 after 800ms"},
		{"a hint that just fits goes without jitter", Step{Attempt: 1, Hint: 2 * s, Remaining: NoDeadline}, 2 * s, true,
			"attempt 2 of 5 after 2s, as the tool asked"},
		{"a hint that is too long", Step{Attempt: 2, Since: 500 * ms, Hint: 30 * s, Remaining: NoDeadline}, 0, false,
			"the tool asked for a wait of 30s, and 1.5s are left of the retry time of 2s"},
		{"a hint past the deadline", Step{Attempt: 1, Hint: s, Remaining: s}, 0, false,
			"the wait of 1s does not fit: 1s are left before the deadline"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.step.Roll = 0.5
			delay, ok, because := Default().Next(tt.step)
			if delay != tt.delay || ok != tt.ok || because != tt.because {
				t.Errorf("Next(%+v) = %s, %v, %q, want %s, %v, %q", tt.step, delay, ok, because, tt.delay, tt.ok, tt.because)
			}
		})
	}
	if _, ok, because := (Policy{}).Next(Step{Attempt: 1, Remaining: NoDeadline}); ok || because != "the only attempt is used up" {
		t.Errorf("Next of the zero policy = %v, %q, want a refusal", ok, because)
	}
}

func TestNextKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policies(t).inRange()
		in := Step{
			Attempt:   rapid.IntRange(1, 10).Draw(t, "attempt"),
			Since:     time.Duration(rapid.Int64().Draw(t, "since")),
			Roll:      rapid.Float64().Draw(t, "roll"),
			Hint:      time.Duration(rapid.Int64().Draw(t, "hint")),
			Remaining: time.Duration(rapid.Int64().Draw(t, "remaining")),
		}
		delay, ok, because := p.Next(in)
		if because == "" || strings.Contains(because, "%!") {
			t.Fatalf("Next(%+v) says %q", in, because)
		}
		if !ok {
			return
		}
		switch {
		case in.Attempt >= p.MaxAttempts:
			t.Fatalf("attempt %d of %d", in.Attempt+1, p.MaxAttempts)
		case delay < 0 || delay < in.Hint:
			t.Fatalf("delay = %s, want at least %s", delay, in.Hint)
		case delay >= in.Remaining:
			t.Fatalf("delay = %s with %s left", delay, in.Remaining)
		case max(in.Since, 0)+delay > p.MaxTotal:
			t.Fatalf("starts %s + %s after the first failure, want at most %s", in.Since, delay, p.MaxTotal)
		}
	})
}
