package client

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Turn is an open turn: one to which calls are added while it runs, as an agent does that calls tools in several rounds
// under one deadline. Make it with Open, and end it with Close or Cancel, or by ending Open's ctx. One goroutine belongs
// to it and ends with it. It is safe for concurrent use.
type Turn struct {
	c      *Client
	id     string
	cancel context.CancelFunc

	begun chan struct{} // closed when the executor has it
	over  chan struct{} // closed when it has ended; then out and err hold
	out   *wire.Outcome
	err   error

	asking chan struct{} // held by the one who asks; the next two are his
	seq    int64         // of the last question
	closed bool

	mu     sync.Mutex
	ids    map[string]bool // of all calls
	named  int             // how many ids are ours
	rounds []*round
	last   int64 // Seq of the last event
}

// Open begins a turn to which calls can be added, and returns once an executor has it. req may have calls or none. An
// empty req.ID is filled in, and so are empty ids of calls, here and in Add and Call: c1, c2 and so on.
//
// Each is called with every event as it comes, TurnEnded the last, on the goroutine that takes them in: it must not wait
// for the turn. It may be nil. When ctx ends, the turn is cancelled. An executor that goes silent ends the turn for us,
// and everything that waits for it, with worker_lost.
//
// The error is a *fault.Fault: unavailable where no executor is there, and why the executor refused the turn.
func (c *Client) Open(ctx context.Context, req wire.TurnRequest, each func(*wire.Event)) (*Turn, error) {
	t := &Turn{
		c:      c,
		begun:  make(chan struct{}),
		over:   make(chan struct{}),
		asking: make(chan struct{}, 1),
		ids:    map[string]bool{},
	}
	req.Open, req.Calls = true, t.name(req.Calls)
	f, err := c.begin(ctx, req, func(ev *wire.Event) {
		if each != nil && ev.Type != wire.Alive {
			each(ev)
		}
		t.take(ev)
	})
	if err != nil {
		return nil, err
	}
	t.id = f.turn
	run, cancel := context.WithCancel(ctx)
	t.cancel = cancel
	go func() {
		defer close(t.over)
		defer cancel()
		t.out, t.err = f.follow(run)
	}()

	select {
	case <-t.begun:
		return t, nil
	case <-t.over:
	}
	select {
	case <-t.begun: // and ended at once
		return t, nil
	default:
	}
	if t.err != nil {
		return nil, t.err
	}
	return nil, refusal(ctx, t.out)
}

// refusal is why a turn ended before it began.
func refusal(ctx context.Context, out *wire.Outcome) *fault.Fault {
	for _, r := range out.Results {
		if r.Fault != nil {
			wire.CheckFault(r.Fault)
			return r.Fault
		}
	}
	if ctx.Err() != nil {
		return gaveUp(ctx, "the turn")
	}
	return fault.New(fault.Internal, "the executor ended the turn before it began: %s", fault.Truncate(out.Sentence, 200))
}

// ID is the turn's id, for Late, Trace and CancelCall.
func (t *Turn) ID() string { return t.id }

// Add hands over more calls, all or none, and returns once the executor has them. Their results are in the events and in
// the outcome. The error is a *fault.Fault: invalid_arguments with all that is wrong with them, or where the turn takes
// no more. When ctx ends first, it is unknown whether they were added.
func (t *Turn) Add(ctx context.Context, calls ...tool.Call) error {
	return t.add(ctx, t.name(calls))
}

func (t *Turn) add(ctx context.Context, calls []tool.Call) error {
	if len(calls) == 0 {
		return nil
	}
	if err := (&wire.TurnControl{Calls: calls}).Check(); err != nil {
		return fault.New(fault.InvalidArguments, "%v", err)
	}
	if f := t.ask(ctx, wire.AddFrame, calls); f != nil {
		return f
	}
	return nil
}

// Call hands over more calls, as Add does, and waits for the result of each: one for every call, in order. A call that
// failed has a result like any other, and so has each where the turn ends first. When ctx ends first the calls go on:
// CancelCall stops one, and the outcome has their results.
func (t *Turn) Call(ctx context.Context, calls ...tool.Call) ([]tool.Result, error) {
	calls = t.name(calls)
	r := newRound(calls)
	t.await(r)
	defer t.forget(r)
	if err := t.add(ctx, calls); err != nil {
		return nil, err
	}
	select {
	case <-r.done:
	case <-t.over:
	case <-ctx.Done():
		return nil, gaveUp(ctx, "the results of the calls that were added to turn "+t.id)
	}
	select {
	case <-r.done: // a turn that ends gives every call its result first
	default:
		if t.err != nil {
			return nil, t.err
		}
		return nil, fault.New(fault.Internal, "the executor ended turn %s without a result for each of its calls", t.id)
	}
	if r.fault != nil {
		return nil, r.fault
	}
	return r.results, nil
}

