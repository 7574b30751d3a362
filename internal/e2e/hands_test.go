//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/worker"
)

// Hands are workers in this process, with one journal of what they began and ended. They cost less than a bench's.
type hands struct {
	mu  sync.Mutex
	all []line
}

// work starts a worker of two tools, read and write, which take as long as they are told ({"seconds":0.1}). The read
// fails before it, as often as it is told ({"fails":1}).
func (h *hands) work(t testing.TB, url, id string) {
	t.Helper()
	var tools []worker.Tool
	for _, effect := range []tool.Effect{tool.Read, tool.Write} {
		tools = append(tools, worker.Tool{
			Manifest: tool.Manifest{
				ID: string(effect), Version: "1.0.0", Description: "Takes its time.", Effect: effect, TimeoutMs: 4000,
				Breaker: &tool.BreakerPolicy{FailureThreshold: new(30), TimeoutMs: new(int64(100))},
			},
			Handler: worker.HandlerFunc(func(ctx context.Context, c *worker.Call) (any, error) { return h.do(ctx, c, id) }),
		})
	}
	w, err := worker.New(worker.Config{Bus: natstest.Dial(t, bus.Config{URL: url}), Tools: tools, Concurrency: 64})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var over sync.WaitGroup
	over.Go(func() { _ = w.Run(ctx) }) // what comes of it is seen by who calls
	t.Cleanup(func() { cancel(); over.Wait() })
	<-w.Ready()
}

func (h *hands) do(ctx context.Context, c *worker.Call, id string) (any, error) {
	var args struct {
		Seconds float64
		Fails   int
	}
	if err := json.Unmarshal(c.Args, &args); err != nil {
		return nil, err
	}
	say := func(what string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, line{what: what, tool: c.Tool, call: c.Ref.Turn + "/" + c.Ref.Call, attempt: c.Ref.Attempt, worker: id})
	}
	say("start")
	if c.Ref.Attempt <= args.Fails {
		return nil, fault.New(fault.Upstream, "attempt %d fails, as you asked", c.Ref.Attempt)
	}
	nap := time.NewTimer(time.Duration(args.Seconds * float64(time.Second)))
	defer nap.Stop()
	select {
	case <-nap.C:
		say("end")
		return fmt.Sprintf("%s by %s", c.Ref.Call, id), nil
	case <-ctx.Done():
		say("term")
		return nil, ctx.Err()
	}
}

// lines is the journal so far.
func (h *hands) lines() []line {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[:len(h.all):len(h.all)]
}
