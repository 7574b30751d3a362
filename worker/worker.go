package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// SDK is what a worker's heartbeat says it is made of.
const SDK = "toolbus-go/" + version

const version = "0.1.0"

// Memory of keys and of cancels that came before their calls.
const (
	maxKeyBytes = 64 << 20
	cancelTTL   = 10 * time.Second
	maxCancels  = 10_000
)

// A Config describes a worker. Only Bus and Tools are required.
type Config struct {
	Bus   *bus.Conn
	Tools []Tool

	// ID is the instance: no two workers on a bus may share it. Empty means the id of Bus.
	ID string

	// Concurrency is how many calls run at once, over all tools; more get a nack. Zero means four per CPU, at least four.
	Concurrency int

	// Grace is how long Shutdown lets running calls go on. Zero means ten seconds.
	Grace time.Duration

	// Every is the time between heartbeats. Zero means wire.HeartbeatEvery.
	Every time.Duration

	// KeyTTL and MaxKeys bound what is remembered of calls and their answers, beside 64 MiB of them in all. Zero means
	// ten minutes and 10,000.
	KeyTTL  time.Duration
	MaxKeys int

	Logger   *slog.Logger // nil discards
	Observer Observer     // nil observes nothing

	// Plain leaves out the answers to NATS service discovery ($SRV.PING, INFO and STATS).
	Plain bool
}

// An Observer is told of every call that a worker runs. Its methods are called from many goroutines; what they panic
// with is logged.
type Observer interface {
	// CallStarted comes before the handler, which gets the context that it returns.
	CallStarted(ctx context.Context, c *Call) context.Context
	// CallEnded comes after the answer. The fault is nil for a result.
	CallEnded(ctx context.Context, c *Call, took time.Duration, f *fault.Fault)
}

// A Worker runs tools until it is shut down. Make it with New. It is safe for concurrent use.
type Worker struct {
	cfg      Config
	bus      *bus.Conn
	subjects wire.Subjects
	id       string
	log      *slog.Logger
	rule     wire.ReplyRule
	catalog  atomic.Pointer[catalog]

	ready chan struct{}
	stop  chan struct{} // closed by the first wish to shut down
	hurry chan struct{} // closed where the grace is not to be waited for
	done  chan struct{} // closed at the end of Run
	beats chan struct{} // one wish for a heartbeat
	idle  chan struct{} // closed when nothing that was not answered runs any more, once the worker is leaving

	stopOnce, hurryOnce sync.Once
	base                context.Context // of all calls; it does not end
	err                 error           // of Run; read it after done

	change sync.Mutex       // held while the tools change; before mu
	places map[string]place // by tool, while the worker listens; guarded by change

	mu      sync.Mutex
	phase   phase
	quiet   bool // quarantined
	live    map[*run]struct{}
	leaked  int
	ending  sync.WaitGroup // runs that left live and are about to answer
	memory  *memory[memoKey, memo]
	gone    *memory[string, int] // <turn>/<call> to the attempt up to which it was cancelled
	former  map[string]bool      // tools that are no more and of which something may still run
	calls   uint64
	errors  uint64
	refused uint64 // requests with a reply subject to which we do not answer
	nacked  uint64
	repeats uint64

	unsent outbox
	hands  hands
}

// A phase is how far a worker is with leaving.
type phase int

const (
	fresh    phase = iota // Run has not begun
	open                  // takes calls
	draining              // takes what comes through the queue group; says no to who chose it
	closed                // takes nothing
)

// A memoKey is a call, <turn>/<call>, or a caller's idempotency key, of one tool: an alternative tool for the same call
// is another thing to do.
type memoKey struct{ tool, name string }

// A memo is what is remembered under a memoKey.
type memo struct {
	attempt int    // the highest that came
	sum     uint64 // of the arguments
	run     *run   // while it runs
	done    bool   // with an answer that lasts
	answer  answer
}

// size is what the memory counts for it: the call of a run under another key may have an answer of its own already.
func (m *memo) size() int {
	if !m.done {
		return 0
	}
	return m.answer.size()
}

type memoItem = item[memoKey, memo]

