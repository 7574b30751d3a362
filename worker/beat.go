package worker

import (
	"math/rand/v2"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// rollcallJitter spreads the answers to a roll call, so that a thousand workers do not speak at once.
const rollcallJitter = 20 * time.Millisecond

// beat says hello, beats until silent is closed, and says bye.
func (w *Worker) beat(silent <-chan struct{}) {
	seq := int64(1)
	w.say(wire.Hello, seq)
	close(w.ready)

	every := time.NewTicker(w.cfg.Every)
	defer every.Stop()
	for {
		select {
		case <-silent:
			w.say(wire.Bye, seq+1)
			return
		case <-w.beats:
			select {
			case <-silent:
				continue
			case <-time.After(rand.N(rollcallJitter)):
			}
		case <-every.C:
			w.forget()
		}
		seq++
		w.say(wire.Beat, seq)
	}
}

// wish asks for a heartbeat soon.
func (w *Worker) wish() {
	select {
	case w.beats <- struct{}{}:
	default: // one is on its way
	}
}

func (w *Worker) say(state string, seq int64) {
	s := w.Stats()
	data, err := wire.Marshal(wire.MsgPack, wire.Heartbeat{
		Worker:   w.id,
		State:    state,
		Tools:    w.catalog.Load().lines,
		Running:  s.Running,
		Capacity: s.Capacity,
		Leaked:   s.Leaked,
		Draining: s.Draining,
		SDK:      SDK,
		EveryMs:  w.cfg.Every.Milliseconds(),
		Seq:      seq,
	})
	if err != nil {
		w.log.Error("heartbeat not encoded", "err", err)
		return
	}
	if f := w.bus.Publish(w.subjects.Heartbeat(w.id), nil, data); f != nil {
		w.log.Warn("heartbeat not sent", "err", f)
	}
}

// forget drops what is too old to be remembered, also where no calls come.
func (w *Worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.memory.forget(time.Now())
	w.gone.forget(time.Now())
}
