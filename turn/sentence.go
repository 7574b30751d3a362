package turn

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// sentenceOf says to a person what became of a call. What may have run is worth a word unless running it changes nothing.
func sentenceOf(r *tool.Result, effect tool.Effect) string {
	n := len(r.Attempts)
	switch {
	case r.Status == tool.Success && n <= 1:
		return r.Tool + " answered"
	case r.Status == tool.Success:
		return r.Tool + " answered at attempt " + strconv.Itoa(n)
	case r.Status == tool.ViaFallback:
		return r.FallbackTool + " answered in place of " + r.Tool + ", which failed" + firstFailure(r)
	case r.Status == tool.PartialValue && r.Fault != nil && r.Fault.Kind == fault.Deadline:
		return r.Tool + " gave a part of its result: " + r.Fault.Message
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
		switch {
		case effect == tool.Read:
		case n > 0 && r.Attempts[n-1].Kind == fault.Deadline: // it runs on, and that is said
		case effect == tool.Write, r.Status == tool.TimedOut, r.Fault.Kind == fault.WorkerLost, r.Fault.Spec().Execution == fault.NotStarted:
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
	done := make([]int, 0, len(t.results))
	var but []clause
	for i := range t.results {
		f := fateOf(&t.results[i])
		if f == (fate{}) {
			done = append(done, i)
			continue
		}
		k := slices.IndexFunc(but, func(c clause) bool { return c.fate == f })
		switch {
		case k >= 0:
		case len(but) < maxClauses:
			k = len(but)
			but = append(but, clause{fate: f})
		default:
			k = maxClauses - 1
			but[k].fate = fate{status: "did not go well"}
		}
		but[k].calls = append(but[k].calls, i)
	}
	failed := ""
	for k, c := range but {
		if k > 0 {
			failed += ", "
		}
		failed += t.list(c.calls) + " " + agree(t.what(c.fate), len(c.calls))
	}
	switch {
	case t.lost && len(done) > 0:
		return "Cancelled, because " + clientGone + "; completed " + t.list(done)
	case t.lost:
		return "Cancelled before anything was completed, because " + clientGone
	case status == wire.CancelledTurn && len(done) > 0:
		return "Cancelled; completed " + t.list(done)
	case status == wire.CancelledTurn:
		return "Cancelled before anything was completed"
	case len(but) == 0 && t.overdue:
		return "Completed " + t.list(done) + ", but the turn was still open at its deadline"
	case len(but) == 0:
		return "Completed " + t.list(done)
	case len(done) == 0:
		return upper(failed)
	}
	return "Completed " + t.list(done) + ", but " + failed
}

// maxClauses is how many different things a turn's sentence says of calls that gave no value. The last takes in the rest.
const maxClauses = 5

// A clause says one thing of some calls.
type clause struct {
	fate  fate
	calls []int
}

// A fate is what became of a call that gave no whole value of its own. That of one that did is empty.
type fate struct {
	status  tool.Status
	because string // the call, of Skipped
	message string // of a failure
	ran     bool   // of Defaulted: it was tried
}

func fateOf(r *tool.Result) fate {
	switch r.Status {
	case tool.Success, tool.ViaFallback:
		return fate{}
	case tool.Skipped:
		return fate{status: r.Status, because: r.BecauseOf}
	case tool.Defaulted:
		return fate{status: r.Status, ran: r.Fault != nil}
	case tool.Failed:
		if r.Fault != nil {
			return fate{status: r.Status, message: r.Fault.Message}
		}
	}
	return fate{status: r.Status}
}

func (t *Turn) what(f fate) string {
	switch f.status {
	case tool.TimedOut:
		return "timed out"
	case tool.NeverStarted:
		return "did not begin"
	case tool.Cancelled:
		return "was cancelled"
	case tool.PartialValue:
		return "gave only a part"
	case tool.Defaulted:
		if f.ran {
			return "failed and has its default"
		}
		return "could not run and has its default"
	case tool.Skipped:
		if k, ok := t.Find(f.because); ok {
			return "was skipped because of " + t.title(k)
		}
		return "was skipped"
	}
	if f.message == "" {
		return string(f.status)
	}
	return "failed (" + fault.Truncate(strings.Join(strings.Fields(f.message), " "), 120) + ")"
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
	var b strings.Builder
	t.entitle(&b, i)
	return b.String()
}

func (t *Turn) entitle(b *strings.Builder, i int) {
	c := t.calls[i].call
	b.WriteString(strings.ReplaceAll(c.Tool, "_", " "))
	for k := range t.calls {
		if k != i && t.calls[k].call.Tool == c.Tool {
			b.WriteString(" (")
			b.WriteString(c.ID)
			b.WriteByte(')')
			return
		}
	}
}

// list is the titles of calls as people read them, the first few of many.
func (t *Turn) list(calls []int) string {
	const most = 5
	n, more := len(calls), 0
	if n > most {
		n, more = most-1, n-most+1
	}
	var b strings.Builder
	b.Grow(128)
	for k, i := range calls[:n] {
		switch {
		case k == 0:
		case k == n-1 && more == 0:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		t.entitle(&b, i)
	}
	if more > 0 {
		b.WriteString(" and ")
		b.WriteString(strconv.Itoa(more))
		b.WriteString(" more")
	}
	return b.String()
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
