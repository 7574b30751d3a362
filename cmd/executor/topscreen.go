package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/internal/waterfall"
)

// A topScreen draws a topView. Nothing that it shows can do more to a terminal than be seen.
type topScreen struct {
	width, height int // height 0 is no limit
	sort          int // of topSorts
	breakers      bool
	from          int                               // rows of the main table that are scrolled away
	paint         func(s shade, text string) string // nil paints nothing
}

// A shade is what a line is about; what colour that is, is the terminal's business.
type shade int

const (
	plain shade = iota
	heading
	warning
	alarm
	faint
)

// topSorts are the orders in which tools stand; by name where they are the same.
var topSorts = []struct {
	name string
	less func(a, b topTool) int
}{
	{"rate", func(a, b topTool) int { return cmp.Compare(b.Rate+b.Refused, a.Rate+a.Refused) }},
	{"errors", func(a, b topTool) int { return cmp.Compare(b.Errors+b.Refused, a.Errors+a.Refused) }},
	{"latency", func(a, b topTool) int { return cmp.Compare(b.MeanMs, a.MeanMs) }},
	{"in flight", func(a, b topTool) int { return cmp.Compare(b.InFlight, a.InFlight) }},
	{"name", func(topTool, topTool) int { return 0 }},
}

// A column of a table. Where there is no room the one with the highest rank goes first; rank 0 stays.
type column struct {
	title string
	width int // 0 takes what is left, at least 12
	rank  int
	right bool
}

type row struct {
	shade shade
	cells []string
}

// table is lines of at most width columns: a heading, and the rows from a place on, at most height lines in all (0: all).
func (s *topScreen) table(cols []column, rows []row, from, height int) []string {
	total := len(rows)
	if height > 0 {
		from = max(0, min(from, total-max(height-1, 0)))
		rows = rows[from:min(total, from+max(height-1, 0))]
	}
	shown := fitting(cols, s.width)
	title := make([]string, len(cols))
	for i, c := range cols {
		title[i] = c.title
	}
	if len(rows) < total {
		title[0] = fmt.Sprintf("%s %d–%d/%d", title[0], from+min(1, len(rows)), from+len(rows), total)
	}
	lines := []string{s.shaded(heading, s.join(cols, shown, title))}
	for _, r := range rows {
		lines = append(lines, s.shaded(r.shade, s.join(cols, shown, r.cells)))
	}
	return lines
}

// fitting is the widths of the columns that fit; 0 is one that does not.
func fitting(cols []column, width int) []int {
	const least, gap = 12, 2
	widths := make([]int, len(cols))
	for i, c := range cols {
		widths[i] = cmp.Or(c.width, least)
	}
	for {
		used, worst := 0, -1
		for i, w := range widths {
			if w == 0 {
				continue
			}
			used += w + gap
			if cols[i].rank > 0 && (worst < 0 || cols[i].rank > cols[worst].rank) {
				worst = i
			}
		}
		used -= gap
		if used > width && worst >= 0 {
			widths[worst] = 0
			continue
		}
		for i, c := range cols {
			if c.width == 0 && widths[i] > 0 {
				widths[i] = max(1, widths[i]+width-used)
				break
			}
		}
		return widths
	}
}

func (s *topScreen) join(cols []column, widths []int, cells []string) string {
	var b strings.Builder
	for i, w := range widths {
		if w == 0 {
			continue
		}
		text := waterfall.Fit(cells[i], w)
		pad := strings.Repeat(" ", max(0, w-uniseg.StringWidth(text)))
		if b.Len() > 0 {
			b.WriteString("  ")
		}
		if cols[i].right {
			text, pad = pad, text
		}
		b.WriteString(text + pad)
	}
	return waterfall.Fit(strings.TrimRight(b.String(), " "), s.width)
}

func (s *topScreen) shaded(sh shade, line string) string {
	if s.paint == nil || sh == plain {
		return line
	}
	return s.paint(sh, line)
}

