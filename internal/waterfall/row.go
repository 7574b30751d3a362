package waterfall

import (
	"fmt"
	"math"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (r *row) take(ev *wire.Event, at float64) {
	switch ev.Type {
	case wire.CallReady:
		r.ready = at
	case wire.AttemptStarted:
		r.begin(ev, at)
	case wire.ProgressEvent:
		if a := r.attempt(ev.Attempt); a != nil && ev.Progress != nil {
			a.progress = progressText(ev.Progress)
		}
	case wire.PartialEvent:
		if a := r.attempt(ev.Attempt); a != nil {
			a.pieces++
		}
	case wire.ToolError:
		r.failed(ev, at)
	case wire.RetryScheduled:
		if a := r.attempt(ev.Attempt); a != nil && a.delay == 0 {
			a.delay = span(ev.DelayMs)
		}
	case wire.AlternativeChosen:
		if n := len(r.attempts); n > 0 && r.attempts[n-1].decision == "alternative" {
			r.attempts[n-1].decision += " " + ev.Tool // it has said why
			return
		}
		r.note(at, because("→ "+ev.Tool, ev.Because))
	case wire.BreakerChanged:
		r.note(at, breakerText(ev))
	case wire.CancelRequested:
		r.note(at, cancelText(ev))
	case wire.CallSkipped:
		text := "skipped"
		if ev.BecauseOf != "" {
			text = "skipped because of " + ev.BecauseOf
		}
		r.note(at, because(text, ev.Because))
	case wire.CallSettled:
		if ev.Result != nil {
			r.settle(ev.Result, at)
		}
	case wire.LateResult:
		r.lateAt = at
		if ev.Result != nil {
			r.late = ev.Result.Status
		}
		r.end(at, r.late == tool.Success)
	}
}

// begin is a new attempt. What was still out has ended: it is only not known how.
func (r *row) begin(ev *wire.Event, at float64) {
	r.end(at, false)
	if len(r.attempts) == maxAttempts {
		r.leftAttempts++
		return
	}
	a := newAttempt(ev.Attempt, at)
	a.tool, a.worker = ev.Tool, ev.Worker
	r.attempts = append(r.attempts, a)
}

func newAttempt(n int, at float64) *attempt {
	return &attempt{n: n, from: at, to: math.NaN(), afterTurn: math.NaN(), untilNext: math.NaN()}
}

// end is the end of the attempt that is out, if one is.
func (r *row) end(at float64, ok bool) {
	if len(r.attempts) == 0 {
		return
	}
	if a := r.attempts[len(r.attempts)-1]; math.IsNaN(a.to) {
		a.to, a.ok = max(at, a.from), ok
	}
}

// attempt is the last one of that number, or nil.
func (r *row) attempt(n int) *attempt {
	for i := len(r.attempts) - 1; i >= 0; i-- {
		if r.attempts[i].n == n {
			return r.attempts[i]
		}
	}
	return nil
}

// failed is the end of an attempt, or of a call that never had one.
func (r *row) failed(ev *wire.Event, at float64) {
	a := r.attempt(ev.Attempt)
	if a == nil || ev.Attempt == 0 {
		text := because(ev.Decision, ev.Because)
		if ev.Error != nil {
			text = fmt.Sprintf("%s: %s → %s", ev.Error.Kind, ev.Error.Message, text)
		}
		r.note(at, text)
		return
	}
	if math.IsNaN(a.to) {
		a.to = max(at, a.from)
	}
	a.ok, a.class, a.breaker = false, ev.Classification, ev.BreakerState
	a.decision, a.because, a.delay = ev.Decision, ev.Because, span(ev.DelayMs)
	if ev.Worker != "" {
		a.worker = ev.Worker
	}
	if ev.Error != nil {
		a.kind, a.message = string(ev.Error.Kind), ev.Error.Message
	}
}

// settle is the result of the call. Where the journal has no attempts of it, the result's history has them.
func (r *row) settle(res *tool.Result, at float64) {
	r.status, r.fallback, r.sentence, r.settled = res.Status, res.FallbackTool, res.Sentence, at
	if r.tool == "" {
		r.tool = res.Tool
	}
	if len(r.attempts) == 0 {
		r.history(res.Attempts)
	}
	if res.Status != tool.TimedOut { // it may run on: what it comes to is late
		r.end(at, res.Status == tool.Success || res.Status == tool.ViaFallback)
	}
}

func (r *row) history(all []tool.Attempt) {
	began := r.added
	if !math.IsNaN(r.ready) {
		began = r.ready
	}
	for i := range all {
		if len(r.attempts) == maxAttempts {
			r.leftAttempts = len(all) - i
			return
		}
		h := &all[i]
		a := newAttempt(h.N, began+span(h.StartMs))
		a.to = a.from + span(h.DurationMs)
		a.tool, a.worker, a.kind, a.message, a.ok = h.Tool, h.Worker, string(h.Kind), h.Message, h.Kind == ""
		a.decision, a.because, a.delay = h.Decision, h.Because, span(h.DelayMs)
		r.attempts = append(r.attempts, a)
	}
}

func (r *row) note(at float64, text string) {
	if len(r.notes) < maxNotes {
		r.notes = append(r.notes, note{at, text})
	}
}

// finish fills in what can be known when all is read.
func (r *row) finish(c *chart) {
	for i, a := range r.attempts {
		if a.delay > 0 {
			a.untilNext = math.Min(a.to+a.delay, c.end)
			if i+1 < len(r.attempts) {
				a.untilNext = r.attempts[i+1].from
			}
		}
		if math.IsNaN(a.to) && r.status == tool.Cancelled {
			a.to = r.settled
		}
		if c.ended && !math.IsNaN(r.lateAt) && c.took < r.lateAt && a.from <= c.took && (math.IsNaN(a.to) || a.to > c.took) {
			a.afterTurn = c.took
		}
	}
}

// until is when an attempt ended, or the end of the chart while it runs.
func (a *attempt) until(c *chart) float64 {
	if math.IsNaN(a.to) {
		return c.end
	}
	return a.to
}

// waited is when the call began to do something, or was settled without.
func (r *row) waited(c *chart) float64 {
	switch {
	case !math.IsNaN(r.ready):
		return r.ready
	case len(r.attempts) > 0:
		return r.attempts[0].from
	case !math.IsNaN(r.settled):
		return r.settled
	}
	return c.end
}

// state is how the call ended, or what it does.
func (r *row) state() string {
	switch {
	case r.status == tool.ViaFallback && r.fallback != "":
		return "via " + r.fallback
	case r.status != "":
		return string(r.status)
	case len(r.attempts) > 0 && math.IsNaN(r.attempts[len(r.attempts)-1].to):
		return "runs"
	}
	return "waits"
}

// looks sorts a status into what it looks like.
type look uint8

const (
	plain look = iota
	good
	soft // there is a value, or it does not matter
	slow
	bad
)

func lookOf(s tool.Status) look {
	switch s {
	case tool.Success, tool.ViaFallback:
		return good
	case tool.Defaulted, tool.PartialValue, tool.Skipped, tool.Cancelled:
		return soft
	case tool.TimedOut, tool.NeverStarted:
		return slow
	case "":
		return plain
	}
	return bad
}

// mark is how a call ended, in one character.
func mark(s tool.Status) string {
	if s == tool.Skipped || s == tool.Cancelled {
		return "–"
	}
	return [...]string{"·", "✓", "○", "…", "✗"}[lookOf(s)]
}

// turnLook is that of a turn's status.
func turnLook(s string) look {
	switch s {
	case wire.Completed:
		return good
	case wire.PartialTurn:
		return soft
	case wire.TimedOutTurn, wire.CancelledTurn:
		return slow
	case "":
		return plain
	}
	return bad
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ", because " + why
}

func cancelText(ev *wire.Event) string {
	if ev.Because != "" {
		return because("cancelled", ev.Because)
	}
	return "cancel was asked for"
}

func breakerText(ev *wire.Event) string {
	text := ev.Decision
	if text == "" {
		text = "breaker"
		if ev.Tool != "" {
			text += " of " + ev.Tool
		}
		if ev.BreakerState != "" {
			text += ": " + ev.BreakerState
		}
	}
	return because(text, ev.Because)
}

func progressText(p *wire.ProgressRecord) string {
	text := fmt.Sprintf("%.4g", p.Done)
	if p.Total > 0 {
		text = fmt.Sprintf("%.0f %%", 100*p.Done/p.Total)
	}
	if p.Message != "" {
		text += " " + p.Message
	}
	return text
}

// lines is what there is to say of an attempt below it, in the order in which it was.
func (a *attempt) lines() []string {
	var lines []string
	if a.kind != "" {
		text := a.kind
		if a.class != "" {
			text += " (" + a.class + ")"
		}
		if a.message != "" {
			text += ": " + a.message
		}
		lines = append(lines, text)
	}
	if a.decision != "" {
		text := a.decision
		if a.delay > 0 {
			text += " in " + spell(a.delay)
		}
		text = "→ " + because(text, a.because)
		if a.breaker != "" {
			text += " · breaker " + a.breaker
		}
		lines = append(lines, text)
	}
	return lines
}
