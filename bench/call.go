package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/tool"
)

// A way is one way to make the call.
type way struct {
	name string
	call func() error
}

// A sample is one measurement of a way.
type sample struct {
	p50, p99, perSecond    float64 // µs, µs, 1
	allocs, bytes, cpuEach float64 // of this process alone; 1, 1, µs
}

// call compares ways in rounds, A B C D, A B C D: what else the machine does meets all of them alike.
func call(cfg config) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	side, n, err := both(ctx)
	if err != nil {
		return err
	}
	defer side.stop()
	if err := n.await("search", 1); err != nil {
		return err
	}
	tools, err := newShelf("plain")
	if err != nil {
		return err
	}
	bare, err := executor.New(executor.Config{Bus: n.bus, Registry: tools})
	if err != nil {
		return err
	}
	data := []byte(args)
	through := func(e *executor.Executor, name string) func() error {
		return func() error {
			if r := e.Call(ctx, tool.Call{Tool: name, Args: data}); r.Status != tool.Success {
				return fmt.Errorf("%s: %s", r.Status, r.Sentence)
			}
			return nil
		}
	}
	ways := []way{
		{"raw: nc.Request, plain replier", func() error {
			_, err := n.bus.NATS().RequestWithContext(ctx, "tb.v1.call.plain", data)
			return err
		}},
		{"mux: bus.Request, plain replier", func() error {
			if _, f := n.bus.Request(ctx, "tb.v1.call.plain", "plain", nil, data); f != nil {
				return f
			}
			return nil
		}},
		{"bare: executor, plain replier", through(bare, "plain")},
		{"executor: executor, worker", through(n.exec, "search")},
	}
	for _, callers := range []int{1, 64} {
		got, err := compare(ways, callers, or(cfg.rounds, 3), or(cfg.each, time.Second))
		if err != nil {
			return err
		}
		fmt.Printf("%d callers; medians of %d rounds; × is the median of the ratios to raw within a round\n\n", callers, len(got[0]))
		show(ways, got)
	}
	return nil
}

func compare(ways []way, callers, rounds int, each time.Duration) ([][]sample, error) {
	got := make([][]sample, len(ways))
	for range rounds {
		for i, w := range ways {
			if _, err := measure(w, callers, each/10); err != nil { // warm
				return nil, err
			}
			s, err := measure(w, callers, each)
			if err != nil {
				return nil, err
			}
			got[i] = append(got[i], s)
		}
	}
	return got, nil
}

// measure has so many callers make calls for a while.
func measure(w way, callers int, d time.Duration) (sample, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := used()
	began := time.Now()
	took := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			mine := make([]time.Duration, 0, 1<<17/callers)
			for now := time.Now(); now.Sub(began) < d && errs[i] == nil; {
				errs[i] = w.call()
				then := time.Now()
				mine = append(mine, then.Sub(now))
				now = then
			}
			took[i] = mine
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	cpu = used() - cpu
	runtime.ReadMemStats(&after)
	var all []time.Duration
	for i := range took {
		if errs[i] != nil {
			return sample{}, fmt.Errorf("%s: %w", w.name, errs[i])
		}
		all = append(all, took[i]...)
	}
	n := float64(len(all))
	return sample{
		p50: at(50, all).Seconds() * 1e6, p99: at(99, all).Seconds() * 1e6, perSecond: n / elapsed.Seconds(),
		allocs: float64(after.Mallocs-before.Mallocs) / n, bytes: float64(after.TotalAlloc-before.TotalAlloc) / n,
		cpuEach: cpu.Seconds() * 1e6 / n,
	}, nil
}

// used is the CPU time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func show(ways []way, got [][]sample) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "p50 µs\t×\tp99 µs\tcalls/s\t×\tCPU µs\tallocs\tabove\tbytes\t  way")
	for i, w := range ways {
		of := func(f func(s, raw sample) float64) float64 {
			var all []float64
			for k, s := range got[i] {
				all = append(all, f(s, got[0][k]))
			}
			return median(all)
		}
		fmt.Fprintf(t, "%.1f\t%.2f\t%.1f\t%.0f\t%.2f\t%.1f\t%.1f\t%.1f\t%.0f\t  %s\n",
			of(func(s, _ sample) float64 { return s.p50 }), of(func(s, raw sample) float64 { return s.p50 / raw.p50 }),
			of(func(s, _ sample) float64 { return s.p99 }),
			of(func(s, _ sample) float64 { return s.perSecond }), of(func(s, raw sample) float64 { return s.perSecond / raw.perSecond }),
			of(func(s, _ sample) float64 { return s.cpuEach }),
			of(func(s, _ sample) float64 { return s.allocs }), of(func(s, raw sample) float64 { return s.allocs - raw.allocs }),
			of(func(s, _ sample) float64 { return s.bytes }), w.name)
	}
	t.Flush()
	fmt.Println()
}
