package worker

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// takeOwn is a message on the worker's own subject: a call that was sent here by choice, or a control frame.
func (w *Worker) takeOwn(m *nats.Msg) {
	var h heads
	h.read(m.Header)
	switch frame := h.kind(); frame {
	case "":
		w.takeCall(m, &h, "", true)
	case wire.Cancel:
		w.takeCancel(m, "")
	case wire.Ping:
		w.pong(m)
	case wire.Describe:
		w.reply(m, wire.Header{
			wire.HeaderFrame:       {string(wire.Manifests)},
			wire.HeaderWorker:      {w.id},
			wire.HeaderContentType: {wire.MsgPack},
		}, w.catalog.Load().describe)
	case wire.Drain:
		w.log.Info("told to drain")
		w.shut()
	case wire.Quarantine:
		w.log.Warn("told to take no more calls")
		w.mu.Lock()
		w.quiet = true
		w.mu.Unlock()
		w.wish()
	default:
		w.log.Warn("frame of an unknown kind ignored", "frame", fault.Truncate(string(frame), 80))
	}
}

// reply answers a control frame, if the asker may choose that subject.
func (w *Worker) reply(m *nats.Msg, h wire.Header, data []byte) {
	if w.mayAnswer(m.Reply, "") {
		w.send(m.Reply, h, data)
	}
}

func (w *Worker) pong(m *nats.Msg) {
	h := wire.Header{wire.HeaderFrame: {string(wire.Pong)}, wire.HeaderWorker: {w.id}}
	if v := wire.Get(m.Header, wire.HeaderCall); v != "" {
		ref, err := wire.ParseCallRef(v)
		running := "0"
		if err == nil && len(w.runs(ref, "", true)) > 0 {
			running = "1"
		}
		h[wire.HeaderRunning] = []string{running}
	}
	w.reply(m, h, nil)
}

// takeCancel stops an attempt and older ones of its call, of one tool or of all. Where the call is not here it may be on
// its way: then it is stopped when it comes. Nobody is answered but the caller of the attempt.
func (w *Worker) takeCancel(m *nats.Msg, name string) {
	ref, err := wire.ParseCallRef(wire.Get(m.Header, wire.HeaderCall))
	if err != nil {
		w.log.Warn("cancel ignored", "err", err)
		return
	}
	runs := w.runs(ref, name, false)
	if len(runs) == 0 {
		w.foresee(ref)
		return
	}
	for _, r := range runs {
		if c, away := r.drop(ref.Key(), ref.Attempt); away {
			f := fault.New(fault.Cancelled, "the call was cancelled; its run goes on for others with the same key")
			w.answer(r.tool, c, answer{frame: wire.Stopped, fault: f})
		}
	}
}

// runs are those that serve a call: this attempt exactly, or also older ones.
func (w *Worker) runs(ref wire.CallRef, name string, exactly bool) []*run {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []*run
	now := time.Now()
	look := func(of string) {
		m := w.memory.get(memoKey{of, ref.Key()}, now)
		if m != nil && m.val.run != nil && m.val.run.serves(ref.Key(), ref.Attempt, exactly) {
			found = append(found, m.val.run)
		}
	}
	if name != "" {
		look(name)
		return found
	}
	for _, t := range w.catalog.Load().order {
		look(t.name)
	}
	for of := range w.former {
		look(of)
	}
	return found
}

// foresee remembers a cancel whose call is not here, for a while, unless the call has been here.
func (w *Worker) foresee(ref wire.CallRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, t := range w.catalog.Load().order {
		if m := w.memory.get(memoKey{t.name, ref.Key()}, now); m != nil && m.val.attempt >= ref.Attempt {
			return
		}
	}
	g := w.gone.hold(ref.Key(), now)
	g.val = max(g.val, ref.Attempt)
	w.gone.keep(g, len(g.key), now)
}
