package bus_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

// BenchmarkRequest is one call to an echo worker over TCP, beside nats.go's own request.
func BenchmarkRequest(b *testing.B) {
	s := natstest.Server(b)
	url := bus.Config{URL: s.ClientURL()}
	if _, err := natstest.Dial(b, url).Subscribe("tb.v1.call.echo", "workers", echo); err != nil {
		b.Fatal(err)
	}
	c := natstest.Dial(b, url)
	data := make([]byte, 512)
	ctx := context.Background()
	for _, way := range []struct {
		name string
		call func() error
	}{
		{"nc.Request", func() error {
			_, err := c.NATS().RequestWithContext(ctx, "tb.v1.call.echo", data)
			return err
		}},
		{"mux", func() error {
			if _, f := c.Request(ctx, "tb.v1.call.echo", "echo", nil, data); f != nil {
				return f
			}
			return nil
		}},
		{"mux with headers", func() error {
			h := wire.Header{wire.HeaderCall: {"turn/call/1"}, wire.HeaderTimeout: {"30000"}}
			if _, f := c.Request(ctx, "tb.v1.call.echo", "echo", h, data); f != nil {
				return f
			}
			return nil
		}},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", way.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				share(b, callers, way.call)
			})
		}
	}
}

// share has b.N calls made by so many callers at once.
func share(b *testing.B, callers int, call func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

type discard struct{}

func (discard) Receive(bus.Frame) {}

func BenchmarkOpenClose(b *testing.B) {
	c := natstest.Connect(b, natstest.Server(b))
	b.ReportAllocs()
	for b.Loop() {
		c.Open("echo", discard{}).Close()
	}
}
