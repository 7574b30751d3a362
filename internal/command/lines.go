package command

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// Bounds of a Pool.
const (
	maxPool     = 64
	maxParallel = 1000

	firstWait = 100 * time.Millisecond // before a program that died twice in a row is started again; doubled each time
	lastWait  = 30 * time.Second
	settled   = 10 * time.Second // a program that lived so long, or answered, is started again at once
)

// Lines is a Command that is started once and answers one line for each line, instead of being started for every call:
//
//	in   {"id":"7","tool":"hello","args":{…},"call":"t1/c1","attempt":1,"key":"t1/c1","timeout_ms":29990,"traceparent":"…"}
//	in   {"id":"7","cancel":true}
//	out  {"id":"7","progress":{"done":1,"total":3,"message":"reading"}}
//	out  {"id":"7","result":…}
//	out  {"id":"7","error":{"kind":"not_found","message":"no such city"}}
//
// The last two end a call. Whatever else the program has to say belongs on standard error, which goes to the log: a line
// on standard output that is none of these ends the program, and with it the calls that it had.
//
// A program that ends is started again, the first time at once and then after a growing while. The calls that it had are
// worker_lost, of unknown execution; calls that find no program running are unavailable, and did not run.
//
// A call that is over before its time sends cancel. Where no line ends it within Grace the program is killed, with its
// process group.
type Lines struct {
	// Command is what is started. MaxOutput bounds a line; Strict says nothing here.
	Command

	// Pool is how many programs run. Zero means one.
	Pool int

	// Parallel is how many calls one program gets at once. Zero means one: then it can read a line, work, and answer.
	Parallel int

	// Logger gets what the programs write to standard error, and how they come and go. Nil discards.
	Logger *slog.Logger
}

// Check says why the programs cannot be started, as far as can be known before, or nil.
func (l Lines) Check() error {
	if l.Pool < 0 || l.Pool > maxPool {
		return fmt.Errorf("pool: expected 1 to %d programs, got %d", maxPool, l.Pool)
	}
	if l.Parallel < 0 || l.Parallel > maxParallel {
		return fmt.Errorf("parallel: expected 1 to %d calls at once, got %d", maxParallel, l.Parallel)
	}
	return l.Command.Check()
}

// A Pool is the programs of Lines under way. It is a worker.Handler, for any number of calls at once: those for which there
// is no place wait. Make it with Start, and Close it.
type Pool struct {
	cfg    Lines
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	slots  []*slot
	freed  chan struct{} // closed and made anew whenever a place may have become free
	last   int           // number of the last id
}

// A slot is the place of one program: the one that runs there now, or why none does.
type slot struct {
	child *child // nil while none runs
	why   string // it does not
	again time.Time
}

// Start starts the programs. They end with Close.
func (l Lines) Start() (*Pool, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Pool{cfg: l, log: l.Logger, cancel: cancel, freed: make(chan struct{})}
	p.cfg.Pool, p.cfg.Parallel = max(1, l.Pool), max(1, l.Parallel)
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	p.log = p.log.With("command", l.Path)
	for range p.cfg.Pool {
		s := &slot{child: newChild(p)}
		p.slots = append(p.slots, s)
		p.done.Go(func() { p.keep(ctx, s) })
	}
	return p, nil
}

// Close ends the programs, and returns when they are gone: SIGTERM, and after Grace SIGKILL. Calls under way are lost.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.done.Wait()
}

