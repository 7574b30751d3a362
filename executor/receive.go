package executor

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// Receive takes what a worker says about the attempt. It is called by the connection's reader, so what takes long (a
// large result, a claim check) is done elsewhere.
func (a *attempt) Receive(f bus.Frame) {
	now := time.Now()
	if f.NoResponders {
		a.nobody(now)
		return
	}
	if f.Refused != nil {
		a.tell(now, bus.Frame{Kind: wire.ErrorFrame}, turn.Event{Kind: turn.Failed, Fault: f.Refused})
		return
	}
	if ref := wire.Get(f.Header, wire.HeaderCall); ref != "" && ref != a.ref() {
		a.job.run.e.log.Warn("a frame was dropped: it names another call than its subject", "tool", a.tool(), "call", a.ref(), "names", fault.Truncate(ref, 80))
		return
	}
	switch f.Kind {
	case wire.Result, "":
		a.result(now, f)
	case wire.ErrorFrame:
		a.reports(now, f, foreign(wire.DecodeFault(f.Header, f.Data)))
	case wire.Stopped:
		a.reports(now, f, stopped(wire.DecodeFault(f.Header, f.Data)))
	case wire.Nack:
		a.refused(now, wire.DecodeFault(f.Header, f.Data))
	case wire.Accept:
		a.tell(now, f, turn.Event{Kind: turn.Accepted})
	case wire.Progress:
		a.progress(now, f)
	case wire.Partial:
		a.piece(now, f)
	}
}

// reports is the worker's own word that the attempt failed.
func (a *attempt) reports(now time.Time, f bus.Frame, flt *fault.Fault) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	a.reported = true
	a.told(now, f, turn.Event{Kind: turn.Failed, Fault: flt})
}

// tell brings an event to the turn; f says who spoke.
func (a *attempt) tell(now time.Time, f bus.Frame, ev turn.Event) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	a.told(now, f, ev)
}

// told is tell under the lock.
func (a *attempt) told(now time.Time, f bus.Frame, ev turn.Event) {
	r := a.job.run
	if !a.awaited() {
		return
	}
	a.heard.Store(true)
	ev.Call, ev.Attempt = a.job.index(), a.n
	if w := wire.Get(f.Header, wire.HeaderWorker); w != "" && tool.CheckID(w) == nil {
		ev.Worker = w
		if a.peer == nil && !f.Kind.Ends() {
			a.hold(r.e.peers.get(w))
		}
	} else if a.peer != nil {
		ev.Worker = a.peer.id
	}
	r.apply(now, ev)
}

// foreign is a worker's fault that does not speak in our name: whether a call was cancelled, or its turn's time is up, is not
// for a worker to say.
func foreign(f *fault.Fault) *fault.Fault {
	kind, ours := translated[f.Kind]
	if !ours {
		return f
	}
	g := *f
	g.Kind = kind
	return &g
}

var translated = map[fault.Kind]fault.Kind{
	fault.Cancelled: fault.Upstream, fault.Deadline: fault.Timeout, fault.CircuitOpen: fault.Unavailable, fault.LoopBlocked: fault.Failed,
}

// stopped says of a stop that nobody asked for that it was one: the worker went down in good order.
func stopped(f *fault.Fault) *fault.Fault {
	g := *f
	if g.Kind == fault.Cancelled {
		g.Kind = fault.WorkerLost
		g.Message = "the worker stopped the call"
	}
	if g.Execution == "" {
		g.Execution = fault.Stopped
	}
	return &g
}

// largeResult is what is checked away from the reader, in bytes.
const largeResult = 16 << 10

func (a *attempt) result(now time.Time, f bus.Frame) {
	blob := wire.Get(f.Header, wire.HeaderBlob)
	if blob == "" && len(f.Data) <= largeResult {
		a.tell(now, f, a.verify(f, f.Data))
		return
	}
	if !a.answered() {
		return
	}
	a.job.run.e.fetches.Go(func() {
		data, flt := f.Data, (*fault.Fault)(nil)
		if blob != "" {
			data, flt = a.job.run.e.fetch(blob)
		}
		ev := turn.Event{Kind: turn.Failed, Fault: flt}
		if flt == nil {
			ev = a.verify(f, data)
		} else {
			flt.Execution = fault.Done // whatever kept us from it: there is a result
		}
		a.job.run.mu.Lock()
		defer a.job.run.mu.Unlock()
		a.fetching = false
		a.told(time.Now(), f, ev)
	})
}

