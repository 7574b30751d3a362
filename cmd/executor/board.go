package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/toolbus/toolbus/internal/waterfall"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A board shows a turn under way on a terminal: one line for each call, redrawn as things happen and as time passes.
type board struct {
	w     io.Writer
	width int
	most  int // lines

	mu    sync.Mutex
	began time.Time
	lines []*boardLine
	by    map[string]*boardLine
	drawn int // lines on the terminal
	next  time.Time

	stop, stopped chan struct{}
}

// A boardLine is one call: what it does now.
type boardLine struct {
	call, mark, text string
	since            time.Time // when it began; zero where no time runs
	took             time.Duration
	ended            bool
}

const (
	boardLines  = 20                     // more calls are counted in one line, those under way shown first
	redrawEvery = 100 * time.Millisecond // at most, however much happens
)

func newBoard(w io.Writer, width, height int, calls []tool.Call) *board {
	most := max(1, min(boardLines, height-1)) // what has scrolled out of sight cannot be written over
	b := &board{w: w, width: width, most: most, began: time.Now(), by: map[string]*boardLine{}, stop: make(chan struct{}), stopped: make(chan struct{})}
	for i, c := range calls {
		id := c.ID
		if id == "" {
			id = fmt.Sprintf("c%d", i+1)
		}
		b.line(id)
	}
	go b.tick()
	return b
}

// line is that of a call.
func (b *board) line(call string) *boardLine {
	l := b.by[call]
	if l == nil && len(b.lines) < wire.MaxCalls {
		l = &boardLine{call: call, mark: " ", text: "waits"}
		b.by[call] = l
		b.lines = append(b.lines, l)
	}
	return l
}

// tick redraws while nothing happens, so that one sees the time pass.
func (b *board) tick() {
	defer close(b.stopped)
	t := time.NewTicker(redrawEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			b.mu.Lock()
			b.draw()
			b.mu.Unlock()
		case <-b.stop:
			return
		}
	}
}

// close draws the last state and ends.
func (b *board) close() {
	close(b.stop)
	<-b.stopped
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Time{}
	b.draw()
	fmt.Fprintln(b.w)
}

// take takes one event in.
func (b *board) take(ev *wire.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ev.Call != "" {
		if l := b.line(ev.Call); l != nil {
			l.take(ev)
		}
	}
	b.draw()
}

func (l *boardLine) take(ev *wire.Event) {
	switch ev.Type {
	case wire.CallReady:
		l.mark, l.text, l.since = "·", "is ready", time.Now()
	case wire.AttemptStarted:
		if l.since.IsZero() {
			l.since = time.Now()
		}
		l.mark, l.text = "▶", fmt.Sprintf("attempt %d at %s%s", ev.Attempt, cut(ev.Tool, 64), on(ev))
	case wire.ProgressEvent:
		if ev.Progress != nil {
			l.text = fmt.Sprintf("attempt %d  %s", ev.Attempt, progressLine(ev.Progress))
		}
	case wire.PartialEvent:
		l.text = fmt.Sprintf("attempt %d  piece %d, %d bytes", ev.Attempt, ev.PieceSeq, len(ev.Piece))
	case wire.ToolError:
		if ev.Error != nil {
			l.mark, l.text = "!", fmt.Sprintf("%s → %s, because %s", ev.Error.Kind, ev.Decision, ev.Because)
		}
	case wire.AlternativeChosen:
		l.text = fmt.Sprintf("→ %s, because %s", cut(ev.Tool, 64), ev.Because)
	case wire.CallSettled:
		if r := ev.Result; r != nil {
			l.mark, l.text, l.since, l.took = mark(r.Status), r.Sentence, time.Time{}, time.Duration(r.DurationMs*float64(time.Millisecond))
			l.ended = true
		}
	}
}

// draw writes the lines over those that stand there, not too often.
func (b *board) draw() {
	now := time.Now()
	if now.Before(b.next) {
		return
	}
	b.next = now.Add(redrawEvery)
	lines := b.text(now)
	var out strings.Builder
	if b.drawn > 1 {
		fmt.Fprintf(&out, "\x1b[%dA", b.drawn-1)
	}
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		out.WriteString("\r\x1b[K" + line)
	}
	b.drawn = len(lines)
	fmt.Fprint(b.w, out.String())
}

// text is the lines as they stand: all calls, or where they are many those that something happens to.
func (b *board) text(now time.Time) []string {
	show := b.lines
	if len(show) > b.most {
		show = nil
		for _, l := range b.lines {
			if !l.since.IsZero() && len(show) < b.most-1 {
				show = append(show, l)
			}
		}
	}
	label := 4
	for _, l := range show {
		label = max(label, min(24, len([]rune(l.call))))
	}
	var lines []string
	for _, l := range show {
		took := l.took
		if !l.since.IsZero() {
			took = now.Sub(l.since)
		}
		lines = append(lines, waterfall.Fit(fmt.Sprintf("%s %-*s %9s  %s", l.mark, label, cut(l.call, 24), spell(took.Seconds()*1000), plainText(l.text)), b.width-1))
	}
	if len(show) < len(b.lines) {
		ended := 0
		for _, l := range b.lines {
			if l.ended {
				ended++
			}
		}
		for len(lines) < b.most-1 {
			lines = append(lines, "")
		}
		lines = append(lines, fmt.Sprintf("  %d of %d calls have ended, %s", ended, len(b.lines), spell(now.Sub(b.began).Seconds()*1000)))
	}
	return lines
}
