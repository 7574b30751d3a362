package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

const slots = 4 // calls that one worker runs at once

// A fleet is a number of workers and the work that comes to them.
type fleet struct {
	name    string
	workers int
	fast    time.Duration
	slow    time.Duration // of one call in twenty; zero: all are fast
	lame    int           // how many times longer the first worker takes; zero: like the others
}

var fleets = []fleet{
	{name: "eight workers of four slots, 5 % of the calls slow", workers: 8, fast: 20 * time.Millisecond, slow: 400 * time.Millisecond},
	{name: "four workers of four slots, one of them ten times slower", workers: 4, fast: 20 * time.Millisecond, lame: 10},
}

const load = 0.6 // of what the fleet could do

// A job is one call: when it is sent, how long it takes, and when it began.
type job struct {
	after time.Duration
	takes time.Duration
	sent  time.Time
	began atomic.Int64 // Unix nanoseconds; 0: not yet
}

// rate is how many calls per second make the load.
func (f fleet) rate() float64 {
	mean := f.fast.Seconds()
	if f.slow > 0 {
		mean = 0.95*f.fast.Seconds() + 0.05*f.slow.Seconds()
	}
	busy := float64(f.workers * slots)
	if f.lame > 0 {
		busy += slots/float64(f.lame) - slots
	}
	return load * busy / mean
}

// jobs arrive as a Poisson process: whoever sends does not wait for answers.
func (f fleet) jobs(seed uint64, d time.Duration) []*job {
	dice := rand.New(rand.NewPCG(seed, 0))
	var all []*job
	at := 0.0
	for {
		at += dice.ExpFloat64() / f.rate()
		if at > d.Seconds() {
			return all
		}
		j := &job{after: time.Duration(at * float64(time.Second)), takes: f.fast}
		if f.slow > 0 && dice.IntN(20) == 0 {
			j.takes = f.slow
		}
		all = append(all, j)
	}
}

// A sender sends job n and does not wait.
type sender func(n int)

// dispatch sends the same jobs in three ways, and says how long they waited before a handler had them.
func dispatch(cfg config) error {
	d := or(cfg.each, 10*time.Second)
	for _, f := range fleets {
		fmt.Printf("%s; load %.0f %%, %.0f calls/s, Poisson, seed %d, %v each\n\n", f.name, 100*load, f.rate(), cfg.seed, d)
		t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "queueing p50\tp99\tmax\tcalls\tnot begun\t  way")
		for _, v := range []struct {
			name string
			set  func(context.Context, string, fleet, []*job) (sender, error)
		}{
			{"plain queue group, workers that queue", plainGroup},
			{"plain queue group, workers that nack, sent again", nackingGroup},
			{"executor", byExecutor},
		} {
			jobs := f.jobs(cfg.seed, d)
			if err := drive(f, jobs, v.set); err != nil {
				return err
			}
			waits, late := queueing(jobs)
			fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t  %s\n", millis(at(50, waits)), millis(at(99, waits)), millis(at(100, waits)), len(jobs), late, v.name)
		}
		t.Flush()
		fmt.Println()
	}
	return nil
}

// drive sets up a server and a fleet of its own for one variant, and sends the jobs at their times.
func drive(f fleet, jobs []*job, set func(context.Context, string, fleet, []*job) (sender, error)) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, dir, err := server()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer s.Shutdown()
	send, err := set(ctx, s.ClientURL(), f, jobs)
	if err != nil {
		return err
	}
	began := time.Now()
	for n, j := range jobs {
		time.Sleep(time.Until(began.Add(j.after)))
		j.sent = time.Now()
		send(n)
	}
	time.Sleep(time.Second) // for what is under way; what has not begun by then is counted
	return nil
}

// queueing is how long each job waited. One that has not begun waited till now, at least.
func queueing(jobs []*job) (waits []time.Duration, late int) {
	now := time.Now()
	for _, j := range jobs {
		began := now
		if nanos := j.began.Load(); nanos != 0 {
			began = time.Unix(0, nanos)
		} else {
			late++
		}
		waits = append(waits, began.Sub(j.sent))
	}
	return waits, late
}

