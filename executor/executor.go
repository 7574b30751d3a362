package executor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
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
	"github.com/toolbus/toolbus/turn"
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

	// MaxInFlight is how many calls may be under way at once, and MaxTurns how many turns; more are refused. Zero means
	// 100,000 calls, and as many turns as calls.
	MaxInFlight, MaxTurns int

	// Parallel is how many calls of one turn may run at once, ToolParallel how many of any one tool, where the turn does
	// not say. Zero means no limit.
	Parallel, ToolParallel int

	// Grace is how long the confirmation of a stopped attempt is waited for. Zero means wire.CancelGrace.
	Grace time.Duration

	// Journal keeps what happens and what comes late. Nil keeps nothing, and then questions for it are answered so.
	Journal Journal

	Observer Observer     // nil observes nothing
	Trace    Tracer       // nil hands the client's trace headers on to the workers as they came
	Logger   *slog.Logger // nil discards
}

// A Catalogue knows the tools and their live workers. *registry.Registry is one.
type Catalogue interface {
	Tool(name string) *registry.Tool // nil: never heard of
	Nearest(name string) []string
	Gone(worker string) // nobody listens on that worker's subject
}

// A Journal keeps the events of turns, and late results. *journal.Journal is one. It is used by many goroutines.
type Journal interface {
	// Write is called as Observer.Event is.
	Write(*wire.Event)
	Keep(context.Context, *wire.LateRecord) error
	Late(context.Context, wire.LateQuery) (*wire.LateRecord, *fault.Fault)
	Trace(ctx context.Context, turn string, each func(*wire.Page) error) *fault.Fault
}

// An Observer is told what happens to every turn, in order for each turn. It is called with the turn's lock held: it must
// not block and must not call back. What a shared breaker does comes from elsewhere, when it stands in the store. The
// event is its own to keep, and not to change: others have it too.
type Observer interface{ Event(*wire.Event) }

// An Executor runs turns. Make one with New, run it with Run; Call and Go may be used from any goroutine.
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
	alarms  sync.Pool // of *alarm that are stopped
	gates   *gates
	replies wire.ReplyRule
	room    *semaphore.Weighted // bytes of claim checks that are being fetched
	lookup  func(name string) *turn.Tool
	born    time.Time

	calls   atomic.Int64 // under way
	mu      sync.Mutex
	runs    map[string]*run // by turn id
	closing bool
	idle    chan struct{}  // closed when closing and no run is left
	ready   chan struct{}  // closed when Run takes turns
	fetches sync.WaitGroup // claim checks on their way
	ending  sync.WaitGroup // runs that have left and tell their caller

	keeps   pool         // late results on their way to the journal
	keeping atomic.Int64 // bytes of their values
	queries pool         // questions for the journal
	life    context.Context
	die     context.CancelFunc // ends both
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
	if cfg.MaxTurns <= 0 {
		cfg.MaxTurns = cfg.MaxInFlight
	}
	if cfg.Grace <= 0 {
		cfg.Grace = wire.CancelGrace
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Executor{
		cfg: cfg, born: time.Now(), bus: cfg.Bus, cat: cfg.Registry, log: cfg.Logger,
		runs: map[string]*run{}, idle: make(chan struct{}), ready: make(chan struct{}), replies: wire.NewReplyRule(cfg.Bus.Subjects()),
		room: semaphore.NewWeighted(4 * wire.MaxBlob), keeps: pool{hands: 16, most: 10_000}, queries: pool{hands: 16, most: 1000},
	}
	e.life, e.die = context.WithCancel(context.Background())
	e.watch.e, e.peers.subjects = e, cfg.Bus.Subjects()
	e.lookup = func(name string) *turn.Tool { return &e.tool(name).tool }
	if b, ok := cfg.Breakers.(*kvstate.Bucket); ok && b == nil {
		cfg.Breakers = nil // a bucket that could not be opened
	}
	e.gates = newGates(cfg.Breakers, cfg.Bus, cfg.Logger)
	e.gates.tell, e.gates.resized = e.tell, e.split
	if cfg.Observer != nil || cfg.Trace != nil {
		e.gates.notice = e.share
	}
	return e, nil
}

// ID is the executor's instance id.
func (e *Executor) ID() string { return e.bus.ID() }

// Ready is closed once turns that come over the bus reach Run. It never is where Run fails before that.
func (e *Executor) Ready() <-chan struct{} { return e.ready }

// InFlight is how many calls are under way: those of the turns that have not ended, and those that go on after theirs.
func (e *Executor) InFlight() int { return int(e.calls.Load()) }

// Call runs one call as a turn of its own and returns its one result. When ctx ends first, the call is cancelled and
// the result says so, after at most the grace.
func (e *Executor) Call(ctx context.Context, c tool.Call) tool.Result {
	w := waits.Get().(*wait)
	defer waits.Put(w) // empty again: one outcome goes through it
	r := &run{e: e, done: w.put}
	r.alone(c)
	e.begin(r)
	select {
	case out := <-w.outcome:
		return out.Results[0]
	case <-ctx.Done():
		r.cancel()
		return (<-w.outcome).Results[0]
	}
}

