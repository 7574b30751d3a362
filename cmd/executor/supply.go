package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
)

// A need is something in JetStream that this process has use for, and goes on without: a stream or a bucket.
type need struct {
	ensure func(context.Context) error // makes it, or looks whether it can serve
	lack   string                      // what is not while it is not there
	have   string                      // what is when it has come
	err    error                       // of the last look: why it is not there
}

// hopeless says that time will not mend it: somebody must, and most often with a restart.
func (n *need) hopeless() bool {
	return errors.Is(n.err, bus.ErrCannotServe) || errors.Is(n.err, nats.ErrPermissionViolation)
}

const (
	firstLook  = 3 * time.Second // how long a start waits for all needs
	soonerLook = 5 * time.Second // between two looks where one is not there
	laterLook  = time.Minute     // where all are: somebody may delete one
)

// A supply sees that all needs are there, and goes on to: JetStream may be away now and come later, or come back empty.
type supply struct {
	log   *slog.Logger
	needs []*need
}

// look looks at all needs at once, and is when to look again.
func (s *supply) look(ctx context.Context) time.Duration {
	errs := make([]error, len(s.needs))
	var all sync.WaitGroup
	for i, n := range s.needs {
		all.Go(func() { errs[i] = n.ensure(ctx) })
	}
	all.Wait()
	next := laterLook
	for i, n := range s.needs {
		if errors.Is(ctx.Err(), context.Canceled) {
			return next // this process ends
		}
		before := *n
		switch n.err = errs[i]; {
		case n.err != nil && (before.err == nil || n.hopeless() && !before.hopeless()):
			s.log.Warn(n.lack, "why", n.err)
		case n.err == nil && before.err != nil:
			s.log.Info(n.have)
		}
		if n.err != nil && !n.hopeless() {
			next = soonerLook
		}
	}
	return next
}

// first is the first look. A start does not wait longer for it than it must.
func (s *supply) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	s.look(ctx)
}

// drop looks no more at a need that is hopeless, and says so.
func (s *supply) drop(n *need) bool {
	if !n.hopeless() {
		return false
	}
	s.needs = slices.DeleteFunc(s.needs, func(o *need) bool { return o == n })
	return true
}

// goOn looks again and again, until the func that it returns is called.
func (s *supply) goOn(c *bus.Conn) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	back := make(chan struct{}, 1)
	deaf := c.OnReconnect(func() {
		select {
		case back <- struct{}{}:
		default: // it will look anyway
		}
	})
	wait := laterLook
	if slices.ContainsFunc(s.needs, func(n *need) bool { return n.err != nil }) {
		wait = soonerLook
	}
	go func() {
		defer close(over)
		defer deaf()
		t := time.NewTimer(wait)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-back:
			case <-ctx.Done():
				return
			}
			t.Reset(s.look(ctx))
		}
	}()
	return func() {
		stop()
		<-over
	}
}
