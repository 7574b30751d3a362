package otel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/trace"
)

// A batcher gathers spans and exports them, as the SDK's batch processor does and by the same variables:
//
//	OnEnd ──► waiting ──► a batch is full, or OTEL_BSP_SCHEDULE_DELAY is over ──► exporter
//
// But nobody is woken for a span: only for a batch. As many spans wait as OTEL_BSP_MAX_QUEUE_SIZE says, beside as many at most
// that are being exported; more are dropped, and the log says how many.
type batcher struct {
	to         trace.SpanExporter
	room, size int
	every, max time.Duration

	full    chan struct{} // says that there is a batch
	turn    chan struct{} // held by who exports
	ctx     context.Context
	stop    context.CancelFunc
	ended   chan struct{}
	mu      sync.Mutex
	waiting []trace.ReadOnlySpan
	dropped int // in all
	closed  bool

	spare []trace.ReadOnlySpan // for waiting; of who holds turn
}

func newBatcher(to trace.SpanExporter) *batcher {
	b := &batcher{
		to: to, room: number("OTEL_BSP_MAX_QUEUE_SIZE", 2048), size: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
		every: time.Duration(number("OTEL_BSP_SCHEDULE_DELAY", 5000)) * time.Millisecond,
		max:   time.Duration(number("OTEL_BSP_EXPORT_TIMEOUT", 30000)) * time.Millisecond,
		full:  make(chan struct{}, 1), turn: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	b.size = min(b.size, b.room)
	b.ctx, b.stop = context.WithCancel(context.Background())
	go b.run()
	return b
}

// number is a variable that is a number above zero, else what is usual. As milliseconds the largest is 24 days.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(variable(name)); err == nil && n > 0 {
		return min(n, math.MaxInt32)
	}
	return usual
}

// OnStart does nothing.
func (b *batcher) OnStart(context.Context, trace.ReadWriteSpan) {}

// OnEnd keeps a span for the next batch. It never waits for an export.
func (b *batcher) OnEnd(s trace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	b.mu.Lock()
	n := len(b.waiting)
	switch {
	case b.closed:
	case n >= b.room:
		b.dropped++
	default:
		b.waiting = append(b.waiting, s)
	}
	b.mu.Unlock()
	if n+1 == b.size {
		select {
		case b.full <- struct{}{}:
		default: // it will look anyway
		}
	}
}

func (b *batcher) run() {
	defer close(b.ended)
	t := time.NewTicker(b.every)
	defer t.Stop()
	told := 0
	for {
		select {
		case <-b.full:
		case <-t.C:
		case <-b.ctx.Done():
			return
		}
		err := b.ForceFlush(b.ctx)
		if n := b.drops(); n > told {
			told, err = n, errors.Join(crowded(n), err)
		}
		if err != nil && b.ctx.Err() == nil {
			otelapi.Handle(err)
		}
	}
}

// drops is how many spans were dropped so far.
func (b *batcher) drops() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// crowded says that n spans were dropped in all: what was said of some may have been held back. It is nil where none was.
func crowded(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d spans were dropped so far: they came faster than they are exported", n)
}

// ForceFlush exports what waits.
func (b *batcher) ForceFlush(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	due := b.waiting
	b.waiting = b.spare[:0]
	b.mu.Unlock()
	var errs []error
	for batch := range slices.Chunk(due, b.size) {
		if err := b.export(ctx, batch); err != nil {
			errs = append(errs, err)
		}
	}
	clear(due)
	b.spare = due
	return errors.Join(errs...)
}

func (b *batcher) export(ctx context.Context, batch []trace.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(ctx, b.max)
	defer cancel()
	return b.to.ExportSpans(ctx, batch)
}

// Shutdown exports what waits and ends the exporter; what is not out when ctx ends is lost.
func (b *batcher) Shutdown(ctx context.Context) error {
	b.mu.Lock()
	was := b.closed
	b.closed = true
	b.mu.Unlock()
	if was {
		return nil
	}
	err := b.ForceFlush(ctx)
	b.stop()
	<-b.ended
	if end := b.to.Shutdown(ctx); err == nil {
		err = end
	}
	return errors.Join(crowded(b.drops()), err)
}
