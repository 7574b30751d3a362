package mcptool

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolbus/toolbus/fault"
)

// maxText bounds what a fault says in a server's words, in bytes.
const maxText = 4 << 10

// failure is why a request got no result: an error of the server, or of the way to it.
func failure(s *session, fl *flight, err error) *fault.Fault {
	var answered *jsonrpc.Error
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	switch {
	case errors.As(err, &answered) && !local(answered):
		return rpcFault(answered)
	case fl.status.Load() >= 400:
		return httpFault(fl, err) // the SDK may end the session over it, but the server has spoken
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF), errors.Is(err, errBroken), errors.Is(err, mcp.ErrSessionMissing), s.ctx.Err() != nil:
		return lostFault(s, fl, err)
	case errors.As(err, &syntax), errors.As(err, &shape), strings.Contains(err.Error(), "content type"):
		f := fault.New(fault.InvalidResult, "the MCP server answered what is no result: %s", clip(err.Error()))
		return f.WithCause(err)
	case !fl.sent.Load():
		f := fault.New(fault.Unavailable, "the MCP server cannot be reached: %s", clip(err.Error()))
		return f.WithCause(err)
	}
	return fault.New(fault.Upstream, "the MCP server did not answer: %s", clip(err.Error())).WithCause(err)
}

// local says that an error is not the server's: the SDK has codes of its own for what happened on this side.
func local(e *jsonrpc.Error) bool { return e.Code <= -32003 && e.Code >= -32005 && e.Data == nil }

// lostFault is the end of the session in mid-call. Where the request was not sent nothing ran.
func lostFault(s *session, fl *flight, err error) *fault.Fault {
	why := err
	if s.pipe != nil {
		why = s.pipe.explain(errHungUp)
	}
	if !fl.sent.Load() {
		f := fault.New(fault.Unavailable, "the MCP server went away before it had the call: %s", clip(why.Error()))
		f.RetryAfterMs = firstWait.Milliseconds()
		return f.WithCause(err)
	}
	return fault.New(fault.WorkerLost, "the MCP server went away while the call ran: %s", clip(why.Error())).WithCause(err)
}

// Codes of MCP that mean that this client cannot do what the tool needs.
const (
	missingCapability = -32021
	needsURL          = -32042
)

// rpcFault is an error that a server answered in the place of a result.
func rpcFault(e *jsonrpc.Error) *fault.Fault {
	var f *fault.Fault
	text := said(e.Message)
	switch e.Code {
	case jsonrpc.CodeInvalidParams:
		f = badParams(text)
		f.Execution = fault.NotStarted
	case missingCapability, needsURL:
		f = fault.New(fault.Unsupported, "the tool needs somebody to ask or to sign in, and nobody is here: %s", text)
		f.Execution = fault.NotStarted
	default:
		f = fault.New(fault.Upstream, "the MCP server answered error %d: %s", e.Code, text)
	}
	f.Code = strconv.FormatInt(e.Code, 10)
	f.Detail = fault.Truncate(string(e.Data), maxText)
	return f
}

// unknownTool is how servers say that they have no such tool.
var unknownTool = regexp.MustCompile(`(?i)^(unknown tool|tool .{1,300} (not found|is unknown|disabled)|no such tool)`)

// badParams is code -32602, which MCP uses for unknown tools and for arguments that do not fit.
func badParams(text string) *fault.Fault {
	if unknownTool.MatchString(text) {
		return fault.New(fault.ToolNotFound, "the MCP server: %s", text)
	}
	return fault.New(fault.InvalidArguments, "%s", text)
}

// mcpError is how servers in TypeScript tell in a text what others answer as an error.
var mcpError = regexp.MustCompile(`^(?:MCP|McpError:? ?MCP) error (-\d{1,9}): (?s:(.*))$`)

// checked is how the TypeScript SDK begins where it checked arguments and has not called the tool.
var checked = []string{"Input validation error", "Invalid arguments"}

// toolFault is a result that says that it is an error.
func toolFault(content []mcp.Content) *fault.Fault {
	text := said(allText(content))
	if m := mcpError.FindStringSubmatch(text); m != nil && m[1] == "-32602" {
		f := badParams(m[2])
		f.Code = m[1]
		if f.Kind == fault.InvalidArguments && !slices.ContainsFunc(checked, func(s string) bool { return strings.HasPrefix(m[2], s) }) {
			f.Execution = fault.Unknown // the tool itself may say so too, in the middle of its work
		}
		return f
	}
	if text == "" {
		text = "the tool failed, and does not say why"
	}
	return fault.New(fault.Failed, "%s", text)
}

// httpFault is an answer of a server, or of who stands before it, that is no MCP.
func httpFault(fl *flight, err error) *fault.Fault {
	status := int(fl.status.Load())
	kind, ran := fault.FromHTTP(status), fault.NotStarted
	switch {
	case errors.Is(err, mcp.ErrSessionMissing), status == 404:
		kind = fault.Unavailable
	case status == 502, status == 504:
		kind, ran = fault.Upstream, fault.Unknown // it may have come through
	case status >= 500 && status != 503:
		ran = fault.Unknown
	}
	f := fault.New(kind, "the MCP server answered HTTP %d: %s", status, clip(err.Error()))
	f.Code, f.Execution = strconv.Itoa(status), ran
	f.RetryAfterMs = (time.Duration(fl.after.Load()) + time.Millisecond - 1).Milliseconds()
	return f.WithCause(err)
}

// needsInput is a result that asks the client for something first. Without requests it means: later.
func needsInput(r *mcp.CallToolResult) *fault.Fault {
	if len(r.InputRequests) == 0 {
		f := fault.New(fault.Overloaded, "the MCP server asks to try again later")
		f.RetryAfterMs = time.Second.Milliseconds()
		return f
	}
	f := fault.New(fault.Unsupported, "the tool asks for input, and nobody is here to give it")
	f.Execution = fault.NotStarted
	return f
}

func said(text string) string {
	return strings.TrimSpace(fault.Truncate(strings.ToValidUTF8(text, "\uFFFD"), maxText))
}