// answered takes the attempt off its worker's account: the worker is done with it, and knows it no more. It is false where
// nobody waits for the answer.
func (a *attempt) answered() bool {
	a.job.run.mu.Lock()
	defer a.job.run.mu.Unlock()
	if !a.awaited() {
		return false
	}
	a.fetching = true
	if a.peer != nil {
		a.peer.release(a)
	}
	return true
}

// awaited says that what is said of the attempt counts: it is out, and its answer has not come.
func (a *attempt) awaited() bool { return a.job.now == a && !a.fetching }

// fetch brings a result that came as a claim check.
func (e *Executor) fetch(check string) ([]byte, *fault.Fault) {
	ref, err := wire.ParseBlobRef(check)
	if err != nil {
		f := fault.New(fault.InvalidResult, "the worker sent a claim check that cannot be read: %v", err)
		return nil, f
	}
	ctx, cancel := context.WithTimeout(context.Background(), blobTimeout)
	defer cancel()
	if err := e.room.Acquire(ctx, ref.Size); err != nil {
		return nil, fault.New(fault.Overloaded, "a claim check of %d bytes was not fetched: too many others were, at once", ref.Size)
	}
	defer e.room.Release(ref.Size)
	return e.bus.GetBlob(ctx, ref)
}

// verify makes a success of a result that keeps to the tool's schema, and a failure of another.
func (a *attempt) verify(f bus.Frame, data []byte) turn.Event {
	if wire.Get(f.Header, wire.HeaderServiceError) != "" || wire.Get(f.Header, wire.HeaderServiceErrorCode) != "" {
		return turn.Event{Kind: turn.Failed, Fault: wire.DecodeFault(f.Header, data)} // a plain NATS service
	}
	ct := wire.Get(f.Header, wire.HeaderContentType)
	if ct == wire.JSON {
		ct = ""
	}
	if ct == "" && !json.Valid(data) {
		quoted, err := json.Marshal(string(data)) // a plain replier may answer with text
		if err != nil {
			return turn.Event{Kind: turn.Failed, Fault: fault.New(fault.InvalidResult, "the result is neither JSON nor text")}
		}
		data = quoted
	}
	if c := a.ready.compiled; c != nil {
		if flt := c.CheckResult(data, ct); flt != nil {
			return turn.Event{Kind: turn.Failed, Fault: flt}
		}
	}
	return turn.Event{Kind: turn.Succeeded, Value: data, Type: ct}
}

func (a *attempt) progress(now time.Time, f bus.Frame) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.awaited() {
		return
	}
	a.told(now, f, turn.Event{Kind: turn.Progressed, Progress: a.shown(now, f)})
}

// shown is the progress that observers see; nil where there are none, or it is too much.
func (a *attempt) shown(now time.Time, f bus.Frame) *wire.ProgressRecord {
	if !a.job.run.recorded || len(f.Data) > maxProgress || !a.seen().news.let(now) {
		return nil
	}
	p := new(wire.ProgressRecord)
	if err := wire.Decode(f.Data, p); err != nil {
		return nil
	}
	p.Message = fault.Truncate(p.Message, maxProgressText)
	return p
}

func (a *attempt) piece(now time.Time, f bus.Frame) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.awaited() {
		return
	}
	seen := a.seen()
	if seen.pieces += len(f.Data) + frameCost; seen.pieces > maxPieces {
		a.job.stop()
		a.told(now, f, turn.Event{Kind: turn.Failed, Fault: fault.New(fault.InvalidResult,
			"the worker sent more than %d MiB in pieces: send a result of that size as one, by claim check", maxPieces>>20)})
		return
	}
	if !json.Valid(f.Data) {
		return
	}
	n, _ := strconv.Atoi(wire.Get(f.Header, wire.HeaderSeq))
	a.told(now, f, turn.Event{Kind: turn.Pieced, Value: f.Data, Seq: n})
}

