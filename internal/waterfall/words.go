package waterfall

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// Fit is s as one line without what a terminal would act on, in at most width columns. Blanks are kept.
func Fit(s string, width int) string {
	if width < 1 {
		return ""
	}
	if n := 8*width + 64; len(s) > n { // few letters have so many bytes
		s = s[:n] + "…"
	}
	s = clean(s)
	if head(s, width) == len(s) {
		return s
	}
	return s[:head(s, width-1)] + "…"
}

// head is how many bytes of s stand in its first columns.
func head(s string, width int) int {
	state := -1
	for used, at := 0, 0; ; {
		cluster, _, w, next := uniseg.FirstGraphemeClusterInString(s[at:], state)
		if used += w; cluster == "" || used > width {
			return at
		}
		state = next
		at += len(cluster)
	}
}

// wrap is s in lines of at most width columns, and in at most four of them.
func wrap(s string, width int) []string {
	const most = 4
	s = Fit(s, most*width)
	var lines []string
	for len(lines) < most-1 {
		n := head(s, width)
		if n == 0 || n == len(s) {
			break
		}
		if blank := strings.LastIndexByte(s[:n+1], ' '); blank > 0 {
			n = blank
		}
		lines, s = append(lines, s[:n]), strings.TrimLeft(s[n:], " ")
	}
	return append(lines, Fit(s, width))
}

// clean is s as one line that shows what is in it and does nothing.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r' || r == 0x2028 || r == 0x2029:
			return ' '
		case r < ' ', r >= 0x7f && r < 0xa0, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069, r == 0xfeff:
			return '·'
		case r == utf8.RuneError:
			return '\uFFFD'
		}
		return r
	}, s)
}

// pad is s in exactly width columns.
func pad(s string, width int) string {
	s = Fit(s, width)
	return s + strings.Repeat(" ", max(0, width-uniseg.StringWidth(s)))
}

// short is an id in a few characters: random ones are long, and their beginning tells them apart.
func short(id string) string { return Fit(id, 12) }

// spell is a number of milliseconds as people read it.
func spell(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	case ms < 120_000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms < 7_200_000:
		return fmt.Sprintf("%.1f min", ms/60_000)
	}
	return fmt.Sprintf("%.1f h", ms/3_600_000)
}

// A tick is a mark on the axis of time.
type tick struct {
	at    float64
	label string
}

// ticks is at most n marks from 0 to end, at round distances. The first says the unit.
func ticks(end float64, n int) []tick {
	unit, name := 1.0, "ms"
	switch {
	case end >= 7_200_000:
		unit, name = 3_600_000, "h"
	case end >= 120_000:
		unit, name = 60_000, "min"
	case end >= 1000:
		unit, name = 1000, "s"
	}
	raw := end / unit / float64(max(n, 1))
	step := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*step >= raw {
			step *= m
			break
		}
	}
	list := []tick{{0, "0 " + name}}
	for i := 1; i <= n && float64(i)*step*unit <= end; i++ {
		v := float64(i) * step
		list = append(list, tick{v * unit, strconv.FormatFloat(v, 'g', 6, 64)})
	}
	return list
}
