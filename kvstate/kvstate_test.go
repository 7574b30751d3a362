package kvstate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
)

func TestMain(m *testing.M) { natstest.Main(m) }

func open(t *testing.T, c *bus.Conn, cfg kvstate.Config) *kvstate.Bucket {
	t.Helper()
	if cfg.Bucket == "" {
		cfg.Bucket = "b"
	}
	b, err := kvstate.Open(t.Context(), c, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// each runs f against one server and against a cluster of three.
func each(t *testing.T, f func(t *testing.T, b *kvstate.Bucket)) {
	t.Run("R1", func(t *testing.T) {
		f(t, open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{}))
	})
	t.Run("R3", func(t *testing.T) {
		c := natstest.Dial(t, bus.Config{URL: natstest.Cluster(t, 3).URLs()})
		f(t, open(t, c, kvstate.Config{Replicas: 3}))
	})
}

func TestCompareAndSwap(t *testing.T) {
	each(t, func(t *testing.T, b *kvstate.Bucket) {
		ctx := t.Context()
		if _, err := b.Get(ctx, "a.b"); !errors.Is(err, kvstate.ErrNotFound) {
			t.Errorf("Get of a new key: %v, want ErrNotFound", err)
		}
		r1, err := b.Create(ctx, "a.b", []byte("one"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Create(ctx, "a.b", []byte("uno")); !errors.Is(err, kvstate.ErrConflict) {
			t.Errorf("Create of a key that is there: %v, want ErrConflict", err)
		}
		r2, err := b.Update(ctx, "a.b", []byte("two"), r1)
		if err != nil || r2 <= r1 {
			t.Fatalf("Update = revision %d, %v, want more than %d", r2, err, r1)
		}
		if _, err := b.Update(ctx, "a.b", []byte("late"), r1); !errors.Is(err, kvstate.ErrConflict) {
			t.Errorf("Update at an old revision: %v, want ErrConflict", err)
		}
		if e, err := b.Get(ctx, "a.b"); err != nil || string(e.Value) != "two" || e.Revision != r2 {
			t.Errorf("Get = %q at %d, %v, want two at %d", e.Value, e.Revision, err, r2)
		}
		if err := b.Delete(ctx, "a.b"); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Get(ctx, "a.b"); !errors.Is(err, kvstate.ErrNotFound) {
			t.Errorf("Get of a deleted key: %v, want ErrNotFound", err)
		}
		if all, err := b.All(ctx); err != nil || len(all) != 0 {
			t.Errorf("All = %v, %v, want nothing", all, err)
		}
		if r3, err := b.Create(ctx, "a.b", []byte("three")); err != nil || r3 <= r2 {
			t.Errorf("Create of a deleted key = revision %d, %v, want more than %d", r3, err, r2)
		}
	})
}

func TestOneOfManyWins(t *testing.T) {
	each(t, func(t *testing.T, b *kvstate.Bucket) {
		ctx := t.Context()
		rev, err := b.Put(ctx, "k", nil)
		if err != nil {
			t.Fatal(err)
		}
		var wins atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				_, err := b.Update(ctx, "k", fmt.Append(nil, i), rev)
				switch {
				case err == nil:
					wins.Add(1)
				case !errors.Is(err, kvstate.ErrConflict):
					t.Errorf("Update: %v, want ErrConflict", err)
				}
			})
		}
		all.Wait()
		if wins.Load() != 1 {
			t.Errorf("%d of 16 writers of one revision won, want 1", wins.Load())
		}
	})
}

