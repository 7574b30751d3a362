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

	Executor string          `json:"executor,omitempty" msgpack:"executor,omitempty"`
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

	Result  *tool.Result `json:"result,omitempty" msgpack:"result,omitempty"`
	Outcome *Outcome     `json:"outcome,omitempty" msgpack:"outcome,omitempty"`
}

// The types of an Event. The last one of a stream is TurnEnded; Alive says nothing but that the executor is there.
const (
	TurnStarted    = "TurnStarted"
	AttemptStarted = "AttemptStarted"
	ProgressEvent  = "Progress"
	PartialEvent   = "Partial"
	ToolError      = "ToolError"
	RetryScheduled = "RetryScheduled"
	BreakerChanged = "BreakerChanged"
	CallSettled    = "CallSettled"
	TurnEnded      = "TurnEnded"
	Alive          = "Alive"
)

// An Outcome is what a turn ends with: one result per call, in request order.
type Outcome struct {
	Turn       string        `json:"turn" msgpack:"turn"`
	Status     string        `json:"status" msgpack:"status"` // completed, partial, escalated, timed_out, cancelled
	Results    []tool.Result `json:"results" msgpack:"results"`
	Sentence   string        `json:"sentence,omitempty" msgpack:"sentence,omitempty"`
	DurationMs float64       `json:"duration_ms" msgpack:"duration_ms"`
}
