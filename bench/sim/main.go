// Program sim asks what a breaker that all executors share is worth, and what it costs, in fleets larger than this
// machine: a simulation of discrete events in virtual time. The breakers, the retry policies and the budgets are the
// shipping code (packages breaker and retry); what is simulated is the tool, the calls, and the way between replicas and
// the store (join.go).
//
//	go run . leak         calls that reach a dead tool, by the size of the fleet
//	go run . lowrate      the same where each replica calls seldom
//	go run . brownout     amplification and goodput when the tool is slow for ten seconds
//	go run . hang         the same when it hangs
//	go run . blackhole    one executor whose own network fails
//	go run . flaky        a tool of which some calls fail: does anybody open for that?
//	go run .              all of these
//
// The same seed gives the same figures. They are medians of 11 runs, with the seeds from -seed on.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
)

func main() {
	var o options
	out := output{to: os.Stdout}
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first run")
	flag.IntVar(&o.runs, "runs", 11, "how many runs, of which the median is shown")
	flag.BoolVar(&out.json, "json", false, "print JSON; null is never")
	flag.StringVar(&out.csvDir, "csv", "", "write tables and what happened second by second into this folder")
	flag.StringVar(&out.svgDir, "svg", "", "draw the curves into this folder")
	flag.Parse()
	if err := simulate(o, flag.Args(), out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A result is a table, and what happened second by second where that was looked at.
type result struct {
	table  *table
	series []series
}

// A question is one table.
type question struct {
	name string
	ask  func(options) result
}

var questions = []question{
	{"leak", func(o options) result { return result{table: leaked(o)} }},
	{"lowrate", func(o options) result { return result{table: lowrate(o)} }},
	{"brownout", func(o options) result { t, s := brownout(o); return result{t, s} }},
	{"hang", func(o options) result { t, s := hang(o); return result{t, s} }},
	{"blackhole", func(o options) result { return result{table: blackhole(o)} }},
	{"flaky", func(o options) result { return result{table: flaky(o)} }},
}

// output is what to do with the answers.
type output struct {
	to     io.Writer
	json   bool
	csvDir string
	svgDir string
}

func simulate(o options, which []string, out output) error {
	if o.runs < 1 {
		return fmt.Errorf("-runs is %d: expected at least 1", o.runs)
	}
	for _, w := range which {
		if !slices.ContainsFunc(questions, func(q question) bool { return q.name == w }) {
			return fmt.Errorf("there is no question %q: expected leak, lowrate, brownout, hang, blackhole or flaky, after the flags", w)
		}
	}
	var tables []*table
	results := map[string]result{}
	for _, q := range questions {
		if len(which) > 0 && !slices.Contains(which, q.name) {
			continue
		}
		r := q.ask(o)
		results[q.name], tables = r, append(tables, r.table)
		if !out.json {
			r.table.write(out.to)
		}
		if out.csvDir == "" {
			continue
		}
		if err := r.saveCSV(out.csvDir); err != nil {
			return err
		}
	}
	if out.svgDir != "" {
		if err := drawAll(results, out.svgDir); err != nil {
			return err
		}
	}
	if !out.json {
		return nil
	}
	e := json.NewEncoder(out.to)
	e.SetIndent("", "  ")
	return e.Encode(map[string]any{"seed": o.seed, "runs": o.runs, "tables": tables})
}

func (r result) saveCSV(dir string) error {
	if err := r.table.saveCSV(dir); err != nil || r.series == nil {
		return err
	}
	return saveSeries(dir, r.table.Title, r.series)
}
