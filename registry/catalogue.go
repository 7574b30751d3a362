package registry

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/toolbus/toolbus/wire"
)

// Bounds of the catalogue. What is beyond them is refused, and said in the log.
const (
	maxWorkers = 10_000
	maxTools   = 10_000
	maxForms   = 16      // manifests of one tool
	maxPlaces  = 200_000 // tools of workers, each counted for each worker
)

// slack is how much later than promised a beat may come.
const slack = 100 * time.Millisecond

// A catalogue is the fold: it is told what was heard, learned and found out, and when, and returns what that changed. It
// reads no clock and starts nothing. Not for concurrent use.
type catalogue struct {
	missed  int // beats after which a worker is taken for dead
	workers map[string]*worker
	left    map[string]*worker // who left a moment ago, so that its older beats are not taken for news
	tools   map[string]*entry
	places  int             // of all tools together
	rank    uint64          // the last one given; see form
	dirty   map[string]bool // tools to be made anew before the method returns
}

// A worker is one that lives, or left a moment ago.
type worker struct {
	*Instance
	seq      int64
	every    time.Duration
	due      time.Time       // when it is taken for dead; of one that left, when it is forgotten
	said     []wire.ToolLine // its tools, as the last beat had them
	lines    []wire.ToolLine // those that were taken, sorted, one for each tool
	complete bool            // there is a manifest for each of them
	hushed   time.Time       // until then it is not asked for manifests
}

// A delta is what one step of the fold changed.
type delta struct {
	changes []Change
	made    []*Tool  // made anew
	removed []string // tools that nobody knows any more
	dropped []*form  // manifests that had to make room
	ask     []wire.ToolLine
	refused int // tools of this beat for which there is no room
}

// Why a heartbeat changes nothing.
var (
	errOld  = errors.New("an older heartbeat than the one before")
	errFull = errors.New("too many workers")
)

func newCatalogue(missed int) *catalogue {
	return &catalogue{
		missed:  missed,
		workers: map[string]*worker{},
		left:    map[string]*worker{},
		tools:   map[string]*entry{},
		dirty:   map[string]bool{},
	}
}

// beat takes in a heartbeat that was checked. The usual one, of a worker that says what it said before, returns the zero
// delta and allocates nothing.
func (c *catalogue) beat(now time.Time, hb *wire.Heartbeat) (delta, error) {
	var d delta
	w, live := c.workers[hb.Worker]
	if !live {
		w = c.left[hb.Worker]
	}
	switch {
	case w == nil:
	case hb.Seq > w.seq:
	case hb.State == wire.Hello: // another process under the same name, which counts anew
		if live {
			c.leave(&d, now, w, "another process said hello in its name")
		}
		w, live = nil, false
		delete(c.left, hb.Worker)
	default:
		return d, errOld
	}
	if hb.State == wire.Bye {
		if w != nil {
			w.seq = hb.Seq
		}
		if live {
			c.leave(&d, now, w, "it said bye")
		}
		return c.settle(d), nil
	}
	if !live {
		if len(c.workers) >= maxWorkers {
			return d, errFull
		}
		w = c.join(&d, w, hb)
	}

	w.seq = hb.Seq
	w.every = every(hb)
	w.due = now.Add(c.window(w))
	flipped := w.Draining() != hb.Draining
	w.hear(now, hb)
	switch news := !slices.Equal(w.said, hb.Tools); {
	case news && c.places-len(w.lines)+len(hb.Tools) > maxPlaces:
		d.refused = len(hb.Tools)
	case news:
		c.announce(&d, w, hb.Tools)
	case flipped:
		c.touch(w)
	}
	if !w.complete && !now.Before(w.hushed) {
		d.ask = c.missing(w)
	}
	return c.settle(d), nil
}

// every is how often a worker beats; a second where it does not say.
func every(hb *wire.Heartbeat) time.Duration {
	if hb.EveryMs <= 0 {
		return wire.HeartbeatEvery
	}
	return time.Duration(min(hb.EveryMs, wire.MaxMs)) * time.Millisecond
}

// window is how long a worker may be silent.
func (c *catalogue) window(w *worker) time.Duration {
	return time.Duration(c.missed)*w.every + slack
}

// join makes a worker live: a new one, or before, which left a moment ago and keeps its Instance.
func (c *catalogue) join(d *delta, before *worker, hb *wire.Heartbeat) *worker {
	w := &worker{Instance: &Instance{ID: hb.Worker, SDK: hb.SDK}}
	if before != nil {
		w.Instance = before.Instance
	}
	delete(c.left, w.ID)
	c.workers[w.ID] = w
	d.changes = append(d.changes, Change{Kind: WorkerJoined, Worker: w.ID})
	return w
}

// leave takes a worker out.
func (c *catalogue) leave(d *delta, now time.Time, w *worker, because string) {
	c.announce(d, w, nil)
	delete(c.workers, w.ID)
	if len(c.left) < maxWorkers {
		w.due = now.Add(c.window(w))
		c.left[w.ID] = w
	}
	d.changes = append(d.changes, Change{Kind: WorkerLeft, Worker: w.ID, Because: because})
}

