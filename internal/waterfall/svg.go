package waterfall

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/toolbus/toolbus/wire"
)

// The measures of a picture, in its own units.
const (
	svgWidth  = 1000
	svgLabel  = 300 // where the bars begin
	svgLine   = 20
	svgMargin = 16
)

// style is how a picture looks: by classes, and light or dark as the reader has it.
const style = `
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}
.head{font-size:15px;font-weight:600}.call{font-weight:600}.small{font-size:11px;fill:#59636e}
.bg{fill:#fff}.grid{stroke:#d1d9e0;stroke-width:1}.deadline{stroke:#9a6700;stroke-width:1.5;stroke-dasharray:4 3}
.wait{fill:#d1d9e0}.backoff{fill:#eac54f;fill-opacity:.45}.l0{fill:#818b98}.l1{fill:#1a7f37}.l2{fill:#1b7c83}.l3{fill:#bf8700}.l4{fill:#d1242f}.late{fill-opacity:.45}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.small{fill:#9198a1}.bg{fill:#0d1117}.grid{stroke:#3d444d}.wait{fill:#3d444d}
.l1{fill:#3fb950}.l2{fill:#39c5cf}.l3{fill:#d29922}.l4{fill:#f85149}}
`

// SVG draws a turn as a picture that needs nothing else: no script, no font, no file, light or dark as its reader likes.
// A bar tells its times when it is pointed at. The error is w's.
func SVG(w io.Writer, events []wire.Event) error {
	c := lay(events)
	var lines []svgRow
	for _, r := range c.rows {
		lines = append(lines, c.svgRows(r)...)
	}
	if c.left > 0 {
		lines = append(lines, svgRow{text: fmt.Sprintf("… and more calls: the first %d are shown", maxRows), class: "small"})
	}
	for _, n := range c.notes {
		lines = append(lines, svgRow{text: spell(n.at) + "  " + n.text, class: "small"})
	}

	p := &picture{w: bufio.NewWriter(w), c: c, span: max(c.end, 0.001), y: 4 * svgLine}
	height := p.y + len(lines)*svgLine + svgMargin
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", svgWidth, height, svgWidth, height)
	p.f("<title>%s</title>\n<style>%s</style>\n", esc("turn "+c.turn, 100), style)
	p.f(`<rect class="bg" width="%d" height="%d"/>`+"\n", svgWidth, height)
	p.text(svgMargin, 24, "head", fmt.Sprintf("turn %s · %s · %s", c.turn, c.status, spell(c.took)), 110)
	p.text(svgMargin, 44, "small", c.sentence, 160)
	p.axis(height)
	for _, line := range lines {
		p.row(line)
	}
	p.f("</svg>\n")
	return p.w.Flush()
}

// A svgRow is one line of a picture: words, and bars or none.
type svgRow struct {
	indent      int
	text, class string
	bars        []svgBar
}

type svgBar struct {
	from, to     float64
	class, title string
}

func (c *chart) svgRows(r *row) []svgRow {
	l := lookOf(r.status)
	head := svgRow{text: fmt.Sprintf("%s  %s %s", r.call, mark(r.status), r.state()), class: "call"}
	if waited := r.waited(c); waited > r.added {
		head.bars = append(head.bars, svgBar{r.added, waited, "wait", "waits for its inputs, " + spell(waited-r.added)})
	}
	rows := []svgRow{head}
	for _, a := range r.attempts {
		rows[0].bars = append(rows[0].bars, a.bars(c, l)...)
		line := svgRow{indent: 14, text: fmt.Sprintf("#%d %s", a.n, a.tool), bars: a.bars(c, a.look())}
		if a.worker != "" {
			line.text += " on " + short(a.worker)
		}
		rows = append(rows, line)
		for _, text := range a.lines() {
			rows = append(rows, svgRow{indent: 28, text: text, class: "small"})
		}
	}
	if r.leftAttempts > 0 {
		rows = append(rows, svgRow{indent: 14, text: fmt.Sprintf("… and %d more attempts", r.leftAttempts), class: "small"})
	}
	for _, n := range r.notes {
		rows = append(rows, svgRow{indent: 14, text: spell(n.at) + "  " + n.text, class: "small"})
	}
	if l != good && r.sentence != "" {
		rows = append(rows, svgRow{indent: 14, text: r.sentence, class: "small"})
	}
	if !math.IsNaN(r.lateAt) {
		rows = append(rows, svgRow{indent: 14, text: fmt.Sprintf("late: %s at %s", r.late, spell(r.lateAt)), class: "small"})
	}
	return rows
}

func (a *attempt) bars(c *chart, l look) []svgBar {
	end, class := a.until(c), fmt.Sprintf("l%d", l)
	title := fmt.Sprintf("#%d %s, %s from %s", a.n, a.tool, spell(end-a.from), spell(a.from))
	var bars []svgBar
	if math.IsNaN(a.afterTurn) {
		bars = append(bars, svgBar{a.from, end, class, title})
	} else {
		bars = append(bars, svgBar{a.from, a.afterTurn, class, title}, svgBar{a.afterTurn, end, class + " late", title + ", after its turn"})
	}
	if !math.IsNaN(a.untilNext) && a.untilNext > end {
		bars = append(bars, svgBar{end, a.untilNext, "backoff", "waits " + spell(a.untilNext-end) + " for the next attempt"})
	}
	return bars
}

// A picture is a SVG on its way out.
type picture struct {
	w    *bufio.Writer
	c    *chart
	span float64
	y    int // the next line
}

func (p *picture) f(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *picture) text(x, y int, class, s string, columns int) {
	if s == "" {
		return
	}
	attr := ""
	if class != "" {
		attr = ` class="` + class + `"`
	}
	p.f(`<text%s x="%d" y="%d">%s</text>`+"\n", attr, x, y, esc(s, columns))
}

// x is where a time is drawn.
func (p *picture) x(at float64) float64 {
	return svgLabel + min(max(at/p.span, 0), 1)*(svgWidth-svgLabel-svgMargin)
}

func (p *picture) axis(height int) {
	for _, k := range ticks(p.span, 10) {
		p.f(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", p.x(k.at), p.x(k.at), p.y-svgLine, height-svgMargin)
		p.text(int(p.x(k.at))+2, p.y-svgLine+10, "small", k.label, 12)
	}
	if d := p.c.deadline; !math.IsNaN(d) {
		p.f(`<line class="deadline" x1="%.1f" x2="%.1f" y1="%d" y2="%d"><title>%s</title></line>`+"\n",
			p.x(d), p.x(d), p.y-svgLine, height-svgMargin, esc("the deadline, "+spell(d), 60))
	}
}

func (p *picture) row(r svgRow) {
	columns := 150
	if len(r.bars) > 0 {
		columns = 42 - r.indent/7
	}
	p.text(svgMargin+r.indent, p.y+14, r.class, r.text, columns)
	for _, b := range r.bars {
		from := p.x(b.from)
		p.f(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"><title>%s</title></rect>`+"\n",
			b.class, from, p.y+4, max(p.x(b.to)-from, 1.5), svgLine-8, esc(b.title, 150))
	}
	p.y += svgLine
}

// esc is s as text of a picture, in at most that many columns.
func esc(s string, columns int) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(Fit(s, columns))) // a Builder does not fail
	return b.String()
}
