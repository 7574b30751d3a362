package executor_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// fleet is some executors that share their breakers.
func fleet(t *testing.T, server *bus.Server, n int) (all []*stage, bucket *kvstate.Bucket) {
	t.Helper()
	all = fleetOn(t, server, n, func(c *bus.Conn) kvstate.Store {
		var err error
		if bucket, err = kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "TB_BREAKERS"}); err != nil {
			t.Fatal(err)
		}
		return bucket
	})
	return all, bucket
}

// fleetOn is a fleet with stores of one's own.
func fleetOn(t *testing.T, server *bus.Server, n int, open func(*bus.Conn) kvstate.Store) (all []*stage) {
	t.Helper()
	for range n {
		st := newStage(t, server, func(c *executor.Config) { c.Breakers = open(c.Bus) })
		st.serve()
		all = append(all, st)
	}
	return all
}

// quick is a manifest whose breaker opens after three failures for two seconds, and that is not retried.
func quick(m *tool.Manifest) {
	m.Retry = &tool.RetryPolicy{MaxAttempts: new(1)}
	m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(3), TimeoutMs: new(int64(2000))}
}

func kindIn(r tool.Result) fault.Kind {
	if r.Fault == nil {
		return ""
	}
	return r.Fault.Kind
}

func TestSharedBreakerOpensForAllAndProbesOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 8)
		var sick atomic.Bool
		var ran, at, most atomic.Int32
		sick.Store(true)
		all[0].work(handler("down", func(ctx context.Context, _ *worker.Call) (any, error) {
			ran.Add(1)
			n := at.Add(1)
			defer at.Add(-1)
			most.Store(max(most.Load(), n))
			if sick.Load() {
				return nil, upstream()
			}
			time.Sleep(20 * time.Millisecond)
			return 1, nil
		}, quick))
		for _, st := range all {
			st.awaitWorker("down", all[0].reg.Tool("down").Workers[0].ID)
		}
		for i := range 3 {
			if k := kindIn(all[i].call("down", `{}`)); k != fault.Upstream {
				t.Fatalf("call %d: %q, want upstream", i+1, k)
			}
			synctest.Wait() // the failure is in the store, and everybody has seen it
		}
		for i, st := range all {
			if r := st.call("down", `{}`); kindIn(r) != fault.CircuitOpen || r.Fault.RetryAfterMs == 0 {
				t.Errorf("executor %d: %q %v, want circuit_open and when to try again", i, kindIn(r), r.Fault)
			}
		}
		if ran.Load() != 3 {
			t.Errorf("the tool ran %d times, want 3", ran.Load())
		}

		probe := func() (through int) {
			before := ran.Load()
			most.Store(0)
			var wg sync.WaitGroup
			for _, st := range all {
				wg.Go(func() { st.call("down", `{}`) })
			}
			wg.Wait()
			synctest.Wait()
			return int(ran.Load() - before)
		}
		time.Sleep(2100 * time.Millisecond)
		if n := probe(); n != 1 {
			t.Errorf("%d calls went through when it half-opened, want one probe", n)
		}
		if k := kindIn(all[3].call("down", `{}`)); k != fault.CircuitOpen {
			t.Errorf("after a failed probe: %q, want circuit_open", k)
		}
		sick.Store(false)
		time.Sleep(2100 * time.Millisecond)
		if n := probe(); n != 1 || most.Load() != 1 {
			t.Errorf("%d calls went through, %d at once, want one", n, most.Load())
		}
		if n := probe(); n != 1 {
			t.Errorf("%d calls went through for the second probe, want one", n)
		}
		if n := probe(); n != 8 {
			t.Errorf("%d calls went through after two good probes, want all 8", n)
		}
		var opened int
		for _, st := range all {
			for _, ev := range st.seen.all() {
				if ev.Type == wire.BreakerChanged && ev.Decision == "Circuit breaker opened for down" {
					opened++
				}
			}
		}
		if opened != 2 {
			t.Errorf("%d events say that it opened, want two: one for each time, fleet-wide", opened)
		}
	})
}

