package wire

import (
	"encoding/json"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

// A ProgressRecord is the payload of a progress frame. Total 0 means not known.
type ProgressRecord struct {
	Done    float64 `json:"done" msgpack:"done"`
	Total   float64 `json:"total,omitempty" msgpack:"total,omitempty"`
	Message string  `json:"message,omitempty" msgpack:"message,omitempty"`
}

// A Heartbeat is what a worker says of itself on tb.v1.hb.<worker>: at the start, once a second, on a roll call, and at
// the end.
type Heartbeat struct {
	Worker   string     `json:"worker" msgpack:"worker"`
	State    string     `json:"state" msgpack:"state"` // hello, beat, bye
	Tools    []ToolLine `json:"tools" msgpack:"tools"`
	Running  int        `json:"running" msgpack:"running"`
	Capacity int        `json:"capacity" msgpack:"capacity"` // how many calls at once
	Leaked   int        `json:"leaked,omitempty" msgpack:"leaked,omitempty"`
	Draining bool       `json:"draining,omitempty" msgpack:"draining,omitempty"`
	SDK      string     `json:"sdk,omitempty" msgpack:"sdk,omitempty"` // e.g. toolbus-go/0.1.0
	EveryMs  int64      `json:"every_ms" msgpack:"every_ms"`           // how often it beats
	Seq      int64      `json:"seq" msgpack:"seq"`                     // from 1, so that an old beat is not taken for news
}

// The states of a Heartbeat.
const (
	Hello = "hello"
	Beat  = "beat"
	Bye   = "bye"
)

// A ToolLine names one tool of a worker and the digest of its manifest.
type ToolLine struct {
	ID      string `json:"id" msgpack:"id"`
	Version string `json:"version,omitempty" msgpack:"version,omitempty"`
	Digest  string `json:"digest" msgpack:"digest"` // see tool.Manifest.Digest
}

// A DescribeRecord is the answer to Describe.
type DescribeRecord struct {
	Worker    string          `json:"worker" msgpack:"worker"`
	Manifests []tool.Manifest `json:"manifests" msgpack:"manifests"`
}

// A TurnRequest asks an executor to run a turn now, on tb.v1.turn.run.
type TurnRequest struct {
	ID         string      `json:"id" msgpack:"id"` // empty: the executor makes one
	Session    string      `json:"session,omitempty" msgpack:"session,omitempty"`
	DeadlineMs int64       `json:"deadline_ms,omitempty" msgpack:"deadline_ms,omitempty"` // from now; 0 means five minutes
	Calls      []tool.Call `json:"calls" msgpack:"calls"`

	// DeadlineMode says what becomes of calls that run at the deadline: with DeadlineSoft (and empty) they go on to their
	// own timeout and their results are kept as late ones; with DeadlineHard they are stopped.
	DeadlineMode string `json:"deadline_mode,omitempty" msgpack:"deadline_mode,omitempty"`

	// Parallel is how many calls of the turn may be under way at once, ToolParallel how many of any one tool. Zero means
	// the executor's own limit.
	Parallel     int `json:"parallel,omitempty" msgpack:"parallel,omitempty"`
	ToolParallel int `json:"tool_parallel,omitempty" msgpack:"tool_parallel,omitempty"`

	// OnFailure says what follows when a required call fails for good: FailureContinue (and empty) lets independent calls
	// go on, FailureStop ends the turn.
	OnFailure string `json:"on_failure,omitempty" msgpack:"on_failure,omitempty"`

	// OnClientLoss says what follows when the client that listens to the turn goes away: LossContinue (and empty) lets the
	// turn go on, LossCancel cancels it.
	OnClientLoss string `json:"on_client_loss,omitempty" msgpack:"on_client_loss,omitempty"`

	// Open lets calls be added while the turn runs: it ends when it was closed and all its calls have ended. An open turn
	// may begin without calls.
	Open bool `json:"open,omitempty" msgpack:"open,omitempty"`
}

// What TurnRequest's choices may be.
const (
	DeadlineSoft    = "soft"
	DeadlineHard    = "hard"
	FailureContinue = "continue"
	FailureStop     = "stop"
	LossContinue    = "continue"
	LossCancel      = "cancel"
)

// A TurnControl is the payload of a message to tb.v1.turn.ctl.<turn> whose frame is Cancel, AddFrame or CloseFrame.
type TurnControl struct {
	Call  string      `json:"call,omitempty" msgpack:"call,omitempty"`   // of Cancel: that call alone; empty means the turn
	Calls []tool.Call `json:"calls,omitempty" msgpack:"calls,omitempty"` // of AddFrame

	// Seq numbers the AddFrame and CloseFrame messages of one turn, from 1. A message that is repeated, because its answer
	// was lost, has the same number and gets the same answer.
	Seq int64 `json:"seq,omitempty" msgpack:"seq,omitempty"`
}

// A TurnReply answers an AddFrame or a CloseFrame. It comes from the executor that runs the turn; the others are silent.
type TurnReply struct {
	OK    bool         `json:"ok" msgpack:"ok"`
	Fault *fault.Fault `json:"fault,omitempty" msgpack:"fault,omitempty"` // why not: nothing was added
}

// A LateQuery asks any executor, on tb.v1.turn.late, for the late result of a call.
type LateQuery struct {
	Turn string `json:"turn,omitempty" msgpack:"turn,omitempty"` // empty: of whichever turn had such a call last
	Call string `json:"call" msgpack:"call"`
}

// A LateRecord is a result that came after its turn had ended, as it is kept, and the answer to a LateQuery.
type LateRecord struct {
	V       int          `json:"v" msgpack:"v"` // 1
	Turn    string       `json:"turn" msgpack:"turn"`
	Session string       `json:"session,omitempty" msgpack:"session,omitempty"`
	Time    string       `json:"timestamp,omitempty" msgpack:"timestamp,omitempty"` // when it came: RFC 3339, the executor's clock
	Result  *tool.Result `json:"result,omitempty" msgpack:"result,omitempty"`
	Fault   *fault.Fault `json:"fault,omitempty" msgpack:"fault,omitempty"` // of an answer to a query: why there is no result
}

// A TraceQuery asks any executor, on tb.v1.turn.trace, for the journal of a turn. The answer is Pages, the last of them
// with Last.
type TraceQuery struct {
	Turn string `json:"turn" msgpack:"turn"`
}

// A Page is some events of one turn in order, as the journal keeps them: one message holds as many as came together.
type Page struct {
	V      int          `json:"v" msgpack:"v"` // 1
	Turn   string       `json:"turn" msgpack:"turn"`
	Events []Event      `json:"events,omitempty" msgpack:"events,omitempty"`
	Last   bool         `json:"last,omitempty" msgpack:"last,omitempty"`   // of an answer: there are no more
	Fault  *fault.Fault `json:"fault,omitempty" msgpack:"fault,omitempty"` // of an answer: why there are none, or no more
}

// An Event is one line of a turn's journal, as it streams to the client and as observers see it. Fields that a type has
// no use for are absent.
type Event struct {
	V    int    `json:"v" msgpack:"v"` // 1
	Type string `json:"type" msgpack:"type"`
	Seq  int64  `json:"seq" msgpack:"seq"` // of this turn, from 1
	// AtMs is when it happened, in milliseconds since the start of the turn, so that no clocks are compared.
	AtMs    float64 `json:"at_ms" msgpack:"at_ms"`
	Time    string  `json:"timestamp,omitempty" msgpack:"timestamp,omitempty"` // RFC 3339, the executor's clock
	Turn    string  `json:"turn" msgpack:"turn"`
	Call    string  `json:"call,omitempty" msgpack:"call,omitempty"`
	Tool    string  `json:"tool_id,omitempty" msgpack:"tool_id,omitempty"`
	Attempt int     `json:"attempt,omitempty" msgpack:"attempt,omitempty"`
	Worker  string  `json:"worker,omitempty" msgpack:"worker,omitempty"`

	Executor string `json:"executor,omitempty" msgpack:"executor,omitempty"`
	// Traceparent is where TurnStarted stands in a trace, as W3C writes it; absent where nobody traces.
	Traceparent string `json:"traceparent,omitempty" msgpack:"traceparent,omitempty"`

	Progress *ProgressRecord `json:"progress,omitempty" msgpack:"progress,omitempty"`
	Piece    json.RawMessage `json:"piece,omitempty" msgpack:"piece,omitempty"`
	PieceSeq int             `json:"piece_seq,omitempty" msgpack:"piece_seq,omitempty"`

	// ToolError (seed 000 §8.2).
	Error          *fault.Fault `json:"error,omitempty" msgpack:"error,omitempty"`
	Classification string       `json:"classification,omitempty" msgpack:"classification,omitempty"`
	BreakerState   string       `json:"circuit_breaker_state,omitempty" msgpack:"circuit_breaker_state,omitempty"`
	RetryCount     int          `json:"retry_count,omitempty" msgpack:"retry_count,omitempty"`
	Decision       string       `json:"decision,omitempty" msgpack:"decision,omitempty"`
	Because        string       `json:"because,omitempty" msgpack:"because,omitempty"`
	DelayMs        float64      `json:"delay_ms,omitempty" msgpack:"delay_ms,omitempty"`

	// Request is the turn of TurnStarted, and of CallsAdded only the calls that were added.
	Request   *TurnRequest `json:"request,omitempty" msgpack:"request,omitempty"`
	TimeoutMs float64      `json:"timeout_ms,omitempty" msgpack:"timeout_ms,omitempty"` // of AttemptStarted
	BecauseOf string       `json:"because_of,omitempty" msgpack:"because_of,omitempty"` // of CallSkipped: the call without whose value it cannot run

	Result  *tool.Result `json:"result,omitempty" msgpack:"result,omitempty"`
	Outcome *Outcome     `json:"outcome,omitempty" msgpack:"outcome,omitempty"`
}

// The types of an Event. TurnEnded is the last before the outcome is there; LateResult may follow it. Alive says nothing
// but that the executor is there, and is in no journal.
const (
	TurnStarted       = "TurnStarted"
	CallsAdded        = "CallsAdded"        // to an open turn
	TurnClosed        = "TurnClosed"        // no more calls will be added
	CancelRequested   = "CancelRequested"   // of one call, or of the turn where Call is empty
	CallReady         = "CallReady"         // all that the call waits for is there
	AttemptStarted    = "AttemptStarted"    // it was sent to a worker
	ProgressEvent     = "Progress"          // the tool said how far it is
	PartialEvent      = "Partial"           // a piece of the result came
	ToolError         = "ToolError"         // an attempt failed, and this was decided: seed 000 §8.2
	RetryScheduled    = "RetryScheduled"    // the same tool again, after DelayMs
	AlternativeChosen = "AlternativeChosen" // Tool is the alternative
	BreakerChanged    = "BreakerChanged"    // the circuit breaker of Tool is now in BreakerState
	CallSkipped       = "CallSkipped"       // it cannot run; its CallSettled follows
	CallSettled       = "CallSettled"       // the call has its one result
	TurnDeadline      = "TurnDeadline"      // it came before all calls had ended
	TurnEnded         = "TurnEnded"         // the turn has its outcome
	LateResult        = "LateResult"        // a call ended after its turn
	Alive             = "Alive"
)

// The statuses of an Outcome (design §9). Where several hold, the first of cancelled, escalated, timed_out and partial is
// the one.
const (
	Completed     = "completed" // every call gave a value
	PartialTurn   = "partial"   // some did; what did not was optional, cancelled or out of time
	Escalated     = "escalated" // a required call failed for good or could not run: somebody has to look
	TimedOutTurn  = "timed_out" // the deadline came before any call gave a value
	CancelledTurn = "cancelled" // somebody cancelled the turn as a whole
)

// An Outcome is what a turn ends with: one result per call, in request order.
type Outcome struct {
	Turn    string        `json:"turn" msgpack:"turn"`
	Status  string        `json:"status" msgpack:"status"` // completed, partial, escalated, timed_out, cancelled
	Results []tool.Result `json:"results" msgpack:"results"`

	// Running names the calls that go on after the deadline. What they come to is kept for a day: see LateQuery.
	Running []string `json:"running,omitempty" msgpack:"running,omitempty"`

	Sentence   string  `json:"sentence,omitempty" msgpack:"sentence,omitempty"`
	DurationMs float64 `json:"duration_ms" msgpack:"duration_ms"`
}
