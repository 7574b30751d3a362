package turn

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Sentence says to a person what became of a call.
func Sentence(r *tool.Result) string {
	n := len(r.Attempts)
	switch {
	case r.Status == tool.Success && n <= 1:
		return r.Tool + " answered"
	case r.Status == tool.Success:
		return r.Tool + " answered at attempt " + strconv.Itoa(n)
	case r.Status == tool.ViaFallback:
		return r.FallbackTool + " answered in place of " + r.Tool + ", which failed" + firstFailure(r)
	case r.Status == tool.PartialValue && r.Fault != nil:
		return r.Tool + " gave a part of its result before it failed: " + r.Fault.Message
	case r.Status == tool.Skipped:
		return r.Tool + " was skipped, because " + r.BecauseOf + " gave no value"
	case r.Status == tool.Defaulted && r.Fault == nil:
		return r.Tool + " could not run, because " + r.BecauseOf + " gave no value; its default is used"
	case r.Status == tool.Defaulted:
		return r.Tool + " failed, and its default is used: " + r.Fault.Message
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

func firstFailure(r *tool.Result) string {
	if len(r.Attempts) == 0 || r.Attempts[0].Message == "" {
		return ""
	}
	return ": " + r.Attempts[0].Message
}

// joined is the pieces as one JSON array.
func joined(pieces [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(pieces, []byte{','})...), ']')
}

// sentence says to a person what became of the turn: "Completed flight search, but hotel search timed out" (seed 000 §4.2).
func (t *Turn) sentence(status string) string {
	switch {
	case len(t.calls) == 0:
		return "The turn had no calls"
	case len(t.calls) == 1:
		return t.results[0].Sentence
	}
	var done, but []string
	said := map[string]int{} // what is said of calls without a value, and where in but
	var who [][]string
	for i := range t.results {
		what := t.fate(i)
		if what == "" {
			done = append(done, t.title(i))
			continue
		}
		k, ok := said[what]
		if !ok {
			k = len(but)
			said[what] = k
			but, who = append(but, what), append(who, nil)
		}
		who[k] = append(who[k], t.title(i))
	}
	var clauses []string
	for k, what := range but {
		clauses = append(clauses, list(who[k])+" "+agree(what, len(who[k])))
	}
	rest := clauses
	more := ""
	if len(rest) > 4 {
		rest, more = rest[:4], fmt.Sprintf("; %d calls more did not go well", len(clauses)-4)
	}
	failed := strings.Join(rest, ", ") + more
	switch {
	case status == wire.CancelledTurn && len(done) > 0:
		return "Cancelled; completed " + list(done)
	case status == wire.CancelledTurn:
		return "Cancelled before anything was completed"
	case len(but) == 0:
		return "Completed " + list(done)
	case len(done) == 0:
		return upper(failed)
	}
	return "Completed " + list(done) + ", but " + failed
}

// fate is what to say of a call that gave no whole value of its own; "" of one that did.
func (t *Turn) fate(i int) string {
	r := &t.results[i]
	switch r.Status {
	case tool.Success, tool.ViaFallback:
		return ""
	case tool.TimedOut:
		return "timed out"
	case tool.NeverStarted:
		return "did not begin"
	case tool.Cancelled:
		return "was cancelled"
	case tool.PartialValue:
		return "gave only a part"
	case tool.Defaulted:
		if r.Fault == nil {
			return "could not run and has its default"
		}
		return "failed and has its default"
	case tool.Skipped:
		if k, ok := t.Find(r.BecauseOf); ok {
			return "was skipped because of " + t.title(k)
		}
		return "was skipped"
	}
	if r.Fault == nil {
		return "failed"
	}
	return "failed (" + fault.Truncate(strings.Join(strings.Fields(r.Fault.Message), " "), 120) + ")"
}

// agree is what is said of one call as it is said of n.
func agree(what string, n int) string {
	if rest, ok := strings.CutPrefix(what, "was "); ok && n > 1 {
		return "were " + rest
	}
	if n > 1 {
		return strings.Replace(what, "has its default", "have their defaults", 1)
	}
	return what
}

// title names a call: by its tool, and by its id too where several calls are of that tool.
func (t *Turn) title(i int) string {
	c := t.calls[i].call
	name := strings.ReplaceAll(c.Tool, "_", " ")
	for k := range t.calls {
		if k != i && t.calls[k].call.Tool == c.Tool {
			return name + " (" + c.ID + ")"
		}
	}
	return name
}

// list is the names as people read them, the first few of many.
func list(names []string) string {
	const most = 5
	if n := len(names); n > most {
		return strings.Join(names[:most-1], ", ") + fmt.Sprintf(" and %d more", n-most+1)
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
