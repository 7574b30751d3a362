package executor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"golang.org/x/sync/semaphore"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Config describes an executor. Only Bus and Registry are required.
type Config struct {
	Bus      *bus.Conn
	Registry Catalogue

	// Retry is the policy below the manifests' and the calls' own. Nil means retry.Default.
	Retry *retry.Policy
	// Breaker is the policy of breakers whose manifest says nothing. Nil means breaker.Default.
	Breaker *breaker.Policy

	// TurnTimeout is the deadline of a turn that brings none. Zero means five minutes.
	TurnTimeout time.Duration

	// Breakers is the store of breakers that all executors share, most often a *kvstate.Bucket. Nil means that this one
	// decides alone.
	Breakers kvstate.Store

	// MaxInFlight is how many calls may be under way at once; more are refused. Zero means 100,000.
	MaxInFlight int
	// Grace is how long the confirmation of a stopped attempt is waited for. Zero means wire.CancelGrace.
	Grace time.Duration

	Observer Observer     // nil observes nothing
	Logger   *slog.Logger // nil discards
}

// A Catalogue knows the tools and their live workers. *registry.Registry is one.
type Catalogue interface {
	Tool(name string) *registry.Tool // nil: never heard of
	Nearest(name string) []string
	Gone(worker string) // nobody listens on that worker's subject
}

// An Observer is told what happens to every call, in order for each call. It is called with the call's lock held: it
// must not block and must not call back. What a shared breaker does comes from elsewhere, when it stands in the store.
// The event is its own to keep.
type Observer interface{ Event(*wire.Event) }

// An Executor runs calls. Make one with New, run it with Run; Call and Go may be used from any goroutine.
type Executor struct {
	cfg     Config
	bus     *bus.Conn
	cat     Catalogue
	log     *slog.Logger
	tools   sync.Map // name → *toolState
	known   atomic.Int64
	among   atomic.Int64 // executors that live; 0 is one
	peers   peers
	watch   watch
	gates   *gates
	replies wire.ReplyRule
	room    *semaphore.Weighted // bytes of claim checks that are being fetched

	mu      sync.Mutex
	runs    map[string]*run // by turn id
	closing bool
	idle    chan struct{}  // closed when closing and no run is left
	ready   chan struct{}  // closed when Run takes turns
	fetches sync.WaitGroup // claim checks on their way
	ending  sync.WaitGroup // runs that have left and tell their caller
}

// New makes an executor. It starts nothing.
func New(cfg Config) (*Executor, error) {
	if cfg.Bus == nil || cfg.Registry == nil {
		return nil, errors.New("executor: Config needs a Bus and a Registry")
	}
	if cfg.Retry == nil {
		cfg.Retry = new(retry.Default())
	}
	if cfg.Breaker == nil {
		cfg.Breaker = new(breaker.Default())
	}
	if cfg.TurnTimeout <= 0 {
		cfg.TurnTimeout = 5 * time.Minute
	}
	if cfg.MaxInFlight <= 0 {
		cfg.MaxInFlight = 100_000
	}
	if cfg.Grace <= 0 {
		cfg.Grace = wire.CancelGrace
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Executor{
		cfg: cfg, bus: cfg.Bus, cat: cfg.Registry, log: cfg.Logger,
		runs: map[string]*run{}, idle: make(chan struct{}), ready: make(chan struct{}), replies: wire.NewReplyRule(cfg.Bus.Subjects()),
		room: semaphore.NewWeighted(4 * wire.MaxBlob),
	}
	e.watch.e = e
	if b, ok := cfg.Breakers.(*kvstate.Bucket); ok && b == nil {
		cfg.Breakers = nil // a bucket that could not be opened
	}
	e.gates = newGates(cfg.Breakers, cfg.Bus, cfg.Logger)
	e.gates.busyness, e.gates.resized = e.InFlight, e.split
	if o := cfg.Observer; o != nil {
		e.gates.notice = o.Event
	}
	return e, nil
}

// ID is the executor's instance id.
func (e *Executor) ID() string { return e.bus.ID() }

// Ready is closed once turns that come over the bus reach Run. It never is where Run fails before that.
func (e *Executor) Ready() <-chan struct{} { return e.ready }

// InFlight is how many calls are under way.
func (e *Executor) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.runs)
}

