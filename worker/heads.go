package worker

import "github.com/toolbus/toolbus/wire"

// Heads are the headers of a message that a worker knows, each as wire.Get gives it.
type heads struct {
	all   wire.Header
	plain bool // nothing in it is spelled in another way, or begins with Nats-

	frame, call, tool, contentType, timeout, key, session, blob, progress string
}

// read reads the headers in one go where each name is written as ours are, or is like none of ours. Otherwise wire.Get
// says what counts.
func (h *heads) read(all wire.Header) {
	*h = heads{all: all, plain: true}
	for name, values := range all {
		at := h.place(name)
		switch {
		case at != nil && len(values) > 0:
			*at = values[0]
		case at != nil || odd(name):
			h.search()
			return
		}
	}
}

func (h *heads) search() {
	h.plain = false
	for _, name := range known {
		*h.place(name) = wire.Get(h.all, name)
	}
}

// kind is what wire.FrameOf says.
func (h *heads) kind() wire.Frame {
	if h.plain {
		return wire.Frame(h.frame)
	}
	return wire.FrameOf(h.all)
}

var known = [...]string{wire.HeaderFrame, wire.HeaderCall, wire.HeaderTool, wire.HeaderContentType, wire.HeaderTimeout,
	wire.HeaderKey, wire.HeaderSession, wire.HeaderBlob, wire.HeaderProgress}

// place is where the value of a header belongs, or nil.
func (h *heads) place(name string) *string {
	switch name {
	case wire.HeaderFrame:
		return &h.frame
	case wire.HeaderCall:
		return &h.call
	case wire.HeaderTool:
		return &h.tool
	case wire.HeaderContentType:
		return &h.contentType
	case wire.HeaderTimeout:
		return &h.timeout
	case wire.HeaderKey:
		return &h.key
	case wire.HeaderSession:
		return &h.session
	case wire.HeaderBlob:
		return &h.blob
	case wire.HeaderProgress:
		return &h.progress
	}
	return nil
}

// odd says whether a name that is none of ours may be another spelling of one, or of a name that begins with Nats-.
func odd(name string) bool {
	if name == "" {
		return false
	}
	switch name[0] {
	case 'T', 't', 'N', 'n', 'C', 'c':
		return name != wire.HeaderTraceparent && name != wire.HeaderTracestate
	}
	return false
}
