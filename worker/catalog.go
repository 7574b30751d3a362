package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A catalog is what a worker serves at one time. It does not change: SetTools puts another one in its place.
type catalog struct {
	tools    map[string]*served
	order    []*served // as configured
	lines    []wire.ToolLine
	describe []byte // the answer to Describe
}

// A served tool is what a worker knows of one of its tools.
type served struct {
	name     string
	manifest *tool.Manifest
	compiled *tool.Compiled
	handler  Handler
	*tally
}

// A tally counts for a tool, whatever becomes of its manifest. It is guarded by Worker.mu.
type tally struct {
	calls, errors uint64
	busy          time.Duration
	lastError     string
}

// A place is where the calls of a tool come in, and their cancels.
type place struct{ call, cancel *bus.Subscription }

// learn compiles the tools; the error names all that are wrong.
func (w *Worker) learn(tools []Tool) (*catalog, error) {
	if len(tools) == 0 || len(tools) > wire.MaxTools {
		return nil, fmt.Errorf("worker: Tools: expected 1 to %d, got %d", wire.MaxTools, len(tools))
	}
	var errs []error
	cat := &catalog{tools: map[string]*served{}}
	record := wire.DescribeRecord{Worker: w.id}
	for i, t := range tools {
		s, err := t.compile()
		if err == nil && cat.tools[s.name] != nil {
			err = errors.New("it is there twice")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("worker: Tools[%d] %q: %w", i, t.Manifest.ID, err))
			continue
		}
		cat.tools[s.name] = s
		cat.order = append(cat.order, s)
		cat.lines = append(cat.lines, wire.ToolLine{ID: s.name, Version: s.manifest.Version, Digest: s.manifest.Digest()})
		record.Manifests = append(record.Manifests, *s.manifest)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var err error
	if cat.describe, err = wire.Marshal(wire.MsgPack, record); err != nil {
		return nil, fmt.Errorf("worker: encode the manifests: %w", err)
	}
	if most := w.bus.Inline(); len(cat.describe) > most {
		return nil, fmt.Errorf("worker: the manifests of %d tools have %d bytes, at most %d fit into a message: run several workers", len(tools), len(cat.describe), most)
	}
	return cat, nil
}

func (t Tool) compile() (*served, error) {
	if t.err != nil {
		return nil, t.err
	}
	if t.Handler == nil {
		return nil, errors.New("Handler is nil")
	}
	c, err := tool.Compile(t.Manifest)
	if err != nil {
		return nil, err
	}
	return &served{name: c.ID, manifest: &c.Manifest, compiled: c, handler: t.Handler, tally: &tally{}}, nil
}

// SetTools puts these tools in the place of those that the worker has: new ones are added, those that are missing are
// given back, and those of the same name get the new manifest and handler. It may be called before and during Run, from
// any goroutine; executors are told at once. Calls that run go on as they began, and what a call left in memory under
// its key stays. An error says that nothing has changed.
func (w *Worker) SetTools(tools []Tool) error {
	next, err := w.learn(tools)
	if err != nil {
		return err
	}
	w.change.Lock()
	defer w.change.Unlock()
	w.mu.Lock()
	phase := w.phase
	w.mu.Unlock()
	if phase > open {
		return errors.New("worker: SetTools came after the worker began to leave: make a new Worker")
	}

	last := w.catalog.Load()
	removed := w.follow(last, next)
	if w.places == nil { // not listening yet
		w.catalog.Store(next)
		return nil
	}
	both := *next
	both.tools = map[string]*served{}
	for _, c := range []*catalog{last, next} {
		for name, t := range c.tools {
			both.tools[name] = t
		}
	}
	w.catalog.Store(&both) // until nobody asks for what goes
	var added []string
	for _, t := range next.order {
		if _, there := w.places[t.name]; there {
			continue
		}
		added = append(added, t.name)
		if err = w.listen(t.name); err != nil {
			break
		}
	}
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		w.catalog.Store(last)
		w.giveBack(added)
		return err
	}
	w.giveBack(removed)
	w.catalog.Store(next)
	w.wish()
	return nil
}

// follow hands the counts of the last catalog on to the next, remembers what may still run of tools that go, and says
// which these are.
func (w *Worker) follow(last, next *catalog) (removed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range last.tools {
		if n := next.tools[name]; n != nil {
			n.tally = t.tally
		} else {
			removed = append(removed, name)
		}
	}
	w.former = map[string]bool{}
	for r := range w.live {
		if next.tools[r.tool.name] == nil {
			w.former[r.tool.name] = true
		}
	}
	return removed
}

// listen subscribes to a tool's cancels, then to its calls. w.change is held.
func (w *Worker) listen(name string) error {
	var p place
	var err error
	if p.cancel, err = w.subscribe(w.subjects.Cancel(name), "", func(m *nats.Msg) { w.takeCancel(m, name) }); err != nil {
		return err
	}
	w.places[name] = p
	take := func(m *nats.Msg) {
		var h heads
		h.read(m.Header)
		w.takeCall(m, &h, name, false)
	}
	if p.call, err = w.subscribe(w.subjects.Call(name), wire.QueueGroup, take); err != nil {
		return err
	}
	w.places[name] = p
	return nil
}

// giveBack ends the subscriptions of tools, once what had come was handled. w.change is held.
func (w *Worker) giveBack(names []string) {
	var subs []*bus.Subscription
	for _, name := range names {
		p := w.places[name]
		delete(w.places, name)
		for _, sub := range []*bus.Subscription{p.call, p.cancel} {
			if sub != nil {
				subs = append(subs, sub)
			}
		}
	}
	w.drain(subs, patience)
}

// close gives the places up for good: the calls' subscriptions, to be given back now, and the cancels', for later.
func (w *Worker) close() (calls, cancels []*bus.Subscription) {
	w.change.Lock()
	defer w.change.Unlock()
	for _, p := range w.places {
		if p.call != nil {
			calls = append(calls, p.call)
		}
		cancels = append(cancels, p.cancel)
	}
	w.places = nil
	return calls, cancels
}

func (w *Worker) subscribe(subject, queue string, h func(*nats.Msg)) (*bus.Subscription, error) {
	sub, err := w.bus.Subscribe(subject, queue, h)
	if err != nil {
		return nil, refused(subject, queue, err)
	}
	return sub, nil
}