func (s *topScreen) line(sh shade, format string, args ...any) string {
	return s.shaded(sh, waterfall.Fit(fmt.Sprintf(format, args...), s.width))
}

// draw is the whole screen.
func (s *topScreen) draw(v topView) []string {
	cols, rows := s.main(v)
	if s.height == 0 {
		lines := append([]string{s.summary(v), ""}, s.table(cols, rows, 0, 0)...)
		for _, t := range s.others(v) {
			lines = append(lines, "")
			lines = append(lines, s.table(t.cols, t.rows, 0, 0)...)
		}
		return lines
	}
	below := s.below(v)
	lines := []string{s.summary(v)}
	if room := s.room(below); room > 0 {
		lines = append(lines, s.table(cols, rows, s.from, room)...)
	}
	for len(lines) < s.height-1-len(below) {
		lines = append(lines, "")
	}
	return append(append(lines, below...), s.keys())[:s.height]
}

// main is the table that can be scrolled.
func (s *topScreen) main(v topView) ([]column, []row) {
	if s.breakers {
		return s.breakerTable(v)
	}
	return s.toolTable(v)
}

// room is how many lines the main table may have, between the summary and what is below.
func (s *topScreen) room(below []string) int { return s.height - 2 - len(below) }

// scrollable is how many rows of the main table do not fit.
func (s *topScreen) scrollable(v topView) int {
	_, rows := s.main(v)
	return len(rows) - max(0, s.room(s.below(v))-1)
}

// below is the other tables, each in a fifth of the screen, where that leaves six lines for the main one.
func (s *topScreen) below(v topView) []string {
	var lines []string
	for _, t := range s.others(v) {
		most := min(len(t.rows)+1, max(2, s.height/5))
		if len(t.rows) > 0 && s.room(lines)-most-1 >= 6 {
			lines = append(lines, "")
			lines = append(lines, s.table(t.cols, t.rows, 0, most)...)
		}
	}
	return lines
}

func (s *topScreen) keys() string {
	other := "breakers"
	if s.breakers {
		other = "tools"
	}
	return s.line(faint, "q quit  s sort: %s  b %s  ↑ ↓ scroll", topSorts[s.sort].name, other)
}

func (s *topScreen) summary(v topView) string {
	var rate, errs, refused float64
	var calls, turns, bad int
	for _, t := range v.Tools {
		rate, errs, refused = rate+t.Rate, errs+t.Errors, refused+t.Refused
		if t.Breaker != breaker.Closed.String() {
			bad++
		}
	}
	for _, e := range v.Executors {
		calls, turns = calls+e.InFlight, turns+e.Turns
	}
	sh := heading
	text := fmt.Sprintf("%s, %s, %s", many(len(v.Executors), "executor"), many(len(v.Workers), "worker"), many(len(v.Tools), "tool"))
	if bad > 0 {
		sh, text = warning, text+", "+many(bad, "breaker")+" not closed"
	}
	text += fmt.Sprintf("  %s in %s  %s/s  %s %% errors", many(calls, "call"), many(turns, "turn"), short(rate), percent(errs, rate))
	if refused > 0 {
		text += fmt.Sprintf("  %s/s refused", short(refused))
	}
	if v.Away {
		sh, text = alarm, "THE BUS IS AWAY  "+text
	}
	return s.line(sh, "%s", text)
}

func (s *topScreen) toolTable(v topView) ([]column, []row) {
	tools := slices.Clone(v.Tools)
	slices.SortStableFunc(tools, topSorts[s.sort].less)
	var rows []row
	for _, t := range tools {
		rows = append(rows, row{shadeOf(t.Breaker), []string{
			t.Tool, t.Breaker, fmt.Sprint(t.Workers), fmt.Sprint(t.InFlight), short(t.Rate), percent(t.Errors, t.Rate), short(t.Refused), mean(t),
		}})
	}
	return []column{
		{title: "TOOL"}, {"BREAKER", 13, 2, false}, {"WORKERS", 7, 5, true}, {"IN FLIGHT", 9, 3, true}, {"TRIES/S", 7, 0, true},
		{"ERR %", 5, 1, true}, {"REFUSED/S", 9, 6, true}, {"MEAN", 9, 4, true},
	}, rows
}