// do is the work of worker number w.
func (f fleet) do(w int, j *job) {
	j.began.Store(time.Now().UnixNano())
	takes := j.takes
	if w == 0 && f.lame > 0 {
		takes *= time.Duration(f.lame)
	}
	time.Sleep(takes)
}

func body(n int) []byte { return fmt.Appendf(nil, `{"n":%d}`, n) }

// plainGroup is NATS without us: each member runs four at once and lets the others wait.
func plainGroup(ctx context.Context, url string, f fleet, jobs []*job) (sender, error) {
	for w := range f.workers {
		c, err := dial(ctx, url)
		if err != nil {
			return nil, err
		}
		free := make(chan struct{}, slots)
		if _, err := c.NATS().QueueSubscribe("tb.v1.call.job", "workers", func(m *nats.Msg) {
			n, _ := strconv.Atoi(string(m.Data))
			free <- struct{}{}
			go func() {
				defer func() { <-free }()
				f.do(w, jobs[n])
				_ = m.Respond([]byte("{}"))
			}()
		}); err != nil {
			return nil, err
		}
		if err := c.NATS().Flush(); err != nil {
			return nil, err
		}
	}
	c, err := dial(ctx, url)
	if err != nil {
		return nil, err
	}
	return func(n int) {
		go func() {
			_, _ = c.NATS().RequestWithContext(ctx, "tb.v1.call.job", strconv.AppendInt(nil, int64(n), 10))
		}()
	}, nil
}

// workers are f.workers workers of ours.
func (f fleet) start(ctx context.Context, url string, jobs []*job) error {
	for w := range f.workers {
		c, err := dial(ctx, url)
		if err != nil {
			return err
		}
		handler := func(_ context.Context, call *worker.Call) (any, error) {
			n, err := strconv.Atoi(string(call.Args[len(`{"n":`) : len(call.Args)-1]))
			if err != nil {
				return nil, err
			}
			f.do(w, jobs[n])
			return struct{}{}, nil
		}
		if _, err := serve(ctx, worker.Config{Bus: c, Concurrency: slots, Tools: []worker.Tool{{
			Manifest: tool.Manifest{ID: "job", Version: "1.0.0", Effect: tool.Read}, Handler: worker.HandlerFunc(handler),
		}}}); err != nil {
			return err
		}
	}
	return nil
}

// nackingGroup is our workers behind the queue group: one that is full says so, and the call is sent again.
func nackingGroup(ctx context.Context, url string, f fleet, jobs []*job) (sender, error) {
	if err := f.start(ctx, url, jobs); err != nil {
		return nil, err
	}
	c, err := dial(ctx, url)
	if err != nil {
		return nil, err
	}
	return func(n int) {
		go func() {
			for tries := 1; ; tries++ {
				frame, flt := c.Request(ctx, "tb.v1.call.job", "job", nil, body(n))
				if flt != nil || frame.Kind != wire.Nack {
					return
				}
				if tries%f.workers == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}, nil
}

// byExecutor is what this project does.
func byExecutor(ctx context.Context, url string, f fleet, jobs []*job) (sender, error) {
	if err := f.start(ctx, url, jobs); err != nil {
		return nil, err
	}
	n, err := join(ctx, url)
	if err != nil {
		return nil, err
	}
	if err := n.await("job", f.workers); err != nil {
		return nil, err
	}
	var once sync.Once
	return func(i int) {
		n.exec.Go(single(tool.Call{Tool: "job", Args: body(i)}), func(o *wire.Outcome) {
			if r := o.Results[0]; r.Status != tool.Success {
				once.Do(func() { fmt.Fprintln(os.Stderr, "bench: a call failed:", r.Sentence) })
			}
		})
	}, nil
}
