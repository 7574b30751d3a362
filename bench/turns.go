package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// turns measures turns of several calls: how long ten parallel calls take beside one bare request, what a call costs in
// turns of 10 to 1,000, what an open turn weighs, and what a fleet of executors gets through.
func turns(cfg config) error {
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
	tools, err := newShelf("plain", "hold")
	if err != nil {
		return err
	}
	bare, err := executor.New(executor.Config{Bus: n.bus, Registry: tools})
	if err != nil {
		return err
	}
	if err := makespan(ctx, cfg, n, bare); err != nil {
		return err
	}
	if err := perCall(cfg, bare); err != nil {
		return err
	}
	if err := weight(cfg, n, bare); err != nil {
		return err
	}
	for _, executors := range []int{1, 3} {
		if err := through(ctx, cfg, side.line, n, executors); err != nil {
			return err
		}
	}
	return nil
}

// parallel is a turn of n calls that wait for nothing.
func parallel(n int, name string) wire.TurnRequest {
	req := wire.TurnRequest{Calls: make([]tool.Call, n), Parallel: n}
	for i := range req.Calls {
		req.Calls[i] = tool.Call{ID: fmt.Sprintf("c%d", i), Tool: name, Args: []byte(args)}
	}
	return req
}

// runTurn runs a turn in this process.
func runTurn(e *executor.Executor, req wire.TurnRequest) error {
	ended := make(chan *wire.Outcome, 1)
	e.Go(executor.Turn{Request: req}, func(o *wire.Outcome) { ended <- o })
	return completed(<-ended)
}

func completed(o *wire.Outcome) error {
	if o.Status != wire.Completed {
		return fmt.Errorf("%s: %s", o.Status, o.Sentence)
	}
	return nil
}

func makespan(ctx context.Context, cfg config, n *near, bare *executor.Executor) error {
	plain, search := parallel(10, "plain"), parallel(10, "search")
	nc := n.bus.NATS()
	ten := make(chan *nats.Msg, 16)
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, ten)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	ways := []way{
		{"raw: one nc.Request, plain replier", func() error {
			_, err := nc.RequestWithContext(ctx, "tb.v1.call.plain", []byte(args))
			return err
		}},
		{"raw: ten requests at once, one inbox", func() error {
			for range 10 {
				if err := nc.PublishRequest("tb.v1.call.plain", inbox, []byte(args)); err != nil {
					return err
				}
			}
			for range 10 {
				<-ten
			}
			return nil
		}},
		{"executor: a turn of ten, plain replier", func() error { return runTurn(bare, plain) }},
		{"executor: a turn of ten, worker", func() error { return runTurn(n.exec, search) }},
	}
	got, err := compare(ways, 1, or(cfg.rounds, 3), or(cfg.each, time.Second))
	if err != nil {
		return err
	}
	fmt.Printf("a turn of ten parallel calls; medians of %d rounds; × is the median of the ratios to one raw request within a round\n\n", len(got[0]))
	show(ways, got)
	return nil
}

// perCall is what a call costs in turns of different sizes.
func perCall(cfg config, e *executor.Executor) error {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "calls a turn\tCPU µs a call\tallocs a call\tcalls/s\t")
	for _, size := range []int{1, 10, 100, 1000} {
		req := parallel(size, "plain")
		req.Parallel = min(size, 100)
		s, err := measure(way{fmt.Sprintf("a turn of %d", size), func() error { return runTurn(e, req) }}, 1, or(cfg.each, time.Second))
		if err != nil {
			return err
		}
		per := float64(size)
		fmt.Fprintf(t, "%d\t%.1f\t%.1f\t%.0f\t\n", size, s.cpuEach/per, s.allocs/per, s.perSecond*per)
	}
	t.Flush()
	fmt.Println()
	return nil
}

// weight is the memory of turns of ten calls that nobody answers.
func weight(cfg config, n *near, e *executor.Executor) error {
	const size = 10
	count := or(cfg.calls, 50_000) / size
	ended := make(chan error, count)
	base := heap()
	for range count {
		e.Go(executor.Turn{Request: parallel(size, "hold")}, func(o *wire.Outcome) { ended <- completed(o) })
	}
	if err := n.bus.NATS().Flush(); err != nil {
		return err
	}
	fmt.Printf("%d open turns of %d calls: %.0f bytes each\n\n", count, size, float64(heap()-base)/float64(count))
	if err := n.bus.NATS().Publish(releaseSubject, nil); err != nil {
		return err
	}
	for range count {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// through is how many turns of ten calls executors in processes of their own get through, for clients of this one.
func through(ctx context.Context, cfg config, url string, n *near, executors int) error {
	for range executors {
		x, err := start("executor", url)
		if err != nil {
			return err
		}
		defer x.stop()
	}
	c, req := client.New(n.bus), parallel(10, "search")
	run := func() error {
		o, err := c.Run(ctx, req)
		if err != nil {
			return err
		}
		return completed(o)
	}
	runtime.GC()
	const callers = 16
	s, err := measure(way{"turns", run}, callers, or(cfg.each, time.Second)*3)
	if err != nil {
		return err
	}
	fmt.Printf("%d executors, %d clients, turns of ten calls over the bus: %.0f turns/s, p50 %.0f µs, p99 %.0f µs\n",
		executors, callers, s.perSecond, s.p50, s.p99)
	return nil
}

// farExecutor takes turns from the bus until its stdin ends.
func farExecutor(ctx context.Context, stop func(), url string) error {
	n, err := join(ctx, url)
	if err != nil {
		return err
	}
	if err := n.await("search", 1); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- n.exec.Run(ctx, time.Second) }()
	select {
	case <-n.exec.Ready():
	case err := <-ended:
		return err
	}
	fmt.Println(n.bus.ID())
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	return <-ended
}
