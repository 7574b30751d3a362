package worker

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

// A Tool is a manifest and what runs it. Func makes one from a typed function.
type Tool struct {
	Manifest tool.Manifest
	Handler  Handler

	err error // of the inference of a schema; New reports it
}

// A Handler runs calls of one tool, many at once. It should end soon after ctx does, which happens at the call's deadline
// and on a cancel; one that does not is answered for and counted as leaked.
//
// The value is the result: []byte and json.RawMessage go out as they are and must be JSON, Bytes as it says, and anything
// else as encoding/json writes it. The value must not be changed after it was returned.
//
// An error that is a *fault.Fault travels as it is. Others are classified by fault.Of; a context error becomes timeout or
// cancelled. A panic is an internal fault.
//
// The goroutine of a call may run others after it. What a handler does to it (runtime.LockOSThread, profiler labels) it
// must undo, or do on a goroutine that it starts itself.
type Handler interface {
	Handle(ctx context.Context, c *Call) (any, error)
}

// A HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, c *Call) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, c *Call) (any, error) { return f(ctx, c) }

// Bytes is a result that is not JSON. An empty ContentType means JSON after all.
type Bytes struct {
	ContentType string
	Data        []byte
}

// Func makes a tool from a typed function. Where the manifest has no input or output schema it is inferred from In or
// Out; New says if that cannot be done. The function finds its Call with FromContext.
func Func[In, Out any](m tool.Manifest, f func(context.Context, In) (Out, error)) Tool {
	t := Tool{Manifest: m}
	if m.Input == nil && !opaque[In]() {
		t.Manifest.Input, t.err = infer[In]("input")
	}
	if m.Output == nil && !opaque[Out]() && t.err == nil {
		t.Manifest.Output, t.err = infer[Out]("output")
	}
	t.Handler = HandlerFunc(func(ctx context.Context, c *Call) (any, error) {
		var in In
		if err := json.Unmarshal(c.Args, &in); err != nil {
			return nil, fault.New(fault.InvalidArguments, "the arguments do not fit %T: %w", in, err)
		}
		return f(ctx, in)
	})
	return t
}

func infer[T any](which string) (json.RawMessage, error) {
	schema, err := tool.Infer[T]()
	if err != nil {
		return nil, fmt.Errorf("infer the %s schema from %T: %w; write one into the manifest", which, *new(T), err)
	}
	return schema, nil
}

// opaque says whether the type T says nothing about the JSON that it holds.
func opaque[T any]() bool {
	switch any((*T)(nil)).(type) {
	case *any, *[]byte, *json.RawMessage, *Bytes:
		return true
	}
	return false
}