// What an executor knows of its own probes holds for its next calls, although the store has yet to be told.
func TestCallsRightAfterAGoodProbe(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 2)
		st := all[0]
		var sick atomic.Bool
		sick.Store(true)
		st.work(handler("down", func(context.Context, *worker.Call) (any, error) {
			if sick.Load() {
				return nil, upstream()
			}
			return 1, nil
		}, quick))
		st.awaitWorker("down", st.reg.Tool("down").Workers[0].ID)
		for range 3 {
			st.call("down", `{}`)
			synctest.Wait()
		}
		sick.Store(false)
		time.Sleep(2100 * time.Millisecond)
		for i := range 2 {
			if r := st.call("down", `{}`); r.Fault != nil {
				t.Fatalf("probe %d: %v", i+1, r.Fault)
			}
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if r := st.call("down", `{}`); r.Fault != nil {
					t.Errorf("after two good probes: %v", r.Fault)
				}
			})
		}
		wg.Wait()

		sick.Store(true)
		for range 3 {
			st.call("down", `{}`)
		}
		time.Sleep(2100 * time.Millisecond)
		if k := kindIn(st.call("down", `{}`)); k != fault.Upstream {
			t.Fatalf("the probe: %q, want upstream", k)
		}
		if k := kindIn(st.call("down", `{}`)); k != fault.CircuitOpen {
			t.Errorf("after a failed probe: %q, want circuit_open", k)
		}
	})
}

func TestOneSickExecutorOpensNothingForTheOthers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 2)
		time.Sleep(1500 * time.Millisecond) // they know of each other
		all[0].work(handler("fine", echo, quick))
		id := all[0].reg.Tool("fine").Workers[0].ID
		all[1].awaitWorker("fine", id)
		all[1].conn.Close() // its own connection breaks
		for range 4 {
			all[1].call("fine", `{}`)
		}
		if k := kindIn(all[1].call("fine", `{}`)); k != fault.CircuitOpen {
			t.Errorf("the sick one: %q, want circuit_open on its own", k)
		}
		if k := kindIn(all[0].call("fine", `{}`)); k != "" {
			t.Errorf("the other: %q, want success", k)
		}
	})
}

func TestThrottleHoldsForAll(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 3)
		var ran atomic.Int32
		all[0].work(handler("limited", func(context.Context, *worker.Call) (any, error) {
			if ran.Add(1) == 1 {
				f := fault.New(fault.RateLimited, "30 calls a minute")
				f.RetryAfterMs = 10_000
				return nil, f
			}
			return 1, nil
		}, quick))
		for _, st := range all[1:] {
			st.awaitWorker("limited", all[0].reg.Tool("limited").Workers[0].ID)
		}
		all[0].call("limited", `{}`)
		synctest.Wait()
		for i, st := range all {
			r := st.call("limited", `{}`)
			if kindIn(r) != fault.RateLimited || r.Fault.Execution != fault.NotStarted {
				t.Errorf("executor %d: %q %+v, want rate_limited, not started", i, kindIn(r), r.Fault)
			}
		}
		if ran.Load() != 1 {
			t.Errorf("the tool ran %d times within its wait, want once", ran.Load())
		}
		time.Sleep(10 * time.Second)
		if k := kindIn(all[2].call("limited", `{}`)); k != "" {
			t.Errorf("after the wait: %q, want success", k)
		}
	})
}

func TestForcedByAPerson(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, bucket := fleet(t, natstest.InProcess(t), 2)
		all[0].work(handler("echo", echo))
		all[1].awaitWorker("echo", all[0].reg.Tool("echo").Workers[0].ID)
		force := func(s breaker.State, lasts time.Duration) {
			if err := executor.ForceBreaker(t.Context(), bucket, "echo", s, "ann", "maintenance", lasts, nuid.Next()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		force(breaker.ForcedOpen, 0)
		for _, st := range all {
			r := st.call("echo", `{}`)
			if kindIn(r) != fault.CircuitOpen || !strings.Contains(r.Fault.Message, "maintenance") {
				t.Errorf("forced open: %v, want circuit_open and why", r.Fault)
			}
		}
		force(breaker.Closed, 0)
		want(t, all[1].call("echo", `{}`), tool.Success, "")
		force(breaker.ForcedOpen, time.Minute)
		time.Sleep(59 * time.Second)
		want(t, all[1].call("echo", `{}`), tool.Failed, fault.CircuitOpen)
		time.Sleep(2 * time.Second)
		want(t, all[1].call("echo", `{}`), tool.Success, "")
	})
}

