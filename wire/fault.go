package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

// What a fault may hold when it travels.
const (
	maxFaultMessage = 8 << 10
	maxFaultDetail  = 16 << 10
	maxFaultPart    = 1 << 10 // one suggestion, one part of a violation
	maxViolations   = 50
	maxSuggestions  = 10
	maxServiceError = 512 // Nats-Service-Error
)

// CheckFault cuts a fault down to what may travel, in place. It never refuses one: a fault must arrive. Texts become
// UTF-8 and are cut (message at 8 KiB, detail at 16 KiB), violations end after 50 and suggestions after 10, RetryAfterMs
// is brought between 0 and 24 hours. A kind that this version does not know stays; what cannot be a kind is Upstream,
// and an execution that is none of the four is as if nobody had said.
func CheckFault(f *fault.Fault) {
	if f == nil {
		return
	}
	if !isName(string(f.Kind)) {
		f.Kind = fault.Upstream
	}
	f.Message = clean(f.Message, maxFaultMessage)
	f.Detail = clean(f.Detail, maxFaultDetail)
	f.Code = clean(f.Code, 128)
	f.Tool = clean(f.Tool, tool.MaxID)
	f.Worker = clean(f.Worker, tool.MaxID)
	f.Attempt = max(0, min(f.Attempt, MaxAttempt))
	f.RetryAfterMs = max(0, min(f.RetryAfterMs, int64(24*time.Hour/time.Millisecond)))
	switch f.Execution {
	case fault.NotStarted, fault.Unknown, fault.Stopped, fault.Done:
	default:
		f.Execution = ""
	}

	// Others may share the slices, so these are new ones; an empty one is nil.
	f.Suggestions = append([]string(nil), f.Suggestions[:min(len(f.Suggestions), maxSuggestions)]...)
	for i, s := range f.Suggestions {
		f.Suggestions[i] = clean(s, maxFaultPart)
	}
	f.Violations = append([]fault.Violation(nil), f.Violations[:min(len(f.Violations), maxViolations)]...)
	for i, v := range f.Violations {
		f.Violations[i] = fault.Violation{
			Pointer:  clean(v.Pointer, maxFaultPart),
			Expected: clean(v.Expected, maxFaultPart),
			Got:      clean(v.Got, maxFaultPart),
		}
	}
}

// clean is s as UTF-8 in at most max bytes.
func clean(s string, max int) string {
	if len(s) > 2*max { // so that mending costs no more than what is kept
		s = s[:2*max]
	}
	return fault.Truncate(strings.ToValidUTF8(s, "\uFFFD"), max)
}

// EncodeFault is the payload of an error, nack or stopped frame and the headers that go with it: Nats-Service-Error and
// its code, so that plain NATS service clients understand it too, Tb-Retry-After-Ms where there is one, Content-Type
// where it is not JSON. The caller adds Tb-Frame. The fault is cut as CheckFault says; f itself stays as it is. A nil
// fault is Internal, and a content type that we do not speak is JSON.
func EncodeFault(contentType string, f *fault.Fault) (Header, []byte) {
	if f == nil {
		f = fault.New(fault.Internal, "it failed without a fault")
	}
	record := *f
	CheckFault(&record)

	codec, err := mediaType(contentType)
	if err != nil {
		codec = JSON
	}
	h := Header{
		HeaderServiceError:     {serviceError(&record)},
		HeaderServiceErrorCode: {strconv.Itoa(record.Kind.Spec().HTTP)},
	}
	if record.RetryAfterMs > 0 {
		h[HeaderRetryAfter] = []string{strconv.FormatInt(record.RetryAfterMs, 10)}
	}
	if codec != JSON {
		h[HeaderContentType] = []string{codec}
	}
	body, err := Marshal(codec, &record)
	if err != nil {
		panic("wire: a fault that was cut down cannot be encoded: " + err.Error())
	}
	return h, body
}

