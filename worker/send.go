package worker

import (
	"sync"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// Bounds of the outbox.
const (
	maxLetters     = 1000
	maxLetterBytes = 64 << 20
)

// An outbox keeps the ends of calls that could not be published, because the connection was away, until it is back.
// What does not fit is lost: a caller that asks again with the same key gets the answer from memory.
type outbox struct {
	mu      sync.Mutex // the innermost: an answer may fail under any other
	letters []letter
	bytes   int
}

type letter struct {
	reply  string
	header wire.Header
	data   []byte
}

// answer ends an attempt. Without a tool the fault names none.
func (w *Worker) answer(t *served, c caller, a answer) {
	l := letter{c.reply, a.header, a.data}
	if a.fault != nil {
		f := *a.fault
		f.Worker, f.Attempt = w.id, c.attempt
		if f.Tool == "" && t != nil {
			f.Tool = t.name
		}
		l.header, l.data = wire.EncodeFault(wire.JSON, &f)
		l.header[wire.HeaderFrame] = []string{string(a.frame)}
		l.header[wire.HeaderWorker] = []string{w.id}
	}
	if f := w.send(l.reply, l.header, l.data); f != nil && f.Kind == fault.Unavailable {
		w.unsent.put(l)
	}
}

func (o *outbox) put(l letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.letters) < maxLetters && o.bytes+len(l.data) <= maxLetterBytes {
		o.letters = append(o.letters, l)
		o.bytes += len(l.data)
	}
}

func (o *outbox) empty() []letter {
	o.mu.Lock()
	defer o.mu.Unlock()
	letters := o.letters
	o.letters, o.bytes = nil, 0
	return letters
}

func (o *outbox) len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.letters)
}

func (w *Worker) send(reply string, h wire.Header, data []byte) *fault.Fault {
	f := w.bus.Respond(reply, h, data)
	if f != nil {
		w.log.Warn("frame not sent", "reply", reply, "frame", wire.FrameOf(h), "err", f)
	}
	return f
}

// resume is what follows a reconnect: the answers that waited, and a heartbeat.
func (w *Worker) resume() {
	for _, l := range w.unsent.empty() {
		w.send(l.reply, l.header, l.data)
	}
	w.wish()
}
