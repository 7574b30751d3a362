package executor

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/wire"
)

// gates are all breakers of an executor, and their join with those of the others:
//
//	call ──► gate: what was seen last (a pointer) ──► go, refuse, or ask for a probe
//	          │ outcomes, folded
//	          ▼
//	        write ──compare-and-swap──► the store ──feed──► every executor's gates
//
// The store decides. While it is away each executor decides on its own machine, and says so.
type gates struct {
	store  kvstate.Store // nil: nothing is shared
	bus    *bus.Conn
	me     string
	log    *slog.Logger
	notice func(*wire.Event) // nil tells nobody

	byKey sync.Map // key → *gate
	count atomic.Int64

	mu      sync.Mutex    // orders start and shut
	busy    int           // writers
	quiet   chan struct{} // closed when the last of them ends
	ctx     context.Context
	stop    context.CancelFunc
	writers sync.WaitGroup

	away    atomic.Bool
	born    time.Time
	synced  atomic.Int64  // when the copy was last known to be whole, in nanoseconds since born: no wall clock counts
	era     atomic.Uint64 // the latest that was told: see kvstate.Update
	others  others
	tell    func(time.Time, *Presence) // what this executor is about
	resized func(int)                  // told how many executors live, when that has changed
}

func newGates(store kvstate.Store, c *bus.Conn, log *slog.Logger) *gates {
	gs := &gates{store: store, bus: c, me: c.ID(), log: log, born: time.Now()}
	gs.ctx, gs.stop = context.WithCancel(context.Background())
	gs.others.seen = map[string]time.Time{}
	gs.away.Store(true) // until the copy is whole for the first time
	return gs
}

// gate is the breaker of a key, made at its first use. Its policy is the last one that somebody brought; nil brings none.
func (gs *gates) gate(key string, p *breaker.Policy) *gate {
	if v, ok := gs.byKey.Load(key); ok {
		g := v.(*gate)
		if p != nil && g.policy.Load() != p {
			g.policy.Store(p)
			g.local.SetPolicy(*p)
		}
		return g
	}
	if p == nil {
		p = new(breaker.Default())
	}
	g := &gate{key: key, gates: gs, local: breaker.New(*p), wake: make(chan struct{}, 1)}
	g.policy.Store(p)
	g.seen.Store(&breaker.Seen{})
	g.era.Store(gs.era.Load()) // nothing of it was seen in this era: what is said of it from now on is not of one before
	if gs.count.Load() >= maxGates {
		g.alone = true // not kept, so not shared: a bound, not a service
		return g
	}
	v, was := gs.byKey.LoadOrStore(key, g)
	if !was {
		gs.count.Add(1)
	}
	return v.(*gate)
}

// maxGates bounds the breakers kept, at about two kilobytes each. Callers choose their keys (breaker_key).
const maxGates = 100_000

// keyOf is the key of a tool's breaker, or of one partition of it: what a partition is called may be anything.
func keyOf(tool, partition string) string {
	if partition == "" {
		return tool
	}
	h := fnv.New64a()
	h.Write([]byte(partition))
	return fmt.Sprintf("%s.%016x", tool, h.Sum64())
}

// maxSilence is after what time without a whole copy the store counts as away. Follow makes one every five seconds.
const maxSilence = 12 * time.Second

// run follows the store until ctx ends. What keeps it from that is said, and tried again: meanwhile this executor decides
// alone.
func (gs *gates) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { gs.meet(ctx) })
	for gs.store != nil && ctx.Err() == nil {
		err := gs.share(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		gs.lost()
		gs.log.Error("circuit breakers cannot be shared", "error", err)
		select {
		case <-time.After(rejoin):
		case <-ctx.Done():
		}
	}
}

// rejoin is how soon sharing is tried again when it could not begin.
const rejoin = 5 * time.Second

func (gs *gates) share(ctx context.Context) error {
	gs.whole()
	defer gs.bus.OnDisconnect(gs.lost)()
	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	parts.Go(func() { gs.watch(ctx) })
	return gs.store.Follow(ctx, gs.take)
}

// start runs f on a goroutine that shut waits for. It is false where nothing is shared, or the executor is stopping.
func (gs *gates) start(f func()) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.store == nil || gs.ctx.Err() != nil {
		return false
	}
	gs.busy++
	gs.writers.Go(func() {
		f()
		gs.mu.Lock()
		defer gs.mu.Unlock()
		if gs.busy--; gs.busy == 0 && gs.quiet != nil {
			close(gs.quiet)
			gs.quiet = nil
		}
	})
	return true
}

