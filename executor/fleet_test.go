package executor_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// five is a manifest whose breaker is the usual one, and that is not retried.
func five(m *tool.Manifest) {
	m.Retry = &tool.RetryPolicy{MaxAttempts: new(1)}
	m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(5)}
	m.TimeoutMs = 300
}

// A dying is a tool that takes 20 ms and dies at some time. It counts what reaches it from then on.
type dying struct {
	dead      atomic.Bool
	now, late atomic.Int32
	atDeath   int32 // how many were under way
}

func (d *dying) handle(context.Context, *worker.Call) (any, error) {
	d.now.Add(1)
	defer d.now.Add(-1)
	if d.dead.Load() {
		d.late.Add(1)
	}
	time.Sleep(20 * time.Millisecond)
	if d.dead.Load() {
		return nil, upstream()
	}
	return 1, nil
}

func (d *dying) die() { d.atDeath = d.now.Load(); d.dead.Store(true) }

// traffic has each executor call the tool once in every period, each at a time of its own, until the returned func is
// called.
func traffic(all []*stage, name string, period time.Duration, each func(i int, r tool.Result)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var callers sync.WaitGroup
	for i, st := range all {
		callers.Go(func() {
			t := time.NewTimer(rand.N(period))
			defer t.Stop()
			for {
				select {
				case <-t.C:
				case <-ctx.Done():
					return
				}
				each(i, st.call(name, `{}`))
				t.Reset(period)
			}
		})
	}
	return func() { cancel(); callers.Wait() }
}

// A tool dies that 64 executors call, each rarely. Together they find out as soon as one would who made all the calls.
func TestFleetOfSixtyFour(t *testing.T) {
	const replicas, threshold = 64, 5
	natstest.Bubble(t, func(t *testing.T) {
		all, _ := fleet(t, natstest.InProcess(t), replicas)
		sick := &dying{}
		id := all[0].work(handler("dying", sick.handle, five)).ID()
		for _, st := range all {
			st.awaitWorker("dying", id)
		}
		var failed atomic.Int32
		refusing := make([]atomic.Bool, replicas)
		stop := traffic(all, "dying", time.Second, func(i int, r tool.Result) {
			switch k := kindIn(r); k {
			case fault.CircuitOpen:
				refusing[i].Store(true)
			case "":
			default:
				failed.Add(1)
			}
		})
		time.Sleep(3 * time.Second)
		if failed.Load() != 0 {
			t.Errorf("%d calls failed while the tool was well", failed.Load())
		}
		sick.die()
		died := time.Now()
		for n := 0; n < replicas; {
			time.Sleep(10 * time.Millisecond)
			n = 0
			for i := range refusing {
				if refusing[i].Load() {
					n++
				}
			}
			if time.Since(died) > 10*time.Second {
				t.Fatalf("after %v %d of %d refuse", time.Since(died), n, replicas)
			}
		}
		took := time.Since(died)
		stop()
		// What is on its way at the tool when the fifth failure comes back is no longer to be held.
		flying := int32(replicas*20/1000 + 4)
		t.Logf("%d calls under way failed, and %d more reached the dead tool from %d executors; each has refused one after %v",
			failed.Load()-sick.late.Load(), sick.late.Load(), replicas, took)
		if n := sick.late.Load(); n > threshold+flying {
			t.Errorf("%d calls reached the dead tool, want at most %d and %d under way", n, threshold, flying)
		}
	})
}

