// Package kvstatetest is what every kvstate.Store must do, as a suite of tests.
package kvstatetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/kvstate"
)

// A Subject is an empty store to be tested, and what else can be done to it. What is nil is not tested.
type Subject struct {
	kvstate.Store

	// Other is the same store as somebody else reaches it. Nil means Store.
	Other kvstate.Store

	Delete    func(ctx context.Context, key string) error // by somebody else
	Anew      func(t *testing.T)                          // takes all away; revisions begin at 1 again
	Backup    func(t *testing.T) (restore func())         // restore puts the state of now back
	Reconnect func(t *testing.T)                          // Store loses its connection for a moment
	Deaf      func(deaf bool)                             // the feed of Store loses everything
}

// patience is how long anything may take. A store that lost its leader is away for some seconds.
const patience = 30 * time.Second

// Run tests a store. Open is called for each test, and they run at the same time, for most of them wait; what it opens
// ends with that test. Run returns when all have ended. Random tests take their seed from
// KVSTATE_SEED.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	tests := []struct {
		name string
		run  func(t *testing.T, s Subject)
		can  func(s Subject) bool
	}{
		{"compare and swap", swap, nil},
		{"bad keys", keys, nil},
		{"no time", noTime, nil},
		{"one of many wins", race, nil},
		{"deleted", tombstone, func(s Subject) bool { return s.Delete != nil }},
		{"follow writers", writers, nil},
		{"follow many keys", many, nil},
		{"follow deletions", deletions, func(s Subject) bool { return s.Delete != nil }},
		{"gap", gap, func(s Subject) bool { return s.Deaf != nil }},
		{"reconnect", reconnect, func(s Subject) bool { return s.Reconnect != nil }},
		{"made anew", anew, func(s Subject) bool { return s.Anew != nil }},
		{"put back", restored, func(s Subject) bool { return s.Backup != nil }},
	}
	t.Run("store", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				if s.Other == nil {
					s.Other = s.Store
				}
				if test.can != nil && !test.can(s) {
					t.Skip("this store cannot be brought into that state here")
				}
				test.run(t, s)
			})
		}
	})
}

func must(t *testing.T) func(rev uint64, err error) uint64 {
	return func(rev uint64, err error) uint64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
}

func conflict(t *testing.T, what string) func(rev uint64, err error) {
	return func(_ uint64, err error) {
		t.Helper()
		if !errors.Is(err, kvstate.ErrConflict) {
			t.Errorf("%s: %v, want ErrConflict", what, err)
		}
	}
}

func stands(t *testing.T, s kvstate.Store, key, value string, rev uint64) {
	t.Helper()
	if e, err := s.Get(t.Context(), key); err != nil || e.Key != key || string(e.Value) != value || e.Revision != rev {
		t.Errorf("Get(%s) = %s=%q at %d, %v, want %q at %d", key, e.Key, e.Value, e.Revision, err, value, rev)
	}
}

func swap(t *testing.T, s Subject) {
	ctx := t.Context()
	if _, err := s.Get(ctx, "a.b"); !errors.Is(err, kvstate.ErrNotFound) {
		t.Errorf("Get of a new key: %v, want ErrNotFound", err)
	}
	conflict(t, "Update of a new key")(s.Update(ctx, "a.b", nil, 7))
	r1 := must(t)(s.Create(ctx, "a.b", []byte("one")))
	conflict(t, "Create of a key that is there")(s.Other.Create(ctx, "a.b", []byte("uno")))
	other := must(t)(s.Other.Create(ctx, "c", nil))
	r2 := must(t)(s.Other.Update(ctx, "a.b", []byte("two"), r1))
	if other <= r1 || r2 <= other {
		t.Errorf("revisions %d, %d, %d, want them to grow over all keys", r1, other, r2)
	}
	conflict(t, "Update at an old revision")(s.Update(ctx, "a.b", []byte("late"), r1))
	conflict(t, "Update at a revision to come")(s.Update(ctx, "a.b", []byte("early"), r2+1))
	stands(t, s, "a.b", "two", r2)
	stands(t, s, "c", "", other)
}

func keys(t *testing.T, s Subject) {
	for _, key := range []string{"", ".a", "a.", "a..b", "a b", "a.*", ">", "ä", strings.Repeat("k", 257)} {
		_, err := s.Create(t.Context(), key, nil)
		_, err2 := s.Get(t.Context(), key)
		if err == nil || err2 == nil || errors.Is(err2, kvstate.ErrNotFound) {
			t.Errorf("Create and Get of key %q: %v, %v, want errors about the key", key, err, err2)
		}
	}
}

// An operation whose time is over fails, and soon.
func noTime(t *testing.T, s Subject) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	_, err := s.Get(ctx, "k")
	_, err2 := s.Create(ctx, "k", nil)
	if err == nil || err2 == nil || time.Since(began) > time.Second {
		t.Errorf("Get and Create without time: %v, %v after %v, want errors at once", err, err2, time.Since(began))
	}
}

