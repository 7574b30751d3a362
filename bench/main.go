// Program bench measures what `go test -bench` cannot: calls between processes, a hundred thousand calls in flight,
// workers that are killed, a fleet under load. It judges nothing: it prints, beside every figure, what plain NATS does on
// the same server in the same run. docs/benchmarks.md says how to read it.
//
//	go run ./bench call       one call through the executor beside nc.Request
//	go run ./bench inflight   memory of 100,000 calls in flight
//	go run ./bench cancel     from cancel to the end of the handler's context
//	go run ./bench kill       from SIGKILL of a worker to worker_lost
//	go run ./bench dispatch   queueing under load, beside the plain queue group
//	go run ./bench turns      turns of many calls: makespan, cost per call, memory, a fleet's throughput
//	go run ./bench telemetry  what metrics and traces cost a call
//	go run ./bench ready      from start to ready of `executor dev`
//
// The far side, a server with repliers and workers, is this program again in a process of its own.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// A config is what the flags say.
type config struct {
	rounds int
	calls  int
	seed   uint64
	each   time.Duration
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == "far" {
		exit(far(os.Args[2:]))
	}
	what := ""
	if len(os.Args) > 1 {
		what = os.Args[1]
	}
	f := flag.NewFlagSet("bench "+what, flag.ExitOnError)
	var cfg config
	f.IntVar(&cfg.rounds, "rounds", 0, "rounds of call (3), kill (20) and ready (10)")
	f.IntVar(&cfg.calls, "calls", 0, "calls of inflight (100000), turns (50000) and cancel (500)")
	f.Uint64Var(&cfg.seed, "seed", 1, "seed of what is random")
	f.DurationVar(&cfg.each, "each", 0, "length of each measurement of call, turns (1s) and dispatch (10s)")
	all := map[string]func(config) error{
		"call": call, "inflight": inflight, "cancel": cancelled, "kill": kill, "dispatch": dispatch, "turns": turns, "ready": ready,
		"telemetry": telemetry,
	}
	run := all[what]
	if run == nil {
		fmt.Fprintln(os.Stderr, "usage: bench call|inflight|cancel|kill|dispatch|turns|telemetry|ready [flags]")
		f.PrintDefaults()
		os.Exit(2)
	}
	_ = f.Parse(os.Args[2:]) // it exits
	fmt.Printf("%s, %d CPUs, GOGC=%d\n\n", runtime.Version(), runtime.GOMAXPROCS(0), gogc())
	exit(run(cfg))
}

func gogc() int {
	n := debug.SetGCPercent(100)
	debug.SetGCPercent(n)
	return n
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// at is the value below which so many percent of all lie. It sorts them.
func at(percent float64, all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[min(int(percent/100*float64(len(all))), len(all)-1)]
}

func median(all []float64) float64 {
	all = slices.Clone(all)
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return 0
	}
	return (all[(n-1)/2] + all[n/2]) / 2
}

func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }
