//go:build unix

package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
)

// A written is one compare-and-swap.
type written struct {
	client     int
	began, end int64
	expect     uint64
	value      string
	rev        uint64 // 0: nobody knows whether it was done
	err        error
}

// Eight write one key by compare-and-swap while its leader is killed, paused and parted from the others. Whatever is no
// success may have been done all the same; what succeeded must be one line of revisions, in the order of time.
//
// TOOLBUS_LONG=5m goes on for five minutes. TOOLBUS_E2E_SEED takes the seed that a run printed.
func TestSwapsAreLinear(t *testing.T) {
	t.Parallel()
	length := long() // 0: one partition, one kill
	if length == 0 && testing.Short() {
		t.Skip("a cluster that loses its leader takes its time")
	}
	seed := seeded(t)

	c := newCluster(t)
	conn := natstest.Dial(t, bus.Config{URL: c.urls()})
	b := openBucket(t, conn, "LINEAR")
	h := &history{began: time.Now(), read: map[string]uint64{}}
	var over atomic.Bool
	var all sync.WaitGroup
	for i := range 8 {
		mine := openBucket(t, natstest.Dial(t, bus.Config{URL: c.nodes[i%3].url + "," + c.urls()}), "LINEAR")
		all.Go(func() {
			for n := 0; !over.Load(); n++ {
				h.swap(t.Context(), mine, i, fmt.Sprintf("%d.%d", i, n))
			}
		})
	}
	did := trouble(t, c, conn, h, rand.New(rand.NewPCG(seed, 0)), length)
	over.Store(true)
	all.Wait()
	until(t, "the last read", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return h.look(ctx, b) == nil
	})
	h.check(t, did)
}

// openBucket opens a bucket on three servers.
func openBucket(t testing.TB, c *bus.Conn, name string) *kvstate.Bucket {
	t.Helper()
	var b *kvstate.Bucket
	until(t, "bucket "+name+" opens", 30*time.Second, func() bool {
		var err error
		b, err = kvstate.Open(t.Context(), c, kvstate.Config{Bucket: name, Replicas: 3})
		return err == nil
	})
	return b
}

// trouble does something to the leader, waits until writes succeed again, and so on for that long, or for one partition
// and one kill where length is 0.
func trouble(t testing.TB, c *cluster, conn *bus.Conn, h *history, rng *rand.Rand, length time.Duration) map[string]int {
	did := map[string]int{}
	for end := time.Now().Add(length); ; {
		h.goesOn(t)
		n := c.leader(conn, "KV_LINEAR")
		if n == nil {
			continue
		}
		kind := []string{"partition", "kill", "pause"}[rng.IntN(3)]
		if length == 0 {
			kind = []string{"partition", "kill"}[len(did)]
		}
		did[kind]++
		span := time.Duration(1000+rng.IntN(2000)) * time.Millisecond
		if length > 0 && rng.IntN(3) == 0 {
			span += 10 * time.Second // until the others have a leader of their own
		}
		if kind == "kill" {
			span = 0
		}
		c.trouble(kind, n, span)
		if length == 0 && len(did) == 2 || length > 0 && time.Now().After(end) {
			h.goesOn(t)
			return did
		}
	}
}

// A history is what everybody did and saw.
type history struct {
	began time.Time
	done  atomic.Int64

	mu   sync.Mutex
	ops  []written
	read map[string]uint64 // revision by value
	bad  []string
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

// goesOn waits until something was written that had not begun before.
func (h *history) goesOn(t testing.TB) {
	t.Helper()
	n := h.done.Load()
	until(t, "writes succeed", 60*time.Second, func() bool { return h.done.Load() >= n+60 })
}

// look reads what stands there, which shows that it was written.
func (h *history) look(ctx context.Context, b *kvstate.Bucket) error {
	_, err := h.stands(ctx, b)
	return err
}

func (h *history) stands(ctx context.Context, b *kvstate.Bucket) (uint64, error) {
	e, err := b.Get(ctx, "k")
	if errors.Is(err, kvstate.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ok := h.read[string(e.Value)]; ok && old != e.Revision {
		h.bad = append(h.bad, fmt.Sprintf("%s was read at %d and at %d", e.Value, old, e.Revision))
	}
	h.read[string(e.Value)] = e.Revision
	return e.Revision, nil
}

// swap reads and writes once, each within two seconds.
func (h *history) swap(ctx context.Context, b *kvstate.Bucket, client int, value string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rev, err := h.stands(ctx, b)
	if err != nil {
		return
	}
	ctx, cancel2 := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel2()
	op := written{client: client, began: h.now(), expect: rev, value: value}
	if rev == 0 {
		op.rev, op.err = b.Create(ctx, "k", []byte(value))
	} else {
		op.rev, op.err = b.Update(ctx, "k", []byte(value), rev)
	}
	op.end = h.now()
	h.mu.Lock()
	h.ops = append(h.ops, op)
	h.mu.Unlock()
	if op.err == nil {
		h.done.Add(1)
		return
	}
	nap := time.NewTimer(5 * time.Millisecond) // refusals come without end from a leader that lost the others
	<-nap.C
}

// check asks whether what was done, and what was found to have been done, has an order.
func (h *history) check(t *testing.T, did map[string]int) {
	var ops []porcupine.Operation
	wins, found, lied := 0, 0, 0
	next := map[uint64]string{}
	for _, op := range h.ops {
		switch seen, ok := h.read[op.value]; {
		case op.err == nil:
			wins++
			if ok && seen != op.rev {
				t.Errorf("%s was written at %d and read at %d", op.value, op.rev, seen)
			}
		case !ok:
			continue // nobody saw it, so nobody wrote after it
		default:
			found++
			if errors.Is(op.err, kvstate.ErrConflict) {
				lied++
			}
			op.rev, op.end = seen, math.MaxInt64
		}
		if other, ok := next[op.expect]; ok {
			t.Errorf("revision %d was replaced twice: by %s and by %s", op.expect, other, op.value)
		}
		next[op.expect] = op.value
		ops = append(ops, porcupine.Operation{ClientId: op.client, Input: op, Call: op.began, Return: op.end})
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for i := range ops {
		if ops[i].Return == math.MaxInt64 {
			ops[i].ClientId = 8 + i // it has no end, and its client went on
		}
	}
	model := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			op := input.(written)
			return state.(uint64) == op.expect && op.rev > op.expect, op.rev
		},
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(model, ops, time.Minute)
	t.Logf("%v: %d tries, %d succeeded, %d more were found to have been done, %d of them after a conflict; %s in %v",
		did, len(h.ops), wins, found, lied, result, time.Since(began).Round(time.Millisecond))
	if result != porcupine.Ok {
		t.Errorf("porcupine: %s, want Ok", result)
	}
	for _, bad := range h.bad {
		t.Error(bad)
	}
	if wins < 100 {
		t.Errorf("%d writes succeeded: that was not much of a test", wins)
	}
}
