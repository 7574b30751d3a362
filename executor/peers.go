package executor

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/wire"
)

// peers are the workers as this executor sees them: what it has out at each, and how each has been doing. One that is
// only known because a frame named it is forgotten with its last call: a worker may name whom it likes. One that the
// catalogue has, or had, is forgotten when it was not looked at for a while.
type peers struct {
	subjects wire.Subjects

	byID   sync.Map // worker id → *peer
	n      atomic.Int64
	pruned atomic.Int64 // when, in Unix nanoseconds
}

const (
	maxPeers = 20_000      // beyond it those that hold nothing are forgotten at once
	peerTTL  = time.Minute // longer than any worker is shunned
)

// A peer is one worker instance.
type peer struct {
	id      string
	subject string
	all     *peers
	out     atomic.Int64 // our calls that it holds
	load    atomic.Int64 // calls of others that it holds, as far as its heartbeats tell
	beat    atomic.Int64 // when the heartbeat that load is from came

	failures atomic.Int64 // in a row
	shunned  atomic.Int64 // until when, in Unix nanoseconds
	listed   atomic.Int64 // when the catalogue last had it, about, in Unix nanoseconds; 0 means never

	mu       sync.Mutex
	dropped  bool // no longer in peers: it takes no attempts
	attempts map[*attempt]struct{}
	ping     ping // the watch's
}

func (ps *peers) get(id string) *peer {
	if v, ok := ps.byID.Load(id); ok {
		return v.(*peer)
	}
	if ps.n.Load() >= maxPeers {
		ps.prune(time.Now())
	}
	v, there := ps.byID.LoadOrStore(id, &peer{id: id, subject: ps.subjects.To(id), all: ps, attempts: map[*attempt]struct{}{}})
	if !there {
		ps.n.Add(1)
	}
	return v.(*peer)
}

// prune forgets every peer that holds nothing, once a second at most.
func (ps *peers) prune(now time.Time) {
	last := ps.pruned.Load()
	if now.UnixNano()-last < int64(time.Second) || !ps.pruned.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	ps.byID.Range(func(_, v any) bool {
		p := v.(*peer)
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.attempts) == 0 {
			p.drop()
		}
		return true
	})
}

// drop forgets a peer that holds nothing. p.mu is held.
func (p *peer) drop() {
	if p.dropped {
		return
	}
	p.dropped = true
	if p.ping.open {
		p.ping.ticket.Close()
	}
	p.ping = ping{}
	p.all.byID.Delete(p.id)
	p.all.n.Add(-1)
}

// stale says that the catalogue has not had it for a while, or never had.
func (p *peer) stale(now time.Time) bool { return now.UnixNano()-p.listed.Load() > int64(peerTTL) }

// hold is false where the peer was dropped meanwhile: then there is another of that name to get.
func (p *peer) hold(a *attempt) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dropped {
		return false
	}
	p.out.Add(1)
	p.attempts[a] = struct{}{}
	return true
}

func (p *peer) release(a *attempt) {
	p.mu.Lock()
	_, held := p.attempts[a]
	delete(p.attempts, a)
	if held && len(p.attempts) == 0 && p.listed.Load() == 0 {
		p.drop()
	}
	p.mu.Unlock()
	if held {
		p.out.Add(-1)
	}
}

// Dispatch. A worker that fails at once would otherwise look idle and draw all calls to itself.
const (
	sample     = 16 // instances looked at, of very many
	ejectAfter = 5  // failures in a row
	ejectFor   = time.Second
	ejectMost  = 30 * time.Second
	fullFor    = 20 * time.Millisecond // a worker that refused is not asked again for so long
)

// pick chooses the instance with the fewest calls per unit of capacity: our own count plus what it holds for others.
// Nil means that none is known, and the queue group has to choose.
func (ps *peers) pick(now time.Time, of []*registry.Instance, not []*peer) *peer {
	if len(of) == 0 {
		return nil
	}
	at := now.UnixNano()
	from := 0
	if len(of) > 1 {
		from = rand.IntN(len(of))
	}
	shunned, looked := 0, min(len(of), sample)
	var best, bestShunned *peer
	var least, leastShunned float64
	for i := range looked {
		in := of[(from+i)%len(of)]
		p := ps.get(in.ID)
		if at-p.listed.Load() > int64(peerTTL/4) {
			p.listed.Store(at)
		}
		if slices.Contains(not, p) {
			continue
		}
		score := p.score(in)
		if p.shunned.Load() > at {
			shunned++
			if bestShunned == nil || score < leastShunned {
				bestShunned, leastShunned = p, score
			}
			continue
		}
		if best == nil || score < least {
			best, least = p, score
		}
	}
	if bestShunned != nil && (best == nil || (shunned*2 > looked && leastShunned < least)) {
		return bestShunned // never more than half of them are left out
	}
	return best
}

// other reports whether there is a worker to ask besides those that refused.
func (ps *peers) other(now time.Time, of []*registry.Instance, not []*peer) bool {
	return ps.pick(now, of, not) != nil
}

// score is how busy the instance is, with failures weighing like calls.
func (p *peer) score(in *registry.Instance) float64 {
	own := p.out.Load()
	if seen := in.LastSeen().UnixNano(); p.beat.Swap(seen) != seen {
		p.load.Store(max(0, int64(in.Running())-own)) // what it ran at its last heartbeat and was not ours
	}
	return float64(own+p.load.Load()+p.failures.Load()) / float64(max(in.Capacity(), 1))
}

// ended takes note of how an attempt at this worker ended; "" is success.
func (p *peer) ended(now time.Time, k fault.Kind) {
	switch k {
	case fault.Timeout, fault.Unavailable, fault.WorkerLost, fault.Upstream, fault.Internal, fault.InvalidResult:
	default:
		if p.failures.Load() != 0 {
			p.failures.Store(0)
		}
		return
	}
	n := p.failures.Add(1)
	if n < ejectAfter {
		return
	}
	d := min(ejectFor<<min(n-ejectAfter, 5), ejectMost)
	p.shun(now, d)
}

// full takes note that the worker refused a call or is gone.
func (p *peer) full(now time.Time, f *fault.Fault) {
	d := fullFor
	if ra := f.RetryAfter(); ra > 0 {
		d = min(ra, time.Second)
	}
	p.shun(now, d)
}

func (p *peer) shun(now time.Time, d time.Duration) {
	p.shunned.Store(now.Add(d).UnixNano())
}
