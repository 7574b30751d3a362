package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// keepRetry is how soon the store is tried again.
const keepRetry = 5 * time.Second

// A stored manifest is one value of the store. Keys are <tool>.<digest>.
type stored struct {
	Manifest tool.Manifest `json:"manifest" msgpack:"manifest"`
	Seen     string        `json:"seen" msgpack:"seen"` // when somebody first saw it, RFC 3339
}

// key is the store's key of a form.
func (f *form) key() string { return f.compiled.ID + "." + f.digest }

// keeping is what the store has yet to be told. The store may be away for a while, so a goroutine of its own tells it.
type keeping struct {
	loaded chan struct{} // closed after the first try to read the store
	kick   chan struct{}

	mu   sync.Mutex
	todo map[string]*form // by key; nil means delete. No map means that there is no store
}

func newKeeping(store *kvstate.Bucket) *keeping {
	k := &keeping{loaded: make(chan struct{}), kick: make(chan struct{}, 1)}
	if store != nil {
		k.todo = map[string]*form{}
	}
	return k
}

func (k *keeping) add(f *form)  { k.put(f.key(), f) }
func (k *keeping) drop(f *form) { k.put(f.key(), nil) }

// put has key written, or deleted, unless far too much waits already.
func (k *keeping) put(key string, f *form) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.todo == nil || len(k.todo) >= maxTools {
		return
	}
	k.todo[key] = f
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// next takes one thing out that is to be done.
func (k *keeping) next() (key string, f *form, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, f := range k.todo {
		delete(k.todo, key)
		return key, f, true
	}
	return "", nil, false
}

// keepManifests reads the store, once, and then writes what is new, until ctx ends.
func (r *Registry) keepManifests(ctx context.Context) {
	if r.store == nil {
		close(r.keep.loaded)
		return
	}
	err := r.load(ctx)
	close(r.keep.loaded)
	loaded, told := err == nil, false
	for {
		if loaded {
			err = r.save(ctx)
		}
		var again <-chan time.Time
		kick := r.keep.kick
		if err != nil && ctx.Err() == nil {
			if !told {
				r.log.Warn("the manifest store fails; trying again every 5 s", "error", err)
			}
			again, kick = time.After(keepRetry), nil
		}
		told = err != nil
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-again:
		}
		if !loaded {
			err = r.load(ctx)
			loaded = err == nil
		}
	}
}

// load takes in what the store holds, the oldest first.
func (r *Registry) load(ctx context.Context) error {
	entries, err := r.store.All(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b kvstate.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range entries {
		f, err := restore(e.Value)
		if err != nil {
			r.log.Warn("stored manifest is of no use", "key", e.Key, "error", err)
			continue
		}
		r.take(f)
	}
	return nil
}

func restore(value []byte) (*form, error) {
	var s stored
	if err := wire.Decode(value, &s); err != nil {
		return nil, err
	}
	return newForm(s.Manifest)
}

// save does what is to be done, up to the first failure that time may mend. What another process stored first is stored.
func (r *Registry) save(ctx context.Context) error {
	for {
		key, f, ok := r.keep.next()
		if !ok {
			return nil
		}
		err := r.write(ctx, key, f)
		switch {
		case err == nil, errors.Is(err, kvstate.ErrConflict):
		case hopeless(err):
			r.log.Warn("manifest cannot be stored; after a restart it is not known until a worker brings it", "error", err)
		default:
			r.keep.put(key, f)
			return err
		}
	}
}

// hopeless says that a write will fail again: we refused it ourselves, or the store did, for good.
func hopeless(err error) bool {
	var f *fault.Fault
	return !errors.As(err, &f) || f.Spec().Class == fault.Permanent
}

func (r *Registry) write(ctx context.Context, key string, f *form) error {
	if f == nil {
		return r.store.Delete(ctx, key)
	}
	value, err := wire.Marshal(wire.JSON, stored{f.compiled.Manifest, time.Now().UTC().Format(time.RFC3339)})
	if err != nil {
		return fmt.Errorf("encode the manifest of %s: %w", f.compiled.ID, err)
	}
	_, err = r.store.Create(ctx, key, value)
	return err
}