func TestStrangeRecords(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, bucket := fleet(t, natstest.InProcess(t), 2)
		all[0].work(handler("echo", echo, quick))
		for _, body := range [][]byte{
			[]byte("garbage"), {0xc1}, []byte("\xdd\xff\xff\xff\xff"), {}, []byte(`{"state":"melting","v":99}`), []byte(`{"state":"open","hold_ms":-5,"trips":-1}`),
			[]byte(`{"state":"half_open","probes":[{"holder":"x","nonce":"y","lease_ms":-1}]}`),
		} {
			if _, err := bucket.Put(t.Context(), "echo", body); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			deadline := time.Now().Add(time.Minute)
			for kindIn(all[0].call("echo", `{}`)) != "" {
				if time.Now().After(deadline) {
					t.Fatalf("%q: stuck: %v", body, all[0].call("echo", `{}`).Fault)
				}
				time.Sleep(time.Second)
			}
		}
	})
}

func TestBucketMadeAnew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 2)
		all[0].work(handler("down", func(context.Context, *worker.Call) (any, error) { return nil, upstream() }, quick))
		all[1].awaitWorker("down", all[0].reg.Tool("down").Workers[0].ID)
		trip := func() {
			for range 3 {
				all[0].call("down", `{}`)
				synctest.Wait()
			}
		}
		trip()
		want(t, all[1].call("down", `{}`), tool.Failed, fault.CircuitOpen)
		js := all[0].conn.JetStream()
		if err := js.DeleteKeyValue(t.Context(), "TB_BREAKERS"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * time.Second) // they notice, and make it anew
		trip()
		want(t, all[1].call("down", `{}`), tool.Failed, fault.CircuitOpen)
	})
}

// While the store is away no call waits for it, and each executor decides alone.
func TestStoreAway(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		memory := kvstate.NewMemory()
		var lines []*kvstate.Line
		all := fleetOn(t, natstest.InProcess(t), 2, func(*bus.Conn) kvstate.Store {
			lines = append(lines, memory.Line())
			return lines[len(lines)-1]
		})
		var sick atomic.Bool
		sick.Store(true)
		all[0].work(handler("down", func(context.Context, *worker.Call) (any, error) {
			if sick.Load() {
				return nil, upstream()
			}
			return 1, nil
		}, quick))
		all[1].awaitWorker("down", all[0].reg.Tool("down").Workers[0].ID)
		for _, l := range lines {
			l.Trouble(kvstate.Trouble{Away: true})
		}
		time.Sleep(15 * time.Second) // by now they know
		for range 3 {
			began := time.Now()
			want(t, all[0].call("down", `{}`), tool.Failed, fault.Upstream)
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("a call took %v while the store was away", took)
			}
		}
		want(t, all[0].call("down", `{}`), tool.Failed, fault.CircuitOpen)
		want(t, all[1].call("down", `{}`), tool.Failed, fault.Upstream) // it decides alone
		sick.Store(false)
		time.Sleep(2100 * time.Millisecond)
		want(t, all[0].call("down", `{}`), tool.Success, "")
		want(t, all[0].call("down", `{}`), tool.Success, "")
		want(t, all[0].call("down", `{}`), tool.Success, "")
	})
}

func TestPartitionsHaveBreakersOfTheirOwn(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), 1)
		st := all[0]
		st.work(handler("tenant", func(_ context.Context, c *worker.Call) (any, error) {
			if strings.Contains(string(c.Args), "bad") {
				return nil, upstream()
			}
			return 1, nil
		}, quick))
		call := func(tenant string) fault.Kind {
			return kindIn(st.exec.Call(t.Context(), tool.Call{Tool: "tenant", BreakerKey: tenant, Args: []byte(`{"t":"` + tenant + `"}`)}))
		}
		for range 3 {
			call("bad one")
			synctest.Wait()
		}
		if k := call("bad one"); k != fault.CircuitOpen {
			t.Errorf("bad: %q, want circuit_open", k)
		}
		if k := call("good"); k != "" {
			t.Errorf("good: %q, want success", k)
		}
	})
}
