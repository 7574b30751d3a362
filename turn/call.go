package turn

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

type state uint8

const (
	pending  state = iota + 1 // for its inputs
	ready                     // for a place
	running                   // an attempt is out
	stopping                  // it was told to stop
	judging                   // it has failed, and what stands around it is asked for
	waiting                   // for the time of the next attempt
	decided                   // restored: what was decided is still to be done
	settled
)

// A call is one call on its way.
type call struct {
	node
	state   state
	placed  bool // it has a place
	quiet   bool // nobody wants to know what becomes of it after its turn
	excused bool // that it gave no value is nobody's failure
	unwant  bool // its caller wants no result
	at      int8 // the leg that it is on
	slot    int32
	got     int32 // inputs with a value
	final   int32 // inputs that are final

	attempt int32 // of all legs
	tries   int32 // of this leg
	deaths  int32
	ran     severity      // of the attempts that failed: the worst that is known
	began   time.Duration // when it was ready
	sentAt  time.Duration
	timeout time.Duration // of this attempt
	heardAt time.Duration // the last sign of life, for the idle limit
	firstAt time.Duration // when it first failed on this leg; never before that
	worker  string
	fault   *fault.Fault       // why it was told to stop, or how it failed
	verdict *fault.Verdict     // while it is judged
	doing   *recovery.Decision // restored: what was decided

	filled  *filled // nil where nothing was filled in
	parts   *parts  // nil where no piece came
	history []tool.Attempt
}

// filled are arguments in which everything is filled in. Every try sends the same, for its key is the same too.
type filled struct{ own, leg []byte }

// out says that an attempt is out.
func (c *call) out() bool { return c.state == running || c.state == stopping }

func (c *call) leg() *leg    { return c.node.leg(int(c.at)) }
func (c *call) tool() *Tool  { return c.leg().tool }
func (c *call) fallen() bool { return c.at > 0 }

// nextAlternative is the tool to go on with; "" where there is none.
func (c *call) nextAlternative() string {
	if int(c.at) >= len(c.alts) {
		return ""
	}
	return c.alts[c.at].tool.Name
}

// limit is when the attempt that is out has had its time.
func (c *call) limit() time.Duration {
	at := c.sentAt + c.timeout
	if idle := c.tool().Idle; idle > 0 {
		at = min(at, c.heardAt+idle)
	}
	return at
}

// begin makes the first attempt of a call that has a place.
func (t *Turn) begin(at time.Duration, i int) {
	c := &t.calls[i]
	c.placed, c.firstAt = true, never
	t.places++
	t.occupy(c, 1)
	t.send(at, i)
}

// send makes the next attempt. Arguments that cannot be filled in are its failure.
func (t *Turn) send(at time.Duration, i int) {
	c := &t.calls[i]
	args, f := t.arguments(c)
	if f != nil {
		t.judge(at, i, f)
		return
	}
	c.attempt++
	c.tries++
	l := c.leg()
	_, key := c.handed(int(c.at))
	c.state, c.sentAt, c.heardAt, c.worker, c.timeout = running, at, at, "", l.timeout
	c.parts.setAside()
	t.live++
	t.schedule(i, c.limit())
	t.out = append(t.out, Effect{
		Kind: Send, Call: i, Attempt: int(c.attempt), Tool: l.tool, BreakerKey: key, Key: t.key(c), Args: args, Timeout: l.timeout,
		Retry: c.tries > 1,
	})
	if t.cfg.Recorded {
		t.record(at, &wire.Event{Type: wire.AttemptStarted, Call: c.call.ID, Tool: l.tool.Name, Attempt: int(c.attempt), TimeoutMs: ms(l.timeout)})
	}
}

// key is the idempotency key of the attempt. An alternative must not take the key for that of the call's own tool, nor for
// that of an alternative before it with the same tool: its arguments may differ.
func (t *Turn) key(c *call) string {
	if !c.fallen() {
		return c.call.Key
	}
	key := t.cfg.Request.ID + "/" + c.call.ID
	if c.call.Key != "" {
		key = short(c.call.Key)
	}
	key += "/" + c.tool().Name
	for i := range int(c.at) - 1 {
		if c.alts[i].tool.Name == c.tool().Name {
			return key + "/" + strconv.Itoa(int(c.at))
		}
	}
	return key
}