// Call runs one call as a turn of its own and returns its one result. When ctx ends first, the call is cancelled and
// the result says so, after at most the grace.
func (e *Executor) Call(ctx context.Context, c tool.Call) tool.Result {
	w := waits.Get().(*wait)
	defer waits.Put(w) // empty again: one result goes through it
	r := e.startRun(&Turn{Call: c}, w.put)
	select {
	case res := <-w.result:
		return res
	case <-ctx.Done():
		r.cancel()
		return <-w.result
	}
}

// A wait is how Call gets its result.
type wait struct {
	result chan tool.Result
	put    func(tool.Result)
}

var waits = sync.Pool{New: func() any {
	w := &wait{result: make(chan tool.Result, 1)}
	w.put = func(r tool.Result) { w.result <- r }
	return w
}}

// A Turn is one call with the turn around it. The zero value of every field but Call works.
type Turn struct {
	ID       string        // empty: one is made
	Session  string        //
	Deadline time.Duration // from now; zero means Config.TurnTimeout
	Call     tool.Call
	Header   wire.Header // trace headers to hand on to the worker; may be nil
	Observer Observer    // of this turn alone, beside Config.Observer
}

// Go starts one call and returns at once. done is called exactly once, with the call's lock held: it must not block.
// The returned func cancels the call; it may be called at any time.
func (e *Executor) Go(t Turn, done func(tool.Result)) (cancel func()) {
	return e.startRun(&t, done).cancel
}

// startRun is Go. A run that was refused is over, and to cancel it does nothing.
func (e *Executor) startRun(t *Turn, done func(tool.Result)) *run {
	now := time.Now()
	if t.ID == "" {
		t.ID = nuid.Next()
	}
	if t.Call.ID == "" {
		t.Call.ID = "c1"
	}
	r := &run{e: e, id: t.ID, call: t.Call, session: t.Session, header: t.Header, done: done, began: now, observer: t.Observer}
	r.mu.Lock() // from before anybody can find it: a cancel that comes now waits
	defer r.mu.Unlock()
	if f := e.enter(r); f != nil {
		r.over = true
		done(refused(&t.Call, f))
		return r
	}
	r.start(now, t.Deadline)
	return r
}

// refused is the result of a call that was not begun.
func refused(c *tool.Call, f *fault.Fault) tool.Result {
	f.Tool = c.Tool
	return tool.Result{Call: c.ID, Tool: c.Tool, Status: tool.Failed, Fault: f, Sentence: f.Message}
}

// enter takes the run in, or says why not.
func (e *Executor) enter(r *run) *fault.Fault {
	if err := tool.CheckID(r.id); err != nil {
		return fault.New(fault.InvalidArguments, "turn id: %v", err)
	}
	if err := tool.CheckID(r.call.ID); err != nil {
		return fault.New(fault.InvalidArguments, "call id: %v", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return fault.New(fault.Unavailable, "this executor is stopping: try again, another one will take it")
	case len(e.runs) >= e.cfg.MaxInFlight:
		return fault.New(fault.Overloaded, "this executor has %d calls in flight, its limit: try again later, or start another executor", len(e.runs))
	case e.runs[r.id] != nil:
		return fault.New(fault.InvalidArguments, "turn %s is running already: give every turn an id of its own", r.id)
	}
	e.runs[r.id] = r
	return nil
}

// leave is the end of every run that entered.
func (e *Executor) leave(r *run) {
	e.mu.Lock()
	delete(e.runs, r.id)
	if e.closing && len(e.runs) == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
}

// find is the run of a turn, or nil.
func (e *Executor) find(turn string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[turn]
}

// Shutdown takes no more calls and lets those under way end. When ctx ends first, they are cancelled and the error says
// how many. It ends the watch too. A second Shutdown returns at once.
func (e *Executor) Shutdown(ctx context.Context) error {
	e.mu.Lock()
	if e.closing {
		e.mu.Unlock()
		return nil
	}
	e.closing = true
	if len(e.runs) == 0 {
		close(e.idle)
	}
	e.mu.Unlock()
	defer e.gates.shut()
	defer e.fetches.Wait()
	defer e.ending.Wait()
	defer e.watch.stop()
	select {
	case <-e.idle:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	left := make([]*run, 0, len(e.runs))
	for _, r := range e.runs {
		left = append(left, r)
	}
	e.mu.Unlock()
	for _, r := range left {
		r.cancel()
	}
	<-e.idle // every run ends within the grace of its cancel
	if len(left) > 0 {
		return errors.New("executor: calls still under way were cancelled: " + plural(len(left), "call"))
	}
	return nil
}
