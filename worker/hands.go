package worker

import "sync"

// maxIdle bounds the hands that wait for calls: each keeps a stack of some kilobytes.
const maxIdle = 64

// Hands are the goroutines that run calls. One that is done takes the next call, for a goroutine of its own would grow its
// stack anew for each call, and be woken for it. While calls wait a hand is on its way to them, which nothing delays but
// the scheduler; before it runs a call it sends for the next hand. So no call waits for the handler of another, and where
// handlers are quick one hand runs many calls in a row.
type hands struct {
	mu          sync.Mutex
	first, last *run            // that wait
	coming      bool            // a hand is on its way
	idle        []chan struct{} // what wakes a hand; the last is the warmest
	over        bool
}

// take has a hand serve the run.
func (h *hands) take(r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.first == nil {
		h.first = r
	} else {
		h.last.next = r
	}
	h.last = r
	h.send()
}

// send sees to it that a hand comes while calls wait. h.mu is held.
func (h *hands) send() {
	if h.coming || h.first == nil {
		return
	}
	h.coming = true
	n := len(h.idle) - 1
	if n < 0 {
		go h.work()
		return
	}
	h.idle[n] <- struct{}{} // it has room: who is idle has heard all before
	h.idle = h.idle[:n]
}

// work is the life of a hand. A handler that ends its goroutine ends the hand.
func (h *hands) work() {
	wake := make(chan struct{}, 1)
	for came := true; ; {
		r, stay := h.next(wake, came)
		if !stay {
			return
		}
		came = r == nil
		if came {
			<-wake
		} else {
			r.serve()
		}
	}
}

// next gives a hand a call, or else a place among the idle, if there is one.
func (h *hands) next(wake chan struct{}, came bool) (r *run, stay bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if came {
		h.coming = false
	}
	if r = h.first; r != nil {
		h.first, r.next = r.next, nil
		if h.first == nil {
			h.last = nil // it would keep the call in memory
		}
		h.send()
		return r, true
	}
	if h.over || len(h.idle) == maxIdle {
		return nil, false
	}
	h.idle = append(h.idle, wake)
	return nil, true
}

// end ends the hands: the idle ones now, the others when they are done and no call waits.
func (h *hands) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	for _, wake := range h.idle {
		close(wake)
	}
	h.idle = nil
}
