package worker

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

// BenchmarkCall sets a worker beside a plain replier on the same server, with 1 and with 64 callers.
func BenchmarkCall(b *testing.B) {
	outside()
	s := natstest.Server(b)
	dial := func() *bus.Conn { return natstest.Dial(b, bus.Config{URL: s.ClientURL()}) }
	caller, plain := dial(), dial()
	if _, err := plain.NATS().QueueSubscribe("plain", "workers", func(m *nats.Msg) { m.Respond(m.Data) }); err != nil {
		b.Fatal(err)
	}
	plain.NATS().Flush()

	w, err := New(Config{Bus: dial(), Tools: []Tool{echo()}, Concurrency: 256})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-w.Ready()
	defer func() { cancel(); <-done }()

	args := fmt.Appendf(nil, `{"text":"%0250d"}`, 0)
	var n atomic.Int64
	for _, callers := range []int{1, 64} {
		for _, way := range []struct {
			name    string
			subject string
			header  func() nats.Header
		}{
			{"plain replier", "plain", func() nats.Header { return nil }},
			{"worker, bare", "tb.v1.call.echo", func() nats.Header { return nil }},
			{"plain replier, 2 headers", "plain", func() nats.Header { return call(n.Add(1)) }},
			{"worker, attempts", "tb.v1.call.echo", func() nats.Header { return call(n.Add(1)) }},
		} {
			b.Run(fmt.Sprintf("%s/%d", way.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, callers/2))
				if callers == 1 {
					for b.Loop() {
						ask(b, caller.NATS(), way.subject, way.header(), args)
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						ask(b, caller.NATS(), way.subject, way.header(), args)
					}
				})
			})
		}
	}
}

func call(n int64) nats.Header {
	return nats.Header{wire.HeaderCall: {"01HZX5W7Q9/" + strconv.FormatInt(n, 10) + "/1"}, wire.HeaderTimeout: {"30000"}}
}

func ask(b *testing.B, nc *nats.Conn, subject string, h nats.Header, data []byte) {
	m, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: h, Data: data}, 5*time.Second)
	if err != nil || wire.FrameOf(m.Header) == wire.ErrorFrame {
		b.Errorf("%s: %v, %v", subject, err, m)
	}
}
