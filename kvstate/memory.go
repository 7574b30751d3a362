package kvstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Memory is a store in this process, for tests and simulations: the same rules as a bucket's, and trouble to order. Each
// who uses it has a Line of their own. It needs nothing but time, so it serves in a testing/synctest bubble.
type Memory struct {
	mu    sync.Mutex
	past  past
	era   uint64
	log   []logged // of this era, in order
	moved chan struct{}
}

// past is all that a Memory keeps.
type past struct {
	rev  uint64
	keys map[string]Update
}

// logged is one write, as the feed tells it.
type logged struct {
	u  Update
	at time.Time
}

// maxLog is how many writes the feed keeps. Who is further behind reads a snapshot.
const maxLog = 4096

// NewMemory is an empty store.
func NewMemory() *Memory {
	return &Memory{past: past{keys: map[string]Update{}}, era: 1, moved: make(chan struct{})}
}

// Anew takes everything away, as if the bucket had been deleted and made anew: revisions begin at 1 again.
func (m *Memory) Anew() { m.replace(past{keys: map[string]Update{}}) }

// Backup is the state of now. The func that it returns puts it back.
func (m *Memory) Backup() (restore func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := past{m.past.rev, maps.Clone(m.past.keys)}
	return func() { m.replace(past{old.rev, maps.Clone(old.keys)}) }
}

func (m *Memory) replace(p past) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past, m.log = p, nil
	m.era++
	m.wake()
}

// wake tells followers that there is something. The lock is held.
func (m *Memory) wake() {
	close(m.moved)
	m.moved = make(chan struct{})
}

// get is what stands at the key.
func (m *Memory) get(key string) (Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	u, ok := m.past.keys[key]
	if !ok || u.Deleted {
		return Entry{}, ErrNotFound
	}
	return u.Entry, nil
}

// swap writes the key if want, given what stands there, says so.
func (m *Memory) swap(key string, value []byte, gone bool, want func(Update) bool) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !want(m.past.keys[key]) {
		return 0, ErrConflict
	}
	m.past.rev++
	u := Update{Entry: Entry{Key: key, Value: slices.Clone(value), Revision: m.past.rev}, Deleted: gone}
	m.past.keys[key] = u
	if m.log = append(m.log, logged{u, time.Now()}); len(m.log) > maxLog {
		m.log = slices.Clone(m.log[len(m.log)-maxLog/2:])
	}
	m.wake()
	return u.Revision, nil
}

// A Trouble is what is wrong with a line. The zero Trouble is nothing. Its funcs are called from several goroutines.
type Trouble struct {
	// Away says that nothing gets through: operations end with their context, and the feed is silent.
	Away bool

	// There and Back are how long a request and its answer take; nil is no time. A request that its caller gave up on
	// arrives all the same.
	There, Back func() time.Duration

	// Feed is how long a write takes to be told; nil is no time.
	Feed func() time.Duration

	// Drop says whether the feed loses this write. The next snapshot makes up for it.
	Drop func() bool

	// Lost is, for a write that was done, the error that its writer gets instead of its revision; nil is none.
	Lost func() error
}

// A Line is a Memory as one of its users reaches it. It is safe for concurrent use.
type Line struct {
	m       *Memory
	mu      sync.Mutex
	t       Trouble
	changed chan struct{} // closed at the next Trouble
}

// Line is a new line, without trouble.
func (m *Memory) Line() *Line { return &Line{m: m, changed: make(chan struct{})} }

// Trouble has the line be in this trouble from now on.
func (l *Line) Trouble(t Trouble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = t
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Line) trouble() (Trouble, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t, l.changed
}

func span(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return f()
}

// Get reads the key.
func (l *Line) Get(ctx context.Context, key string) (Entry, error) {
	return ask(ctx, l, "get", key, func() (Entry, error) { return l.m.get(key) })
}

// Create writes the key if it is not there, or was deleted.
func (l *Line) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return l.write(ctx, "create", key, value, false, func(u Update) bool { return u.Revision == 0 || u.Deleted })
}

// Update writes the key if its revision is still rev.
func (l *Line) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	return l.write(ctx, "update", key, value, false, func(u Update) bool { return u.Revision == rev })
}

// Put writes the key whatever stands there.
func (l *Line) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return l.write(ctx, "put", key, value, false, func(Update) bool { return true })
}

// Delete deletes the key whatever stands there.
func (l *Line) Delete(ctx context.Context, key string) error {
	_, err := l.write(ctx, "delete", key, nil, true, func(Update) bool { return true })
	return err
}

