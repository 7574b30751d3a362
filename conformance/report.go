package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Status says what came of a case.
type Status string

// What may come of a case.
const (
	Passed  Status = "pass"
	Failed  Status = "fail"
	Skipped Status = "skip" // it cannot be played here
)

// A Report is what came of a run. Its JSON is what `toolworker conformance --json` prints.
type Report struct {
	Command    []string `json:"command"`
	Level      Level    `json:"level"`
	Cases      []*Case  `json:"cases"`
	DurationMs int64    `json:"duration_ms"`
}

// A Case is one line of a report.
type Case struct {
	Name       string `json:"name"`
	File       string `json:"file"` // the transcript
	Level      Level  `json:"level"`
	Status     Status `json:"status"`
	Why        string `json:"why,omitempty"`    // the step, what came and what was expected; several lines
	Stderr     string `json:"stderr,omitempty"` // of the worker, where the case failed: the last of it
	DurationMs int64  `json:"duration_ms"`
}

func (c *Case) fail(format string, args ...any) {
	c.Status = Failed
	if c.Why != "" {
		c.Why += "\n"
	}
	c.Why += fmt.Sprintf(format, args...)
}

// Count is how many cases of a level came out as s. An empty level means all.
func (r Report) Count(level Level, s Status) int {
	n := 0
	for _, c := range r.Cases {
		if c.Status == s && (level == "" || c.Level == level) {
			n++
		}
	}
	return n
}

// Passed says whether no case failed.
func (r Report) Passed() bool { return r.Count("", Failed) == 0 }

// Table writes the report for people.
func (r Report) Table(w io.Writer) error {
	var b strings.Builder
	width := 0
	for _, c := range r.Cases {
		width = max(width, len(c.Name))
	}
	for _, level := range levels {
		passed, failed, skipped := r.Count(level, Passed), r.Count(level, Failed), r.Count(level, Skipped)
		if passed+failed+skipped == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s: %d of %d pass\n", level, passed, passed+failed+skipped)
		for _, c := range r.Cases {
			if c.Level == level {
				c.line(&b, width)
			}
		}
	}
	fmt.Fprintf(&b, "%s: %d pass, %d fail, %d skipped in %v\n", r.Level,
		r.Count("", Passed), r.Count("", Failed), r.Count("", Skipped), time.Duration(r.DurationMs)*time.Millisecond)
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Case) line(b *strings.Builder, width int) {
	fmt.Fprintf(b, "  %-4s  %-*s  %6d ms\n", c.Status, width, c.Name, c.DurationMs)
	if c.Why != "" {
		fmt.Fprintf(b, "        %s\n", strings.ReplaceAll(c.Why, "\n", "\n        "))
	}
	if c.Stderr != "" {
		fmt.Fprintf(b, "        the worker said:\n        %s\n", strings.ReplaceAll(strings.TrimSpace(c.Stderr), "\n", "\n        "))
	}
}

// Passed says whether nothing was found.
func (r RandomReport) Passed() bool { return len(r.Problems) == 0 }

// Table writes the report for people.
func (r RandomReport) Table(w io.Writer) error {
	var b strings.Builder
	total := 0
	for _, name := range slices.Sorted(maps.Keys(r.Actions)) {
		fmt.Fprintf(&b, "  %6d  %s\n", r.Actions[name], name)
		total += r.Actions[name]
	}
	fmt.Fprintf(&b, "seed %d: %d actions in %v, %d nacks, %d starts of the worker, %d problems\n",
		r.Seed, total, time.Duration(r.DurationMs)*time.Millisecond, r.Nacks, r.Lives, len(r.Problems))
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "  %s\n", p)
	}
	if r.Stderr != "" {
		fmt.Fprintf(&b, "the worker said:\n%s\n", indent(r.Stderr))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testcase `xml:"testcase"`
}

type testcase struct {
	Class   string `xml:"classname,attr"`
	Name    string `xml:"name,attr"`
	Time    string `xml:"time,attr"`
	Failure *said  `xml:"failure,omitempty"`
	Skipped *said  `xml:"skipped,omitempty"`
	Stderr  string `xml:"system-err,omitempty"`
}

type said struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes the report as JUnit XML, which most CI systems read.
func (r Report) JUnit(w io.Writer) error {
	s := suite{
		Name:     "toolbus conformance " + string(r.Level),
		Tests:    len(r.Cases),
		Failures: r.Count("", Failed),
		Skipped:  r.Count("", Skipped),
		Time:     seconds(r.DurationMs),
	}
	for _, c := range r.Cases {
		t := testcase{Class: string(c.Level), Name: c.Name, Time: seconds(c.DurationMs), Stderr: c.Stderr}
		first, _, _ := strings.Cut(c.Why, "\n")
		switch c.Status {
		case Failed:
			t.Failure = &said{first, c.Why}
		case Skipped:
			t.Skipped = &said{first, c.Why}
		}
		s.Cases = append(s.Cases, t)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(ms int64) string { return fmt.Sprintf("%.3f", float64(ms)/1000) }
