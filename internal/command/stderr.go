package command

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// maxLine bounds a line that may be progress, in bytes.
const maxLine = 1 << 10

const progressMark = "::progress "

// stderr takes the progress out of standard error and keeps the end of the rest.
type stderr struct {
	max      int
	tail     []byte
	line     []byte // so far; only while it may be progress
	plain    bool   // the rest of this line is not progress
	progress func(wire.ProgressRecord)
}

func (s *stderr) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		piece, ends := b, false
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			piece, ends = b[:i+1], true
		}
		b = b[len(piece):]
		s.take(piece, ends)
	}
	return n, nil
}

// take adds a piece of a line; ends says that it is the last one.
func (s *stderr) take(piece []byte, ends bool) {
	if s.plain {
		s.keep(piece)
		s.plain = !ends
		return
	}
	s.line = append(s.line, piece...)
	switch {
	case ends:
		s.flush()
	case len(s.line) > maxLine || !mayBeProgress(s.line):
		s.keep(s.line)
		s.line, s.plain = s.line[:0], true
	}
}

func mayBeProgress(line []byte) bool {
	n := min(len(line), len(progressMark))
	return string(line[:n]) == progressMark[:n]
}

// flush deals with the line so far as a whole one.
func (s *stderr) flush() {
	if p, ok := parseProgress(string(s.line)); ok {
		s.progress(p)
	} else {
		s.keep(s.line)
	}
	s.line = s.line[:0]
}

// keep lets the tail grow to twice its bound before it moves the end to the front: a byte is moved once, not each time.
func (s *stderr) keep(b []byte) {
	if len(b) > s.max {
		b = b[len(b)-s.max:]
	}
	if len(s.tail)+len(b) > 2*s.max {
		s.tail = append(s.tail[:0], s.tail[len(s.tail)-s.max+len(b):]...)
	}
	s.tail = append(s.tail, b...)
}

func (s *stderr) detail() string { return last(s.tail, maxDetail) }

// parseProgress reads "::progress 3/10 message". Without "/10" the total is not known.
func parseProgress(line string) (wire.ProgressRecord, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), progressMark)
	if !ok {
		return wire.ProgressRecord{}, false
	}
	count, message, _ := strings.Cut(strings.TrimSpace(rest), " ")
	done, total, hasTotal := strings.Cut(count, "/")
	p := wire.ProgressRecord{Message: fault.Truncate(strings.ToValidUTF8(strings.TrimSpace(message), "\uFFFD"), maxMessage)}
	if p.Done, ok = number(done); !ok {
		return wire.ProgressRecord{}, false
	}
	if hasTotal {
		p.Total, ok = number(total)
	}
	return p, ok
}

// number reads what is neither negative, infinite nor no number.
func number(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && f >= 0 && f <= 1e15
}
