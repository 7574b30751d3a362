//go:build unix

package e2e

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A patient is a tool in this process that is ill or well.
type patient struct {
	ill atomic.Bool
	ran atomic.Int32
}

func (p *patient) work(t testing.TB, url string) {
	t.Helper()
	w, err := worker.New(worker.Config{Bus: natstest.Dial(t, bus.Config{URL: url}), Tools: []worker.Tool{{
		Manifest: tool.Manifest{
			ID: "patient", Version: "1.0.0", Description: "Is ill now and then.", Effect: tool.Read,
			Retry:   &tool.RetryPolicy{MaxAttempts: new(1)},
			Breaker: &tool.BreakerPolicy{FailureThreshold: new(3), TimeoutMs: new(int64(2000))},
		},
		Handler: worker.HandlerFunc(func(context.Context, *worker.Call) (any, error) {
			p.ran.Add(1)
			if p.ill.Load() {
				return nil, fault.New(fault.Upstream, "the weather service answered 500")
			}
			return 1, nil
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { _ = w.Run(ctx) }) // what comes of it is seen by who calls
	t.Cleanup(func() { cancel(); over.Wait() })
	<-w.Ready()
}

// A fleet is three executors, and what their clients see.
type fleet struct {
	t testing.TB
	c *caller

	mu      sync.Mutex
	slowest time.Duration
	how     map[string]int
}

// kinds calls until each of three executors has answered, and is how each did: "" is a success.
func (f *fleet) kinds() map[string]fault.Kind {
	all := map[string]fault.Kind{}
	for end := time.Now().Add(patience); len(all) < 3 && time.Now().Before(end); {
		if id, kind := f.call(); id != "" {
			all[id] = kind
		}
	}
	return all
}

func (f *fleet) call() (id string, kind fault.Kind) {
	began := time.Now()
	e := f.c.call("", "patient", 0)
	took := time.Since(began)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slowest = max(f.slowest, took)
	f.how[string(e.kind())]++
	for _, ev := range e.events {
		if ev.Executor != "" {
			id = ev.Executor
		}
	}
	return id, e.kind()
}

// all waits until three executors answer alike.
func (f *fleet) all(what string, want fault.Kind, within time.Duration) {
	f.t.Helper()
	began := time.Now()
	var got map[string]fault.Kind
	ok := eventually(f.t.Context(), within, func() bool {
		got = f.kinds()
		for _, kind := range got {
			if kind != want {
				return false
			}
		}
		return len(got) == 3
	})
	if !ok {
		f.t.Fatalf("%s: not within %v, the executors answer %v, want %q of each", what, within, got, want)
	}
	f.t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
}

// through notes the slowest call of f.
func (f *fleet) through(do func()) time.Duration {
	f.mu.Lock()
	f.slowest = 0
	f.mu.Unlock()
	do()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.slowest
}

// record waits until one record stands in the store, and says one of these states. Calls go on: an executor that has yet
// to find its store again decides alone, and needs one to tell the others.
func (f *fleet) record(b *kvstate.Bucket, states ...breaker.State) {
	f.t.Helper()
	var all []kvstate.Entry
	var v breaker.Shared
	ok := eventually(f.t.Context(), patience, func() bool {
		f.call()
		var err error
		if all, err = b.All(f.t.Context()); err != nil || len(all) != 1 || all[0].Key != "patient" {
			return false
		}
		v = breaker.Shared{}
		state, known := breaker.State(0), wire.Decode(all[0].Value, &v) == nil
		if known {
			state, known = breaker.ParseState(v.State)
		}
		return known && slices.Contains(states, state)
	})
	if !ok {
		f.t.Fatalf("%d records stand in the store, the last that was read is %+v; want one that is %v", len(all), v, states)
	}
}

// Three executors on three servers share a breaker. The server that leads its store is killed; then the store is deleted
// and made anew. No call waits for it, no executor stays open, and one record is left.
func TestBreakerOutlivesItsStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster that loses its leader takes its time")
	}
	c := newCluster(t)
	admin := natstest.Dial(t, bus.Config{URL: c.urls()})
	bucket := openBucket(t, admin, "TB_BREAKERS")
	var leader *node
	until(t, "the bucket has a leader", patience, func() bool { leader = c.leader(admin, "KV_TB_BREAKERS"); return leader != nil })
	url := c.urls(leader) // nobody's own connection dies with it
	p := &patient{}
	p.ill.Store(true)
	p.work(t, url)
	for range 3 {
		serve(t, url)
	}
	f := &fleet{t: t, c: newCaller(t, url), how: map[string]int{}}
	until(t, "the tool is known", patience, func() bool { _, kind := f.call(); return kind == fault.Upstream || kind == fault.CircuitOpen })

	f.all("all refuse", fault.CircuitOpen, patience)
	leader.kill()
	away := time.Now()
	slowest := f.through(func() {
		for time.Since(away) < 3*time.Second { // ill, and without the store
			f.call()
		}
		p.ill.Store(false)
		f.all("the tool is well and the store away: all let calls through", "", patience)
	})
	t.Logf("slowest call while the leader was dead: %v; %v", slowest, f.how)
	if slowest > 700*time.Millisecond { // one that would be a probe waits 250 ms to be let through
		t.Errorf("a call took %v while the store was away, want no call to wait for it", slowest)
	}
	leader.start(t)
	until(t, "the store is back", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := bucket.Get(ctx, "patient")
		return err == nil
	})
	t.Logf("the store was back %v after its leader died", time.Since(away).Round(time.Millisecond))
	f.record(bucket, breaker.Closed)
	f.all("with the store: all let calls through", "", patience)

	p.ill.Store(true)
	f.all("it opens again for all", fault.CircuitOpen, patience)
	if err := admin.JetStream().DeleteKeyValue(t.Context(), "TB_BREAKERS"); err != nil {
		t.Fatal(err)
	}
	p.ill.Store(false)
	bucket = openBucket(t, admin, "TB_BREAKERS")
	slowest = f.through(func() { f.all("the store was made anew: all let calls through", "", patience) })
	t.Logf("slowest call while the store was made anew: %v", slowest)
	p.ill.Store(true)
	f.all("it opens for all in the new store", fault.CircuitOpen, patience)
	f.record(bucket, breaker.Open, breaker.HalfOpen)
	p.ill.Store(false)
	f.all("and closes", "", patience)
	f.record(bucket, breaker.Closed)
	t.Log(fmt.Sprint("calls: ", f.how, "; the tool ran ", p.ran.Load(), " times"))
}
