package worker

import (
	"strconv"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// maxKey bounds Tb-Key and Tb-Session, in bytes: keys are remembered.
const maxKey = 1 << 10

// A request is what a message asks for, read and checked. What it says about arguments is not looked at here.
type request struct {
	ref      wire.CallRef
	call     string        // <turn>/<call>; empty for a bare request
	tool     string        // empty where neither subject nor header says
	timeout  time.Duration // zero where the caller says nothing
	key      string        // idempotency key; empty for a bare request without Tb-Key
	session  string
	progress string // where frames go that end nothing; empty means the reply subject
	blob     *wire.BlobRef
	args     []byte
	header   wire.Header
}

// parse is the call that came for tool with these headers; "" where the subject does not say.
func (h *heads) parse(tool string, data []byte) (request, *fault.Fault) {
	q := request{tool: tool, args: data}
	if len(h.all) == 0 {
		return q, nil
	}
	q.header = h.all
	if !h.plain {
		q.header = wire.Inbound(h.all) // a handler that passes its headers on must not be talked into a Nats-Rollup
	}
	if err := wire.CheckHeader(q.header); err != nil {
		return q, fault.New(fault.InvalidArguments, "%w", err)
	}
	if v := h.frame; v != "" {
		return q, bad(wire.HeaderFrame, "expected none on a call, got %.80q", v)
	}
	if v := h.call; v != "" {
		ref, err := wire.ParseCallRef(v)
		if err != nil {
			return q, bad(wire.HeaderCall, "%w", err)
		}
		q.ref, q.call = ref, v[:strings.LastIndexByte(v, '/')]
		q.key = q.call
	}
	if v := h.tool; v != "" {
		if tool != "" && v != tool {
			return q, bad(wire.HeaderTool, "it names %.80q and the subject %q", v, tool)
		}
		q.tool = v
	}
	if h.contentType != "" {
		if codec, err := wire.CodecOf(h.all); codec != wire.JSON {
			f := fault.New(fault.Unsupported, "arguments of content type %.80q: send %s", h.contentType, wire.JSON)
			f.Execution = fault.NotStarted
			return q, f.WithCause(err)
		}
	}
	if v := h.timeout; v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 || ms > wire.MaxMs {
			return q, bad(wire.HeaderTimeout, "expected milliseconds from 1 to %d, got %.80q", wire.MaxMs, v)
		}
		q.timeout = time.Duration(ms) * time.Millisecond
	}
	if h.key != "" {
		q.key = h.key
	}
	q.session = h.session
	if len(q.key) > maxKey {
		return q, bad(wire.HeaderKey, "expected at most %d bytes, got %d", maxKey, len(q.key))
	}
	if len(q.session) > maxKey {
		return q, bad(wire.HeaderSession, "expected at most %d bytes, got %d", maxKey, len(q.session))
	}
	if v := h.blob; v != "" {
		blob, err := wire.ParseBlobRef(v)
		if err != nil {
			return q, bad(wire.HeaderBlob, "%w", err)
		}
		if len(data) > 0 {
			return q, bad(wire.HeaderBlob, "the arguments are elsewhere, and yet the body has %d bytes: send one of them", len(data))
		}
		q.blob = &blob
	}
	q.progress = h.progress
	return q, nil
}

func bad(header, format string, args ...any) *fault.Fault {
	return fault.New(fault.InvalidArguments, "header "+header+": "+format, args...)
}
