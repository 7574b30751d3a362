package command

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/toolbus/toolbus/wire"
)

// feed writes what was said in pieces of the given size, and gives the progress and what was kept.
func feed(said []byte, piece int) string {
	var progress []wire.ProgressRecord
	s := &stderr{max: 1 << 20, progress: func(p wire.ProgressRecord) { progress = append(progress, p) }}
	for len(said) > 0 {
		n := min(max(piece, 1), len(said))
		_, _ = s.Write(said[:n])
		said = said[n:]
	}
	s.flush()
	return fmt.Sprintf("%v %s", progress, s.tail)
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

func TestStderrIsBounded(t *testing.T) {
	s := &stderr{max: 100, progress: func(wire.ProgressRecord) {}}
	endless := append([]byte("::progress 1/2 "), bytes.Repeat([]byte("x"), 64<<10)...)
	for range 100 {
		_, _ = s.Write(endless)
	}
	_, _ = s.Write([]byte("\nthe end\n"))
	if len(s.tail) > 200 || cap(s.line) > 128<<10 {
		t.Errorf("%d bytes kept and a line of %d, want at most 200 and one write", len(s.tail), cap(s.line))
	}
	if !bytes.HasSuffix(s.tail, []byte("\nthe end\n")) {
		t.Errorf("tail %q, want the end", s.tail)
	}
}
