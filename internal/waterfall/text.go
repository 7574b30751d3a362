package waterfall

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/toolbus/toolbus/wire"
)

// The least and the most columns that Text draws in.
const (
	minWidth = 50
	maxWidth = 400
)

// Text draws a turn for a terminal of that many columns: a line for each call and each attempt, and below an attempt that
// failed what was decided and why.
//
//	█ runs   ▒ runs on after its turn   ░ waits for others   · waits for the next attempt   │ the deadline
//
// The error is w's.
func Text(w io.Writer, events []wire.Event, width int, color bool) error {
	c := lay(events)
	t := texter{w: bufio.NewWriter(w), c: c, width: min(max(width, minWidth), maxWidth), color: color, span: max(c.end, 0.001)}
	t.draw()
	return t.w.Flush()
}

// A texter draws one chart.
type texter struct {
	w           *bufio.Writer
	c           *chart
	width       int
	name        int // columns of a call's name
	label, cols int // columns of what is said, and of what is drawn
	color       bool
	span        float64 // what all columns together stand for
}

func (t *texter) draw() {
	t.head()
	if len(t.c.rows) == 0 {
		t.say(plain, 0, "there are no calls")
	}
	t.measure()
	if len(t.c.rows) > 0 {
		t.axis()
	}
	for _, r := range t.c.rows {
		t.row(r)
	}
	if t.c.left > 0 {
		t.say(plain, 0, "… and more calls: the first %d are shown", maxRows)
	}
	for _, n := range t.c.notes {
		t.say(plain, 0, "%s  %s", spell(n.at), n.text)
	}
}

func (t *texter) head() {
	c := t.c
	status := c.status
	switch {
	case status == "" && c.ended:
		status = "ended"
	case status == "":
		status = "runs, as far as is known"
	}
	line := fmt.Sprintf("turn %s · %s · %s", clean(c.turn), clean(status), spell(c.took))
	sentence := clean(c.sentence)
	switch whole := line + " · " + sentence; {
	case sentence == "":
		t.line(turnLook(c.status), line)
	case uniseg.StringWidth(whole) <= t.width:
		t.line(turnLook(c.status), whole)
	default:
		t.line(turnLook(c.status), line)
		t.say(turnLook(c.status), 2, "%s", sentence)
	}
}

// line writes one line in a colour.
func (t *texter) line(l look, text string) {
	t.w.WriteString(t.paint(l, strings.TrimRight(Fit(text, t.width), " ")) + "\n")
}

// say writes something said, as far to the right as what it belongs to, in as many lines as it needs, or nearly.
func (t *texter) say(l look, indent int, format string, args ...any) {
	before := strings.Repeat(" ", indent)
	for i, line := range wrap(fmt.Sprintf(format, args...), t.width-indent-2) {
		if i == 1 {
			before += "  "
		}
		t.line(l, before+line)
	}
}

