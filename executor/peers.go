package executor

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
)

// peers are the workers as this executor sees them: what it has out at each, and how each has been doing.
type peers struct {
	byID sync.Map // worker id → *peer
}

// A peer is one worker instance.
type peer struct {
	id   string
	out  atomic.Int64 // our calls that it holds
	load atomic.Int64 // calls of others that it holds, as far as its heartbeats tell
	beat atomic.Int64 // when the heartbeat that load is from came

	failures atomic.Int64 // in a row
	shunned  atomic.Int64 // until when, in Unix nanoseconds

	mu       sync.Mutex
	attempts map[*attempt]struct{}
	ping     ping // the watch's
}

func (ps *peers) get(id string) *peer {
	if v, ok := ps.byID.Load(id); ok {
		return v.(*peer)
	}
	v, _ := ps.byID.LoadOrStore(id, &peer{id: id, attempts: map[*attempt]struct{}{}})
	return v.(*peer)
}

func (p *peer) hold(a *attempt) {
	p.out.Add(1)
	p.mu.Lock()
	p.attempts[a] = struct{}{}
	p.mu.Unlock()
}

func (p *peer) release(a *attempt) {
	p.mu.Lock()
	_, held := p.attempts[a]
	delete(p.attempts, a)
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