// announce replaces the tools of a worker.
func (c *catalogue) announce(d *delta, w *worker, said []wire.ToolLine) {
	lines := slices.Clone(said)
	slices.SortStableFunc(lines, func(a, b wire.ToolLine) int { return cmp.Compare(a.ID, b.ID) })
	lines = slices.CompactFunc(lines, func(a, b wire.ToolLine) bool { return a.ID == b.ID })

	c.touch(w)
	for _, l := range w.lines {
		e := c.tools[l.ID]
		if i, ok := e.find(w.ID); ok {
			e.places = slices.Delete(e.places, i, i+1)
		}
		if f := e.forms[l.Digest]; f != nil {
			c.rank++
			f.rank = c.rank
		}
	}
	c.places -= len(w.lines)
	w.said, w.lines, w.complete, w.hushed = said, nil, false, time.Time{}
	for _, l := range lines {
		e := c.entry(l.ID)
		if e == nil {
			d.refused++
			continue
		}
		i, _ := e.find(w.ID)
		e.places = slices.Insert(e.places, i, place{w, l})
		w.lines = append(w.lines, l)
	}
	c.places += len(w.lines)
	c.touch(w)
}

// touch marks the tools of a worker to be made anew.
func (c *catalogue) touch(w *worker) {
	for _, l := range w.lines {
		c.dirty[l.ID] = true
	}
}

// entry is the entry of a tool, a new one where there is none; nil where there is no room.
func (c *catalogue) entry(name string) *entry {
	e := c.tools[name]
	if e == nil && len(c.tools) < maxTools {
		e = &entry{name: name, forms: map[string]*form{}}
		c.tools[name] = e
	}
	return e
}

// missing lists the tools of a worker of which we do not have the manifest that it announces. Without a digest it
// announces none.
func (c *catalogue) missing(w *worker) []wire.ToolLine {
	var lines []wire.ToolLine
	for _, l := range w.lines {
		if l.Digest != "" && c.tools[l.ID].forms[l.Digest] == nil {
			lines = append(lines, l)
		}
	}
	w.complete = len(lines) == 0
	return lines
}

// learn takes in a manifest, from a worker or from the store. It is false where that is nothing new or there is no room.
func (c *catalogue) learn(f *form) (delta, bool) {
	var d delta
	e := c.entry(f.compiled.ID)
	if e == nil || e.forms[f.digest] != nil {
		return d, false
	}
	dropped, ok := e.add(f)
	if !ok {
		return d, false
	}
	if dropped != nil {
		d.dropped = append(d.dropped, dropped)
	}
	c.rank++
	f.rank = c.rank
	c.dirty[e.name] = true
	return c.settle(d), true
}

// hush says that worker is not asked for manifests until then: its answer was of no use. Another list of tools is news.
func (c *catalogue) hush(id string, until time.Time) {
	if w := c.workers[id]; w != nil {
		w.hushed = until
	}
}

// gone takes a worker out of which somebody found out that it is not there. Its next beat brings it back.
func (c *catalogue) gone(now time.Time, id, because string) delta {
	var d delta
	if w := c.workers[id]; w != nil {
		c.leave(&d, now, w, because)
	}
	return c.settle(d)
}

// expire takes out the workers that were silent for too long. It says when to look again at the latest, where there is
// anybody left who may be silent.
func (c *catalogue) expire(now time.Time) (d delta, next time.Time) {
	var silent []*worker
	for _, w := range c.workers {
		switch {
		case !w.due.After(now):
			silent = append(silent, w)
		case next.IsZero() || w.due.Before(next):
			next = w.due
		}
	}
	slices.SortFunc(silent, func(a, b *worker) int { return cmp.Compare(a.ID, b.ID) })
	for id, w := range c.left {
		if !w.due.After(now) {
			delete(c.left, id)
		}
	}
	for _, w := range silent {
		c.leave(&d, now, w, "it missed its heartbeats")
	}
	return c.settle(d), next
}

// settle makes the tools anew that the step touched.
func (c *catalogue) settle(d delta) delta {
	if len(c.dirty) == 0 {
		return d
	}
	names := make([]string, 0, len(c.dirty))
	for name := range c.dirty {
		names = append(names, name)
	}
	clear(c.dirty)
	slices.Sort(names)
	for _, name := range names {
		e := c.tools[name]
		if len(e.forms) == 0 && len(e.places) == 0 {
			delete(c.tools, name)
			d.removed = append(d.removed, name)
			continue
		}
		before := e.tool
		e.tool = e.build()
		d.made = append(d.made, e.tool)
		d.changes = append(d.changes, e.compare(before)...)
	}
	return d
}

// compare tells what people should hear of the step from before to what holds now.
func (e *entry) compare(before *Tool) []Change {
	var changes []Change
	t := e.tool
	if t.Compiled != nil && t.Digest != e.held {
		kind := ToolChanged
		if e.held == "" {
			kind = ToolAdded
		}
		e.held = t.Digest
		changes = append(changes, Change{Kind: kind, Tool: e.name, Version: t.Version, Digest: t.Digest})
	}
	if fight := t.fight(); fight != "" && fight != before.fight() {
		changes = append(changes, Change{
			Kind:      ToolConflict,
			Tool:      e.name,
			Version:   t.Version,
			Digest:    t.Digest,
			Conflicts: t.Conflicts,
			Because:   "live workers announce different manifests: the highest version holds, then the one most workers run",
		})
	}
	return changes
}
