package mcptool

import (
	"context"
	"encoding/json"
	"strconv"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A handler runs the calls of one tool.
type handler struct {
	b    *Bridge
	name string // the server's own
}

// A flight is what is known of a request that carries a call.
type flight struct {
	sent   atomic.Bool  // all or some of it may have been read
	status atomic.Int64 // of HTTP; 0 where there is none
	after  atomic.Int64 // Retry-After, in nanoseconds
}

type flightKey struct{}

func flightOf(ctx context.Context) *flight {
	f, _ := ctx.Value(flightKey{}).(*flight)
	return f
}

// Handle calls the tool, once, when there is a session. An error is always a *fault.Fault.
func (h *handler) Handle(ctx context.Context, c *worker.Call) (any, error) {
	b := h.b
	s, refusal := b.reach(ctx)
	if refusal != nil {
		return nil, refusal
	}
	select {
	case b.places <- struct{}{}:
		defer func() { <-b.places }()
	default:
		f := fault.New(fault.Overloaded, "the MCP server runs %d calls, which is all it gets at once", cap(b.places))
		f.RetryAfterMs = busy.Milliseconds()
		return nil, f
	}

	token := strconv.FormatUint(b.tokens.Add(1), 10)
	b.waiting.Store(token, c)
	defer b.waiting.Delete(token)

	fl := &flight{}
	calling, cancel := context.WithCancelCause(context.WithValue(ctx, flightKey{}, fl))
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()

	res, err := s.mcp.CallTool(calling, &mcp.CallToolParams{Meta: meta(token, c), Name: h.name, Arguments: arguments(c)})
	if err == nil {
		return result(res)
	}
	if ctx.Err() != nil {
		// The wish was passed on. Nobody says whether it was granted.
		f := fault.New(fault.Cancelled, "the MCP server was told to stop the call")
		if !fl.sent.Load() {
			f.Execution = fault.NotStarted
		}
		return nil, f
	}
	return nil, failure(s, fl, err)
}

func arguments(c *worker.Call) json.RawMessage {
	if len(c.Args) == 0 {
		return json.RawMessage("{}")
	}
	return c.Args
}

// meta asks for progress, and carries the trace.
func meta(token string, c *worker.Call) mcp.Meta {
	m := mcp.Meta{"progressToken": token}
	for _, name := range []string{wire.HeaderTraceparent, wire.HeaderTracestate, wire.HeaderBaggage} {
		if v := wire.Get(c.Header, name); v != "" {
			m[name] = v
		}
	}
	return m
}

// progress passes on what a server says of a call. What belongs to no call is dropped.
func (b *Bridge) progress(p *mcp.ProgressNotificationParams) {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return
	}
	if c, ok := b.waiting.Load(token); ok {
		c.(*worker.Call).Progress(p.Progress, max(p.Total, 0), clip(p.Message))
	}
}
