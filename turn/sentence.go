package turn

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

// Sentence says to a person what became of a call.
func Sentence(r *tool.Result) string {
	n := len(r.Attempts)
	switch {
	case r.Status == tool.Success && n <= 1:
		return r.Tool + " answered"
	case r.Status == tool.Success:
		return r.Tool + " answered at attempt " + strconv.Itoa(n)
	case r.Status == tool.PartialValue:
		return r.Tool + " gave a part of its result before it failed: " + r.Fault.Message
	case r.Fault == nil:
		return r.Tool + ": " + string(r.Status)
	}
	var b strings.Builder
	b.WriteString(r.Fault.Message)
	if n > 1 {
		b.WriteString(" (" + strconv.Itoa(n) + " attempts)")
	}
	switch r.Fault.Execution {
	case fault.Unknown:
		if r.Status == tool.TimedOut || r.Fault.Kind == fault.WorkerLost || r.Fault.Spec().Execution == fault.NotStarted {
			b.WriteString("; it may have run: check before doing it again")
		}
	case fault.Stopped:
		b.WriteString("; its worker confirmed that it was stopped")
	}
	return b.String()
}

// joined is the pieces as one JSON array.
func joined(pieces [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(pieces, []byte{','})...), ']')
}
