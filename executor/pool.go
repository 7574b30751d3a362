package executor

import "sync"

// A pool runs functions, so many at a time as it has hands. Of those that come while all are busy, at most so many wait.
type pool struct {
	hands, most int

	mu    sync.Mutex
	busy  int
	queue []func()
	all   sync.WaitGroup
}

// run is false where too many wait already; then f does not run.
func (p *pool) run(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.busy < p.hands:
		p.busy++
		p.all.Go(func() {
			for f := f; f != nil; f = p.next() {
				f()
			}
		})
	case len(p.queue) < p.most:
		p.queue = append(p.queue, f)
	default:
		return false
	}
	return true
}

// next is the next one that waits, and nil where there is none: then one hand less is busy.
func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.busy--
		return nil
	}
	f := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return f
}

// wait returns when all have run. None may be added meanwhile.
func (p *pool) wait() { p.all.Wait() }
