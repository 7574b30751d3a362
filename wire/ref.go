package wire

import (
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// A CallRef names one attempt everywhere: in the Tb-Call header, in logs, on screens. Its text is
// <turn>/<call>/<attempt>.
type CallRef struct {
	Turn, Call string
	Attempt    int // from 1
}

// String is the text of Tb-Call.
func (r CallRef) String() string {
	return r.Turn + "/" + r.Call + "/" + strconv.Itoa(r.Attempt)
}

// AppendTo appends what String gives.
func (r CallRef) AppendTo(b []byte) []byte {
	b = append(b, r.Turn...)
	b = append(b, '/')
	b = append(b, r.Call...)
	b = append(b, '/')
	return strconv.AppendInt(b, int64(r.Attempt), 10)
}

// Key is <turn>/<call>: the idempotency key of all attempts at a call, unless its caller gave one.
func (r CallRef) Key() string { return r.Turn + "/" + r.Call }

// ParseCallRef is the way back from String. It takes nothing else: two legal ids (tool.CheckID) and an attempt from 1
// to MaxAttempt without sign or leading zero. The error is an *Error.
func ParseCallRef(s string) (CallRef, error) {
	turn, rest, _ := strings.Cut(s, "/")
	call, n, ok := strings.Cut(rest, "/")
	if !ok {
		return CallRef{}, refuse(CodeCallRef, "call reference %s: expected <turn>/<call>/<attempt>", quote(s))
	}
	if err := tool.CheckID(turn); err != nil {
		return CallRef{}, refuse(CodeCallRef, "call reference: turn: %v", err)
	}
	if err := tool.CheckID(call); err != nil {
		return CallRef{}, refuse(CodeCallRef, "call reference: call: %v", err)
	}
	attempt, ok := decimal(n, MaxAttempt)
	if !ok || attempt == 0 {
		return CallRef{}, refuse(CodeCallRef, "call reference: attempt %s: expected 1 to %d", quote(n), MaxAttempt)
	}
	return CallRef{turn, call, int(attempt)}, nil
}

// decimal reads a number from 0 to max as strconv would write it.
func decimal(s string, max int64) (int64, bool) {
	if s == "" || len(s) > 18 || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, n <= max
}
