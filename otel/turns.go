package otel

import (
	"context"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/wire"
)

// maxTurns bounds the turns whose traces are remembered.
const maxTurns = 10_000

// Turns remembers the trace of each sampled turn under way, so that figures and log lines of the turn can name it. Where
// nothing is sampled it costs nothing. Nil remembers none.
type Turns struct {
	n   atomic.Int64
	mu  sync.RWMutex
	all map[string]context.Context // with the span of the turn
}

// Around tells next what happens, while the turn's trace is known.
func (t *Turns) Around(next ...executor.Observer) executor.Observer {
	return executor.ObserverFunc(func(ev *wire.Event) {
		if ev.Type == wire.TurnStarted && ev.Traceparent != "" {
			t.add(ev.Turn, ev.Traceparent)
		}
		for _, o := range next {
			o.Event(ev)
		}
		if ev.Type == wire.TurnEnded {
			t.drop(ev.Turn)
		}
	})
}

func (t *Turns) add(turn, traceparent string) {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[string]context.Context{}
	}
	if len(t.all) < maxTurns {
		t.all[turn] = ctx
		t.n.Store(int64(len(t.all)))
	}
}

func (t *Turns) drop(turn string) {
	if t.n.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, turn)
	t.n.Store(int64(len(t.all)))
}

// context has the span of a turn, where that is sampled.
func (t *Turns) context(turn string) context.Context {
	if t == nil || t.n.Load() == 0 {
		return context.Background()
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if ctx := t.all[turn]; ctx != nil {
		return ctx
	}
	return context.Background()
}
