package turn

import (
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// An EventKind says what happened.
type EventKind uint8

// What can happen to a turn.
const (
	Accepted   EventKind = iota + 1 // a worker has the attempt
	Progressed                      // it told of progress
	Pieced                          // a piece of the result came
	Succeeded                       // the result came
	Failed                          // the attempt failed, wherever that was noticed
	Judged                          // the answer to Effect Ended of a failed attempt: what stands around it now
	Limited                         // the attempt that is out has less time than the plan says
	Due                             // the time of Wake has come
	CancelCall                      // the caller wants no result of one call any more
	CancelTurn                      // the caller wants no results any more
	ClientLost                      // the client that listened is gone, and the turn was to be cancelled then
	Close                           // no more calls will be added
)

// An Event is what happened. Call is the index of the call that it speaks of, in the order in which the calls were handed
// over; Attempt is the attempt. Due, CancelTurn, ClientLost and Close speak of no call.
type Event struct {
	Kind     EventKind
	Call     int
	Attempt  int
	Worker   string               // who answered, where it is known
	Value    []byte               // of Succeeded and Pieced
	Type     string               // content type of Value; "" is JSON
	Seq      int                  // of Pieced: which piece, from 1; 0 where nobody said
	Fault    *fault.Fault         // of Failed; nil is an internal one
	Circuit  breaker.State        // of Judged: of the tool's breaker, now that it knows of the failure
	Budget   bool                 // of Judged: the tool's retry budget has a retry left
	Timeout  time.Duration        // of Limited: what is left, from now
	Progress *wire.ProgressRecord // of Progressed, where it is to be told; nil tells nobody
}

// An EffectKind says what to do.
type EffectKind uint8

// What a turn can ask for.
const (
	Send     EffectKind = iota + 1 // publish the attempt. One that cannot be sent comes back as Failed
	Stop                           // tell the worker of the attempt to stop; its confirmation is waited for no longer than the grace
	Ended                          // the attempt is over: release it and tell the breaker. Where Verdict is not nil, answer with Judged, at once
	Record                         // write the event into the journal and show it to whoever looks
	Finish                         // the turn has ended: here is the outcome. Calls may still run
	KeepLate                       // a call has ended after its turn: keep the result. Of one that was told to stop only a value is worth it
	Over                           // nothing is out any more: forget the turn
)

// An Effect is what to do. Call and Attempt say for which.
type Effect struct {
	Kind    EffectKind
	Call    int
	Attempt int

	Tool       *Tool  // of Send: the call's own or an alternative
	BreakerKey string // of Send
	Key        string // of Send: the idempotency key; "" means <turn>/<call>
	Args       []byte // of Send: results that they refer to are in them
	Timeout    time.Duration
	Retry      bool // of Send: not the first attempt on its tool, so it takes from the retry budget

	Fault   *fault.Fault   // of Ended; nil on success
	Verdict *fault.Verdict // of Ended, where something is to be decided; nil where nothing is
	Status  tool.Status    // of Ended, where Verdict is nil: how the call ends, Success first of all

	// Record is an event of the journal. V, Turn, Seq and Time are the shell's to fill in, and of AttemptStarted, which
	// comes right after its Send, the Worker where it is known.
	Record  *wire.Event
	Result  *tool.Result  // of KeepLate
	Outcome *wire.Outcome // of Finish
}
