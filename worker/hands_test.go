package worker

import (
	"context"
	"flag"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/wire"
)

var handsSeed = flag.Uint64("hands.seed", 0, "seed of TestHands; 0 means a new one")

// Whatever handlers do to the goroutine that they run on, every call begins although others do not end, and is answered
// once; and no goroutine is left in the end.
func TestHands(t *testing.T) {
	seed := *handsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-hands.seed=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	const calls = 400
	bubble(t, func(h *house) {
		var began atomic.Int64
		let := make(chan struct{})
		w, done := h.run(Config{Concurrency: calls}, handler("t", func(_ context.Context, c *Call) (any, error) {
			began.Add(1)
			switch c.Session {
			case "wait":
				<-let
			case "sleep":
				time.Sleep(time.Millisecond)
			case "yield":
				runtime.Gosched()
			case "panic":
				panic("boom")
			case "exit":
				runtime.Goexit()
			}
			return 1, nil
		}))

		replies := make(chan *nats.Msg, 2*calls)
		sub, err := h.caller.NATS().ChanSubscribe("_INBOX.hands.*", replies)
		if err != nil {
			h.Fatal(err)
		}
		defer sub.Unsubscribe()
		waiting := 0
		for i := range calls {
			kind := []string{"", "", "wait", "sleep", "yield", "panic", "exit"}[dice.IntN(7)]
			if kind == "wait" {
				waiting++
			}
			m := &nats.Msg{Subject: h.subjects().Call("t"), Reply: "_INBOX.hands." + strconv.Itoa(i),
				Header: nats.Header{wire.HeaderSession: {kind}}}
			if err := h.caller.NATS().PublishMsg(m); err != nil {
				h.Fatal(err)
			}
			if dice.IntN(10) == 0 {
				h.flush()
			}
		}
		h.flush()
		synctest.Wait()
		if n := began.Load(); n != calls {
			h.Errorf("%d calls began while %d wait, want %d", n, waiting, calls)
		}
		time.Sleep(time.Second) // fake
		if s := w.Stats(); s.Running != waiting {
			h.Errorf("%d calls run, want the %d that wait", s.Running, waiting)
		}
		close(let)
		synctest.Wait()
		if n := len(w.hands.idle); n == 0 || n > maxIdle {
			h.Errorf("%d hands are idle, want 1 to %d", n, maxIdle)
		}
		w.Shutdown(context.Background())
		if err := <-done; err != nil {
			h.Error(err)
		}
		h.flush()
		synctest.Wait()
		answered := map[string]int{}
		for len(replies) > 0 {
			answered[(<-replies).Subject]++
		}
		for subject, n := range answered {
			if n != 1 {
				h.Errorf("%s was answered %d times, want once", subject, n)
			}
		}
		if len(answered) != calls {
			h.Errorf("%d calls were answered, want %d", len(answered), calls)
		}
	})
}

// Hands whose handlers outlive the grace end with their handlers: the bubble does not end before them.
func TestHandsOutliveTheWorker(t *testing.T) {
	const calls = 2 * maxIdle
	bubble(t, func(h *house) {
		let := make(chan struct{})
		w, done := h.run(Config{Concurrency: calls, Grace: time.Second}, echo(), handler("t", func(_ context.Context, c *Call) (any, error) {
			<-let
			if c.Session == "exit" {
				runtime.Goexit()
			}
			return 1, nil
		}))
		for range maxIdle {
			h.ask("echo", nil, "").want("result {}")
		}
		var came []*asked
		for i := range calls {
			came = append(came, h.ask("t", wire.Header{wire.HeaderSession: {[]string{"", "exit"}[i%2]}}, ""))
		}
		if n := w.Stats().Running; n != calls {
			h.Errorf("%d calls run, want %d", n, calls)
		}
		w.Shutdown(context.Background())
		if err := <-done; err == nil {
			h.Error("Run = nil, want the calls that did not stop")
		}
		close(let)
		for _, a := range came {
			a.want("error worker_lost unknown")
		}
		synctest.Wait()
		if s := w.Stats(); s.Running != 0 || s.Leaked != 0 || len(w.hands.idle) != 0 {
			h.Errorf("%+v and %d idle hands, want none", s, len(w.hands.idle))
		}
	})
}