// lastWords is how long what is still to be said may take at the end: a probe that nobody hears the end of holds up
// everybody until its lease is over.
const lastWords = time.Second

// shut ends the writers, when all is said or lastWords are over. What was not said is lost: breakers are soft state.
func (gs *gates) shut() {
	gs.mu.Lock()
	if gs.busy > 0 && !gs.away.Load() {
		quiet := make(chan struct{})
		gs.quiet = quiet
		gs.mu.Unlock()
		t := time.NewTimer(lastWords)
		select {
		case <-quiet:
		case <-t.C:
		}
		t.Stop()
		gs.mu.Lock()
	}
	gs.stop()
	gs.mu.Unlock()
	gs.writers.Wait()
}

// whole notes that the copy is whole.
func (gs *gates) whole() { gs.synced.Store(int64(time.Since(gs.born))) }

// take takes in one update of the store.
func (gs *gates) take(u kvstate.Update) {
	gs.era.Store(u.Era)
	switch {
	case u.Synced:
		gs.whole()
		if gs.away.CompareAndSwap(true, false) {
			gs.log.Info("breakers are shared")
			gs.each(func(g *gate) { g.back(time.Now()) })
		}
	case u.Deleted:
		if v, ok := gs.byKey.Load(u.Key); ok {
			v.(*gate).forget(u.Era, u.Revision)
		}
	default:
		gs.gate(u.Key, nil).apply(gs.decode(u.Entry), u.Era, u.Revision, false)
	}
}

func (gs *gates) each(f func(*gate)) {
	gs.byKey.Range(func(_, v any) bool {
		f(v.(*gate))
		return true
	})
}

// decode is the value of an entry, repaired where it makes no sense.
func (gs *gates) decode(e kvstate.Entry) breaker.Shared {
	v, err := BreakerOf(e)
	if err != nil {
		gs.log.Warn("a breaker's record was repaired", "breaker", e.Key, "revision", e.Revision, "error", err)
	}
	return v
}

// lost is the word that the store does not answer.
func (gs *gates) lost() {
	if gs.away.CompareAndSwap(false, true) {
		gs.log.Warn("the breakers' store is away: this executor decides alone until it is back")
	}
}

// watch notices when the copy gets old, and makes the store anew where somebody has deleted it.
func (gs *gates) watch(ctx context.Context) {
	anew, _ := gs.store.(interface{ Ensure(context.Context) error })
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if time.Since(gs.born)-time.Duration(gs.synced.Load()) > maxSilence {
			gs.lost()
		}
		if anew != nil && gs.away.Load() && n%5 == 0 && gs.bus.Connected() {
			if err := anew.Ensure(ctx); err != nil {
				gs.log.Debug("the breakers' store cannot be made anew yet", "error", err)
			}
		}
	}
}

// sleep waits, or until somebody wakes it; false means that the executor is stopping.
func (gs *gates) sleep(d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-wake:
		return true
	case <-gs.ctx.Done():
		return false
	}
}

// publish tells everybody of a transition, once: whoever wrote it does.
func (gs *gates) publish(key string, tr breaker.Transition, cause string) {
	gs.log.Warn(tr.Event(key), "from", tr.From.String(), "to", tr.To.String(), "why", tr.Why, "who", tr.Who)
	ev := &wire.Event{
		V: wire.Version, Type: wire.BreakerChanged, Tool: key, Turn: cause, Executor: gs.me,
		BreakerState: tr.To.String(), Decision: tr.Event(key), Because: tr.Why, Time: time.Now().UTC().Format(time.RFC3339Nano),
	}
	b, err := wire.Marshal(wire.JSON, ev)
	if err != nil {
		gs.log.Error("a breaker's event could not be encoded", "breaker", key, "error", err)
		return
	}
	if f := gs.bus.Publish(gs.bus.Subjects().Event("breaker"), nil, b); f != nil {
		gs.log.Warn("a breaker's event was not published", "breaker", key, "why", f.Message)
	}
	if gs.notice != nil {
		gs.notice(ev)
	}
}

func nonce() string { return nuid.Next() }