func race(t *testing.T, s Subject) {
	rev := must(t)(s.Create(t.Context(), "k", nil))
	for range 5 {
		var mu sync.Mutex
		var won []uint64
		var all sync.WaitGroup
		for i := range 16 {
			store := []kvstate.Store{s.Store, s.Other}[i%2]
			all.Go(func() {
				r, err := store.Update(t.Context(), "k", fmt.Append(nil, i), rev)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, r)
				case !errors.Is(err, kvstate.ErrConflict):
					t.Errorf("Update: %v, want ErrConflict", err)
				}
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("%d of 16 writers of one revision won, want 1", len(won))
		}
		rev = won[0]
	}
}

func tombstone(t *testing.T, s Subject) {
	ctx := t.Context()
	r1 := must(t)(s.Create(ctx, "k", []byte("one")))
	if err := s.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "k"); !errors.Is(err, kvstate.ErrNotFound) {
		t.Errorf("Get of a deleted key: %v, want ErrNotFound", err)
	}
	conflict(t, "Update of a deleted key")(s.Update(ctx, "k", nil, r1))
	r3 := must(t)(s.Create(ctx, "k", []byte("three")))
	if r3 <= r1+1 {
		t.Errorf("Create of a deleted key = revision %d, want more than the deletion's, which is more than %d", r3, r1)
	}
	stands(t, s, "k", "three", r3)
}

// A copy is what a follower was told, checked as it comes.
type copied struct {
	t      *testing.T
	mu     sync.Mutex
	have   map[string]kvstate.Update
	era    uint64
	synced int
	more   chan struct{}
}

// follow starts a follower, which ends with the test.
func follow(t *testing.T, s kvstate.Store) *copied {
	t.Helper()
	c := &copied{t: t, have: map[string]kvstate.Update{}, more: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Follow(ctx, c.take) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Follow = %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Follow does not end with its context")
		}
	})
	return c
}

func (c *copied) take(u kvstate.Update) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { close(c.more); c.more = make(chan struct{}) }()
	if u.Era < c.era || u.Era == 0 {
		c.t.Errorf("told %+v in an era before %d", u, c.era)
	}
	c.era = u.Era
	if u.Synced {
		if u.Key != "" || u.Deleted {
			c.t.Errorf("told %+v, want a snapshot's end to be nothing else", u)
		}
		c.synced++
		return
	}
	if old := c.have[u.Key]; u.Era == old.Era && u.Revision <= old.Revision {
		c.t.Errorf("told %s at %d after %d", u.Key, u.Revision, old.Revision)
	}
	if u.Deleted && u.Value != nil {
		c.t.Errorf("told %s deleted with a value", u.Key)
	}
	c.have[u.Key] = u
}

// until waits for the copy to be so.
func (c *copied) until(what string, ok func() bool) {
	c.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		c.mu.Lock()
		done, more := ok(), c.more
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-late.C:
			c.mu.Lock()
			defer c.mu.Unlock()
			c.t.Fatalf("%s: not told within %v; era %d, %d keys, %d snapshots", what, patience, c.era, len(c.have), c.synced)
		}
	}
}

// tells waits until key has that value; "" is deleted.
func (c *copied) tells(key, value string) {
	c.t.Helper()
	c.until(key+"="+value, func() bool {
		u, ok := c.have[key]
		return ok && u.Deleted == (value == "") && string(u.Value) == value
	})
}

func (c *copied) whole() {
	c.t.Helper()
	c.mu.Lock()
	n := c.synced
	c.mu.Unlock()
	c.until("a snapshot", func() bool { return c.synced > n })
}

// Eight write at once; who followed from the start and who comes late have the same in the end, and it is what stands.
func writers(t *testing.T, s Subject) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("KVSTATE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("KVSTATE_SEED: ", err)
		}
	}
	t.Logf("KVSTATE_SEED=%d", seed)
	early := follow(t, s.Store)
	early.until("a snapshot", func() bool { return early.synced > 0 })
	var mu sync.Mutex
	last := map[string]kvstate.Entry{}
	var all sync.WaitGroup
	for w := range 8 {
		store := []kvstate.Store{s.Store, s.Other}[w%2]
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		all.Go(func() {
			for i := range 40 {
				key, value := fmt.Sprintf("k%d", rng.IntN(6)), fmt.Appendf(nil, "%d.%d", w, i)
				mu.Lock()
				at := last[key].Revision
				mu.Unlock()
				rev, err := uint64(0), error(nil)
				if at == 0 {
					rev, err = store.Create(t.Context(), key, value)
				} else {
					rev, err = store.Update(t.Context(), key, value, at)
				}
				switch {
				case err == nil:
					mu.Lock()
					if rev > last[key].Revision {
						last[key] = kvstate.Entry{Key: key, Value: value, Revision: rev}
					}
					mu.Unlock()
				case !errors.Is(err, kvstate.ErrConflict):
					t.Errorf("write: %v", err)
				}
			}
		})
	}
	all.Wait()
	late := follow(t, s.Other)
	for key, e := range last {
		stands(t, s.Store, key, string(e.Value), e.Revision)
		for _, c := range []*copied{early, late} {
			c.tells(key, string(e.Value))
		}
	}
	for _, c := range []*copied{early, late} {
		c.mu.Lock()
		for key, u := range c.have {
			if u.Revision != last[key].Revision {
				t.Errorf("%s was told at %d, want %d", key, u.Revision, last[key].Revision)
			}
		}
		c.mu.Unlock()
	}
}

