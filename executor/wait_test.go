package executor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// A call that finds all workers full has its place as soon as one is free, within its first attempt.
func TestAllWorkersFullForAMoment(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var ran atomic.Int32
		st.workWith(worker.Config{Concurrency: 1}, handler("busy", func(context.Context, *worker.Call) (any, error) {
			ran.Add(1)
			time.Sleep(20 * time.Millisecond)
			return 1, nil
		}))
		once := &tool.RetryPolicy{MaxAttempts: new(1)}
		ended := make(chan tool.Result, 2)
		for range 2 {
			st.exec.Go(single(tool.Call{Tool: "busy", Retry: once}), result(func(r tool.Result) { ended <- r }))
		}
		began := time.Now()
		for range 2 {
			want(t, <-ended, tool.Success, "")
		}
		if took := time.Since(began); ran.Load() != 2 || took > 60*time.Millisecond {
			t.Errorf("ran %d times, took %v, want both one after the other", ran.Load(), took)
		}
	})
}

// One that finds no place fails, and soon: it may be for another tool to do.
func TestAllWorkersFullForLong(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		st.workWith(worker.Config{Concurrency: 1}, handler("busy", func(context.Context, *worker.Call) (any, error) {
			time.Sleep(time.Second)
			return 1, nil
		}))
		once := &tool.RetryPolicy{MaxAttempts: new(1)}
		first := make(chan tool.Result, 1)
		st.exec.Go(single(tool.Call{Tool: "busy", Retry: once}), result(func(r tool.Result) { first <- r }))
		began := time.Now()
		r := st.exec.Call(context.Background(), tool.Call{Tool: "busy", Retry: once})
		want(t, r, tool.Failed, fault.Overloaded)
		if took := time.Since(began); took != 63*time.Millisecond {
			t.Errorf("failed after %v, want 63 ms", took)
		}
		want(t, <-first, tool.Success, "")
	})
}

// A call that is cancelled while it waits for a place is not sent any more.
func TestCancelledWhileAllWorkersAreFull(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		var ran atomic.Int32
		st.workWith(worker.Config{Concurrency: 1}, handler("busy", func(context.Context, *worker.Call) (any, error) {
			ran.Add(1)
			time.Sleep(50 * time.Millisecond)
			return 1, nil
		}))
		first := make(chan tool.Result, 1)
		st.exec.Go(single(tool.Call{Tool: "busy"}), result(func(r tool.Result) { first <- r }))
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
		defer cancel()
		r := st.exec.Call(ctx, tool.Call{Tool: "busy"})
		want(t, r, tool.Cancelled, fault.Cancelled)
		want(t, <-first, tool.Success, "")
		if n := ran.Load(); n != 1 {
			t.Errorf("ran %d times, want once", n)
		}
	})
}
