package worker

import (
	"context"
	"sync"
	"time"
)

// A view is the context of a handler, which knows its call. Most handlers return before anybody asks whether they should;
// so what its end takes, a timer and a channel, is made for the first who asks, and is then what package context makes.
type view struct {
	base     context.Context
	call     *Call
	deadline time.Time

	mu      sync.Mutex      // the innermost of a run
	inTime  bool            // the handler returned before the deadline
	ctx     context.Context // nil until somebody asks
	cancel  context.CancelCauseFunc
	release context.CancelFunc
}

// whole is what the view stands for. Made late, it is as it would be by then.
func (v *view) whole() context.Context {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ctx != nil {
		return v.ctx
	}
	ctx, cancel := context.WithCancelCause(v.base)
	if v.inTime {
		cancel(errReturned)
	}
	v.cancel = cancel
	v.ctx, v.release = context.WithDeadlineCause(ctx, v.deadline, errTimeout)
	return v.ctx
}

func (v *view) Deadline() (time.Time, bool) { return v.deadline, true }
func (v *view) Done() <-chan struct{}       { return v.whole().Done() }
func (v *view) Err() error                  { return v.whole().Err() }

// Value asks the whole also for what package context looks for, which is how it finds a cause.
func (v *view) Value(key any) any {
	if key == (callKey{}) {
		return v.call
	}
	return v.whole().Value(key)
}

// String keeps print from looking at what mu guards.
func (v *view) String() string { return "worker.Call(" + v.call.Tool + ")" }

// stop ends the context, unless it has ended.
func (v *view) stop(cause error) {
	v.whole()
	v.cancel(cause)
}

// end is for the handler's return: who still has the context learns that, and its timer is given back.
func (v *view) end() {
	v.mu.Lock()
	v.inTime = time.Now().Before(v.deadline)
	ctx := v.ctx
	v.mu.Unlock()
	if ctx != nil {
		v.cancel(errReturned)
		v.release()
	}
}
