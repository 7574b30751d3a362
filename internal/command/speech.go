package command

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// linesPerSecond bounds how much of standard error is logged.
const linesPerSecond = 20

// speech is the standard error of a program that goes on: it is logged line by line, within bounds, and passed on.
type speech struct {
	to   io.Writer
	log  *slog.Logger
	line []byte

	since   time.Time // the second that is counted
	said    int
	dropped int
}

func (s *speech) Write(b []byte) (int, error) {
	n := len(b)
	_, _ = s.to.Write(b)
	for len(b) > 0 {
		piece, rest, ends := bytes.Cut(b, []byte("\n"))
		b = rest
		if room := maxLine - len(s.line); room > 0 {
			s.line = append(s.line, piece[:min(len(piece), room)]...)
		}
		if ends {
			s.say(time.Now())
			s.line = s.line[:0]
		}
	}
	return n, nil
}

// say logs the line, and how many were not logged before it.
func (s *speech) say(now time.Time) {
	text := strings.TrimSpace(strings.ToValidUTF8(string(s.line), "\uFFFD"))
	if text == "" {
		return
	}
	if now.Sub(s.since) >= time.Second {
		if s.dropped > 0 {
			s.log.Warn("a program writes more to standard error than is logged", "lines dropped", s.dropped)
		}
		s.since, s.said, s.dropped = now, 0, 0
	}
	if s.said >= linesPerSecond {
		s.dropped++
		return
	}
	s.said++
	s.log.Info("stderr", "line", fault.Truncate(text, maxLine))
}