// serviceError is the fault's message in one line.
func serviceError(f *fault.Fault) string {
	line := strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, f.Message)
	line = strings.TrimSpace(fault.Truncate(line, maxServiceError))
	if line == "" {
		return string(f.Kind)
	}
	return line
}

// DecodeFault reads the fault of an error, nack or stopped frame, from the headers as they came in: Inbound would take
// away those of plain NATS services. It always gives one, never longer than CheckFault allows:
//
//   - the record in the payload, in the frame's content type, or in either where none is said
//   - else Nats-Service-Error with its code, which is read as an HTTP status; the payload is the detail
//   - else the payload as text
//
// What the record leaves out is taken from the headers and the frame: a nack did not start, stopped has stopped.
func DecodeFault(h Header, body []byte) *fault.Fault {
	frame := FrameOf(h)
	f := recordOf(h, body)
	if f == nil {
		f = foreignFault(h, body, frame)
	}
	if f.Kind == "" {
		f.Kind = kindOf(frame)
	}
	if f.Execution == "" {
		switch frame {
		case Nack:
			f.Execution = fault.NotStarted
		case Stopped:
			f.Execution = fault.Stopped
		}
	}
	if f.Worker == "" {
		f.Worker = Get(h, HeaderWorker)
	}
	if f.RetryAfterMs == 0 {
		f.RetryAfterMs, _ = decimal(Get(h, HeaderRetryAfter), 1<<53)
	}
	CheckFault(f)
	return f
}

// recordOf is the fault record in the payload, or nil where that is something else.
func recordOf(h Header, body []byte) *fault.Fault {
	var f fault.Fault
	var err error
	if said := Get(h, HeaderContentType); said != "" {
		err = Unmarshal(said, body, &f)
	} else {
		err = Decode(body, &f)
	}
	if err != nil || f.Kind == "" && f.Message == "" {
		return nil
	}
	return &f
}

// foreignFault is the fault of a replier that does not know our record.
func foreignFault(h Header, body []byte, frame Frame) *fault.Fault {
	text := textOf(body, maxFaultMessage)
	message, code := Get(h, HeaderServiceError), Get(h, HeaderServiceErrorCode)
	if message == "" && code == "" {
		if text == "" {
			text = wordsOf(frame)
		}
		return newFault(kindOf(frame), text)
	}

	kind := kindOf(frame)
	if status, ok := decimal(code, 999); ok && frame == ErrorFrame {
		if k := fault.FromHTTP(int(status)); k != "" {
			kind = k
		}
	}
	if message == "" {
		message, text = text, ""
	}
	if message == "" {
		message = "the worker answered with error code " + code
	}
	f := newFault(kind, message)
	f.Code = code
	f.Detail = text
	return f
}

// newFault is a fault with what its kind says, but for the run: the frame knows that better.
func newFault(kind fault.Kind, message string) *fault.Fault {
	f := fault.New(kind, "%s", message)
	f.Execution = ""
	return f
}

// kindOf is the kind of a fault that does not say its own.
func kindOf(frame Frame) fault.Kind {
	switch frame {
	case Nack:
		return fault.Overloaded
	case Stopped:
		return fault.Cancelled
	}
	return fault.Upstream
}

// wordsOf is the message of a fault that has none.
func wordsOf(frame Frame) string {
	switch frame {
	case Nack:
		return "the worker did not take the call"
	case Stopped:
		return "the worker stopped the call"
	}
	return "the worker answered with an error and no words"
}

// textOf is what a person can read of a payload.
func textOf(body []byte, max int) string {
	cut := body[:min(len(body), max)]
	for i := 0; i < utf8.UTFMax-1 && len(cut) > 0 && len(cut) < len(body) && !utf8.Valid(cut); i++ {
		cut = cut[:len(cut)-1] // within a rune
	}
	if !utf8.Valid(cut) {
		return fmt.Sprintf("%d bytes that are not text", len(body))
	}
	return strings.TrimSpace(string(cut))
}
