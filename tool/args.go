package tool

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

// MaxArgs is the size of the largest arguments or result, in bytes: that of a claim check (design §4).
const MaxArgs = 64 << 20

// ParseArgs reads the arguments of a call, once and strictly: one JSON object, no key twice, UTF-8, at most MaxDepth
// deep and MaxArgs long. Numbers are json.Number and keep their digits. Nothing, blanks and null are {}, as model APIs
// send them for a tool without arguments.
//
// The fault says at which byte it went wrong and what stood there. It is TruncatedCall where the text just ends too
// early, as it does when a model ran out of tokens, and InvalidArguments otherwise. Arguments are never mended.
func ParseArgs(raw []byte) (map[string]any, *fault.Fault) {
	if len(raw) > MaxArgs {
		return nil, badArgs(fault.InvalidArguments, fmt.Sprintf("the arguments are %d bytes long, at most %d are allowed", len(raw), MaxArgs))
	}
	if blank := bytes.TrimSpace(raw); len(blank) == 0 || string(blank) == "null" {
		return map[string]any{}, nil
	}
	v, err := readJSON(raw)
	if err != nil {
		if err.cut {
			return nil, badArgs(fault.TruncatedCall, fmt.Sprintf("%s; the call may have been cut off", err.text(raw)))
		}
		return nil, badArgs(fault.InvalidArguments, "the arguments are not one JSON object: "+err.text(raw))
	}
	args, ok := v.(map[string]any)
	if !ok {
		return nil, badArgs(fault.InvalidArguments, "the arguments are not one JSON object: expected object, got "+typeName(v))
	}
	return args, nil
}

func badArgs(kind fault.Kind, message string) *fault.Fault {
	return &fault.Fault{
		Kind:        kind,
		Message:     message,
		Execution:   fault.NotStarted,
		Suggestions: []string{"send one JSON object"},
	}
}

// text says what is wrong, at which byte of raw, inside what, and what stands there.
func (f *flaw) text(raw []byte) string {
	if f.cut {
		return strings.Replace(f.problem, "ends", fmt.Sprintf("ends at byte %d", f.at), 1)
	}
	const around = 20
	from, to := max(0, f.at-around), min(len(raw), f.at+around)
	where := ""
	if len(f.path) > 0 {
		path := slices.Clone(f.path)
		slices.Reverse(path)
		where = " in " + plain(pointer(path), 80)
	}
	return fmt.Sprintf("at byte %d%s: %s, near %s", f.at, where, f.problem, plain(string(raw[from:to]), 4*around))
}