func (t *texter) paint(l look, s string) string {
	code := [...]string{"", "32", "36", "33", "31"}[l]
	if !t.color || code == "" || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// measure divides the width between what is said and what is drawn.
func (t *texter) measure() {
	for _, r := range t.c.rows {
		t.name = max(t.name, uniseg.StringWidth(Fit(r.call, 24)))
	}
	for _, r := range t.c.rows {
		t.label = max(t.label, uniseg.StringWidth(t.nameOf(r)))
		for _, a := range r.attempts {
			t.label = max(t.label, uniseg.StringWidth(t.attemptOf(a)))
		}
	}
	t.label = min(t.label, t.width/2)
	t.cols = t.width - t.label - 2
}

func (t *texter) nameOf(r *row) string {
	return Fit(fmt.Sprintf("%s  %s %s", pad(r.call, t.name), mark(r.status), r.state()), t.width)
}

func (t *texter) attemptOf(a *attempt) string {
	s := fmt.Sprintf("  #%d %s", a.n, a.tool)
	if a.worker != "" {
		s += " on " + short(a.worker)
	}
	return Fit(s+"  "+spell(a.until(t.c)-a.from), t.width)
}

func (t *texter) axis() {
	line := []rune(strings.Repeat(" ", t.cols))
	free := 0
	for _, k := range ticks(t.span, t.cols/8) {
		at := t.column(k.at)
		if label := []rune(k.label); at >= free && at+len(label) <= t.cols {
			copy(line[at:], label)
			free = at + len(label) + 1
		}
	}
	t.line(plain, strings.Repeat(" ", t.label+2)+string(line))
}

// column is where a time is drawn.
func (t *texter) column(at float64) int {
	return min(max(int(at/t.span*float64(t.cols)), 0), t.cols-1)
}

func (t *texter) row(r *row) {
	l := lookOf(r.status)
	bar := t.bar()
	bar.fill(r.added, r.waited(t.c), '░', plain)
	for _, a := range r.attempts {
		bar.attempt(a, t.c, l)
	}
	bar.deadline()
	t.bars(t.nameOf(r), l, bar)

	for _, a := range r.attempts {
		bar := t.bar()
		bar.attempt(a, t.c, a.look())
		bar.deadline()
		t.bars(t.attemptOf(a), a.look(), bar)
		for _, text := range a.lines() {
			t.say(plain, 5, "%s", text)
		}
		if math.IsNaN(a.to) && a.progress != "" {
			t.say(plain, 5, "progress %s", a.progress)
		}
	}
	if r.leftAttempts > 0 {
		t.say(plain, 2, "… and %d more attempts", r.leftAttempts)
	}
	for _, n := range r.notes {
		t.say(plain, 2, "%s  %s", spell(n.at), n.text)
	}
	if l != good && r.sentence != "" {
		t.say(plain, 2, "%s", r.sentence)
	}
	if !math.IsNaN(r.lateAt) {
		t.say(lookOf(r.late), 2, "late: %s at %s · executor late %s/%s", r.late, spell(r.lateAt), t.c.turn, r.call)
	}
}

// look is how an attempt went.
func (a *attempt) look() look {
	switch {
	case a.ok:
		return good
	case a.kind == "timeout" || a.kind == "" && math.IsNaN(a.to):
		return slow
	case a.kind == "":
		return plain
	}
	return bad
}

// bars writes a line with a label and a bar.
func (t *texter) bars(label string, l look, b *bar) {
	text := t.paint(l, pad(label, t.label)) + "  " + b.String()
	if !t.color {
		text = strings.TrimRight(text, " ")
	}
	t.w.WriteString(text + "\n")
}

// A bar is the cells of one line.
type bar struct {
	t     *texter
	cells []rune
	looks []look
}

func (t *texter) bar() *bar {
	b := &bar{t: t, cells: make([]rune, t.cols), looks: make([]look, t.cols)}
	for i := range b.cells {
		b.cells[i] = ' '
	}
	return b
}

// eighths are the beginnings of a full cell.
var eighths = []rune("▏▎▍▌▋▊▉█")

// fill draws from one time to another. Of a full cell the last is drawn as far as it goes.
func (b *bar) fill(from, to float64, with rune, l look) {
	if !(to > from) && with != '█' {
		return
	}
	first, last := b.t.column(from), b.t.column(to)
	for i := first; i < last; i++ {
		b.cells[i], b.looks[i] = with, l
	}
	rest := to/b.t.span*float64(b.t.cols) - float64(last)
	switch {
	case with != '█' && rest < 0.5 && last > first:
		return
	case with == '█':
		part := int(math.Round(rest*8)) - 1
		if part < 0 && last > first {
			return
		}
		with = eighths[min(max(part, 0), 7)]
	}
	b.cells[last], b.looks[last] = with, l
}

func (b *bar) attempt(a *attempt, c *chart, l look) {
	end := a.until(c)
	if !math.IsNaN(a.untilNext) {
		b.fill(end, a.untilNext, '·', plain)
	}
	if math.IsNaN(a.afterTurn) {
		b.fill(a.from, end, '█', l)
		return
	}
	b.fill(a.afterTurn, end, '▒', l)
	b.fill(a.from, a.afterTurn, '█', l)
}

// deadline draws the deadline where nothing else is.
func (b *bar) deadline() {
	if math.IsNaN(b.t.c.deadline) {
		return
	}
	i := b.t.column(b.t.c.deadline)
	b.cells[i], b.looks[i] = '│', plain
}

// String is the cells, each run of one colour together.
func (b *bar) String() string {
	var s strings.Builder
	for i := 0; i < len(b.cells); {
		k := i
		for k < len(b.cells) && b.looks[k] == b.looks[i] {
			k++
		}
		s.WriteString(b.t.paint(b.looks[i], string(b.cells[i:k])))
		i = k
	}
	return s.String()
}