// One request gives at most 1,024 keys.
func TestAllOfManyKeys(t *testing.T) {
	const n = 2500
	b := open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{})
	var writers sync.WaitGroup
	for w := range 10 {
		writers.Go(func() {
			for i := w; i < n; i += 10 {
				if _, err := b.Put(t.Context(), fmt.Sprintf("k.%04d", i), fmt.Append(nil, i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	all, err := b.All(t.Context())
	if err != nil || len(all) != n {
		t.Fatalf("All = %d keys, %v, want %d", len(all), err, n)
	}
	for i, e := range all {
		if want := fmt.Sprintf("k.%04d", i); e.Key != want || string(e.Value) != fmt.Sprint(i) {
			t.Fatalf("All[%d] = %s: %s, want %s: %d", i, e.Key, e.Value, want, i)
		}
	}
}

// Values of many megabytes come in several pages.
func TestAllInPages(t *testing.T) {
	b := open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{})
	const n = 24
	for i := range n {
		if _, err := b.Put(t.Context(), fmt.Sprintf("k%02d", i), make([]byte, 400<<10)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := b.All(t.Context())
	if err != nil || len(all) != n {
		t.Errorf("All = %d keys, %v, want %d", len(all), err, n)
	}
}

func TestBucketIsPlainKV(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	b := open(t, c, kvstate.Config{})
	rev, err := b.Put(t.Context(), "k", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	kv, err := c.JetStream().KeyValue(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := kv.Get(t.Context(), "k"); err != nil || string(e.Value()) != "v" || e.Revision() != rev {
		t.Errorf("nats kv get = %v, %v, want v at %d", e, err, rev)
	}
	if err := kv.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Get(t.Context(), "k"); !errors.Is(err, kvstate.ErrNotFound) {
		t.Errorf("Get after nats kv del: %v, want ErrNotFound", err)
	}
}

func TestOpenTwiceAndForeign(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	open(t, c, kvstate.Config{MaxBytes: 1 << 20})
	open(t, c, kvstate.Config{MaxBytes: 2 << 20}) // stands already: taken as it is

	if _, err := c.JetStream().CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "other"}); err != nil {
		t.Fatal(err)
	}
	_, err := kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "other"})
	if err == nil || !strings.Contains(err.Error(), `want "tb.v1.kv.other.>"`) {
		t.Errorf("Open of a bucket without our feed: %v, want one that says so", err)
	}
	if _, err := kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "a.b"}); err == nil {
		t.Error("Open of bucket a.b: no error, want one about its name")
	}
}

func TestRefused(t *testing.T) {
	b := open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{MaxValue: 10})
	if _, err := b.Put(t.Context(), "k", make([]byte, 11)); err == nil || !strings.Contains(err.Error(), "at most 10") {
		t.Errorf("Put of 11 bytes: %v, want a refusal: at most 10", err)
	}
	for _, key := range []string{"", ".a", "a.", "a..b", "a b", "a.*", ">", "ä", "a\r\nb", strings.Repeat("k", 257)} {
		if err := kvstate.CheckKey(key); err == nil {
			t.Errorf("CheckKey(%q) = nil, want an error", key)
		}
		if _, err := b.Put(t.Context(), key, nil); err == nil {
			t.Errorf("Put(%q): no error, want one", key)
		}
		if _, err := b.Get(t.Context(), key); err == nil {
			t.Errorf("Get(%q): no error, want one", key)
		}
	}
	for _, key := range []string{"a", "a.b", "A-9_z/=.x"} {
		if err := kvstate.CheckKey(key); err != nil {
			t.Errorf("CheckKey(%q) = %v, want nil", key, err)
		}
	}
}

// A bucket that went away makes errors, soon.
func TestBucketGone(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		b := open(t, c, kvstate.Config{})
		if err := c.JetStream().DeleteKeyValue(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if _, err := b.Get(ctx, "k"); err == nil || errors.Is(err, kvstate.ErrNotFound) {
			t.Errorf("Get: %v, want an error that is not ErrNotFound", err)
		}
		if _, err := b.Put(ctx, "k", nil); err == nil {
			t.Error("Put: no error, want one")
		}
		if _, err := b.All(ctx); err == nil {
			t.Error("All: no error, want one")
		}
	})
}

// Whoever wants figures is told of each try to write, and what came of it.
func TestWroteIsTold(t *testing.T) {
	var told []string
	b := open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{Wrote: func(took time.Duration, err error) {
		told = append(told, fmt.Sprint(took > 0, errors.Is(err, kvstate.ErrConflict), err == nil))
	}})
	rev, err := b.Create(t.Context(), "a", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Update(t.Context(), "a", []byte("2"), rev+1); !errors.Is(err, kvstate.ErrConflict) {
		t.Errorf("Update at another revision: %v, want ErrConflict", err)
	}
	if _, err := b.Get(t.Context(), "a"); err != nil { // reads are not told of
		t.Error(err)
	}
	if want := []string{"true false true", "true true false"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
