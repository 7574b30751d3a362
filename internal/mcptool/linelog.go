package mcptool

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// Bounds of what a program may put into our log.
const (
	maxLine     = 500 // bytes of a line
	linesPerSec = 20
)

// A lineLog logs what is written to it, line by line, at most linesPerSec, and keeps the last line. It is safe for
// concurrent use.
type lineLog struct {
	log  *slog.Logger
	what string

	mu      sync.Mutex
	line    []byte // so far, at most maxLine
	final   string // the last whole one that is not blank
	window  time.Time
	said    int // within the window
	dropped int
}

func newLineLog(log *slog.Logger, what string) *lineLog { return &lineLog{log: log, what: what} }

// Write never fails, so that a program is not killed by what it says.
func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		piece, rest, ends := bytes.Cut(b, []byte("\n"))
		if room := maxLine - len(l.line); room > 0 {
			l.line = append(l.line, piece[:min(room, len(piece))]...)
		}
		if b = rest; ends {
			l.end()
		}
	}
	return n, nil
}

// end deals with the line so far. l.mu is held.
func (l *lineLog) end() {
	text := strings.TrimSpace(clip(string(l.line)))
	l.line = l.line[:0]
	if text == "" {
		return
	}
	l.final = text
	if now := time.Now(); now.Sub(l.window) >= time.Second {
		if l.dropped > 0 {
			l.log.Warn(l.what+" too much", "lines_dropped", l.dropped)
		}
		l.window, l.said, l.dropped = now, 0, 0
	}
	if l.said++; l.said > linesPerSec {
		l.dropped++
		return
	}
	l.log.Info(l.what, "line", text)
}

// flush takes what is left as a line.
func (l *lineLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	if l.dropped > 0 {
		l.log.Warn(l.what+" too much", "lines_dropped", l.dropped)
		l.dropped = 0
	}
}

func (l *lineLog) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.final
}

// clip makes foreign text fit to be shown: UTF-8 without control characters, and short.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	return fault.Truncate(s, 4*maxLine)
}
