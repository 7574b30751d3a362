package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// many measures what a hundred thousand breakers in the store cost a replica: until its copy is whole, in memory, and
// while nothing happens.
func many(ctx context.Context, c *config, r *report) error {
	n := 100_000
	if c.n > 0 {
		n = c.n
	}
	r.Head = []string{"what", "measured"}
	s, err := bus.StartServer(bus.ServerConfig{Port: -1, Lazy: true})
	if err != nil {
		return err
	}
	defer s.Shutdown()
	began := time.Now()
	if err := fill(ctx, s, n); err != nil {
		return err
	}
	r.add(fmt.Sprintf("%d records written, 256 at once", n), time.Since(began).Round(time.Millisecond).String())
	if err := copied(ctx, s, r); err != nil {
		return err
	}
	return executed(ctx, s, n, r)
}

func keyOf(i int) string { return fmt.Sprintf("tool-%06d", i) }

// fill writes n breakers that a person forced open, so that a call can tell whether an executor knows of its record.
func fill(ctx context.Context, s *bus.Server, n int) error {
	c, err := bus.Connect(ctx, bus.Config{URL: s.ClientURL()})
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := kvstate.Open(ctx, c, kvstate.Config{Bucket: bucketName})
	if err != nil {
		return err
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for range 256 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				v := breaker.Shared{V: breaker.SharedVersion, State: breaker.ForcedOpen.String(), Why: "to be counted", Who: "bench", Nonce: nuid.Next()}
				body, err := wire.Marshal(wire.MsgPack, &v)
				if err == nil {
					_, err = b.Put(ctx, keyOf(int(i)), body)
				}
				if err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// copied follows the bucket and keeps what an executor keeps of a record.
func copied(ctx context.Context, s *bus.Server, r *report) error {
	c, err := bus.Connect(ctx, bus.Config{URL: s.ClientURL()})
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := kvstate.Open(ctx, c, kvstate.Config{Bucket: bucketName})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() { cancel(); <-ended }()
	keep := map[string]*breaker.Seen{}
	synced := make(chan struct{})
	saw := make(chan sight, 1024)
	first, whole := true, false
	before, began := heap(), time.Now()
	go func() {
		ended <- b.Follow(ctx, func(u kvstate.Update) {
			switch {
			case u.Synced && first:
				first, whole = false, true
				close(synced)
			case u.Synced || u.Deleted:
			default:
				var v breaker.Shared
				if wire.Decode(u.Value, &v) == nil {
					v, _ = v.Sane()
					keep[u.Key] = (&breaker.Seen{}).Next(time.Now(), v, u.Revision)
				}
				if whole {
					saw <- sight{u.Revision, time.Now()}
				}
			}
		})
	}()
	select {
	case <-synced:
	case <-time.After(2 * time.Minute):
		r.add("Follow until first Synced", "NOT within 2 minutes")
		return nil
	}
	took := time.Since(began)
	r.add("Follow until first Synced", took.Round(time.Millisecond).String())
	used := heap() - before
	r.add("memory of the copy alone (Follow and a map of breaker.Seen)", fmt.Sprintf("%.1f MB, %d bytes each", float64(used)/1e6, used/int64(max(len(keep), 1))))
	was := c.NATS().Stats()
	const idle = 30 * time.Second
	time.Sleep(idle)
	is := c.NATS().Stats()
	r.add(fmt.Sprintf("messages in within %v in which nothing was written", idle), fmt.Sprintf("%d, %.1f MB", is.InMsgs-was.InMsgs, float64(is.InBytes-was.InBytes)/1e6))
	runtime.KeepAlive(keep)
	return busy(ctx, b, c, r, saw)
}

// busy changes one breaker of the many four times a second, and looks at what that costs and when it is seen.
func busy(ctx context.Context, b *kvstate.Bucket, c *bus.Conn, r *report, saw <-chan sight) error {
	w, err := bus.Connect(ctx, bus.Config{URL: c.NATS().ConnectedUrl()})
	if err != nil {
		return err
	}
	defer w.Close()
	writer, err := kvstate.Open(ctx, w, kvstate.Config{Bucket: b.Name()})
	if err != nil {
		return err
	}
	const lasts = 30 * time.Second
	v := breaker.Shared{V: breaker.SharedVersion, State: breaker.Open.String(), HoldMs: 30_000, Nonce: nuid.Next()}
	body, err := wire.Marshal(wire.MsgPack, &v)
	if err != nil {
		return err
	}
	was := c.NATS().Stats()
	var took []time.Duration
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		rev, err := writer.Put(ctx, keyOf(0), body)
		if err != nil {
			return err
		}
		ack := time.Now()
		for seen := false; !seen; {
			select {
			case s := <-saw:
				if seen = s.rev >= rev; seen {
					took = append(took, max(0, s.at.Sub(ack)))
				}
			case <-time.After(20 * time.Second):
				return fmt.Errorf("revision %d was not seen within 20 s", rev)
			}
		}
	}
	is := c.NATS().Stats()
	what := fmt.Sprintf("%d changes of one breaker among them, within %v", len(took), lasts)
	r.add(what+": from ack to seen", fmt.Sprintf("p50 %s, p90 %s, max %s", ms(at(50, took)), ms(at(90, took)), ms(at(100, took))))
	r.add(what+": messages in", fmt.Sprintf("%d, %.1f MB", is.InMsgs-was.InMsgs, float64(is.InBytes-was.InBytes)/1e6))
	return nil
}

// executed starts an executor and asks it for some of the breakers.
func executed(ctx context.Context, s *bus.Server, n int, r *report) error {
	c, err := bus.Connect(ctx, bus.Config{URL: s.ClientURL()})
	if err != nil {
		return err
	}
	defer c.Close()
	b, err := kvstate.Open(ctx, c, kvstate.Config{Bucket: bucketName})
	if err != nil {
		return err
	}
	e, err := executor.New(executor.Config{Bus: c, Registry: nothing{}, Breakers: b})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() { cancel(); <-ended }()
	before, began := heap(), time.Now()
	go func() { ended <- e.Run(ctx, time.Second) }()
	<-e.Ready()
	refuses := func(i int) bool {
		res := e.Call(ctx, tool.Call{Tool: keyOf(i), Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
		return res.Fault != nil && res.Fault.Kind == fault.CircuitOpen
	}
	// A call makes a breaker where there is none, so only the first is asked for before the copy has come. Then it is taken
	// in within milliseconds, and the others tell whether it is whole.
	for !refuses(0) && time.Since(began) < 2*time.Minute {
		time.Sleep(20 * time.Millisecond)
	}
	took := time.Since(began)
	time.Sleep(time.Second)
	const sample = 50
	known := 0
	for i := range sample {
		if refuses((i+1)*(n/sample) - 1) {
			known++
		}
	}
	used := heap() - before
	r.add("an executor, from its start until it refuses by the records", took.Round(time.Millisecond).String())
	r.add(fmt.Sprintf("breakers it knows, of %d asked for", sample), fmt.Sprint(known))
	r.add("memory of that executor", fmt.Sprintf("%.1f MB", float64(used)/1e6))
	return nil
}

// nothing is a catalogue without tools.
type nothing struct{}

func (nothing) Tool(string) *registry.Tool { return nil }
func (nothing) Nearest(string) []string    { return nil }
func (nothing) Gone(string)                {}

// heap is what is in use when all garbage is gone.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