// The same fleet and a tool that is well. One executor's connection breaks, and what another one sends vanishes: nobody
// else is to notice.
func TestFleetWithSickExecutors(t *testing.T) {
	const replicas = 64
	natstest.Bubble(t, func(t *testing.T) {
		server := natstest.InProcess(t)
		all, bucket := fleet(t, server, replicas-1)
		id := all[0].work(handler("fine", echo, five)).ID()
		for _, st := range all {
			st.awaitWorker("fine", id)
		}
		// To this one the tool's only worker is another, which takes calls and says nothing.
		hole := &blackHole{of: all[0].reg, worker: "blackhole"}
		vanishing := newStage(t, server, func(c *executor.Config) { c.Registry, c.Breakers = hole, bucket })
		vanishing.serve()
		nc := natstest.Connect(t, server).NATS()
		if _, err := nc.Subscribe(vanishing.conn.Subjects().To(hole.worker), func(*nats.Msg) { hole.took.Add(1) }); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // they know of each other
		const broken = 7
		var wrong, good atomic.Int32
		stop := traffic(all, "fine", 500*time.Millisecond, func(i int, r tool.Result) {
			switch {
			case i == broken:
			case kindIn(r) == "":
				good.Add(1)
			default:
				wrong.Add(1)
				t.Logf("executor %d: %v", i, r.Fault)
			}
		})
		stopHole := traffic([]*stage{vanishing}, "fine", 100*time.Millisecond, func(int, tool.Result) {})
		time.Sleep(time.Second)
		all[broken].conn.Close()
		time.Sleep(20 * time.Second)
		stop()
		stopHole()
		synctest.Wait()
		t.Logf("%d calls of the others succeeded, %d did not; the black hole took %d", good.Load(), wrong.Load(), hole.took.Load())
		if wrong.Load() > 0 || good.Load() < 20*replicas {
			t.Errorf("%d calls of executors that are well did not succeed, %d did, want none and most", wrong.Load(), good.Load())
		}
		if hole.took.Load() < 5 {
			t.Errorf("%d calls vanished, want at least the five that open a breaker", hole.took.Load())
		}
		if e, err := bucket.Get(t.Context(), "fine"); err == nil {
			var v breaker.Shared
			if err := wire.Decode(e.Value, &v); err != nil {
				t.Fatal(err)
			}
			if v.State != breaker.Closed.String() {
				t.Errorf("the record says %s (%s), want closed", v.State, v.Why)
			}
		}
	})
}

// A blackHole is a catalogue that has another worker under every tool.
type blackHole struct {
	of     executor.Catalogue
	worker string
	took   atomic.Int32
}

func (b *blackHole) Tool(name string) *registry.Tool {
	t := b.of.Tool(name)
	if t == nil || len(t.Workers) == 0 {
		return t
	}
	one := *t
	one.Workers = []*registry.Instance{{ID: b.worker}}
	return &one
}

func (b *blackHole) Nearest(name string) []string { return b.of.Nearest(name) }
func (b *blackHole) Gone(string)                  {}

// Clocks of executors may differ by minutes, so nothing that they share may hold a time, and nothing that decides may ask
// a wall clock. time.Time is monotonic as long as nobody takes it apart: so nobody does.
func TestNoWallClock(t *testing.T) {
	var look func(reflect.Type, string)
	look = func(ty reflect.Type, at string) {
		switch ty.Kind() {
		case reflect.Slice, reflect.Array, reflect.Pointer:
			look(ty.Elem(), at)
		case reflect.Struct:
			if ty == reflect.TypeFor[time.Time]() {
				t.Errorf("%s is a time, in a record that executors share", at)
				return
			}
			for f := range ty.Fields() {
				look(f.Type, at+"."+f.Name)
			}
		}
	}
	look(reflect.TypeFor[breaker.Shared](), "breaker.Shared")

	// What takes a time apart, or makes one of numbers or words. The event that people read has the only one.
	walls := []string{"Unix", "UnixMilli", "UnixMicro", "UnixNano", "Round", "Truncate", "Parse", "ParseInLocation", "Date", "UTC", "Local", "In", "Format", "AppendFormat", "MarshalText", "MarshalBinary"}
	allowed := map[string]int{"gates.go: UTC": 1, "gates.go: Format": 1}
	var files []string
	for _, pattern := range []string{"gate*.go", "force.go", "../breaker/*.go"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		files = append(files, some...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			for _, w := range walls {
				what := filepath.Base(name) + ": " + w
				if sel.Sel.Name != w {
					continue
				}
				if allowed[what]--; allowed[what] < 0 {
					t.Errorf("%s: %s takes a time off the monotonic clock", fset.Position(n.Pos()), w)
				}
			}
			return true
		})
	}
}
