package executor_test

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// A tool that comes and goes while many call it through executors that share its breaker: calls are done, fail or are refused,
// none waits for longer than to be a probe takes, and when the tool is well again every executor lets all through.
//
// TOOLBUS_SEED takes the seed that a run printed.
func TestCallsWhileAToolComesAndGoes(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("TOOLBUS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("TOOLBUS_SEED=%d", seed)
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 3)
		var sick atomic.Bool
		all[0].workWith(worker.Config{Concurrency: 100}, handler("flaps", func(context.Context, *worker.Call) (any, error) {
			bad := sick.Load()
			time.Sleep(3 * time.Millisecond)
			if bad {
				return nil, upstream()
			}
			return 1, nil
		}, func(m *tool.Manifest) {
			m.Retry = &tool.RetryPolicy{MaxAttempts: new(1)}
			m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(3), TimeoutMs: new(int64(50)), Probes: new(2)}
		}))
		for _, st := range all {
			st.awaitWorker("flaps", all[0].reg.Tool("flaps").Workers[0].ID)
		}
		for round := range 10 {
			var wg sync.WaitGroup
			for k := range 24 {
				dice := rand.New(rand.NewPCG(seed, uint64(round*100+k)))
				wg.Go(func() {
					for range 40 {
						began := time.Now() // in a bubble: no wall clock
						r := all[k%len(all)].call("flaps", `{}`)
						kind := kindIn(r)
						switch took := time.Since(began); {
						case kind != "" && kind != fault.Upstream && kind != fault.CircuitOpen:
							t.Errorf("%v", r.Fault)
						case took > 300*time.Millisecond:
							t.Errorf("%q after %v", kind, took)
						}
						if dice.IntN(200) == 0 {
							sick.Store(!sick.Load())
						}
						time.Sleep(time.Duration(dice.IntN(10)) * time.Millisecond)
					}
				})
			}
			wg.Wait()
		}
		sick.Store(false)
		time.Sleep(time.Second)
		for i := range 10 {
			all[i%3].call("flaps", `{}`)
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		for i, st := range all {
			if r := st.call("flaps", `{}`); r.Fault != nil {
				t.Errorf("executor %d, when all is well again: %v", i, r.Fault)
			}
		}
	})
}
