package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// A Subscription is one interest in a subject.
type Subscription struct {
	c    *Conn
	sub  *nats.Subscription
	done chan struct{} // closed when the last message was handled
	once sync.Once     // of stop
	err  error         // of stop
}

// Subscribe hands the messages of subject to h, one at a time, on a goroutine of the subscription. A queue that is not
// "" makes it one of a group, of which one gets each message. A refused permission is an error here, not later; it
// wraps nats.ErrPermissionViolation. The headers are as they came: see wire.Inbound.
func (c *Conn) Subscribe(subject, queue string, h func(*nats.Msg)) (*Subscription, error) {
	s := &Subscription{c: c, done: make(chan struct{})}
	sub, err := c.subscribe(subject, queue, h, nats.DefaultSubPendingBytesLimit)
	if err != nil {
		return nil, err
	}
	s.sub = sub
	c.mu.Lock()
	c.subs[s] = struct{}{}
	c.mu.Unlock()
	sub.SetClosedHandler(func(string) { s.ended() })
	if !sub.IsValid() { // it ended before it had the handler
		s.ended()
	}
	return s, nil
}

// subscribe subscribes and waits for the server's word on it. The server refuses by a message of its own, which nats.go
// keeps as its last error; it comes before the answer to the flush. One at a time, so that it is about ours.
func (c *Conn) subscribe(subject, queue string, h func(*nats.Msg), pendingBytes int) (*nats.Subscription, error) {
	c.subscribing.Lock()
	defer c.subscribing.Unlock()

	before := c.nc.LastError()
	sub, err := c.nc.QueueSubscribe(subject, queue, h)
	if err != nil {
		return nil, fmt.Errorf("bus: subscribe to %q: %w", subject, err)
	}
	err = errors.Join(sub.SetPendingLimits(-1, pendingBytes), c.flush())
	if last := c.nc.LastError(); err == nil && last != before && subjectOf(last) == subject {
		err = last
	}
	if err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("bus: subscribe to %q: %w%s", subject, err, subscribeAdvice(subject, queue, err))
	}
	return sub, nil
}

// flush waits for the server to have taken everything in, no longer than the connection lasts.
func (c *Conn) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	defer c.OnDisconnect(cancel)()
	if !c.Connected() {
		return nats.ErrDisconnected
	}
	if err := c.nc.FlushWithContext(ctx); err != nil && !c.Connected() {
		return nats.ErrDisconnected
	} else if err != nil {
		return err
	}
	return nil
}

// subscribeAdvice names the permission that is missing, as it stands in a server's configuration.
func subscribeAdvice(subject, queue string, err error) string {
	switch {
	case !errors.Is(err, nats.ErrPermissionViolation):
		return ""
	case queue != "":
		subject += " " + queue
	}
	return fmt.Sprintf("; let this user subscribe to %q", subject)
}

// Drain stops new messages and lets those that arrived be handled; it returns when they are, or ctx ends. Draining
// twice is fine.
func (s *Subscription) Drain(ctx context.Context) error {
	s.stop()
	if s.err != nil {
		return fmt.Errorf("bus: drain %q: %w", s.sub.Subject, s.err)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("bus: drain %q: %w", s.sub.Subject, ctx.Err())
	}
}

// stop asks for no more messages and does not wait.
func (s *Subscription) stop() {
	s.once.Do(func() {
		end := s.sub.Drain
		if n, _, err := s.sub.Pending(); err == nil && n == 0 && !s.c.Connected() {
			end = s.sub.Unsubscribe // to drain, nats.go would ask the server for ten seconds whether more is on its way
		}
		err := end()
		if err != nil && !errors.Is(err, nats.ErrConnectionClosed) && !errors.Is(err, nats.ErrBadSubscription) {
			s.err = err
		}
	})
}

func (s *Subscription) ended() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if _, ok := s.c.subs[s]; ok {
		delete(s.c.subs, s)
		close(s.done)
	}
}
