package demo

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlow(t *testing.T) {
	two := 2.0
	for _, tc := range []struct {
		name string
		args slowArgs
		took time.Duration
		want error
	}{
		{"as long as it likes", slowArgs{}, time.Second, nil},
		{"times out", slowArgs{Seconds: &two}, 1500 * time.Millisecond, context.DeadlineExceeded},
		{"stubborn", slowArgs{Seconds: &two, Stubborn: true}, 2 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := slow(ctx, tc.args)
			if took := time.Since(start); took != tc.took || !errors.Is(err, tc.want) {
				t.Errorf("%s: %v after %v, want %v after %v", tc.name, err, took, tc.want, tc.took)
			}
		})
	}
	nan := -1.0
	if _, err := slow(t.Context(), slowArgs{Seconds: &nan}); err == nil {
		t.Error("slow took -1 seconds, want an error")
	}
}
