package tool

import (
	"encoding/json"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// A Call is one use of a tool within a turn.
type Call struct {
	// ID names the call within its turn. It may come from a model API; see CheckID. Empty means that the executor
	// makes one.
	ID   string `json:"id" msgpack:"id"`
	Tool string `json:"tool" msgpack:"tool"`

	// Args is one JSON object, passed to the worker byte for byte. Empty means {}.
	Args json.RawMessage `json:"args,omitempty" msgpack:"args,omitempty"`

	// TimeoutMs bounds each attempt, in milliseconds. Zero means the manifest's, which is 30 s unless it says otherwise.
	TimeoutMs int64 `json:"timeout_ms,omitempty" msgpack:"timeout_ms,omitempty"`

	// Key is the caller's idempotency key. Empty means <turn>/<call>.
	Key string `json:"key,omitempty" msgpack:"key,omitempty"`

	// BreakerKey names the part of the tool that the call is for (a tenant, a region), which has a circuit breaker of its
	// own. Empty means the tool's.
	BreakerKey string `json:"breaker_key,omitempty" msgpack:"breaker_key,omitempty"`

	// Retry overrides the manifest's retry policy field by field. Nil overrides nothing.
	Retry *RetryPolicy `json:"retry,omitempty" msgpack:"retry,omitempty"`

	// Effect says what running this call twice would do. Empty means what the manifest says.
	Effect Effect `json:"effect,omitempty" msgpack:"effect,omitempty"`

	// After names calls of the same turn that this one waits for, beside those whose results its arguments take.
	After []string `json:"after,omitempty" msgpack:"after,omitempty"`

	// Join says how many of those must have given a value. Empty means all.
	Join Join `json:"join,omitempty" msgpack:"join,omitempty"`

	// JoinByMs is with JoinAvailable when the call begins with what is there, in milliseconds since the call was handed
	// over. Zero means when all it waits for have ended.
	JoinByMs int64 `json:"join_by_ms,omitempty" msgpack:"join_by_ms,omitempty"`

	// Optional says that the turn goes well without this call. It is also optional where its manifest says so.
	Optional bool `json:"optional,omitempty" msgpack:"optional,omitempty"`

	// Default is the value that is used where the call fails for good or cannot run. Nil means the manifest's, if any.
	Default json.RawMessage `json:"default,omitempty" msgpack:"default,omitempty"`

	// Alternatives are tried in order where the tool fails for good, at most MaxAlternatives. Nil means the manifest's.
	Alternatives []Alternative `json:"alternatives,omitempty" msgpack:"alternatives,omitempty"`

	// FallbackOn names the kinds of permanent fault after which an alternative is tried too; "permanent" is all of them.
	// After a transient fault, an open circuit and where the tool does not exist it is tried in any case. Nil means what
	// the manifest says.
	FallbackOn []string `json:"fallback_on,omitempty" msgpack:"fallback_on,omitempty"`
}

// An Alternative is another tool that can stand in for the one that was called.
type Alternative struct {
	Tool string `json:"tool" msgpack:"tool"`

	// Args are its arguments. {"$arg": "/city"} stands for a part of those that the call itself was given. Empty means
	// the same arguments.
	Args json.RawMessage `json:"args,omitempty" msgpack:"args,omitempty"`

	// These three are as in Call, for this tool alone; what is empty is its manifest's.
	TimeoutMs  int64        `json:"timeout_ms,omitempty" msgpack:"timeout_ms,omitempty"`
	Retry      *RetryPolicy `json:"retry,omitempty" msgpack:"retry,omitempty"`
	BreakerKey string       `json:"breaker_key,omitempty" msgpack:"breaker_key,omitempty"`
}

// A Status says how a call ended (design §9).
type Status string

// The ways in which a call ends. An open set for readers: later versions may add to it.
const (
	Success      Status = "success"
	ViaFallback  Status = "success_via_fallback"
	Defaulted    Status = "defaulted"
	PartialValue Status = "partial"
	Failed       Status = "failed"
	Skipped      Status = "skipped"
	TimedOut     Status = "timed_out"
	NeverStarted Status = "not_started"
	Cancelled    Status = "cancelled"
)

// HasValue says that a call that ended so has a value to go on with: its own, a fallback's, a default or a part.
func (s Status) HasValue() bool {
	switch s {
	case Success, ViaFallback, Defaulted, PartialValue:
		return true
	}
	return false
}

// A Result is the one end that every call gets.
type Result struct {
	Call   string `json:"call" msgpack:"call"`
	Tool   string `json:"tool" msgpack:"tool"`
	Status Status `json:"status" msgpack:"status"`

	// FallbackTool is the alternative that answered, with ViaFallback. Tool stays the one that was called.
	FallbackTool string `json:"fallback_tool,omitempty" msgpack:"fallback_tool,omitempty"`

	// BecauseOf is the call without whose value this one could not run, with Skipped and, where it has a default, with
	// Defaulted.
	BecauseOf string `json:"because_of,omitempty" msgpack:"because_of,omitempty"`

	// Value is what the tool answered, JSON unless ContentType says otherwise. Nil where there is none.
	Value       json.RawMessage `json:"value,omitempty" msgpack:"value,omitempty"`
	ContentType string          `json:"content_type,omitempty" msgpack:"content_type,omitempty"`

	// Fault is why there is no value, or why it is not the tool's own. Nil on success.
	Fault *fault.Fault `json:"fault,omitempty" msgpack:"fault,omitempty"`

	Attempts []Attempt `json:"attempts,omitempty" msgpack:"attempts,omitempty"`

	// Sentence says to a person what happened.
	Sentence string `json:"sentence,omitempty" msgpack:"sentence,omitempty"`

	// DurationMs is how long the call took in all, in milliseconds, waits between attempts included.
	DurationMs float64 `json:"duration_ms" msgpack:"duration_ms"`
}

// An Attempt is one try at a call, as the result's history tells it.
type Attempt struct {
	N          int        `json:"n" msgpack:"n"` // from 1
	Tool       string     `json:"tool" msgpack:"tool"`
	Worker     string     `json:"worker,omitempty" msgpack:"worker,omitempty"` // empty where no worker said its name
	Kind       fault.Kind `json:"kind,omitempty" msgpack:"kind,omitempty"`     // empty on success
	Message    string     `json:"message,omitempty" msgpack:"message,omitempty"`
	StartMs    float64    `json:"start_ms" msgpack:"start_ms"`                     // from the start of the call
	DurationMs float64    `json:"duration_ms" msgpack:"duration_ms"`               //
	DelayMs    float64    `json:"delay_ms,omitempty" msgpack:"delay_ms,omitempty"` // waited before the next attempt
	Decision   string     `json:"decision,omitempty" msgpack:"decision,omitempty"` // what was decided on its end
	Because    string     `json:"because,omitempty" msgpack:"because,omitempty"`   // and why
}

// An Effect says what running a tool twice would do.
type Effect string

// The effects. A tool that declares none is retried after an unknown run, as the seeds ask, and registration warns.
const (
	Undeclared Effect = ""
	Read       Effect = "read"       // changes nothing
	Idempotent Effect = "idempotent" // a second run changes nothing more
	Write      Effect = "write"      // a second run may do it twice
)

// DefaultTimeout bounds an attempt whose manifest and call say nothing (design §8).
const DefaultTimeout = 30 * time.Second