func (l *Line) write(ctx context.Context, doing, key string, value []byte, gone bool, want func(Update) bool) (uint64, error) {
	value = slices.Clone(value)
	return ask(ctx, l, doing, key, func() (uint64, error) {
		rev, err := l.m.swap(key, value, gone, want)
		if t, _ := l.trouble(); err == nil && t.Lost != nil {
			if err := t.Lost(); err != nil {
				return 0, err
			}
		}
		return rev, err
	})
}

// errAway is what an operation ends with that nobody answered.
var errAway = errors.New("no answer from the store")

// ask has do done at the other end of the line.
func ask[T any](ctx context.Context, l *Line, doing, key string, do func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	fail := func(err error) error { return fmt.Errorf("%s %s in memory: %w", doing, key, err) }
	if err := CheckKey(key); err != nil {
		return none, fail(err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, opTimeout, errAway)
	defer cancel()
	if ctx.Err() != nil {
		return none, fail(context.Cause(ctx))
	}
	t, _ := l.trouble()
	if t.Away {
		<-ctx.Done()
		return none, fail(context.Cause(ctx))
	}
	came := make(chan answer, 1)
	after(span(t.There), func() {
		v, err := do()
		after(span(t.Back), func() { came <- answer{v, err} })
	})
	select {
	case a := <-came:
		if a.err != nil {
			return none, fail(a.err)
		}
		return a.v, nil
	case <-ctx.Done():
		return none, fail(context.Cause(ctx))
	}
}

func after(d time.Duration, f func()) {
	if d <= 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// Follow tells f of every key, as Bucket.Follow does.
func (l *Line) Follow(ctx context.Context, f func(Update)) error {
	w := lineFollower{l: l, tell: f, known: map[string]uint64{}}
	due, next := time.NewTimer(resync), time.NewTimer(time.Hour)
	defer due.Stop()
	defer next.Stop()
	for {
		t, changed := l.trouble()
		if t.Away {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				due.Reset(0)
				continue
			}
		}
		moved, in := w.catchUp(t)
		next.Reset(in)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-moved:
		case <-next.C:
		case <-due.C:
			w.sync()
			due.Reset(resync)
		}
	}
}

// A lineFollower is one Follow.
type lineFollower struct {
	l     *Line
	tell  func(Update)
	era   uint64 // of the Memory
	said  uint64 // of this Follow
	known map[string]uint64
	feed  []logged // on the way, with the time of arrival
	heard uint64   // the last revision that the feed took
}

// catchUp tells what the feed has brought by now, and how long until the next: an hour where none is under way. Moved is closed when there is more.
func (w *lineFollower) catchUp(t Trouble) (moved <-chan struct{}, next time.Duration) {
	m := w.l.m
	m.mu.Lock()
	if moved = m.moved; m.era != w.era {
		m.mu.Unlock()
		w.sync()
		return moved, 0
	}
	for _, e := range m.log {
		if e.u.Revision <= w.heard {
			continue
		}
		w.heard = e.u.Revision
		if t.Drop == nil || !t.Drop() {
			w.feed = append(w.feed, logged{e.u, e.at.Add(span(t.Feed))})
		}
	}
	m.mu.Unlock()
	for len(w.feed) > 0 { // in order: who waits holds up those behind
		if wait := time.Until(w.feed[0].at); wait > 0 {
			return moved, wait
		}
		w.apply(w.feed[0].u)
		w.feed = w.feed[1:]
	}
	return moved, time.Hour
}

// sync tells everything.
func (w *lineFollower) sync() {
	m := w.l.m
	m.mu.Lock()
	all := slices.SortedFunc(maps.Values(m.past.keys), func(a, b Update) int { return cmp.Compare(a.Revision, b.Revision) })
	era, rev := m.era, m.past.rev
	m.mu.Unlock()
	var before map[string]uint64
	if era != w.era {
		before, w.known, w.feed, w.heard = w.known, map[string]uint64{}, nil, rev
		w.era = era
		w.said++
	}
	for _, u := range all {
		w.apply(u)
	}
	for key := range before {
		if _, ok := w.known[key]; !ok {
			w.tell(Update{Entry: Entry{Key: key}, Era: w.said, Deleted: true})
		}
	}
	w.tell(Update{Era: w.said, Synced: true})
}

func (w *lineFollower) apply(u Update) {
	if u.Revision <= w.known[u.Key] {
		return
	}
	w.known[u.Key] = u.Revision
	u.Era, u.Value = w.said, slices.Clone(u.Value)
	w.tell(u)
}
