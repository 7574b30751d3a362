package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

const (
	maxDetail  = 16 << 10         // bytes of a panic's value and stack
	maxMessage = 8 << 10          // bytes of a fault's message
	blobTTL    = 24 * time.Hour   // as long as late results are kept (design §10)
	patience   = 10 * time.Second // with NATS, in what no call bounds
)

// An answer ends a call: a result, or a fault and the frame that carries it.
type answer struct {
	frame  wire.Frame
	fault  *fault.Fault
	header wire.Header // of a result that is not inline JSON
	data   []byte
}

func failed(f *fault.Fault) answer { return answer{frame: wire.ErrorFrame, fault: f} }

// nack says that the call did not run and will not.
func nack(kind fault.Kind, after time.Duration, format string, args ...any) answer {
	f := fault.New(kind, format, args...)
	f.Execution, f.RetryAfterMs = fault.NotStarted, after.Milliseconds()
	return answer{frame: wire.Nack, fault: f}
}

// lasting says whether a repeat of the call may get the same answer instead of a run: it was done, and would be again.
func (a answer) lasting() bool {
	return a.fault == nil || a.fault.Run() == fault.Done && a.fault.Spec().Class == fault.Permanent
}

// size is about how many bytes the answer holds.
func (a answer) size() int {
	n := 256 + len(a.data)
	if a.fault != nil {
		n += 1<<10 + len(a.fault.Message) + len(a.fault.Detail)
	}
	return n
}

// result turns what a handler returned into an answer that fits the output schema and the bus.
func (r *run) result(v any) answer {
	contentType, data, err := encode(v)
	if err != nil {
		return failed(fault.New(fault.InvalidResult, "the result of %s cannot be sent: %w", r.tool.name, err))
	}
	if f := r.tool.compiled.CheckResult(data, contentType); f != nil {
		return failed(f)
	}
	a := answer{data: data}
	if contentType != wire.JSON {
		a.header = wire.Header{wire.HeaderContentType: {contentType}}
	}
	if len(data) <= r.w.bus.Inline() {
		return a
	}
	return r.checkIn(a)
}

// checkIn puts a large result where its claim check says.
func (r *run) checkIn(a answer) answer {
	size := len(a.data)
	if size > wire.MaxBlob {
		return failed(fault.New(fault.InvalidResult, "the result has %d bytes, at most %d are allowed: return a part, or a reference to it", size, wire.MaxBlob))
	}
	ctx, cancel := r.w.within(patience)
	defer cancel()
	ref, f := r.w.bus.PutBlob(ctx, a.data, blobTTL)
	if f != nil {
		g := fault.New(fault.Upstream, "the tool ran, but its result of %d bytes does not fit into a message and could not be stored: %w", size, f)
		g.Execution = fault.Done
		return failed(g)
	}
	if a.header == nil {
		a.header = wire.Header{}
	}
	a.header[wire.HeaderBlob] = []string{ref.String()}
	a.data = nil
	return a
}

// encode is v as bytes of a content type.
func encode(v any) (contentType string, data []byte, err error) {
	switch v := v.(type) {
	case json.RawMessage:
		return verbatim(wire.JSON, v)
	case []byte:
		return verbatim(wire.JSON, v)
	case Bytes:
		if v.ContentType == "" {
			v.ContentType = wire.JSON
		}
		return verbatim(v.ContentType, v.Data)
	}
	data, err = json.Marshal(v)
	return wire.JSON, data, err
}

func verbatim(contentType string, data []byte) (string, []byte, error) {
	if contentType != wire.JSON {
		h := wire.Header{wire.HeaderContentType: {contentType}}
		if err := wire.CheckHeader(h); err != nil {
			return "", nil, err
		}
		if codec, _ := wire.CodecOf(h); codec != wire.JSON {
			return contentType, data, nil
		}
	}
	if data == nil {
		return wire.JSON, []byte("null"), nil
	}
	if !utf8.Valid(data) {
		return "", nil, errors.New("it is not UTF-8")
	}
	if !json.Valid(data) {
		return "", nil, fmt.Errorf("it is not JSON: %.80q", data)
	}
	return wire.JSON, data, nil
}
