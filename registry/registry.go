package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

const (
	maxHeartbeat = 64 << 10 // bytes
	rollWait     = 100 * time.Millisecond
	readyWait    = 3 * time.Second // for the store and for the manifests that the roll call brought up

	// stall is how late our own timer may be before we take it that this process was stopped, not its workers.
	stall = 500 * time.Millisecond
)

// A Config describes a registry. Only Bus is required.
type Config struct {
	Bus *bus.Conn

	// Store keeps manifests over restarts. Nil keeps none.
	Store *kvstate.Bucket

	// Logger is told what people should look at. Nil discards.
	Logger *slog.Logger

	// Advise has the logger told what may surprise in the manifests that come. It is for programs that serve calls; one
	// that lists tools leaves it out.
	Advise bool

	// Expire is how many beats in a row a worker may miss. Zero means three.
	Expire int

	// OnChange is told what happens to the catalogue, as with the method of that name. Nil tells nobody.
	OnChange func(Change)
}

// A Registry is the catalogue of one process. Its methods are safe for concurrent use.
type Registry struct {
	bus    *bus.Conn
	store  *kvstate.Bucket
	log    *slog.Logger
	advise bool
	ready  chan struct{}

	tools atomic.Pointer[map[string]*atomic.Pointer[Tool]]

	mu    sync.Mutex
	cat   *catalogue
	asked map[wire.ToolLine]*question // by manifestOf, which are being asked for
	keep  *keeping

	questions chan *question
	changes   chan Change
	watchers  watchers
	complaint rarely
}

// New makes an empty registry; Run fills it.
func New(cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Expire <= 0 {
		cfg.Expire = 3
	}
	r := &Registry{
		bus:       cfg.Bus,
		store:     cfg.Store,
		log:       cfg.Logger,
		advise:    cfg.Advise,
		ready:     make(chan struct{}),
		cat:       newCatalogue(cfg.Expire),
		asked:     map[wire.ToolLine]*question{},
		keep:      newKeeping(cfg.Store),
		questions: make(chan *question, 1024),
		changes:   make(chan Change, 1024),
	}
	r.tools.Store(&map[string]*atomic.Pointer[Tool]{})
	if cfg.OnChange != nil {
		r.OnChange(cfg.OnChange)
	}
	return r
}

// Tool is what is known of a tool now; nil means that nobody ever heard of it. It takes no lock and allocates nothing.
func (r *Registry) Tool(name string) *Tool {
	cell := (*r.tools.Load())[name]
	if cell == nil {
		return nil
	}
	return cell.Load()
}

// Ready is closed when the subscription stands, the stored manifests were read, and the workers had 100 ms to answer the
// first roll call and then to describe themselves. A store or worker that does not answer holds it up for 3 s at most. A
// Run that cannot begin never closes it.
func (r *Registry) Ready() <-chan struct{} { return r.ready }

// Gone takes a worker out of the catalogue: the caller found nobody on its subject. Its next heartbeat brings it back,
// the same Instance.
func (r *Registry) Gone(worker string) {
	r.step(func(c *catalogue) delta { return c.gone(time.Now(), worker, "nobody listens on its subject") })
}