// More keys than one request to the server may ask for.
func many(t *testing.T, s Subject) {
	const n = 1200
	want := map[string]string{}
	for i := range n {
		want[fmt.Sprintf("k.%d", i)] = fmt.Sprint("v", i)
	}
	var all sync.WaitGroup
	for some := range slices.Chunk(slices.Sorted(maps.Keys(want)), n/24) {
		all.Go(func() {
			for _, key := range some {
				if _, err := s.Other.Create(t.Context(), key, []byte(want[key])); err != nil {
					t.Errorf("Create: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	c := follow(t, s.Store)
	c.until("all keys", func() bool { return len(c.have) == n && c.synced > 0 })
	for key, u := range c.have {
		if string(u.Value) != want[key] {
			t.Fatalf("%s=%s, want %s", key, u.Value, want[key])
		}
	}
}

func deletions(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t)(s.Create(ctx, "a", []byte("1")))
	c := follow(t, s.Store)
	c.tells("a", "1")
	for i := range 3 {
		if err := s.Delete(ctx, "a"); err != nil {
			t.Fatal(err)
		}
		c.tells("a", "")
		value := fmt.Sprint("again ", i)
		must(t)(s.Create(ctx, "a", []byte(value)))
		c.tells("a", value)
	}
	if c.era != 1 {
		t.Errorf("era %d, want 1: it is one history", c.era)
	}
}

// What the feed loses comes with the next snapshot.
func gap(t *testing.T, s Subject) {
	ctx := t.Context()
	rev := must(t)(s.Create(ctx, "a", []byte("1")))
	c := follow(t, s.Store)
	c.tells("a", "1")
	s.Deaf(true)
	must(t)(s.Other.Update(ctx, "a", []byte("2"), rev))
	must(t)(s.Other.Create(ctx, "b", []byte("1")))
	c.tells("a", "2")
	c.tells("b", "1")
	s.Deaf(false)
	must(t)(s.Other.Create(ctx, "c", []byte("1")))
	c.tells("c", "1")
}

func reconnect(t *testing.T, s Subject) {
	ctx := t.Context()
	rev := must(t)(s.Create(ctx, "a", []byte("0")))
	c := follow(t, s.Store)
	c.tells("a", "0")
	for i := range 3 {
		s.Reconnect(t)
		value := fmt.Sprint(i + 1)
		rev = must(t)(s.Other.Update(ctx, "a", []byte(value), rev))
		c.tells("a", value)
	}
	if c.era != 1 {
		t.Errorf("era %d, want 1: it is one history", c.era)
	}
}

// A store that was made anew begins at 1. What stands in both must be told though its revision is lower, and what is gone
// must be told to be gone.
func anew(t *testing.T, s Subject) {
	ctx := t.Context()
	must(t)(s.Create(ctx, "gone", []byte("1")))
	rev := must(t)(s.Create(ctx, "both", []byte("0")))
	for i := range 5 {
		rev = must(t)(s.Update(ctx, "both", fmt.Append(nil, i), rev))
	}
	c := follow(t, s.Store)
	c.whole()
	s.Anew(t)
	low := must(t)(s.Other.Create(ctx, "both", []byte("new")))
	if low >= rev {
		t.Fatalf("revision %d after %d: that was not made anew", low, rev)
	}
	c.tells("both", "new")
	c.tells("gone", "")
	c.until("a new era", func() bool { return c.era > 1 })
	low = must(t)(s.Other.Update(ctx, "both", []byte("newer"), low))
	c.tells("both", "newer")
	stands(t, s, "both", "newer", low)
}

// The store is put back to an older state, and goes on from there: revisions that were told come again, for other values.
func restored(t *testing.T, s Subject) {
	ctx := t.Context()
	a := must(t)(s.Create(ctx, "a", []byte("old")))
	b := must(t)(s.Create(ctx, "b", []byte("same")))
	restore := s.Backup(t)
	late := must(t)(s.Update(ctx, "a", []byte("lost"), a))
	must(t)(s.Create(ctx, "later", []byte("lost too")))
	c := follow(t, s.Store)
	c.tells("a", "lost")
	c.tells("later", "lost too")
	c.whole()
	restore()
	c.tells("a", "old")
	c.tells("later", "")
	c.tells("b", "same")
	stands(t, s, "b", "same", b)
	again := must(t)(s.Other.Update(ctx, "a", []byte("other"), a))
	if again != late {
		t.Logf("revision %d, where %d was told before", again, late)
	}
	c.tells("a", "other")
	c.until("a new era", func() bool { return c.era > 1 })
}
