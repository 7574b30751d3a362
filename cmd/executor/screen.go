package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A screen shows a turn under way to a person, a line for each event. Progress comes often: on a terminal it is one line
// that is written over, elsewhere at most one line a second for each call.
type screen struct {
	w        io.Writer
	terminal bool
	many     bool               // there are several calls: each line says of which it speaks, and the end of each has one
	over     bool               // the last line is progress, to be written over
	fell     string             // the call whose failure was shown last, and why an alternative follows
	nextMs   map[string]float64 // by call: when progress may be shown again, where there is no terminal
}

func newScreen(w io.Writer) *screen {
	_, _, ok := terminal(w)
	return &screen{w: w, terminal: ok, nextMs: map[string]float64{}}
}

// erase goes back to the beginning of the line and empties it.
const erase = "\r\x1b[K"

func (s *screen) line(ev *wire.Event, format string, args ...any) {
	s.clear()
	fmt.Fprintf(s.w, "%9s  %s%s\n", spell(ev.AtMs), s.of(ev), fmt.Sprintf(format, args...))
}

// of is the call that an event speaks of, where there are several.
func (s *screen) of(ev *wire.Event) string {
	if !s.many || ev.Call == "" {
		return ""
	}
	return cut(ev.Call, 40) + ": "
}

// passing shows what the next line of its sort makes old.
func (s *screen) passing(ev *wire.Event, text string) {
	if s.terminal {
		fmt.Fprintf(s.w, "%s%9s  %s", erase, spell(ev.AtMs), cut(s.of(ev)+text, 66)) // 79 columns in all: a longer line cannot be written over
		s.over = true
		return
	}
	if ev.AtMs < s.nextMs[ev.Call] {
		return
	}
	s.nextMs[ev.Call] = ev.AtMs + 1000
	s.line(ev, "%s", cut(text, 200))
}

// clear takes the passing line away, so that what comes next has a line of its own.
func (s *screen) clear() {
	if s.over {
		fmt.Fprint(s.w, erase)
		s.over = false
	}
}

// show shows one event.
func (s *screen) show(ev *wire.Event) {
	switch ev.Type {
	case wire.AttemptStarted:
		delete(s.nextMs, ev.Call)
		s.line(ev, "attempt %d%s%s", ev.Attempt, s.at(ev), on(ev))
	case wire.ProgressEvent:
		if ev.Progress != nil {
			s.passing(ev, progressLine(ev.Progress))
		}
	case wire.PartialEvent:
		s.passing(ev, fmt.Sprintf("piece %d, %d bytes", ev.PieceSeq, len(ev.Piece)))
	case wire.ToolError:
		s.failure(ev)
	case wire.AlternativeChosen:
		if s.fell != "" && s.fell == ev.Call {
			s.fell = ""
			return
		}
		s.line(ev, "→ %s, because %s", cut(ev.Tool, 64), plainText(ev.Because))
	case wire.BreakerChanged:
		s.line(ev, "%s: %s", plainText(ev.Decision), plainText(ev.Because))
	case wire.CallSettled:
		if s.many && ev.Result != nil {
			s.line(ev, "%s %s", mark(ev.Result.Status), plainText(ev.Result.Sentence))
		}
	case wire.TurnDeadline:
		s.line(ev, "the deadline has come")
	case wire.TurnEnded:
		s.clear()
	}
}

// at is the tool of an attempt, where that cannot be known otherwise.
func (s *screen) at(ev *wire.Event) string {
	if !s.many || ev.Tool == "" {
		return ""
	}
	return " at " + cut(ev.Tool, 64)
}

func on(ev *wire.Event) string {
	if ev.Worker == "" {
		return ""
	}
	return " on " + cut(ev.Worker, 64)
}

// mark is how a call ended, in one character.
func mark(s tool.Status) string {
	switch s {
	case tool.Success, tool.ViaFallback:
		return "✓"
	case tool.Defaulted, tool.PartialValue:
		return "○"
	case tool.TimedOut, tool.NeverStarted:
		return "…"
	case tool.Skipped, tool.Cancelled:
		return "–"
	}
	return "✗"
}

// failure shows an attempt that failed. The last one's message is in the line that ends the call.
func (s *screen) failure(ev *wire.Event) {
	f := ev.Error
	switch {
	case f == nil || ev.Attempt == 0 || f.Kind == fault.Cancelled: // there is nothing to say beyond how it ended
	case ev.Decision == "retry":
		s.line(ev, "%s (%s): %s → retry in %s, because %s", f.Kind, ev.Classification, plainText(f.Message), spell(ev.DelayMs), plainText(ev.Because))
	default:
		if ev.Decision == "alternative" {
			s.fell = ev.Call
		}
		s.line(ev, "%s (%s) → %s, because %s", f.Kind, ev.Classification, ev.Decision, plainText(ev.Because))
	}
}

func progressLine(r *wire.ProgressRecord) string {
	line := fmt.Sprintf("progress %g", r.Done)
	if r.Total > 0 {
		line = fmt.Sprintf("progress %3.0f %%", 100*r.Done/r.Total)
	}
	if r.Message != "" {
		line += "  " + r.Message
	}
	return line
}

// cut is s as one line of at most n characters.
func cut(s string, n int) string {
	s = strings.Join(strings.Fields(plainText(s)), " ")
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
