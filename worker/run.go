package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Why the context of a handler ends before the handler does.
var (
	errTimeout   = errors.New("the call's time is up")
	errCancelled = errors.New("the call was cancelled")
	errShutdown  = errors.New("the worker is shutting down")
	errReturned  = errors.New("the handler has returned")
)

const (
	maxCallers    = 8 // of one run: calls that share an idempotency key
	progressEvery = 50 * time.Millisecond
)

// A caller is who waits for a run: one attempt, and where to answer it.
type caller struct {
	call     string // <turn>/<call>; empty for a bare request, which hears nothing but the end
	attempt  int
	reply    string
	progress string // where frames go that end nothing
	accepted bool
}

// A run is one use of a handler. Its callers may change while it runs: a newer attempt takes the place of an older one,
// and another call with the same idempotency key joins. The deadline stays that of the first.
//
// Two things can end a run for its callers, whichever comes first: the handler's return (Worker.finish) and the timer,
// once the handler had its grace after the deadline or a cancel and did not return (Worker.abandon).
type run struct {
	w       *Worker
	tool    *served
	call    Call
	blob    *wire.BlobRef
	begun   time.Time
	timeout time.Duration
	ctx     view
	next    *run // guarded by the hands, for which it waits

	// Guarded by Worker.mu.
	memos  []*memoItem  // held for as long as the handler runs
	held   [2]*memoItem // room for the first of them
	key    *memoItem    // the one that gets the answer; nil for a bare request
	leaked bool

	mu       sync.Mutex // held while a frame is published, so that nothing follows the end
	callers  []caller
	seen     context.Context // the observer's
	ended    bool
	stopping bool // the handler has been told to stop
	giveUp   time.Time
	timer    *time.Timer // the accept frame first, then giveUp
	seq      int
	said     time.Time // the last progress
	one      [1]caller
}

func (w *Worker) newRun(t *served, q *request, c caller, now time.Time) *run {
	r := &run{w: w, tool: t, blob: q.blob, begun: now, timeout: q.timeout}
	if r.timeout == 0 {
		r.timeout = t.manifest.Timeout()
	}
	r.call = Call{Tool: t.name, Ref: q.ref, Key: q.key, Session: q.session, Args: q.args, Header: q.header, run: r}
	r.one[0] = c
	r.callers = r.one[:1]
	r.giveUp = now.Add(r.timeout + wire.CancelGrace)

	r.ctx.base, r.ctx.call, r.ctx.deadline = w.base, &r.call, now.Add(r.timeout)
	r.seen = &r.ctx
	return r
}

// start lets the run begin, on another goroutine.
func (r *run) start() {
	first := r.timeout + wire.CancelGrace
	if r.callers[0].call != "" {
		first = wire.AcceptAfter
	}
	r.mu.Lock()
	r.timer = time.AfterFunc(first, r.due)
	r.mu.Unlock()
	r.w.hands.take(r)
}

// serve runs the handler and settles what came of it, whatever the handler does.
func (r *run) serve() {
	defer r.ctx.end()
	var a answer
	returned := false
	defer func() {
		if !returned {
			a = failed(broken(recover()))
			r.log().Error("tool broke down", "why", a.fault.Message, "detail", a.fault.Detail)
		}
		r.w.finish(r, a)
	}()
	a = r.run(r.observed())
	returned = true
}