// breakerTable is the breakers that are not closed, and below them what happened to breakers.
func (s *topScreen) breakerTable(v topView) ([]column, []row) {
	var rows []row
	for _, t := range v.Tools {
		if t.Breaker != breaker.Closed.String() {
			rows = append(rows, row{shadeOf(t.Breaker), []string{t.Tool, t.Breaker, "now", short(t.Refused) + "/s refused", ""}})
		}
	}
	now, err := time.Parse(time.RFC3339, v.Time)
	for _, c := range v.Changes {
		ago := ""
		if err == nil && !c.at.IsZero() {
			ago = max(0, now.Sub(c.at)).Truncate(time.Second).String() + " ago"
		}
		rows = append(rows, row{plain, []string{c.Tool, c.Breaker, ago, c.Because, c.Executor}})
	}
	if len(rows) == 0 {
		rows = []row{{faint, []string{"all closed", "", "", "", ""}}}
	}
	return []column{{"BREAKER OF", 24, 0, false}, {"STATE", 13, 1, false}, {"WHEN", 10, 2, false}, {title: "WHY", rank: 3}, {"SAID BY", 22, 4, false}}, rows
}

type topTable struct {
	cols []column
	rows []row
}

// others are the tables that come below.
func (s *topScreen) others(v topView) []topTable {
	executors := topTable{cols: []column{{title: "EXECUTOR"}, {"BREAKERS", 13, 2, false}, {"TURNS", 7, 3, true}, {"IN FLIGHT", 9, 1, true}, {"TRIES/S", 7, 0, true}}}
	for _, e := range v.Executors {
		sh := plain
		if e.Breakers != "shared" {
			sh = warning
		}
		executors.rows = append(executors.rows, row{sh, []string{e.Executor, e.Breakers, fmt.Sprint(e.Turns), fmt.Sprint(e.InFlight), short(e.Rate)}})
	}
	workers := topTable{cols: []column{{title: "WORKER"}, {"STATE", 13, 1, false}, {"TOOLS", 7, 3, true}, {"RUNNING", 9, 0, true}, {"SDK", 24, 4, false}}}
	for _, w := range v.Workers {
		sh, state := plain, "ready"
		switch {
		case w.Draining:
			sh, state = faint, "draining"
		case w.Leaked > 0:
			sh, state = alarm, fmt.Sprintf("%d leaked", w.Leaked)
		case w.Capacity > 0 && w.Running >= w.Capacity:
			sh, state = warning, "full"
		}
		workers.rows = append(workers.rows, row{sh, []string{w.Worker, state, fmt.Sprint(w.Tools), fmt.Sprintf("%d/%d", w.Running, w.Capacity), w.SDK}})
	}
	return []topTable{executors, workers}
}

func shadeOf(state string) shade {
	switch state {
	case breaker.Open.String(), breaker.ForcedOpen.String():
		return alarm
	case breaker.Closed.String():
		return plain
	}
	return warning
}

// short is a rate in at most six characters.
func short(rate float64) string {
	switch {
	case rate == 0:
		return "0"
	case rate < 100:
		return fmt.Sprintf("%.1f", rate)
	case rate < 100_000:
		return fmt.Sprintf("%.0f", rate)
	case rate < 100e6:
		return fmt.Sprintf("%.0fk", rate/1e3)
	}
	return "many"
}

func percent(part, of float64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", min(100, 100*part/of))
}

func mean(t topTool) string {
	if t.MeanMs == 0 {
		return "-"
	}
	return spell(t.MeanMs)
}

// many is a number of things.
func many(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
