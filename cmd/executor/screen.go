package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// A screen shows a call under way to a person, a line for each event. Progress comes often: on a terminal it is one line
// that is written over, elsewhere at most one line a second.
type screen struct {
	w        io.Writer
	terminal bool
	over     bool    // the last line is progress, to be written over
	nextMs   float64 // when progress may be shown again, where there is no terminal
}

func newScreen(w io.Writer) *screen {
	s := &screen{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// erase goes back to the beginning of the line and empties it.
const erase = "\r\x1b[K"

func (s *screen) line(atMs float64, format string, args ...any) {
	if s.over {
		fmt.Fprint(s.w, erase)
		s.over = false
	}
	fmt.Fprintf(s.w, "%9s  %s\n", spell(atMs), fmt.Sprintf(format, args...))
}

// passing shows what the next line of its sort makes old.
func (s *screen) passing(atMs float64, text string) {
	if s.terminal {
		fmt.Fprintf(s.w, "%s%9s  %s", erase, spell(atMs), cut(text, 66)) // 79 columns in all: a longer line cannot be written over
		s.over = true
		return
	}
	if atMs < s.nextMs {
		return
	}
	s.nextMs = atMs + 1000
	s.line(atMs, "%s", cut(text, 200))
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
		on := ""
		if ev.Worker != "" {
			on = " on " + ev.Worker
		}
		s.nextMs = 0
		s.line(ev.AtMs, "attempt %d%s", ev.Attempt, on)
	case wire.ProgressEvent:
		s.passing(ev.AtMs, progressLine(ev.Progress))
	case wire.PartialEvent:
		s.passing(ev.AtMs, fmt.Sprintf("piece %d, %d bytes", ev.PieceSeq, len(ev.Piece)))
	case wire.ToolError:
		s.failure(ev)
	case wire.BreakerChanged:
		s.line(ev.AtMs, "%s: %s", ev.Decision, ev.Because)
	case wire.TurnEnded:
		s.clear()
	}
}

// failure shows an attempt that failed. The last one's message is in the line that ends the call.
func (s *screen) failure(ev *wire.Event) {
	f := ev.Error
	switch {
	case ev.Attempt == 0 || f.Kind == fault.Cancelled: // there is nothing to say beyond how it ended
	case ev.Decision == "retry":
		s.line(ev.AtMs, "%s (%s): %s → retry in %s, because %s", f.Kind, ev.Classification, plainText(f.Message), spell(ev.DelayMs), ev.Because)
	default:
		s.line(ev.AtMs, "%s (%s) → %s, because %s", f.Kind, ev.Classification, ev.Decision, ev.Because)
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