// observed is the context of the handler, as the observer wants it.
func (r *run) observed() context.Context {
	var ctx context.Context = &r.ctx
	r.w.observe(func(o Observer) {
		if own := o.CallStarted(ctx, &r.call); own != nil {
			ctx = own
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = ctx
	return ctx
}

func (r *run) run(ctx context.Context) answer {
	if f := r.fetch(); f != nil {
		return failed(f)
	}
	if f := r.tool.compiled.CheckArgs(r.call.Args); f != nil {
		return failed(f)
	}
	if blank := bytes.TrimSpace(r.call.Args); len(blank) == 0 || blank[0] != '{' {
		r.call.Args = json.RawMessage("{}") // CheckArgs takes nothing and null for it
	}
	v, err := r.tool.handler.Handle(ctx, &r.call)
	if err != nil {
		return r.failure(err)
	}
	return r.result(v)
}

// fetch gets the arguments where they stand behind a claim check.
func (r *run) fetch() *fault.Fault {
	if r.blob == nil {
		return nil
	}
	data, f := r.w.bus.GetBlob(&r.ctx, *r.blob)
	if f == nil {
		r.call.Args = data
		return nil
	}
	if r.ctx.Err() != nil {
		f = r.stopped(fault.NotStarted).fault
	}
	g := *f
	g.Message = "the arguments could not be fetched: " + f.Message
	g.Execution = fault.NotStarted
	return &g
}

// failure is what a handler's error means. An error after the handler was told to stop means that it stopped, unless it
// says itself that it was done, or that nobody knows.
func (r *run) failure(err error) answer {
	f := fault.Of(err)
	var own *fault.Fault
	said := errors.As(err, &own)
	if !said && f.Run() == fault.NotStarted {
		g := *f // what could not be reached did not run; the handler, which tried to, did
		g.Execution = fault.Unknown
		f = &g
	}
	if r.ctx.Err() == nil {
		return failed(f)
	}
	if said && own.Execution == fault.Done {
		return failed(f)
	}
	a := r.stopped(fault.Stopped)
	if said && own.Execution == fault.Unknown { // of a bridge, which passed the wish on and cannot see whether it was granted
		a.frame, a.fault.Execution = wire.ErrorFrame, fault.Unknown
		a.fault.Message += " and may still be running at the other side"
	}
	a.fault.Detail = fault.Truncate(err.Error(), maxMessage)
	return a
}

// stopped ends a run that was told to stop, by the reason for it. With fault.Unknown the handler has not returned.
func (r *run) stopped(x fault.Execution) answer {
	var a answer
	switch context.Cause(&r.ctx) {
	case errCancelled:
		a = answer{frame: wire.Stopped, fault: fault.New(fault.Cancelled, "the call was cancelled")}
	case errShutdown:
		a = failed(fault.New(fault.WorkerLost, "the worker was shut down while the call ran"))
	default:
		a = failed(fault.New(fault.Timeout, "%s did not answer within %v", r.tool.name, r.timeout))
	}
	a.fault.Execution = x
	if x == fault.Unknown {
		a.frame = wire.ErrorFrame
		a.fault.Message += " and may still be running: it did not stop when it was told to"
	}
	return a
}

// broken is what is to be said of a handler that neither returned a result nor an error.
func broken(p any) *fault.Fault {
	if p == nil {
		return fault.New(fault.Internal, "the tool ended without a result: its handler called runtime.Goexit")
	}
	f := fault.New(fault.Internal, "the tool panicked")
	f.Detail = fault.Truncate(fmt.Sprintf("panic: %v\n\n%s", p, debug.Stack()), maxDetail)
	return f
}

// due is what the timer does: the accept frame if that is still to come, else the end of patience.
func (r *run) due() {
	r.mu.Lock()
	if left := time.Until(r.giveUp); left > 0 && !r.ended {
		r.accept()
		r.timer.Reset(left)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.w.abandon(r)
}

// stop tells the handler to stop, and gives it the grace to do so.
func (r *run) stop(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halt(cause)
}

// halt is stop with r.mu held.
func (r *run) halt(cause error) {
	if r.ended || r.stopping {
		return
	}
	r.stopping = true
	if g := time.Now().Add(wire.CancelGrace); g.Before(r.giveUp) {
		r.giveUp = g
	}
	r.timer.Reset(time.Until(r.giveUp))
	r.ctx.stop(cause)
}

// attach gives the run another caller: in the place of an older attempt at the same call, or beside others. It says no
// where the run is as good as over, or has too many.
func (r *run) attach(c caller) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || r.ctx.Err() != nil {
		return false
	}
	i := slices.IndexFunc(r.callers, func(o caller) bool { return o.call == c.call })
	switch {
	case i >= 0:
		r.callers[i] = c
	case len(r.callers) < maxCallers:
		r.callers = append(r.callers, c)
	default:
		return false
	}
	r.accept()
	return true
}

// drop cancels an attempt, or an older one of its call. The run stops with its last caller; where others wait for it the
// caller is taken away, to be answered.
func (r *run) drop(call string, attempt int) (c caller, away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.callers, func(o caller) bool { return o.call == call && o.attempt <= attempt })
	switch {
	case r.ended || i < 0:
		return caller{}, false
	case len(r.callers) == 1:
		r.halt(errCancelled)
		return caller{}, false
	}
	c = r.callers[i]
	r.callers = slices.Delete(r.callers, i, i+1)
	return c, true
}

// serves reports whether an attempt up to this one waits for the run; with exactly, this very one.
func (r *run) serves(call string, attempt int, exactly bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.ended && slices.ContainsFunc(r.callers, func(o caller) bool {
		return o.call == call && (o.attempt == attempt || !exactly && o.attempt < attempt)
	})
}

// end answers all callers, once.
func (r *run) end(a answer) {
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return
	}
	r.ended = true
	r.timer.Stop()
	for _, c := range r.callers {
		r.w.answer(r.tool, c, a)
	}
	ctx := r.seen
	r.mu.Unlock()
	r.w.observe(func(o Observer) { o.CallEnded(ctx, &r.call, time.Since(r.begun), a.fault) })
}

// observe tells the observer, if there is one, and survives it.
func (w *Worker) observe(tell func(Observer)) {
	if w.cfg.Observer == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("observer panicked", "panic", p)
		}
	}()
	tell(w.cfg.Observer)
}