// keep runs a program in a slot, again and again.
func (p *Pool) keep(ctx context.Context, s *slot) {
	wait := time.Duration(0)
	for {
		c := s.child // only this goroutine changes it
		begun := time.Now()
		why := c.run(ctx)
		if c.answered.Load() || time.Since(begun) > settled {
			wait = 0
		}
		p.mu.Lock()
		s.child, s.why, s.again = nil, why, time.Now().Add(wait)
		p.free()
		p.mu.Unlock()
		c.lose(why)
		if ctx.Err() != nil {
			return
		}
		p.log.Warn("a program ended and is started again", "why", why, "in", wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(max(2*wait, firstWait), lastWait)
		p.mu.Lock()
		s.child = newChild(p)
		p.free()
		p.mu.Unlock()
	}
}

// free wakes those that wait for a place. p.mu is held.
func (p *Pool) free() {
	close(p.freed)
	p.freed = make(chan struct{})
}

// Handle gives the call to a program and waits for its answer. The result is a json.RawMessage; an error is always a
// *fault.Fault.
func (p *Pool) Handle(ctx context.Context, call *worker.Call) (any, error) {
	c, job, f := p.place(ctx, call)
	if f != nil {
		return nil, f
	}
	defer p.leave(c, job)
	if f := c.send(ctx, request(ctx, job.id, call)); f != nil {
		return nil, f
	}
	select {
	case a := <-job.answer:
		return a.value()
	case <-ctx.Done():
	}
	return p.stop(ctx, c, job)
}

// place finds a program with room for one more call.
func (p *Pool) place(ctx context.Context, call *worker.Call) (*child, *job, *fault.Fault) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, nil, notStarted(fault.Unavailable, "the worker is shutting down")
		}
		var best *child
		alive := false
		for _, s := range p.slots {
			if s.child == nil {
				continue
			}
			alive = true
			if s.child.isBad() {
				continue // soon there is another one
			}
			if n := s.child.load(); n < p.cfg.Parallel && (best == nil || n < best.load()) {
				best = s.child
			}
		}
		if best != nil {
			p.last++
			j := best.take(strconv.Itoa(p.last), call)
			p.mu.Unlock()
			return best, j, nil
		}
		if f := p.down(); !alive && f.RetryAfter() > firstWait {
			p.mu.Unlock()
			return nil, nil, f
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			f := ended(ctx, "while the call waited for a program that was free")
			f.Execution = fault.NotStarted
			return nil, nil, f
		}
	}
}

// down is the fault of a call that finds no program running. p.mu is held.
func (p *Pool) down() *fault.Fault {
	first := p.slots[0]
	for _, s := range p.slots[1:] {
		if s.again.Before(first.again) {
			first = s
		}
	}
	f := notStarted(fault.Unavailable, "the command does not run: "+first.why)
	f.RetryAfterMs = max(1, time.Until(first.again).Milliseconds())
	return f
}

func notStarted(kind fault.Kind, message string) *fault.Fault {
	f := fault.New(kind, "%s", message)
	f.Execution = fault.NotStarted
	return f
}

// leave gives a place back.
func (p *Pool) leave(c *child, j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.drop(j)
	p.free()
}

// stop tells the program that a call is over, and ends the program where it does not listen.
func (p *Pool) stop(ctx context.Context, c *child, j *job) (any, error) {
	grace := positive(p.cfg.Grace, defaultGrace)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	line, _ := json.Marshal(map[string]any{"id": j.id, "cancel": true})
	_ = c.send(late, append(line, '\n'))
	select {
	case a := <-j.answer:
		if a.lost {
			return a.value()
		}
		f := ended(ctx, "and the command stopped")
		f.Execution = fault.Stopped
		return nil, f
	case <-late.Done():
	}
	c.kill("it did not stop when a call was over")
	f := ended(ctx, "and the command, which did not stop, was killed")
	f.Execution = fault.Stopped
	return nil, f
}

// request is the line that asks for a call.
func request(ctx context.Context, id string, call *worker.Call) []byte {
	args := call.Args
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	r := struct {
		ID          string          `json:"id"`
		Tool        string          `json:"tool"`
		Args        json.RawMessage `json:"args"` // compacted by Marshal: a line has no line break in it
		Call        string          `json:"call,omitempty"`
		Attempt     int             `json:"attempt,omitempty"`
		Key         string          `json:"key,omitempty"`
		TimeoutMs   int64           `json:"timeout_ms,omitempty"`
		Traceparent string          `json:"traceparent,omitempty"`
		Tracestate  string          `json:"tracestate,omitempty"`
	}{
		ID: id, Tool: call.Tool, Args: args, Attempt: call.Ref.Attempt, Key: call.Key,
		Traceparent: header(call.Header, wire.HeaderTraceparent), Tracestate: header(call.Header, wire.HeaderTracestate),
	}
	if call.Ref.Call != "" {
		r.Call = call.Ref.Turn + "/" + call.Ref.Call
	}
	if end, ok := ctx.Deadline(); ok {
		r.TimeoutMs = max(1, time.Until(end).Milliseconds())
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic("command: arguments that were checked are not JSON: " + err.Error())
	}
	return append(line, '\n')
}
