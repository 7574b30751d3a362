// Package fault is the closed set of ways in which a tool call can go wrong.
//
// A Kind is what code decides on, and exists only if it changes what happens next. The sentence in a Fault is for
// people and models. The package that knows the other side (bus, worker, a bridge) turns its errors into faults once,
// with Of or FromHTTP; after that nobody reads messages. What nobody classified is transient: the safer default of
// seed 000 §1.3.
//
// The table that says what each kind means (class, retry, breaker, who can mend it) is data: see Kind.Spec.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// A Kind names what went wrong. It is also the value of error.type on spans and metrics, and travels on the wire.
type Kind string

// The kinds of design §5. Every one of them has a row in the table behind Kind.Spec.
const (
	Timeout          Kind = "timeout"
	Unavailable      Kind = "unavailable"
	WorkerLost       Kind = "worker_lost"
	Overloaded       Kind = "overloaded"
	RateLimited      Kind = "rate_limited"
	Upstream         Kind = "upstream"
	Partial          Kind = "partial"
	InvalidArguments Kind = "invalid_arguments"
	TruncatedCall    Kind = "truncated_call"
	ToolNotFound     Kind = "tool_not_found"
	Denied           Kind = "denied"
	ApprovalRequired Kind = "approval_required"
	NotFound         Kind = "not_found"
	Unsupported      Kind = "unsupported"
	Failed           Kind = "failed"
	InvalidResult    Kind = "invalid_result"
	CircuitOpen      Kind = "circuit_open"
	Cancelled        Kind = "cancelled"
	Deadline         Kind = "deadline"
	LoopBlocked      Kind = "loop_blocked"
	Internal         Kind = "internal"
)

// An Execution says what is known of the run behind a fault. The zero value means that nobody said: then what is usual
// for the kind holds (Spec.Execution), as Fault.Run tells it.
type Execution string

// What may be known of a run.
const (
	NotStarted Execution = "not_started" // certainly nothing ran
	Unknown    Execution = "unknown"     // it may have run, in part or whole
	Stopped    Execution = "stopped"     // it ran and the worker confirmed that it was stopped
	Done       Execution = "done"        // it ran to its end
)

// A Violation is one way in which arguments or a result break their schema.
type Violation struct {
	Pointer  string `json:"pointer" msgpack:"pointer"`                       // RFC 6901, "" is the whole value
	Expected string `json:"expected,omitempty" msgpack:"expected,omitempty"` // what the schema asks for
	Got      string `json:"got,omitempty" msgpack:"got,omitempty"`           // what was there, shortened
}

// A Fault is a classified error. It is a value: build it, fill it in where it is made, and do not change one that
// somebody else holds. The JSON and MessagePack forms are the fault record of the wire (design §5).
type Fault struct {
	Kind    Kind   `json:"kind" msgpack:"kind"`
	Message string `json:"message" msgpack:"message"`                   // for the model and the user
	Detail  string `json:"detail,omitempty" msgpack:"detail,omitempty"` // for operators; never shown to a model
	Code    string `json:"code,omitempty" msgpack:"code,omitempty"`     // the tool's own code, an HTTP status for one

	// RetryAfterMs is the earliest time for another attempt, in milliseconds from now. Zero means not said.
	RetryAfterMs int64 `json:"retry_after_ms,omitempty" msgpack:"retry_after_ms,omitempty"`

	Execution   Execution   `json:"execution,omitempty" msgpack:"execution,omitempty"`
	Suggestions []string    `json:"suggestions,omitempty" msgpack:"suggestions,omitempty"`
	Violations  []Violation `json:"violations,omitempty" msgpack:"violations,omitempty"`

	Tool    string `json:"tool,omitempty" msgpack:"tool,omitempty"`
	Worker  string `json:"worker,omitempty" msgpack:"worker,omitempty"`
	Attempt int    `json:"attempt,omitempty" msgpack:"attempt,omitempty"`

	cause error
}

// RetryAfter is RetryAfterMs as a duration.
func (f *Fault) RetryAfter() time.Duration { return time.Duration(f.RetryAfterMs) * time.Millisecond }

// New is a fault of this kind with everything that its kind says filled in. The format is fmt.Errorf's: with %w the
// fault remembers its cause.
func New(kind Kind, format string, args ...any) *Fault {
	err := fmt.Errorf(format, args...)
	s := kind.Spec()
	return &Fault{
		Kind:        kind,
		Message:     err.Error(),
		Execution:   s.Execution,
		Suggestions: s.Suggestions,
		cause:       errors.Unwrap(err),
	}
}

// Error is one line for logs: tool, kind and message. Detail is not in it.
func (f *Fault) Error() string {
	switch {
	case f == nil:
		return "no fault"
	case f.Tool == "":
		return string(f.Kind) + ": " + f.Message
	}
	return f.Tool + ": " + string(f.Kind) + ": " + f.Message
}

// Unwrap is the error that was classified, where there was one. It does not travel on the wire.
func (f *Fault) Unwrap() error {
	if f == nil {
		return nil
	}
	return f.cause
}

// Is says whether target is a fault of the same kind, so that errors.Is(err, &fault.Fault{Kind: fault.Timeout}) works.
func (f *Fault) Is(target error) bool {
	t, ok := target.(*Fault)
	return ok && t != nil && f != nil && t.Kind == f.Kind
}

// Spec is what the table says about the fault's kind. The fault itself may know better about its run: see Run.
func (f *Fault) Spec() Spec { return f.Kind.Spec() }

// Run is what is known of the run: what the fault says, else what is usual for its kind.
func (f *Fault) Run() Execution {
	if f.Execution != "" {
		return f.Execution
	}
	return f.Spec().Execution
}

// WithCause is a copy of f that remembers err as its cause.
func (f *Fault) WithCause(err error) *Fault {
	g := *f
	g.cause = err
	return &g
}

// WithTool is a copy of f that says which tool it is about.
func (f *Fault) WithTool(tool string) *Fault {
	g := *f
	g.Tool = tool
	return &g
}
