package worker

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/toolbus/toolbus/wire"
)

// A Call is one call as its handler sees it. It is valid until the handler returns.
type Call struct {
	Tool    string
	Ref     wire.CallRef // zero for a bare request
	Key     string       // idempotency key: Tb-Key, else <turn>/<call>; empty for a bare request
	Session string
	Args    json.RawMessage // one JSON object that fits the input schema
	Header  wire.Header     // as it came, without Nats-*; only to be read

	run *run // nil in a test of a handler: then nobody listens
}

type callKey struct{}

// FromContext is the Call of a handler's context.
func FromContext(ctx context.Context) (*Call, bool) {
	c, ok := ctx.Value(callKey{}).(*Call)
	return c, ok
}

// Progress tells the caller how far the call is; total 0 means not known. Where more is said than 20 times a second the
// rest is dropped. Bare requests hear nothing. It may be called from any goroutine.
func (c *Call) Progress(done, total float64, message string) {
	if c != nil && c.run != nil {
		c.run.progress(wire.ProgressRecord{Done: done, Total: total, Message: message})
	}
}

// Partial sends a piece of the result ahead, in order. The error says that nobody can get it: the piece is no JSON, is
// larger than a message, or the call is over. Bare requests get no pieces, without an error: they get the result.
func (c *Call) Partial(piece any) error {
	if c == nil || c.run == nil {
		return nil
	}
	return c.run.partial(piece)
}

// Logger is the worker's log, with the call's tool and reference.
func (c *Call) Logger() *slog.Logger {
	if c == nil || c.run == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.run.log()
}

// Progress is Call.Progress for the call of ctx. Without one it does nothing.
func Progress(ctx context.Context, done, total float64, message string) {
	c, _ := FromContext(ctx)
	c.Progress(done, total, message)
}

// Partial is Call.Partial for the call of ctx. Without one it does nothing.
func Partial(ctx context.Context, piece any) error {
	c, _ := FromContext(ctx)
	return c.Partial(piece)
}
