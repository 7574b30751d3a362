package mcptool

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// What becomes of a call while the server is away, and when.
func TestReach(t *testing.T) {
	start := func(b *Bridge, after time.Duration, s *session) {
		time.Sleep(after)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.session = s
		b.turn()
	}
	for _, c := range []struct {
		name    string
		next    time.Duration // until the next start; negative where it is under way
		timeout time.Duration // of the call
		happens func(b *Bridge, closed chan struct{}, cancel func())
		want    string
	}{
		{"it comes back", 250 * time.Millisecond, time.Minute, func(b *Bridge, _ chan struct{}, _ func()) { start(b, time.Second, &session{}) }, "+1s session"},
		{"it starts, and goes on doing so", -time.Second, time.Minute, nil, "+2s unavailable not_started, again in 250ms"},
		{"it starts too late", 10 * time.Second, time.Minute, nil, "+0s unavailable not_started, again in 10s"},
		{"the start fails, and the next is soon", 0, time.Minute, func(b *Bridge, _ chan struct{}, _ func()) {
			time.Sleep(time.Second)
			b.lost("crashed", 500*time.Millisecond)
			start(b, 700*time.Millisecond, &session{})
		}, "+1.7s session"},
		{"the start fails, and the next is late", 0, time.Minute, func(b *Bridge, _ chan struct{}, _ func()) {
			time.Sleep(time.Second)
			b.lost("crashed", 4*time.Second)
		}, "+1s unavailable not_started, again in 4s"},
		{"a call with little time", -time.Second, time.Second, nil, "+500ms unavailable not_started, again in 250ms"},
		{"a cancel", -time.Second, time.Minute, func(_ *Bridge, _ chan struct{}, cancel func()) {
			time.Sleep(time.Second)
			cancel()
		}, "+1s cancelled not_started, again in 0s"},
		{"the end of the bridge", -time.Second, time.Minute, func(_ *Bridge, closed chan struct{}, _ func()) {
			time.Sleep(time.Second)
			close(closed)
		}, "+1s unavailable not_started, again in 250ms"},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.timeout)
			defer cancel()
			closed := make(chan struct{})
			b := &Bridge{log: slog.New(slog.DiscardHandler), closing: closed, turned: make(chan struct{}), away: "killed", next: time.Now().Add(c.next)}
			if c.happens != nil {
				go c.happens(b, closed, cancel)
			}
			began := time.Now()
			s, f := b.reach(ctx)
			got := fmt.Sprintf("+%v session", time.Since(began))
			if s == nil {
				got = fmt.Sprintf("+%v %s %s, again in %v", time.Since(began), f.Kind, f.Run(), f.RetryAfter())
			}
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		})
	}
}
