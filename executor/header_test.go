package executor_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Calls at once, each with headers of its own: none gets what belongs to another.
func TestHeadersAreOfOneCallAlone(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	want := func(n int) wire.Header {
		h := wire.Header{wire.HeaderCall: {fmt.Sprintf("turn%d/c1/1", n)}, wire.HeaderTimeout: {fmt.Sprint(10_000 + n)}}
		if n%2 == 0 {
			h[wire.HeaderSession] = []string{fmt.Sprintf("session%d", n)}
		}
		if n%3 == 0 {
			h[wire.HeaderKey] = []string{fmt.Sprintf("key%d", n)}
		}
		if n%5 == 0 {
			h[wire.HeaderTraceparent], h[wire.HeaderBaggage] = []string{fmt.Sprintf("trace%d", n)}, []string{fmt.Sprintf("baggage=%d", n)}
		}
		return h
	}
	st.plain("tb.v1.call.looks", "workers", func(m *nats.Msg) {
		var n int
		if _, err := fmt.Sscanf(m.Header.Get(wire.HeaderCall), "turn%d/", &n); err != nil {
			t.Errorf("headers %v: %v", m.Header, err)
		}
		if got, want := fmt.Sprint(m.Header), fmt.Sprint(nats.Header(want(n))); got != want {
			t.Errorf("headers %s, want %s", got, want)
		}
		_ = m.Respond([]byte(`1`))
	})
	var callers, turns sync.WaitGroup
	for k := range 4 {
		callers.Go(func() {
			for n := k; n < 2000; n += 4 {
				h := want(n)
				c := tool.Call{Tool: "looks", Args: []byte(`{}`), TimeoutMs: int64(10_000 + n)}
				if n%3 == 0 {
					c.Key = h[wire.HeaderKey][0]
				}
				turn := single(c)
				turn.Request.ID = fmt.Sprintf("turn%d", n)
				if n%2 == 0 {
					turn.Request.Session = h[wire.HeaderSession][0]
				}
				if n%5 == 0 {
					turn.Header = wire.Header{wire.HeaderTraceparent: h[wire.HeaderTraceparent], wire.HeaderBaggage: h[wire.HeaderBaggage]}
				}
				turns.Add(1)
				st.exec.Go(turn, result(func(r tool.Result) {
					defer turns.Done()
					if r.Status != tool.Success {
						t.Errorf("turn %d: %v", n, r.Fault)
					}
				}))
			}
		})
	}
	callers.Wait()
	turns.Wait()
}
