// Program breaker sets the breakers that executors share beside the distributed breaker of sony/gobreaker: the same
// scenarios, in one run, on one machine. It judges nothing. docs/shared-breaker.md says how to read it.
//
//	go run .              the comparison: one table, theirs and ours
//	go run . propagate    from the ack of the write that opens to the last of 32 replicas, at one and at three servers
//	go run . many         100,000 breakers: start-up, memory, and what idle ones cost
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"
)

// A config is what the flags say.
type config struct {
	seed   uint64
	json   bool
	rounds int
	most   time.Duration
	n      int
	only   string
	out    io.Writer
}

// A report is what comes out, and with -json it is all that does.
type report struct {
	Seed  uint64            `json:"seed"`
	Go    string            `json:"go"`
	CPUs  int               `json:"cpus"`
	Notes map[string]string `json:"notes,omitempty"`
	Head  []string          `json:"head"`
	Rows  [][]string        `json:"rows"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	what, args := "compare", os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	cfg := config{out: os.Stderr}
	f := flag.NewFlagSet("breaker "+what, flag.ExitOnError)
	f.Uint64Var(&cfg.seed, "seed", uint64(time.Now().UnixNano()), "seed of what is random; every run prints its own")
	f.BoolVar(&cfg.json, "json", false, "print JSON")
	f.IntVar(&cfg.rounds, "rounds", 0, "rounds of propagate (1000), trials of each scenario (5)")
	f.DurationVar(&cfg.most, "most", time.Minute, "how long propagate may take at each size")
	f.IntVar(&cfg.n, "n", 0, "replicas of propagate (32), breakers of many (100000)")
	f.StringVar(&cfg.only, "only", "", "scenarios whose name contains this")
	all := map[string]func(context.Context, *config, *report) error{"compare": compare, "propagate": propagate, "many": many}
	run := all[what]
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: breaker [propagate|many] [flags]")
		f.PrintDefaults()
		os.Exit(2)
	}
	_ = f.Parse(args) // it exits
	r := &report{Seed: cfg.seed, Go: runtime.Version(), CPUs: runtime.GOMAXPROCS(0), Notes: map[string]string{}}
	err := run(ctx, &cfg, r)
	if werr := r.write(os.Stdout, cfg.json); err == nil {
		err = werr
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "breaker:", err)
		os.Exit(1)
	}
}

func (r *report) add(cells ...string) { r.Rows = append(r.Rows, cells) }

// write prints the report: a table that is Markdown too, or JSON.
func (r *report) write(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	fmt.Fprintf(w, "%s, %d CPUs, seed %d\n\n", r.Go, r.CPUs, r.Seed)
	for name, note := range r.Notes {
		fmt.Fprintf(w, "%s: %s\n\n", name, note)
	}
	width := make([]int, len(r.Head))
	for _, row := range append([][]string{r.Head}, r.Rows...) {
		for i, c := range row {
			width[i] = max(width[i], len([]rune(c)))
		}
	}
	line := func(row []string) {
		for i, c := range row {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", width[i]-len([]rune(c))))
		}
		fmt.Fprintln(w, "|")
	}
	line(r.Head)
	rule := make([]string, len(width))
	for i, n := range width {
		rule[i] = strings.Repeat("-", n)
	}
	line(rule)
	for _, row := range r.Rows {
		line(row)
	}
	return nil
}
