package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// inflight has calls out that nobody answers, says what they cost this process, which runs the executor and no more, and
// then has them answered.
func inflight(cfg config) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	side, err := start("server")
	if err != nil {
		return err
	}
	defer side.stop()
	c, err := dial(ctx, side.line)
	if err != nil {
		return err
	}
	tools, err := newShelf("hold")
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Config{Bus: c, Registry: tools})
	if err != nil {
		return err
	}
	n := or(cfg.calls, 100_000)
	data, ended := []byte(args), make(chan bool, n)
	base, threads := heap(), runtime.NumGoroutine()
	report := func(when string, from time.Time) {
		now := heap()
		fmt.Printf("%-22s %8d in flight, %6.0f bytes for each of %d, %+d goroutines, %v\n",
			when, e.InFlight(), float64(now-base)/float64(n), n, runtime.NumGoroutine()-threads, time.Since(from).Round(time.Millisecond))
	}
	began := time.Now()
	for range n {
		e.Go(single(tool.Call{Tool: "hold", Args: data}), func(o *wire.Outcome) { ended <- o.Results[0].Status == tool.Success })
	}
	if err := c.NATS().Flush(); err != nil {
		return err
	}
	report("all sent", began)
	began = time.Now()
	if err := c.NATS().Publish(releaseSubject, nil); err != nil {
		return err
	}
	good := 0
	for range n {
		if <-ended {
			good++
		}
	}
	report("all answered", began)
	fmt.Printf("%d of %d succeeded\n", good, n)
	return nil
}

// heap is what is in use on the heap and the stacks when all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// cancelled measures from a caller's cancel to the end of the handler's context, in another process by the same clock.
func cancelled(cfg config) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	side, n, err := both(ctx)
	if err != nil {
		return err
	}
	defer side.stop()
	if err := n.await("wait", 1); err != nil {
		return err
	}
	started, stopped, err := n.listen()
	if err != nil {
		return err
	}
	calls := or(cfg.calls, 500)
	took, answered := make([]time.Duration, 0, calls), make([]time.Duration, 0, calls)
	ended := make(chan tool.Result, 1)
	for range calls {
		stop := n.exec.Go(single(tool.Call{Tool: "wait"}), func(o *wire.Outcome) { ended <- o.Results[0] })
		<-started
		began := time.Now()
		stop()
		m := <-stopped
		if r := <-ended; r.Status != tool.Cancelled {
			return fmt.Errorf("a call ended as %s, want cancelled", r.Status)
		}
		answered = append(answered, time.Since(began))
		nanos, err := strconv.ParseInt(string(m.Data), 10, 64)
		if err != nil {
			return err
		}
		took = append(took, time.Unix(0, nanos).Sub(began))
	}
	fmt.Printf("%d calls\n", calls)
	print3("handler's context ended", took)
	print3("caller had the result", answered)
	return nil
}

func print3(what string, all []time.Duration) {
	fmt.Printf("  %-26s p50 %s, p99 %s, max %s\n", what, millis(at(50, all)), millis(at(99, all)), millis(at(100, all)))
}

// both starts the far side and joins it.
func both(ctx context.Context) (*child, *near, error) {
	side, err := start("server")
	if err != nil {
		return nil, nil, err
	}
	n, err := join(ctx, side.line)
	if err != nil {
		side.stop()
	}
	return side, n, err
}

// listen hears when a handler of wait begins, and when its context ends.
func (n *near) listen() (started, stopped chan *nats.Msg, err error) {
	started, stopped = make(chan *nats.Msg, 1), make(chan *nats.Msg, 1)
	_, err1 := n.bus.NATS().ChanSubscribe(startedSubject, started)
	_, err2 := n.bus.NATS().ChanSubscribe(cancelledSubject, stopped)
	return started, stopped, errors.Join(err1, err2, n.bus.NATS().Flush())
}

// kill measures from SIGKILL of the process that runs a call to the end of that call as worker_lost.
func kill(cfg config) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, dir, err := server()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer s.Shutdown()
	n, err := join(ctx, s.ClientURL())
	if err != nil {
		return err
	}
	patient := breaker.Default()
	patient.FailureThreshold = 1 << 20 // it would open at so many losses in a row
	if n.exec, err = executor.New(executor.Config{Bus: n.bus, Registry: n.reg, Breaker: &patient}); err != nil {
		return err
	}
	started, _, err := n.listen()
	if err != nil {
		return err
	}
	dice := rand.New(rand.NewPCG(cfg.seed, 0))
	var took []time.Duration
	for range or(cfg.rounds, 20) {
		if err := n.await("wait", 0); err != nil {
			return err
		}
		w, err := start("worker", s.ClientURL())
		if err != nil {
			return err
		}
		if err := n.await("wait", 1); err != nil {
			return err
		}
		ended := make(chan tool.Result, 1)
		n.exec.Go(single(tool.Call{Tool: "wait", Retry: &tool.RetryPolicy{MaxAttempts: new(1)}}),
			func(o *wire.Outcome) { ended <- o.Results[0] })
		select {
		case <-started:
		case r := <-ended:
			return fmt.Errorf("a call did not begin: %s", r.Sentence)
		}
		time.Sleep(time.Duration(dice.IntN(500)) * time.Millisecond) // anywhere between two pings
		began := time.Now()
		if err := w.kill(); err != nil {
			return err
		}
		r := <-ended
		took = append(took, time.Since(began))
		w.stop()
		if r.Fault == nil || r.Fault.Kind != fault.WorkerLost {
			return fmt.Errorf("a call ended as %s %v, want worker_lost", r.Status, r.Fault)
		}
	}
	fmt.Printf("%d workers killed in mid-call (seed %d)\n", len(took), cfg.seed)
	print3("worker_lost", took)
	return nil
}

// ready measures from the start of `executor dev` to its word that it is ready, with a new store directory each time.
func ready(cfg config) error {
	dir, err := os.MkdirTemp("", "toolbus-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "executor")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/toolbus/toolbus/cmd/executor")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	var took []time.Duration
	for i := range or(cfg.rounds, 10) {
		d, err := startDev(program, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	fmt.Printf("%d starts\n", len(took))
	print3("executor dev is ready", took)
	return nil
}

func startDev(program, dir string) (time.Duration, error) {
	cmd := exec.Command(program, "dev", "--port", "-1", "--store-dir", dir, "--files", os.TempDir())
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	var took time.Duration
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if took == 0 && strings.Contains(lines.Text(), "is ready") {
			took = time.Since(began)
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := cmd.Wait(); took == 0 {
		return 0, fmt.Errorf("executor dev did not say that it is ready: %w\n%s", err, said.String())
	}
	return took, nil
}

// single is a turn of one call.
func single(c tool.Call) executor.Turn {
	return executor.Turn{Request: wire.TurnRequest{Calls: []tool.Call{c}}}
}