// short is a key that has room for the name of a tool after it.
func short(key string) string {
	if len(key) <= 400 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// due is the time that Wake told.
func (t *Turn) due(at time.Duration) {
	for len(t.timers) > 0 && t.timers[0].at <= at {
		i := int(t.timers[0].i)
		c := &t.calls[i]
		t.unschedule(i)
		switch c.state {
		case pending: // it begins with what is there
			t.makeReady(at, i)
		case running:
			if limit := c.limit(); at < limit {
				t.schedule(i, limit) // it told of progress meanwhile
			} else {
				t.timeOut(at, i)
			}
		case stopping:
			t.failed(at, i, c.fault)
		case waiting:
			t.send(at, i)
		}
	}
}

// timeOut stops an attempt that used up its time. Its end comes as its confirmation, or after the grace.
func (t *Turn) timeOut(at time.Duration, i int) {
	c := &t.calls[i]
	f := fault.New(fault.Timeout, "%s did not answer within %v", c.tool().Name, c.timeout)
	if at < c.sentAt+c.timeout {
		f = fault.New(fault.Timeout, "%s showed no progress for %v", c.tool().Name, c.tool().Idle)
	}
	if c.parts != nil && len(c.parts.pieces) > 0 {
		f.Kind = fault.Partial
	}
	t.stop(at, i, f)
}

func (t *Turn) stop(at time.Duration, i int, f *fault.Fault) {
	c := &t.calls[i]
	c.state, c.fault = stopping, f
	t.schedule(i, at+t.cfg.Grace)
	t.out = append(t.out, Effect{Kind: Stop, Call: i, Attempt: int(c.attempt)})
}

// piece keeps a part of the result.
func (t *Turn) piece(at time.Duration, c *call, ev Event) {
	if t.cfg.Recorded && !t.ended {
		t.record(at, &wire.Event{Type: wire.PartialEvent, Call: c.call.ID, Tool: c.tool().Name, Attempt: int(c.attempt), Worker: c.worker, Piece: ev.Value, PieceSeq: ev.Seq})
	}
	c.keep(ev.Value)
}

// parts are pieces of a result. A nil one has none.
type parts struct {
	pieces [][]byte // of this attempt
	size   int      // in bytes
	kept   [][]byte // of an attempt before it, where it gave any
}

func (c *call) keep(piece []byte) {
	if c.parts == nil {
		c.parts = new(parts)
	}
	p := c.parts
	if p.size += len(piece); p.size > maxPieces || len(p.pieces) == maxPieceCount {
		return // bounded: the result itself still comes whole
	}
	p.pieces = append(p.pieces, piece)
}

// setAside keeps the pieces of the last attempt for when no later one gives any.
func (p *parts) setAside() {
	if p == nil {
		return
	}
	p.kept = p.best()
	p.pieces, p.size = nil, 0
}

// best are the pieces to end with where there is nothing better.
func (p *parts) best() [][]byte {
	switch {
	case p == nil:
		return nil
	case len(p.pieces) > 0:
		return p.pieces
	}
	return p.kept
}

// What is kept of the pieces of one attempt.
const (
	maxPieces     = 4 << 20 // bytes
	maxPieceCount = 10_000
)

func (t *Turn) succeed(at time.Duration, i int, ev Event) {
	c := &t.calls[i]
	t.note(at, c, "", "", recovery.Decision{})
	t.landed(i)
	t.out = append(t.out, Effect{Kind: Ended, Call: i, Attempt: int(c.attempt), Status: tool.Success})
	r := tool.Result{Status: tool.Success, Value: ev.Value, ContentType: ev.Type}
	if c.fallen() {
		r.Status, r.FallbackTool = tool.ViaFallback, c.tool().Name
	}
	t.settle(at, i, r)
}

// landed says that the attempt of call i is not out any more.
func (t *Turn) landed(i int) {
	t.live--
	t.unschedule(i)
}

// failed is the end of an attempt without a result. What it means is decided when the breaker has heard of it.
func (t *Turn) failed(at time.Duration, i int, f *fault.Fault) {
	c := &t.calls[i]
	switch {
	case c.state == stopping:
		f = confirmed(c.fault, f)
	case f == nil:
		f = fault.New(fault.Internal, "%s failed, and nobody said why", c.tool().Name)
	}
	f = c.name(f)
	t.landed(i)
	verdict := c.tool().Overrides.Judge(f)
	c.suffer(at, f)
	c.state, c.fault, c.verdict = judging, f, &verdict
	t.out = append(t.out, Effect{Kind: Ended, Call: i, Attempt: int(c.attempt), Fault: f, Verdict: &verdict})
	if t.ended {
		t.fizzle(at, i, f)
	}
}

// fizzle is the failure of an attempt whose turn has ended: nothing follows.
func (t *Turn) fizzle(at time.Duration, i int, f *fault.Fault) {
	c := &t.calls[i]
	r := tool.Result{Status: statusOf(f.Kind), Fault: f}
	d := recovery.Decision{Action: recovery.Fail, Because: "the turn has ended"}
	if len(c.parts.best()) > 0 && !c.quiet {
		r.Status, r.Value = tool.PartialValue, joined(c.parts.best())
		d.Action = recovery.AcceptPartial
	}
	t.note(at, c, f.Kind, f.Message, d)
	t.settle(at, i, r)
}

// suffer takes note of a failure.
func (c *call) suffer(at time.Duration, f *fault.Fault) {
	if f.Kind == fault.WorkerLost {
		c.deaths++
	}
	c.firstAt = min(c.firstAt, at)
	c.ran = max(c.ran, severityOf(f.Run()))
}

// A severity is how much may have run: an index into executions.
type severity uint8

var executions = [...]fault.Execution{"", fault.NotStarted, fault.Done, fault.Stopped, fault.Unknown}

func severityOf(e fault.Execution) severity { return severity(max(slices.Index(executions[:], e), 0)) }

// judge decides on a failure before the call was sent to anybody.
func (t *Turn) judge(at time.Duration, i int, f *fault.Fault) {
	c := &t.calls[i]
	f = c.name(f)
	c.suffer(at, f)
	verdict := fault.Overrides{}.Judge(f) // no manifest can make another try of it
	c.state, c.fault, c.verdict = judging, f, &verdict
	c.sentAt = at
	t.judged(at, Event{Call: i, Budget: true})
}

// maxAttempts bounds the attempts of one call, whatever policies say: each is kept in its history.
const maxAttempts = 1000

// judged is the one place where a failure leads on.
func (t *Turn) judged(at time.Duration, ev Event) {
	c := &t.calls[ev.Call]
	policy := *c.leg().policy
	if c.attempt >= maxAttempts {
		policy.MaxAttempts = 1
	}
	d := recovery.Decide(recovery.Situation{
		Fault: c.fault, Verdict: *c.verdict,
		Effect: c.effect(int(c.at)), KeepsKeys: c.tool().KeepsKeys,
		Policy: policy, Attempt: int(max(c.tries, 1)),
		Roll:         retry.Roll(t.seed(), c.call.ID, int(c.attempt)+1),
		SinceFailure: at - c.firstAt, Remaining: t.remaining(at),
		Deaths: int(c.deaths), Budget: ev.Budget, Pieces: len(c.parts.best()) > 0,
		Circuit: ev.Circuit, Alternative: c.nextAlternative(), Fallen: c.fallen(), FallbackOn: c.fallbackOn(),
		Cancelled: t.whoCancelled(c), Ran: executions[c.ran], HasDefault: c.covers(c.fault) != nil, Optional: c.optional(),
	})
	if c.tries > 0 {
		t.note(at, c, c.fault.Kind, c.fault.Message, d)
	}
	t.record(at, &wire.Event{
		Type: wire.ToolError, Call: c.call.ID, Tool: c.tool().Name, Attempt: int(c.attempt), Worker: c.fault.Worker, Error: c.fault,
		Classification: string(c.verdict.Class), BreakerState: ev.Circuit.String(), RetryCount: int(max(c.tries-1, 0)),
		Decision: string(d.Action), Because: d.Because, DelayMs: ms(d.After),
	})
	t.act(at, ev.Call, &d)
}

// act does what was decided.
func (t *Turn) act(at time.Duration, i int, d *recovery.Decision) {
	c := &t.calls[i]
	f := c.fault
	switch d.Action {
	case recovery.Retry:
		t.record(at, &wire.Event{Type: wire.RetryScheduled, Call: c.call.ID, Tool: c.tool().Name, Attempt: int(c.attempt) + 1, Because: d.Because, DelayMs: ms(d.After)})
		if d.After == 0 {
			t.send(at, i)
			return
		}
		c.state = waiting
		t.schedule(i, at+d.After.Truncate(time.Microsecond))
	case recovery.Alternative:
		c.fall()
		t.record(at, &wire.Event{Type: wire.AlternativeChosen, Call: c.call.ID, Tool: c.tool().Name, Attempt: int(c.attempt) + 1, Because: d.Because})
		t.send(at, i)
	case recovery.AcceptPartial:
		t.settle(at, i, tool.Result{Status: tool.PartialValue, Value: joined(c.parts.best()), Fault: f})
	case recovery.UseDefault:
		t.settle(at, i, tool.Result{Status: tool.Defaulted, Value: c.covers(f), Fault: f})
	default:
		t.settle(at, i, tool.Result{Status: statusOf(f.Kind), Fault: f})
	}
}

// fall goes on to the next alternative. It has its own retries.
func (c *call) fall() {
	c.at++
	c.tries, c.firstAt = 0, never
	if c.filled != nil {
		c.filled.leg = nil
	}
}

// confirmed is the fault that we stopped an attempt for, with what the worker said of the stop.
func confirmed(stopped, answer *fault.Fault) *fault.Fault {
	if answer == nil || answer == stopped {
		return stopped
	}
	f := *stopped
	if answer.Execution != "" {
		f.Execution = answer.Execution
	}
	if answer.Detail != "" {
		f.Detail = answer.Detail
	}
	f.Worker = answer.Worker
	return &f
}

func statusOf(k fault.Kind) tool.Status {
	switch k {
	case fault.Cancelled:
		return tool.Cancelled
	case fault.Timeout:
		return tool.TimedOut
	}
	return tool.Failed
}

func (t *Turn) remaining(at time.Duration) time.Duration {
	if t.deadline == never || t.cancelled {
		return retry.NoDeadline
	}
	return t.deadline - at
}

// name is f with the names of tool, worker and attempt on it.
func (c *call) name(f *fault.Fault) *fault.Fault {
	g := *f
	g.Tool, g.Attempt = c.tool().Name, int(c.attempt)
	if g.Worker == "" {
		g.Worker = c.worker
	}
	return &g
}

// note writes the attempt into the history.
func (t *Turn) note(at time.Duration, c *call, k fault.Kind, message string, d recovery.Decision) {
	if c.history == nil {
		c.history = t.page()
	}
	c.history = append(c.history, tool.Attempt{
		N: int(c.attempt), Tool: c.tool().Name, Worker: c.worker, Kind: k, Message: message,
		StartMs: ms(c.sentAt - c.began), DurationMs: ms(at - c.sentAt),
		DelayMs: ms(d.After), Decision: string(d.Action), Because: d.Because,
	})
}

// page is room for one attempt, for most calls need no more. It is taken off a block with others, which goes out with the
// results.
func (t *Turn) page() []tool.Attempt {
	if len(t.calls) == 1 {
		t.room()
		return t.end.attempt[:0]
	}
	if len(t.spare) == 0 {
		t.spare = make([]tool.Attempt, max(1, min(t.left, maxSpare)))
	}
	p := t.spare[:0:1]
	t.spare = t.spare[1:]
	return p
}

// maxSpare bounds what is made room for at once.
const maxSpare = 16

// seed makes jitter differ from turn to turn and be the same for each turn: FNV-1a of its id.
func (t *Turn) seed() uint64 {
	h := uint64(14695981039346656037)
	for i := range len(t.cfg.Request.ID) {
		h = (h ^ uint64(t.cfg.Request.ID[i])) * 1099511628211
	}
	return h
}
