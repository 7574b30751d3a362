package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/wire"
)

// A Conn is one connection to the bus. It is safe for concurrent use. Make it with Connect.
type Conn struct {
	id       string
	prefix   string
	replicas int
	timeout  time.Duration // of one question to the server
	log      *slog.Logger
	subjects wire.Subjects
	replies  wire.ReplyRule

	nc     *nats.Conn
	js     jetstream.JetStream
	api    string // what JetStream's API subjects begin with
	closed chan struct{}

	mux      mux
	up, down hooks
	refusals refusals
	drift    sync.Map // stream → how it differs from what we would create, as it was last seen

	subscribing sync.Mutex // see subscribe
	mu          sync.Mutex
	subs        map[*Subscription]struct{} // all but the mux's
}

func newConn(cfg Config, subjects wire.Subjects) *Conn {
	prefix := cfg.Prefix
	if prefix == "" {
		prefix = "tb"
	}
	c := &Conn{
		id:       cfg.ID,
		prefix:   prefix,
		replicas: cfg.Replicas,
		timeout:  cfg.Timeout,
		log:      cfg.Logger,
		subjects: subjects,
		closed:   make(chan struct{}),
		subs:     map[*Subscription]struct{}{},
	}
	c.mux.init()
	return c
}

// ID is the instance id under which this connection receives replies.
func (c *Conn) ID() string { return c.id }

// Subjects are the subjects under this connection's prefix.
func (c *Conn) Subjects() wire.Subjects { return c.subjects }

// NATS is the connection below, for what this package does not offer.
func (c *Conn) NATS() *nats.Conn { return c.nc }

// JetStream is the JetStream context of the connection.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// JetStreamAPI is what the subjects of JetStream's API begin with on this connection: "$JS.API.", unless its settings
// name a domain or a prefix.
func (c *Conn) JetStreamAPI() string { return c.api }

// Connected reports whether there is a connection at this moment.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// Closed is closed when the connection has ended for good.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Inline is the largest payload in bytes that travels in a message; what is larger goes by claim check. It is the
// server's max_payload less wire.MaxInlineSlack, or half of it where that is more, and may change with a reconnect.
func (c *Conn) Inline() int {
	most := c.nc.MaxPayload()
	return int(max(most-wire.MaxInlineSlack, most/2))
}

// OnReconnect calls f, on a goroutine of the connection, after every reconnect. The returned func takes f out again.
// Calls come one after the other: f must not block, nor wait for another callback.
func (c *Conn) OnReconnect(f func()) (remove func()) { return c.up.add(f) }

// OnDisconnect calls f in the same way when the connection is lost; not when we close it ourselves.
func (c *Conn) OnDisconnect(f func()) (remove func()) { return c.down.add(f) }

func (c *Conn) reconnected(nc *nats.Conn) {
	c.log.Info("reconnected to NATS", "url", nc.ConnectedUrlRedacted())
	c.up.call()
}

func (c *Conn) disconnected(_ *nats.Conn, err error) {
	if err == nil {
		return // by Drain or Close
	}
	c.log.Warn("lost the connection to NATS; trying again until it is back", "error", err)
	c.down.call()
}

// asyncError hears what nats.go has nobody to tell.
func (c *Conn) asyncError(_ *nats.Conn, sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		subject := c.refusals.add(err)
		if subject != "" && isPublish(err) && c.refusals.collect(subject, err) {
			time.AfterFunc(refusalPause, c.tellRefused)
		}
		c.log.Warn("NATS refused a subject; allow it in the permissions of this user", "subject", subject, "error", err)
	case errors.Is(err, nats.ErrSlowConsumer) && sub != nil:
		dropped, _ := sub.Dropped()
		c.log.Error("messages came faster than they were handled and were dropped",
			"subject", sub.Subject, "dropped", dropped)
	default:
		c.log.Warn("NATS reported an error", "error", err)
	}
}

// PermissionError is how the server last refused a subject to this user, or nil. It tells of a publish only after the
// fact: what Send took without a fault may be refused a moment later. Who waits for an answer is told by Frame.Refused;
// others ask here. It remembers some hundreds of subjects.
func (c *Conn) PermissionError(subject string) error { return c.refusals.of(subject) }

// Drain stops subscriptions, lets handlers end, flushes and closes; it returns when that is done or ctx ends. Handlers
// may go on sending and asking while they end. What is still open when ctx ends is closed at once, and the error says so.
// Draining twice, or what is closed, is no error.
func (c *Conn) Drain(ctx context.Context) error {
	err := c.drainSubscriptions(ctx)
	if err == nil {
		// The mux is drained by this, after everybody who may still use it.
		if e := c.nc.Drain(); e != nil && !errors.Is(e, nats.ErrConnectionClosed) && !errors.Is(e, nats.ErrConnectionReconnecting) {
			err = fmt.Errorf("bus: drain: %w", e)
		}
	}
	if err == nil {
		select {
		case <-c.closed:
			return nil
		case <-ctx.Done():
			err = fmt.Errorf("bus: drain: %w", ctx.Err())
		}
	}
	c.nc.Close()
	return err
}

func (c *Conn) drainSubscriptions(ctx context.Context) error {
	c.mu.Lock()
	subs := make([]*Subscription, 0, len(c.subs))
	for s := range c.subs {
		subs = append(subs, s)
	}
	c.mu.Unlock()

	for _, s := range subs { // all stop taking at once, then each is waited for
		s.stop()
	}
	for _, s := range subs {
		if err := s.Drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close closes at once. Handlers that run are not waited for. Closing twice does nothing.
func (c *Conn) Close() { c.nc.Close() }
