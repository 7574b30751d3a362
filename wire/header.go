package wire

import "strings"

// Get is the first value of a header, its name in any case, or "". A name that stands there exactly as asked for wins;
// of several that differ in case only, the first in byte order does, so that everybody reads the same one. It allocates
// nothing.
func Get(h Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	var key, value string
	for k, v := range h {
		if len(v) > 0 && len(k) == len(name) && (key == "" || k < key) && strings.EqualFold(k, name) {
			key, value = k, v[0]
		}
	}
	return value
}

// Set gives a header one value, in the place of any that it had under the same name in any case. It refuses a name that
// is no HTTP token, a value with CR, LF or NUL or of more than MaxValue bytes, and a nil map; then h is as it was.
func Set(h Header, name, value string) error {
	if h == nil {
		return refuse(CodeArgument, "set header %s: the map is nil", quote(name))
	}
	if err := checkPair(name, value); err != nil {
		return err
	}
	for k := range h {
		if k != name && strings.EqualFold(k, name) {
			delete(h, k)
		}
	}
	h[name] = []string{value}
	return nil
}

// CheckHeader says what is wrong with the headers of one message, or nil: what Set refuses, or more than MaxMetadata
// bytes in all as they stand on the wire.
func CheckHeader(h Header) error {
	_, err := outbound(h, nil)
	return err
}

// Outbound is Filter and then CheckHeader.
func Outbound(h Header) (Header, error) {
	whole, err := outbound(h, Allowed)
	if err != nil || whole {
		return h, err
	}
	h = Filter(h)
	return h, CheckHeader(h)
}

// outbound is CheckHeader of what is ok of h, and says whether all is; a nil ok is fine with everything. It looks no further
// than the first name that is not.
func outbound(h Header, ok func(name string) bool) (whole bool, err error) {
	size := len("NATS/1.0\r\n\r\n")
	for name, values := range h {
		if ok != nil && !ok(name) {
			return false, nil
		}
		for _, value := range values {
			if err := checkPair(name, value); err != nil {
				return true, err
			}
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if size > MaxMetadata {
		return true, refuse(CodeTooLarge, "the headers are %d bytes long, at most %d are allowed", size, MaxMetadata)
	}
	return true, nil
}

func checkPair(name, value string) error {
	if !isHeaderName(name) {
		return refuse(CodeHeader, "header name %s: use 1 to 128 letters, digits and !#$%%&'*+-.^_`|~", quote(name))
	}
	if len(value) > MaxValue {
		return refuse(CodeTooLarge, "header %s is %d bytes long, at most %d are allowed", name, len(value), MaxValue)
	}
	if i := breaks(value); i >= 0 {
		return &Error{Code: CodeHeader, Message: "header " + name + " has a line break or NUL in it; take it out or encode the value", Offset: i}
	}
	return nil
}

// breaks is where the first CR, LF or NUL is, or -1.
func breaks(s string) int {
	for i := range len(s) {
		if c := s[i]; c <= '\r' && (c == '\r' || c == '\n' || c == 0) {
			return i
		}
	}
	return -1
}

func isHeaderName(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if !inHeaderName[s[i]] {
			return false
		}
	}
	return true
}

// inHeaderName are the bytes of an HTTP token.
var inHeaderName = func() (set [256]bool) {
	for c := range 256 {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		set[c] = letter || strings.IndexByte("!#$%&'*+-.^_`|~", byte(c)) >= 0
	}
	return set
}()

// Inbound is what may be passed on of a message's headers: all but Nats-*, in any case. Those speak to the server
// (Nats-Rollup can empty a stream, Nats-Msg-Id can make somebody else's message a duplicate), so whoever sent them must
// not do so through us. Where there are none it is h itself, else a copy that shares the values. Ask FrameOf and
// DecodeFault before: they look at Nats-Service-Error.
func Inbound(h Header) Header {
	return keep(h, func(name string) bool { return !hasPrefix(name, "Nats-") })
}

// Allowed reports whether a header of this name, in any case, may go out: ours, W3C trace context, Content-Type, and
// the two of NATS services.
func Allowed(name string) bool {
	if hasPrefix(name, "Tb-") {
		return true
	}
	for _, ok := range [...]string{HeaderContentType, HeaderTraceparent, HeaderTracestate, HeaderBaggage,
		HeaderServiceError, HeaderServiceErrorCode} {
		if len(name) == len(ok) && strings.EqualFold(name, ok) {
			return true
		}
	}
	return false
}

// Filter is what is Allowed of h: h itself where all is, else a copy that shares the values.
func Filter(h Header) Header { return keep(h, Allowed) }

func keep(h Header, ok func(name string) bool) Header {
	drop := 0
	for name := range h {
		if !ok(name) {
			drop++
		}
	}
	if drop == 0 {
		return h
	}
	kept := make(Header, len(h)-drop)
	for name, values := range h {
		if ok(name) {
			kept[name] = values
		}
	}
	return kept
}

func hasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && (name[:len(prefix)] == prefix || strings.EqualFold(name[:len(prefix)], prefix))
}

// FrameOf is what a message is by its headers as they came in: Tb-Frame, else ErrorFrame where a plain NATS service
// set Nats-Service-Error or Nats-Service-Error-Code, else "" (a call or a result). It may be a frame of a later
// version, of which Ends is false.
func FrameOf(h Header) Frame {
	if len(h) == 0 {
		return ""
	}
	if f := Get(h, HeaderFrame); f != "" {
		return Frame(f)
	}
	if Get(h, HeaderServiceErrorCode) != "" || Get(h, HeaderServiceError) != "" {
		return ErrorFrame
	}
	return ""
}

// CodecOf is the content type of a message, JSON or MsgPack. None is JSON; parameters such as charset are ignored, and
// so is case; application/x-msgpack and application/vnd.msgpack are MsgPack. The error for any other is an *Error.
func CodecOf(h Header) (contentType string, err error) {
	return mediaType(Get(h, HeaderContentType))
}

func mediaType(s string) (string, error) {
	switch s {
	case "", JSON:
		return JSON, nil
	case MsgPack:
		return MsgPack, nil
	}
	base, _, _ := strings.Cut(s, ";")
	switch strings.ToLower(strings.TrimSpace(base)) {
	case JSON:
		return JSON, nil
	case MsgPack, "application/x-msgpack", "application/vnd.msgpack":
		return MsgPack, nil
	}
	return "", refuse(CodeContentType, "content type %s: expected %s or %s", quote(s), JSON, MsgPack)
}
