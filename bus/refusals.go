package bus

import (
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// refusals remembers which subjects the server refused. The zero value remembers none.
type refusals struct {
	mu   sync.Mutex
	by   map[string]error
	told map[string]error // of publishes: those who wait for an answer are yet to be told
	news chan struct{}    // closed by the next refusal, where somebody waits for it
}

const (
	maxRefusals = 256

	// refusalPause is how long refusals are collected, so that many of them cost one look at the open tickets.
	refusalPause = 5 * time.Millisecond
)

var refusedSubject = regexp.MustCompile(`(?:Publish|Subscription) to "(\S+)"`)

// subjectOf is the subject that a permission violation is about, or "".
func subjectOf(err error) string {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	if m := refusedSubject.FindStringSubmatch(err.Error()); m != nil {
		return m[1]
	}
	return ""
}

func (r *refusals) add(err error) (subject string) {
	subject = subjectOf(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil || len(r.by) >= maxRefusals {
		r.by = map[string]error{} // forget them all rather than keep an order
	}
	r.by[subject] = err
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
	return subject
}

// next is closed by the next refusal.
func (r *refusals) next() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.news == nil {
		r.news = make(chan struct{})
	}
	return r.news
}

// forget forgets what was refused below the prefixes.
func (r *refusals) forget(prefixes []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.by, func(subject string, _ error) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(subject, p) })
	})
}

// Guard is for questions that go past Send, to JetStream: the server refuses a subject without an answer, and the one
// who asks would wait until its time is up. The context ends when the server refuses one that begins with one of the
// prefixes. The returned func ends the guard, and makes err a fault that names the subject where that is why.
func (c *Conn) Guard(ctx context.Context, prefixes ...string) (context.Context, func(err error) error) {
	c.refusals.forget(prefixes) // the permissions may have been mended
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			news := c.refusals.next()
			if subject, err := c.refusals.below(prefixes...); err != nil {
				cancel(refusedFault(subject, err))
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func(err error) error {
		cancel(nil)
		<-ended
		var f *fault.Fault
		if err != nil && errors.As(context.Cause(ctx), &f) && f.Kind == fault.Denied {
			return f
		}
		return err
	}
}

// below is a subject that begins with one of the prefixes, and how it was refused; nil where none was.
func (r *refusals) below(prefixes ...string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for subject, err := range r.by {
		for _, p := range prefixes {
			if strings.HasPrefix(subject, p) {
				return subject, err
			}
		}
	}
	return "", nil
}

// collect has the tickets told of a refused publish, and says whether the caller must see to it.
func (r *refusals) collect(subject string, err error) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil {
		r.told = map[string]error{}
		first = true
	}
	r.told[subject] = err
	return first
}

func (r *refusals) collected() map[string]error {
	r.mu.Lock()
	defer r.mu.Unlock()
	told := r.told
	r.told = nil
	return told
}

// isPublish tells a refused publish from a refused subscription.
func isPublish(err error) bool { return strings.Contains(err.Error(), "Violation for Publish to ") }

// tellRefused gives each ticket whose message the server refused a Frame that says so: nothing else will ever come.
func (c *Conn) tellRefused() {
	refused := c.refusals.collected()
	for i := range c.mux.shards {
		sh := &c.mux.shards[i]
		var sinks []Sink
		var frames []Frame
		sh.mu.Lock()
		for _, r := range sh.open {
			if err := refused[r.subject]; err != nil {
				sinks = append(sinks, r.sink)
				frames = append(frames, Frame{Kind: wire.ErrorFrame, Refused: refusedFault(r.subject, err)})
			}
		}
		sh.mu.Unlock()
		for i, s := range sinks {
			s.Receive(frames[i])
		}
	}
}

func refusedFault(subject string, err error) *fault.Fault {
	f := notSent(fault.Denied, err, "NATS refused to let this user publish to %q; allow it in the server's permissions", subject)
	f.Detail = err.Error()
	return f
}

func (r *refusals) of(subject string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[subject]
}
