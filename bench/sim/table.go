package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// options say how much to simulate.
type options struct {
	seed  uint64 // of the first run
	runs  int
	small bool // fewer fleets, for tests
}

// sizes are the fleets to look at.
func (o options) sizes(all ...int) []int {
	if o.small {
		return []int{all[0], 32}
	}
	return all
}

// each does a run for each seed and returns the median of each of its numbers.
func (o options) each(run func(seed uint64) []float64) []float64 {
	return over(o.all(run), median)
}

// all does a run for each seed, two at once.
func (o options) all(run func(seed uint64) []float64) [][]float64 {
	got := make([][]float64, o.runs)
	var wg sync.WaitGroup
	places := make(chan struct{}, 2)
	for i := range got {
		places <- struct{}{}
		wg.Go(func() {
			got[i] = run(o.seed + uint64(i))
			<-places
		})
	}
	wg.Wait()
	return got
}

// over is what f makes of each number of all runs.
func over(runs [][]float64, f func([]float64) float64) []float64 {
	out := make([]float64, len(runs[0]))
	for j := range out {
		v := make([]float64, len(runs))
		for i := range v {
			v[i] = runs[i][j]
		}
		out[j] = f(v)
	}
	return out
}

// A table is what one question came to.
type table struct {
	Title string   `json:"title"`
	Says  string   `json:"says"`
	Head  []string `json:"head"`
	Rows  []row    `json:"rows"`
}

// A row is a name, which may be empty, and numbers. In JSON null is never.
type row struct {
	Name  string     `json:"name,omitempty"`
	Cells []*float64 `json:"cells"`
}

func (t *table) add(name string, cells ...float64) {
	r := row{Name: name}
	for _, v := range cells {
		if v == never {
			r.Cells = append(r.Cells, nil)
			continue
		}
		r.Cells = append(r.Cells, &v)
	}
	t.Rows = append(t.Rows, r)
}

// text is v as people read it: three figures.
func text(v *float64) string {
	switch {
	case v == nil:
		return "never"
	case *v == math.Trunc(*v) || math.Abs(*v) >= 100:
		return thousands(strconv.FormatFloat(*v, 'f', 0, 64))
	case math.Abs(*v) >= 10:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	}
	return strconv.FormatFloat(*v, 'f', 2, 64)
}

func thousands(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// write writes the table as Markdown.
func (t *table) write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\n| %s |\n|%s\n", t.Title, t.Says, strings.Join(t.Head, " | "), strings.Repeat("---|", len(t.Head)))
	for _, r := range t.Rows {
		var cells []string
		if r.Name != "" {
			cells = append(cells, r.Name)
		}
		for _, c := range r.Cells {
			cells = append(cells, text(c))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Fprintln(w)
}

// saveCSV writes the table, and saveSeries what happened second by second.
func (t *table) saveCSV(dir string) error {
	lines := [][]string{t.Head}
	for _, r := range t.Rows {
		var line []string
		if r.Name != "" {
			line = append(line, r.Name)
		}
		for _, c := range r.Cells {
			if c == nil {
				line = append(line, "")
				continue
			}
			line = append(line, strconv.FormatFloat(*c, 'g', 6, 64))
		}
		lines = append(lines, line)
	}
	return saveCSV(filepath.Join(dir, t.Title+".csv"), lines)
}

func saveSeries(dir, name string, all []series) error {
	lines := [][]string{{"strategy", "second", "offered", "attempts", "good"}}
	for _, s := range all {
		for t := range s.course.good {
			lines = append(lines, []string{s.name, strconv.Itoa(t), fmt.Sprint(s.course.offered[t]), fmt.Sprint(s.course.attempts[t]), fmt.Sprint(s.course.good[t])})
		}
	}
	return saveCSV(filepath.Join(dir, name+"-seconds.csv"), lines)
}

func saveCSV(name string, lines [][]string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := csv.NewWriter(f).WriteAll(lines); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}
