package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/tool"
)

// A way is one breaker as a call meets it: ask, and say how it went. It reports whether the call went.
type way struct {
	name string
	call func() bool
}

var errBench = errors.New("down")

// seen is a breaker of ours as an executor sees it: closed, or open for a day.
func seen(state breaker.State) *breaker.Seen {
	v := breaker.Shared{V: breaker.SharedVersion, State: state.String(), Nonce: "n"}
	if state == breaker.Open {
		v.HoldMs = (24 * time.Hour).Milliseconds()
	}
	return (&breaker.Seen{}).Next(time.Now(), v, 1)
}

// ways are all breakers, closed or open. What needs a clock reads it, but ours: an executor has the time already when it
// asks, since it stamps the attempt. ours/Seen+clock is with a reading of its own.
func ways(b *testing.B, open bool) []way {
	b.Helper()
	state := breaker.Closed
	if open {
		state = breaker.Open
	}
	policy := breaker.Default()
	policy.OpenFor = 24 * time.Hour
	s, now := seen(state), time.Now()
	cell := breaker.New(policy)
	own := func(now time.Time) bool { // what the gate of an executor does with a call that succeeds
		if !s.Settled() && s.Admit(now, policy, 0.5) != breaker.Pass {
			return false
		}
		p, ok := cell.Admit(now)
		if !ok {
			return false
		}
		_, _ = cell.Report(now, p, breaker.Success)
		return s.Clean()
	}
	alone := breaker.New(policy)
	if open {
		for range policy.FailureThreshold {
			p, _ := alone.Admit(now)
			_, _ = alone.Report(now, p, breaker.Failure)
		}
	}
	all := []way{
		{"ours/Seen", func() bool { return s.Admit(now, policy, 0.5) == breaker.Pass }},
		{"ours/Seen+Cell", func() bool { return own(now) }},
		{"ours/Seen+Cell+clock", func() bool { return own(time.Now()) }},
		{"ours/Cell", func() bool {
			p, ok := alone.Admit(now)
			if ok {
				_, _ = alone.Report(now, p, breaker.Success)
			}
			return ok
		}},
	}
	settings := gobreaker.Settings{Name: "b", MaxRequests: 1, Timeout: 24 * time.Hour}
	local := gobreaker.NewCircuitBreaker[struct{}](settings)
	good := func() (struct{}, error) { return struct{}{}, nil }
	bad := func() (struct{}, error) { return struct{}{}, errBench }
	shared, err := gobreaker.NewDistributedCircuitBreaker[struct{}](newMemory(), settings)
	if err != nil {
		b.Fatal(err)
	}
	fs := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).WithDelay(24 * time.Hour).Build()
	ex := failsafe.With(fs)
	if open {
		for range 6 {
			_, _ = local.Execute(bad)
			_, _ = shared.Execute(bad)
		}
		fs.Open()
	}
	return append(all,
		way{"gobreaker/local", func() bool { _, err := local.Execute(good); return err == nil }},
		way{"gobreaker/distributed-memory", func() bool { _, err := shared.Execute(good); return err == nil }},
		way{"failsafe-go/permit", func() bool {
			ok := fs.TryAcquirePermit()
			if ok {
				fs.RecordSuccess()
			}
			return ok
		}},
		way{"failsafe-go/executor", func() bool { return ex.Run(func() error { return nil }) == nil }},
	)
}

func BenchmarkClosed(b *testing.B) { measureWays(b, false) }
func BenchmarkOpen(b *testing.B)   { measureWays(b, true) }

func measureWays(b *testing.B, open bool) {
	for _, w := range ways(b, open) {
		b.Run(w.name+"/serial", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w.call() == open {
					b.Fatal("the breaker is not as it should be")
				}
			}
		})
		b.Run(w.name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if w.call() == open {
						b.Error("the breaker is not as it should be")
						return
					}
				}
			})
		})
	}
}

// BenchmarkRefusedCall is a whole Executor.Call that an open breaker refuses: no message is sent.
func BenchmarkRefusedCall(b *testing.B) {
	backend := &backend{}
	r, err := startOurs(b.Context(), spec{1, threshold, 24 * time.Hour, backend})
	if err != nil {
		b.Fatal(err)
	}
	defer r.close()
	backend.sick.Store(true)
	for !r.call(b.Context(), 0, "").refused {
	}
	e := r.(*ours).execs[0]
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if res := e.Call(ctx, tool.Call{Tool: toolName}); res.Fault == nil {
			b.Fatal("it was not refused")
		}
	}
}