// What one attempt may tell before its end. A worker that goes on is cut off, or not listened to.
const (
	maxPieces       = wire.MaxBlob // bytes of pieces, with
	frameCost       = 256          // bytes that each counts for on top: an endless stream of empty ones ends too
	maxProgress     = 64 << 10     // bytes of one progress frame that is shown to observers
	maxProgressText = 8 << 10
	newsBurst       = 100 // progress frames that are shown at once, and in a second
)

// news says which progress frames are shown to observers: a worker that sends more is still alive, and no more is said.
type news struct {
	since int64 // Unix, in nanoseconds
	n     int
}

func (w *news) let(now time.Time) bool {
	if at := now.UnixNano(); at-w.since >= int64(time.Second) || at < w.since {
		w.since, w.n = at, 0
	}
	w.n++
	return w.n <= newsBurst
}

// refused is a nack: the worker did not and will not run it, so another may.
func (a *attempt) refused(now time.Time, f *fault.Fault) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Execution == "" || f.Execution == fault.Unknown {
		g := *f
		g.Execution = fault.NotStarted
		f = &g
	}
	a.bounce(now, f)
}

// nobody is the server's word that no one listens: nothing ran.
func (a *attempt) nobody(now time.Time) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.awaited() {
		return
	}
	if a.direct && a.peer != nil {
		r.e.cat.Gone(a.peer.id)
		a.bounce(now, fault.New(fault.Unavailable, "worker %s is gone", a.peer.id))
		return
	}
	f := fault.New(fault.Unavailable, "no worker of %s is running: start one, or wait for it", a.tool())
	if a.ready.compiled == nil && r.e.cat.Tool(a.tool()) == nil {
		f = fault.New(fault.ToolNotFound, "there is no tool named %s", a.tool())
		r.e.suggest(f, a.tool())
		r.e.forget(a.ready.state)
	}
	a.job.fail(now, f)
}

// bounce sends the same attempt to another worker, at once. It did not run, so it is not another attempt.
func (a *attempt) bounce(now time.Time, f *fault.Fault) {
	r := a.job.run
	if !a.awaited() {
		return
	}
	from, seen := a.peer, a.seen()
	if seen.bounces++; r.turn.Ended() || r.turn.Stopping(a.job.index()) || seen.bounces > maxBounces || (from == nil && seen.bounces > 2) {
		a.job.fail(now, f)
		return
	}
	if from != nil {
		from.full(now, f)
		from.release(a)
		seen.tried = append(seen.tried, from)
	}
	if len(seen.tried) > 0 && !r.e.peers.other(now, a.job.workers(), seen.tried) {
		if f.Kind == fault.Overloaded && seen.waits < maxWaits {
			a.wait()
			return
		}
		a.job.fail(now, f)
		return
	}
	a.ticket.Close()
	a.peer, a.direct, a.out = nil, false, false
	if f := a.publish(now, seen.tried); f != nil {
		a.job.fail(now, f)
	}
}

// maxWaits is how often all workers may be full before that fails the attempt: after 1, 2, 4, 8, 16 and 32 ms.
const maxWaits = 6

// wait asks one of the workers again in a moment: all of them are full, and places come free all the time. It is long
// before a retry would be due, and it is none, for nothing ran.
func (a *attempt) wait() {
	a.ticket.Close()
	a.peer, a.direct, a.out = nil, false, false
	seen := a.seen()
	d := time.Millisecond << seen.waits
	seen.waits++
	seen.bounces = 0
	time.AfterFunc(d, func() {
		r, now := a.job.run, time.Now()
		r.mu.Lock()
		defer r.mu.Unlock()
		if a.job.now != a {
			return
		}
		if f := a.publish(now, nil); f != nil {
			a.job.fail(now, f)
		}
	})
}

// lost is the watch's word that the worker of this attempt is gone or hangs.
func (a *attempt) lost(now time.Time, why string) {
	r := a.job.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if !a.awaited() {
		return
	}
	ev := turn.Event{Kind: turn.Failed, Fault: fault.New(fault.WorkerLost, "%s", why)}
	if a.peer != nil {
		ev.Worker = a.peer.id // it may have died before its first word
	}
	a.job.apply(now, ev)
}
