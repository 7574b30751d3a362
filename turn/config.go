package turn

import (
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A Config is what holds for a whole turn. Only Request is required.
type Config struct {
	// Request is the turn as it was handed over. Its ID must be there; a call without one is named c<n>, n from 1.
	Request *wire.TurnRequest

	// Deadline is how long the turn may take from Start where the request says nothing. Zero means no deadline.
	Deadline time.Duration

	// Grace is how long the confirmation of a stop is waited for.
	Grace time.Duration

	// Parallel and ToolParallel hold where the request says nothing. Zero means no limit.
	Parallel, ToolParallel int

	// KeepsLate says that late results are kept somewhere, so that people can be told.
	KeepsLate bool

	// Recorded asks for Effect Record. A turn that nobody looks at needs none.
	Recorded bool

	// Tools says what is known of a tool. It is asked at New and Add, once for each call and alternative. Nil, and a nil
	// answer, mean that nothing is known: see Unknown.
	Tools func(name string) *Tool
}

// A Tool is all that a turn must know of a tool. It is only read, so that many turns may share one.
type Tool struct {
	Name      string
	Timeout   time.Duration // of one attempt, hard
	Idle      time.Duration // of one attempt without progress; 0 means no such limit
	Policy    retry.Policy
	Effect    tool.Effect
	KeepsKeys bool
	Overrides fault.Overrides

	Alternatives []string // tried where the call names none
	FallbackOn   []string // as in tool.Call
	Optional     bool
	Default      []byte // nil: none

	// Shell is the shell's own: what it keeps of the tool. Nothing here looks at it.
	Shell any
}

// Unknown is what holds for a tool of which nothing is known.
func Unknown(name string) *Tool {
	return &Tool{Name: name, Timeout: tool.DefaultTimeout, Policy: retry.Default()}
}