// New checks the configuration and makes a worker. It listens to nothing before Run.
func New(cfg Config) (*Worker, error) {
	if cfg.Bus == nil {
		return nil, errors.New("worker: Bus is nil: connect with bus.Connect first")
	}
	if cfg.ID == "" {
		cfg.ID = cfg.Bus.ID()
	}
	if err := tool.CheckID(cfg.ID); err != nil {
		return nil, fmt.Errorf("worker: ID: %w", err)
	}
	if cfg.Concurrency < 0 || cfg.Grace < 0 || cfg.Every < 0 || cfg.KeyTTL < 0 || cfg.MaxKeys < 0 {
		return nil, errors.New("worker: Concurrency, Grace, Every, KeyTTL and MaxKeys: expected 0 or more")
	}
	cfg.Concurrency = or(cfg.Concurrency, max(4, 4*runtime.NumCPU()))
	cfg.Grace = or(cfg.Grace, 10*time.Second)
	cfg.Every = or(cfg.Every, wire.HeartbeatEvery)
	cfg.KeyTTL = or(cfg.KeyTTL, 10*time.Minute)
	cfg.MaxKeys = or(cfg.MaxKeys, 10_000)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}

	w := &Worker{
		cfg:      cfg,
		bus:      cfg.Bus,
		subjects: cfg.Bus.Subjects(),
		id:       cfg.ID,
		log:      cfg.Logger.With("worker", cfg.ID),
		rule:     wire.NewReplyRule(cfg.Bus.Subjects()),
		ready:    make(chan struct{}),
		stop:     make(chan struct{}),
		hurry:    make(chan struct{}),
		done:     make(chan struct{}),
		beats:    make(chan struct{}, 1),
		idle:     make(chan struct{}),
		live:     map[*run]struct{}{},
		memory:   newMemory[memoKey, memo](cfg.KeyTTL, cfg.MaxKeys, maxKeyBytes),
		gone:     newMemory[string, int](cancelTTL, maxCancels, maxKeyBytes),
	}
	cat, err := w.learn(cfg.Tools)
	if err != nil {
		return nil, err
	}
	w.catalog.Store(cat)
	return w, nil
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// ID is the instance id.
func (w *Worker) ID() string { return w.id }

// Ready is closed once calls reach the worker. It never is where Run fails before that.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run takes calls until ctx ends, Shutdown is called or a Drain frame comes, and then shuts down as Shutdown says. It
// returns nil after a clean drain. It can be called once.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.phase != fresh {
		w.mu.Unlock()
		return errors.New("worker: Run was called twice, or after Shutdown: make a new Worker")
	}
	w.phase = open
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()

	w.err = w.serve(ctx)
	w.hands.end()
	close(w.done)
	return w.err
}

func (w *Worker) serve(ctx context.Context) error {
	defer w.bus.OnReconnect(w.resume)()

	others, err := w.attend()
	if err != nil {
		calls, cancels := w.close()
		w.drain(slices.Concat(calls, cancels, others), wire.CancelGrace)
		return err
	}
	var heart sync.WaitGroup
	silent := make(chan struct{})
	heart.Go(func() { w.beat(silent) })

	lost := false
	select {
	case <-ctx.Done():
	case <-w.stop:
	case <-w.bus.Closed():
		lost = true
	}
	if lost {
		w.enter(closed)
		w.abort()
		err = errors.New("worker: the connection was closed while the worker ran")
	} else {
		err = w.leave(others)
	}
	close(silent) // with this the heart says bye
	heart.Wait()
	if lost || !w.bus.Connected() && w.unsent.len() == 0 {
		return err // nothing is on its way
	}
	return errors.Join(err, w.flush())
}

func (w *Worker) flush() error {
	ctx, cancel := w.within(patience)
	defer cancel()
	if err := w.bus.NATS().FlushWithContext(ctx); err != nil {
		return fmt.Errorf("worker: flush: %w", err)
	}
	return nil
}

// Shutdown drains the worker: executors are told to choose others, the subscriptions for calls are given back, what had
// come until then runs, for Grace at most, and then is told to stop. It returns when Run is about to. The error names the
// calls that did not stop. The end of ctx ends the grace.
func (w *Worker) Shutdown(ctx context.Context) error {
	w.mu.Lock()
	if w.phase == fresh {
		w.phase = closed
		w.mu.Unlock()
		return nil
	}
	w.mu.Unlock()
	w.shut()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	w.hurryOnce.Do(func() { close(w.hurry) })
	<-w.done
	return w.err
}

func (w *Worker) shut() { w.stopOnce.Do(func() { close(w.stop) }) }