// accept tells who does not know yet that the call is here. r.mu is held.
func (r *run) accept() {
	for i := range r.callers {
		c := &r.callers[i]
		if c.call == "" || c.accepted {
			continue
		}
		c.accepted = true
		r.w.send(c.progress, wire.Header{wire.HeaderFrame: {string(wire.Accept)}, wire.HeaderWorker: {r.w.id}}, nil)
	}
}

// frame publishes a frame that ends nothing, after the accept. r.mu is held.
func (r *run) frame(h wire.Header, data []byte) {
	r.accept()
	for _, c := range r.callers {
		if c.call != "" {
			r.w.send(c.progress, h, data)
		}
	}
}

func (r *run) progress(p wire.ProgressRecord) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended || now.Sub(r.said) < progressEvery {
		return
	}
	r.said = now
	p.Message = fault.Truncate(p.Message, maxMessage)
	data, err := wire.Marshal(wire.JSON, p)
	if err != nil {
		r.log().Warn("progress dropped", "err", err)
		return
	}
	r.frame(wire.Header{wire.HeaderFrame: {string(wire.Progress)}, wire.HeaderWorker: {r.w.id}}, data)
}

func (r *run) partial(piece any) error {
	contentType, data, err := encode(piece)
	if err != nil {
		return fmt.Errorf("a piece of the result of %s: %w", r.tool.name, err)
	}
	if most := r.w.bus.Inline(); len(data) > most {
		return fmt.Errorf("a piece of the result of %s has %d bytes, at most %d fit into a message: send smaller ones", r.tool.name, len(data), most)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return fmt.Errorf("a piece of the result of %s came after the end of the call", r.tool.name)
	}
	r.seq++
	h := wire.Header{wire.HeaderFrame: {string(wire.Partial)}, wire.HeaderWorker: {r.w.id}, wire.HeaderSeq: {fmt.Sprint(r.seq)}}
	if contentType != wire.JSON {
		h[wire.HeaderContentType] = []string{contentType}
	}
	r.frame(h, data)
	return nil
}

func (r *run) log() *slog.Logger {
	return r.w.log.With("tool", r.tool.name, "call", r.call.Ref.String())
}

// twice says whether the tool may run again for a key while a handler that does not stop still runs for it.
func twice(m *tool.Manifest) bool {
	return m.Effect == tool.Read || m.Effect == tool.Idempotent || m.Effect == tool.Undeclared && !m.KeepsKeys
}