// Run listens until ctx ends; then it returns nil, when all that it started has ended. It can be called once. An error
// means that heartbeats cannot be subscribed to.
func (r *Registry) Run(ctx context.Context) error {
	sub, err := r.bus.Subscribe(r.bus.Subjects().Heartbeats(), "", r.hear)
	if err != nil {
		return fmt.Errorf("listen for heartbeats: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = sub.Drain(ctx) // the connection is gone: then so is the subscription
	}()
	defer r.bus.OnReconnect(r.rollCall)()
	r.rollCall()

	var running sync.WaitGroup
	defer running.Wait()
	for range describers {
		running.Go(func() { r.describe(ctx) })
	}
	running.Go(func() { r.keepManifests(ctx) })
	running.Go(func() { r.announceReady(ctx) })
	running.Go(func() { r.tell(ctx) })
	r.sweep(ctx)
	return nil
}

// rollCall asks every worker for a heartbeat, so that a registry that starts need not wait for the next ones.
func (r *Registry) rollCall() {
	if f := r.bus.Publish(r.bus.Subjects().Rollcall(), nil, nil); f != nil {
		r.log.Warn("roll call failed; workers show up with their next heartbeats", "error", f)
	}
}

// announceReady waits for what Ready promises.
func (r *Registry) announceReady(ctx context.Context) {
	defer close(r.ready)
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	await := func(c <-chan struct{}) {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	answers := time.NewTimer(rollWait)
	defer answers.Stop()
	select {
	case <-answers.C:
	case <-ctx.Done():
	}
	await(r.keep.loaded)
	for _, q := range r.open() {
		await(q.done)
	}
}

// hear takes a heartbeat in. It runs on the subscription's goroutine.
func (r *Registry) hear(m *nats.Msg) {
	hb, err := parse(m.Subject, m.Data)
	if err != nil {
		r.complain("heartbeat dropped", err)
		return
	}
	var d delta
	r.step(func(c *catalogue) delta {
		d, err = c.beat(time.Now(), hb)
		return d
	})
	switch {
	case errors.Is(err, errFull):
		r.complain("worker refused: there are 10,000 already", fmt.Errorf("%s: %w", hb.Worker, err))
	case err == nil && d.refused > 0:
		r.complain("tools refused: the catalogue is full", fmt.Errorf("%d tools of worker %s", d.refused, hb.Worker))
	}
	if len(d.ask) > 0 {
		r.ask(hb.Worker, d.ask)
	}
}

// parse decodes and checks a heartbeat that came on subject.
func parse(subject string, data []byte) (*wire.Heartbeat, error) {
	if len(data) > maxHeartbeat {
		return nil, fmt.Errorf("%.100q: %d bytes, want at most %d", subject, len(data), maxHeartbeat)
	}
	hb := new(wire.Heartbeat)
	if err := wire.Decode(data, hb); err != nil {
		return nil, fmt.Errorf("%.100q: %w", subject, err)
	}
	if err := hb.Check(); err != nil {
		return nil, fmt.Errorf("%.100q: %w", subject, err)
	}
	if token := subject[strings.LastIndexByte(subject, '.')+1:]; token != hb.Worker {
		return nil, fmt.Errorf("%.100q: speaks for worker %q, want %.100q", subject, hb.Worker, token)
	}
	return hb, nil
}

// step takes one step of the fold and makes it visible: first to Tool, then to those who watch.
func (r *Registry) step(f func(*catalogue) delta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := f(r.cat)
	r.publish(d)
	for _, f := range d.dropped {
		r.keep.drop(f)
	}
	for _, c := range d.changes {
		select {
		case r.changes <- c:
		default:
			r.complain("change not told: whoever watches is too slow", nil)
		}
	}
}

// publish puts tools where Tool finds them. The map is copied only where a name comes or goes; otherwise the new Tool
// takes the old one's place in its cell.
func (r *Registry) publish(d delta) {
	tools := *r.tools.Load()
	grown := make(map[string]*atomic.Pointer[Tool])
	for _, t := range d.made {
		cell := tools[t.Name]
		if cell == nil {
			cell = new(atomic.Pointer[Tool])
			grown[t.Name] = cell
		}
		cell.Store(t)
	}
	if len(grown) == 0 && len(d.removed) == 0 {
		return
	}
	for name, cell := range tools {
		grown[name] = cell
	}
	for _, name := range d.removed {
		delete(grown, name)
	}
	r.tools.Store(&grown)
}

// sweep takes out silent workers until ctx ends.
func (r *Registry) sweep(ctx context.Context) {
	planned := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(planned) > stall {
			planned = now.Add(stall) // beats that came while we were stopped are read first
			timer.Reset(stall)
			continue
		}
		planned = now.Add(time.Second)
		r.step(func(c *catalogue) delta {
			d, next := c.expire(now)
			if !next.IsZero() && next.Before(planned) {
				planned = next
			}
			return d
		})
		timer.Reset(time.Until(planned))
	}
}

// complain warns of what the network does wrong, once a second at most.
func (r *Registry) complain(message string, err error) {
	if n, ok := r.complaint.now(time.Now()); ok {
		r.log.Warn(message, "error", err, "more_like_it", n)
	}
}

// rarely lets one in a second pass and counts the others.
type rarely struct {
	mu   sync.Mutex
	last time.Time
	held int
}

func (r *rarely) now(t time.Time) (held int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Sub(r.last) < time.Second {
		r.held++
		return 0, false
	}
	held, r.held, r.last = r.held, 0, t
	return held, true
}