// leave is the shutdown.
func (w *Worker) leave(others []*bus.Subscription) error {
	w.enter(draining)
	w.wish()
	calls, cancels := w.close()
	w.drain(calls, w.cfg.Grace)
	w.enter(closed)

	grace := time.NewTimer(w.cfg.Grace)
	defer grace.Stop()
	select {
	case <-w.idle:
	case <-w.hurry:
	case <-grace.C:
	}
	err := w.abort()
	w.drain(append(others, cancels...), wire.CancelGrace)
	return err
}

// abort tells what still runs to stop, and says what did not.
func (w *Worker) abort() error {
	w.mu.Lock()
	left := make([]*run, 0, len(w.live))
	for r := range w.live {
		left = append(left, r)
	}
	w.mu.Unlock()
	for _, r := range left {
		r.stop(errShutdown)
	}
	<-w.idle // all are told to stop, so after the grace none is open
	w.ending.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for r := range w.live {
		errs = append(errs, fmt.Errorf("worker: abandoned %s %s, which did not stop", r.tool.name, r.call.Ref))
	}
	return errors.Join(errs...)
}

func (w *Worker) enter(p phase) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.phase = p
	w.rest()
}

// rest closes idle when the worker leaves and all that runs is answered. w.mu is held.
func (w *Worker) rest() {
	if w.phase != closed || len(w.live) > w.leaked {
		return
	}
	select {
	case <-w.idle:
	default:
		close(w.idle)
	}
}

// within is a context for what must be done even when all calls are over.
func (w *Worker) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(w.base, d)
}

// attend listens to everything, and gives what is not about one tool. Calls come last, when all that may follow one is
// there.
func (w *Worker) attend() (others []*bus.Subscription, err error) {
	listen := func(subject string, h func(*nats.Msg)) {
		if err != nil {
			return
		}
		var sub *bus.Subscription
		if sub, err = w.subscribe(subject, "", h); err == nil {
			others = append(others, sub)
		}
	}
	listen(w.subjects.Rollcall(), func(*nats.Msg) { w.wish() })
	if !w.cfg.Plain {
		for subject, h := range w.discovery() {
			listen(subject, h)
		}
	}
	listen(w.subjects.To(w.id), w.takeOwn)
	if err != nil {
		return others, err
	}

	w.change.Lock()
	defer w.change.Unlock()
	w.places = map[string]place{}
	for _, t := range w.catalog.Load().order {
		if err := w.listen(t.name); err != nil {
			return others, err
		}
	}
	return others, w.flush()
}

func refused(subject, queue string, err error) error {
	name := subject
	if queue != "" {
		name += " " + queue
	}
	if errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, &fault.Fault{Kind: fault.Denied}) {
		return fmt.Errorf("worker: subscribe to %q: permission refused: let this user subscribe to %q: %w", subject, name, err)
	}
	return fmt.Errorf("worker: subscribe to %q: %w", name, err)
}

// drain gives subscriptions back, all at once, and waits until what had come was handled.
func (w *Worker) drain(subs []*bus.Subscription, d time.Duration) {
	ctx, cancel := w.within(d)
	defer cancel()
	var all sync.WaitGroup
	for _, sub := range subs {
		all.Go(func() {
			if err := sub.Drain(ctx); err != nil {
				w.log.Warn("subscription not drained", "err", err)
			}
		})
	}
	all.Wait()
}

// Stats is what a worker counts.
type Stats struct {
	Running  int // handlers that have not returned, leaked ones included
	Leaked   int // handlers that go on although their call is over
	Capacity int
	Draining bool // takes no more calls

	Calls    uint64 // that ran, or run
	Errors   uint64 // of them, that ended with a fault
	Nacked   uint64 // said no to
	Repeated uint64 // answered from memory, or by a run that was there
	BadReply uint64 // ignored, because of where they wanted their answer
	Unsent   int    // answers that wait for the connection to come back
}

// Stats counts since New.
func (w *Worker) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Stats{
		Running:  len(w.live),
		Leaked:   w.leaked,
		Capacity: w.cfg.Concurrency,
		Draining: w.phase > open || w.quiet,
		Calls:    w.calls,
		Errors:   w.errors,
		Nacked:   w.nacked,
		Repeated: w.repeats,
		BadReply: w.refused,
		Unsent:   w.unsent.len(),
	}
	return s
}