// A wait is how Call gets its outcome.
type wait struct {
	outcome chan *wire.Outcome
	put     func(*wire.Outcome)
}

var waits = sync.Pool{New: func() any {
	w := &wait{outcome: make(chan *wire.Outcome, 1)}
	w.put = func(o *wire.Outcome) { w.outcome <- o }
	return w
}}

// A Turn is what to run. Only the calls of the request are required.
type Turn struct {
	Request  wire.TurnRequest // it must not be changed any more. An empty ID is filled in
	Header   wire.Header      // trace headers to hand on to the workers; may be nil
	Observer Observer         // of this turn alone, beside Config.Observer
}

// Go starts a turn and returns at once. done is called exactly once, with the turn's lock held: it must not block, and the
// outcome is its own to keep, not to change. It has one result for each call, also where the turn was refused. The
// returned func cancels the turn; it may be called at any time.
func (e *Executor) Go(t Turn, done func(*wire.Outcome)) (cancel func()) {
	return e.start(&t, done).cancel
}

func (e *Executor) start(t *Turn, done func(*wire.Outcome)) *run {
	r := &run{e: e, req: t.Request, header: t.Header, observer: t.Observer, done: done}
	if len(r.req.Calls) == 1 {
		r.alone(r.req.Calls[0])
	}
	e.begin(r)
	return r
}

// alone makes c the one call of the turn, in a place that the run has for it.
func (r *run) alone(c tool.Call) {
	if c.ID == "" {
		c.ID = "c1"
	}
	r.only[0], r.req.Calls = c, r.only[:]
}

// begin takes a run in, and starts it. One that was refused is over, and to cancel it does nothing.
func (e *Executor) begin(r *run) {
	if r.req.ID == "" {
		r.req.ID = nuid.Next()
	}
	r.req.Calls = turn.Name(r.req.Calls, 0, nil)
	r.mu.Lock() // from before anybody can find it: a cancel that comes now waits
	defer r.mu.Unlock()
	if f := e.enter(r); f != nil {
		r.over = true
		r.done(e.refusal(&r.req, f))
		return
	}
	if err := r.start(); err != nil {
		r.end()
		r.done(e.refusal(&r.req, planFault(err)))
	}
}

// admit counts n more calls, or says why not.
func (e *Executor) admit(n int) *fault.Fault {
	most := int64(e.cfg.MaxInFlight)
	if int64(n) > most {
		return fault.New(fault.Overloaded, "%s are more than this executor ever has in flight, its limit is %d: hand over fewer, or raise the limit", plural(n, "call"), most)
	}
	if now := e.calls.Add(int64(n)); now > most {
		e.calls.Add(-int64(n))
		return fault.New(fault.Overloaded, "this executor has %s in flight and its limit is %d, so it cannot take %d more: try again later, or start another executor",
			plural(int(now)-n, "call"), most, n)
	}
	return nil
}

// enter takes the run in, or says why not.
func (e *Executor) enter(r *run) *fault.Fault {
	if err := r.req.Check(); err != nil {
		return fault.New(fault.InvalidArguments, "turn request: %v", err)
	}
	n := len(r.req.Calls)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closing:
		return fault.New(fault.Unavailable, "this executor is stopping: try again, another one will take it")
	case e.runs[r.req.ID] != nil:
		return fault.New(fault.InvalidArguments, "turn %s is running already: give every turn an id of its own", r.req.ID)
	case len(e.runs) >= e.cfg.MaxTurns:
		return fault.New(fault.Overloaded, "this executor has %s under way, its limit: try again later, or start another executor", plural(len(e.runs), "turn"))
	}
	if f := e.admit(n); f != nil {
		return f
	}
	e.runs[r.req.ID] = r
	r.calls = n
	return nil
}

// leave is the end of every run that entered.
func (e *Executor) leave(r *run) {
	e.mu.Lock()
	delete(e.runs, r.req.ID)
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

// Shutdown takes no more turns and lets those under way end, calls that go on after their turn too. When ctx ends first,
// they are cancelled and the error says how many. It ends the watch too. A second Shutdown returns at once.
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
	defer e.close(ctx)
	select {
	case <-e.idle:
		return nil
	case <-ctx.Done():
	}
	e.mu.Lock()
	left := slices.Collect(maps.Values(e.runs))
	e.mu.Unlock()
	n := e.InFlight()
	for _, r := range left {
		r.cancel()
	}
	<-e.idle // every run ends within the grace of its cancel
	if n > 0 {
		return errors.New("executor: calls still under way were cancelled: " + plural(n, "call"))
	}
	return nil
}

// close lets late results be kept and questions be answered until ctx ends, and lastWords longer.
func (e *Executor) close(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(lastWords, e.die) })
	defer stop()
	e.keeps.wait()
	e.queries.wait()
	e.die()
}
