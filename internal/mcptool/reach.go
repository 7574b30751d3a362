package mcptool

import (
	"context"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// hold is how long a call waits for a server that is being started again. A call that is refused at once uses up its few
// attempts before a program is back; one that waits outlasts the restart, and nothing of it has run meanwhile.
const hold = 2 * time.Second

// reach is the session. Where there is none it is waited for, as long as hold and half the call's time allow, unless the
// server is started later than that.
func (b *Bridge) reach(ctx context.Context) (*session, *fault.Fault) {
	s, refusal, next, turned := b.look()
	if s != nil {
		return s, nil
	}
	patience := hold
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end)/2)
	}
	giveUp := time.Now().Add(patience)
	late := time.NewTimer(patience)
	defer late.Stop()
	for s == nil && next.Before(giveUp) {
		select {
		case <-turned:
			s, refusal, next, turned = b.look()
		case <-late.C:
			_, refusal, _, _ = b.look()
			return nil, refusal
		case <-b.closing:
			return nil, refusal
		case <-ctx.Done():
			f := fault.New(fault.Cancelled, "the call was told to stop while the MCP server was away")
			f.Execution = fault.NotStarted
			return nil, f
		}
	}
	if s != nil {
		return s, nil
	}
	return nil, refusal
}

// look is the session, or why there is none and when the server is started next. When any of that is another, turned is
// closed.
func (b *Bridge) look() (s *session, refusal *fault.Fault, next time.Time, turned <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		refusal = b.gone()
	}
	return b.session, refusal, b.next, b.turned
}

// turn tells who waits that the session is another one, or when there will be one. b.mu is held.
func (b *Bridge) turn() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// gone is the refusal of a call while the server is away. b.mu is held.
func (b *Bridge) gone() *fault.Fault {
	f := fault.New(fault.Unavailable, "the MCP server is away: %s", strings.ToValidUTF8(b.away, "\uFFFD"))
	f.RetryAfterMs = max(time.Until(b.next), firstWait).Milliseconds()
	return f
}