// Close says that no more calls will be added, and waits for the outcome. Closing again waits again.
func (t *Turn) Close(ctx context.Context) (*wire.Outcome, error) {
	f := t.ask(ctx, wire.CloseFrame, nil)
	select {
	case <-t.over:
		return t.out, t.err
	default:
	}
	if f != nil {
		return nil, f
	}
	return t.Wait(ctx)
}

// Wait waits for the end of the turn, and returns its outcome. The error is a *fault.Fault, as with Stream.
func (t *Turn) Wait(ctx context.Context) (*wire.Outcome, error) {
	select {
	case <-t.over:
		return t.out, t.err
	case <-ctx.Done():
		return nil, gaveUp(ctx, "the outcome of turn "+t.id)
	}
}

// Cancel stops the turn. It does not wait: Wait does, and then the outcome says that it was cancelled.
func (t *Turn) Cancel() { t.cancel() }

// ask sends a question to whoever runs the turn, again until it is answered. One is asked at a time.
func (t *Turn) ask(ctx context.Context, frame wire.Frame, calls []tool.Call) *fault.Fault {
	select {
	case t.asking <- struct{}{}:
		defer func() { <-t.asking }()
	case <-ctx.Done():
		return gaveUp(ctx, "the answer of turn "+t.id)
	}
	select {
	case <-t.over:
		return t.ended()
	default:
	}
	if t.closed && frame == wire.CloseFrame {
		return nil
	}
	if t.closed {
		return notAdded("turn %s is closed: it takes no more calls", t.id)
	}
	t.seq++
	h, body, f := t.c.pack(ctx, &wire.TurnControl{Calls: calls, Seq: t.seq})
	if f != nil {
		return f
	}
	h[wire.HeaderFrame] = []string{string(frame)}
	f = t.answered(ctx, h, body)
	t.closed = f == nil && frame == wire.CloseFrame
	return f
}

// answered sends one message until it is answered.
func (t *Turn) answered(ctx context.Context, h wire.Header, body []byte) *fault.Fault {
	in := newInbox(16, maxBytes)
	ticket := t.c.bus.Open(wire.TurnToken, in)
	defer ticket.Close()
	repeat := time.NewTicker(again)
	defer repeat.Stop()
	for {
		f := t.c.bus.Send(ticket, t.c.bus.Subjects().TurnCtl(t.id), h, body)
		if f != nil && f.Kind != fault.Unavailable { // the connection may come back
			return f
		}
		for waiting := true; waiting; {
			select {
			case <-in.more:
			case <-repeat.C:
				waiting = false
			case <-t.over:
				return t.ended()
			case <-ctx.Done():
				return gaveUp(ctx, "the answer of turn "+t.id)
			}
			frames, _ := in.take()
			for _, fr := range frames {
				if !fr.NoResponders { // its executor may come back, or be given up as silent
					return t.answer(fr)
				}
			}
		}
	}
}

// answer is what the executor answered.
func (t *Turn) answer(fr bus.Frame) *fault.Fault {
	if fr.Refused != nil {
		return fr.Refused
	}
	var r wire.TurnReply
	if f := decode(fr.Data, &r); f != nil {
		return f
	}
	if r.OK {
		return nil
	}
	if r.Fault == nil {
		return fault.New(fault.Internal, "the executor of turn %s answered neither yes nor why not", t.id)
	}
	wire.CheckFault(r.Fault)
	return r.Fault
}

// ended is why nothing more can be asked of a turn that is over.
func (t *Turn) ended() *fault.Fault {
	if f := fault.Of(t.err); f != nil {
		return f
	}
	return notAdded("turn %s has ended (%s): it takes no more calls; its outcome has those that it took", t.id, fault.Truncate(t.out.Status, 40))
}

func notAdded(format string, args ...any) *fault.Fault {
	f := fault.New(fault.InvalidArguments, format, args...)
	f.Suggestions = nil // other arguments would not help
	return f
}

// name is the calls, each with an id that is new to the turn where it had none.
func (t *Turn) name(calls []tool.Call) []tool.Call {
	calls = slices.Clone(calls)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range calls {
		t.ids[c.ID] = true
	}
	for i := range calls {
		for id := &calls[i].ID; *id == ""; {
			t.named++
			if next := "c" + strconv.Itoa(t.named); !t.ids[next] {
				t.ids[next] = true
				*id = next
			}
		}
	}
	return calls
}
