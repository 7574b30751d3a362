package turn

import (
	"fmt"
	"testing"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// wide is n calls in layers of ten, each of which waits for one of the layer before.
func wide(n int) *wire.TurnRequest {
	req := &wire.TurnRequest{ID: "t", DeadlineMs: 300_000}
	for i := range n {
		c := tool.Call{ID: fmt.Sprintf("call_%d", i), Tool: "search", Args: []byte(`{"q":1}`)}
		if i >= 10 {
			c.After = []string{fmt.Sprintf("call_%d", i-10)}
		}
		req.Calls = append(req.Calls, c)
	}
	return req
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		req := wide(n)
		tl := Unknown("search")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(Config{Request: req, Tools: func(string) *Tool { return tl }}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStep is one event of a turn of n calls: each call is accepted and answered.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		req := wide(n)
		tl := Unknown("search")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			var out []Effect
			events := 0
			for b.Loop() {
				b.StopTimer()
				t, err := New(Config{Request: req, Grace: time.Second, Tools: func(string) *Tool { return tl }})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				out = t.Start(out[:0], start)
				var next []Effect
				for len(out) > 0 {
					next = next[:0]
					for _, do := range out {
						if do.Kind != Send {
							continue
						}
						next = t.Step(next, start, Event{Kind: Accepted, Call: do.Call, Attempt: 1, Worker: "w"})
						next = t.Step(next, start, Event{Kind: Succeeded, Call: do.Call, Attempt: 1, Value: []byte("1")})
						events += 2
					}
					out, next = next, out
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(events), "ns/event")
		})
	}
}
