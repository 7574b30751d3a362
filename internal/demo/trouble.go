package demo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/worker"
)

// echo gives back the arguments as they came, byte for byte.
func echo(_ context.Context, c *worker.Call) (any, error) { return c.Args, nil }

type slowArgs struct {
	Seconds  *float64 `json:"seconds"`
	Stubborn bool     `json:"stubborn"`
}

type slowResult struct {
	Seconds float64 `json:"seconds"` // how long it took
}

const progressEvery = 200 * time.Millisecond

// slow takes its time. A stubborn one goes on after its context has ended, as bad handlers do.
func slow(ctx context.Context, args slowArgs) (slowResult, error) {
	seconds := 1.0
	if args.Seconds != nil {
		seconds = *args.Seconds
	}
	if !(seconds >= 0 && seconds <= 300) {
		return slowResult{}, invalid("/seconds", "a number from 0 to 300", fmt.Sprint(seconds))
	}
	over := ctx.Done()
	if args.Stubborn {
		over = nil
	}
	start := time.Now()
	end := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer end.Stop()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-end.C:
			return slowResult{Seconds: time.Since(start).Seconds()}, nil
		case <-over:
			return slowResult{}, ctx.Err()
		case <-tick.C:
			worker.Progress(ctx, time.Since(start).Seconds(), seconds, "taking its time")
		}
	}
}

type flakyArgs struct {
	FailTimes    int        `json:"fail_times"`
	Probability  float64    `json:"probability"`
	Kind         fault.Kind `json:"kind"`
	Message      string     `json:"message"`
	RetryAfterMs int64      `json:"retry_after_ms"`
}

type flakyResult struct {
	Attempt int `json:"attempt"` // the one that went well, from 1
}

// flaky fails the first attempts of a call. It needs no memory for that, and so any of its workers may get the next
// attempt: the call says which one it is. A bare request is always the first.
func flaky(ctx context.Context, args flakyArgs) (flakyResult, error) {
	attempt := 1
	if c, ok := worker.FromContext(ctx); ok && c.Ref.Attempt > 0 {
		attempt = c.Ref.Attempt
	}
	return args.run(attempt, rand.Float64())
}

func (a flakyArgs) run(attempt int, roll float64) (flakyResult, error) {
	if a.Kind == "" {
		a.Kind = fault.Upstream
	}
	if !a.Kind.Known() {
		return flakyResult{}, invalid("/kind", fmt.Sprintf("one of %v", fault.Kinds()), string(a.Kind))
	}
	if attempt > a.FailTimes && roll >= a.Probability {
		return flakyResult{Attempt: attempt}, nil
	}
	if a.Message == "" {
		a.Message = fmt.Sprintf("attempt %d fails, as you asked", attempt)
	}
	f := fault.New(a.Kind, "%s", a.Message)
	f.RetryAfterMs = a.RetryAfterMs
	return flakyResult{}, f
}

type crash struct{ now func() }

type crashArgs struct {
	How string `json:"how"`
}

func (c crash) run(_ context.Context, args crashArgs) (any, error) {
	switch args.How {
	case "", "kill":
		c.now()
		return nil, fault.New(fault.Internal, "the process should have died here, and did not")
	case "panic":
		panic("crash: a panic, as you asked")
	}
	return nil, invalid("/how", "kill or panic", args.How)
}

// invalid is the fault of one argument.
func invalid(pointer, expected, got string) *fault.Fault {
	got = fault.Truncate(got, 80)
	f := fault.New(fault.InvalidArguments, "%s must be %s, not %s", pointer[1:], expected, got)
	f.Violations = []fault.Violation{{Pointer: pointer, Expected: expected, Got: got}}
	return f
}
