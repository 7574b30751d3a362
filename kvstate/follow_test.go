package kvstate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
)

// A tail is a Follow whose updates a test takes one by one.
type tail struct {
	updates chan kvstate.Update
}

func follow(t *testing.T, b *kvstate.Bucket) *tail {
	t.Helper()
	w := &tail{make(chan kvstate.Update, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.Follow(ctx, func(u kvstate.Update) { w.updates <- u }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Follow = %v, want nil", err)
		}
	})
	return w
}

// want takes the next update, snapshots left out unless one is wanted.
func (w *tail) want(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case u := <-w.updates:
			got := show(u)
			if got == "synced" && want != "synced" {
				continue
			}
			if got != want {
				t.Fatalf("Follow tells %s, want %s", got, want)
			}
			return
		case <-timeout:
			t.Fatalf("Follow tells nothing, want %s", want)
		}
	}
}

func show(u kvstate.Update) string {
	switch {
	case u.Synced:
		return "synced"
	case u.Deleted:
		return u.Key + " deleted"
	}
	return u.Key + "=" + string(u.Value)
}

func put(t *testing.T, b *kvstate.Bucket, key, value string) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func TestFollow(t *testing.T) {
	each(t, func(t *testing.T, b *kvstate.Bucket) {
		put(t, b, "a", "1")
		w := follow(t, b)
		w.want(t, "a=1")
		w.want(t, "synced")
		put(t, b, "a", "2")
		w.want(t, "a=2")
		put(t, b, "b", "1")
		w.want(t, "b=1")
		if err := b.Delete(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		w.want(t, "a deleted")
		put(t, b, "a", "3")
		w.want(t, "a=3")
	})
}

// While nothing happens the follower looks every five seconds and says that it did.
func TestFollowSyncs(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		w := follow(t, open(t, natstest.Connect(t, natstest.InProcess(t)), kvstate.Config{}))
		w.want(t, "synced")
		begin := time.Now()
		w.want(t, "synced")
		w.want(t, "synced")
		if took := time.Since(begin).Round(time.Second); took != 10*time.Second {
			t.Errorf("two more snapshots took %v, want 10s", took)
		}
	})
}

// A bucket in which nothing is written costs a look each time, however many keys it has, and no reading.
func TestFollowReadsNothingTwice(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		b := open(t, c, kvstate.Config{})
		put(t, b, "a", "1")
		var reads atomic.Int64
		if _, err := c.NATS().Subscribe("$JS.API.DIRECT.GET.KV_b", func(*nats.Msg) { reads.Add(1) }); err != nil {
			t.Fatal(err)
		}
		w := follow(t, b)
		w.want(t, "a=1")
		for range 6 {
			w.want(t, "synced")
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("read %d times in 25s, want once", n)
		}
		put(t, b, "a", "2")
		w.want(t, "a=2")
		w.want(t, "synced")
		w.want(t, "synced")
		if n := reads.Load(); n != 2 {
			t.Errorf("read %d times after one write more, want twice", n)
		}
		time.Sleep(2 * time.Minute)
		if n := reads.Load(); n < 3 || n > 5 {
			t.Errorf("read %d times after two minutes more, want it once a minute all the same", n)
		}
	})
}

// What a follower did not hear while it was away it finds when it is back.
func TestFollowAfterReconnect(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.InProcess(t)
		mine, theirs := natstest.Connect(t, s), natstest.Connect(t, s)
		b, other := open(t, mine, kvstate.Config{}), open(t, theirs, kvstate.Config{})
		w := follow(t, b)
		w.want(t, "synced")
		begin := time.Now()
		if err := mine.NATS().ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		put(t, other, "a", "1")
		w.want(t, "a=1")
		if took := time.Since(begin); took >= 5*time.Second {
			t.Errorf("the change was seen after %v, want before the usual snapshot at 5s", took)
		}
	})
}

// A bucket that was deleted and made anew has lower revisions; nothing of the old one may stay.
func TestFollowBucketMadeAnew(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		b := open(t, c, kvstate.Config{})
		put(t, b, "gone", "1")
		put(t, b, "stays", "1")
		put(t, b, "stays", "2")
		w := follow(t, b)
		w.want(t, "gone=1")
		w.want(t, "stays=2")
		w.want(t, "synced")
		w.want(t, "synced") // five seconds later: buckets are told apart by when they were made
		if err := c.JetStream().DeleteKeyValue(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		put(t, open(t, c, kvstate.Config{}), "stays", "new")
		w.want(t, "stays=new")
		w.want(t, "gone deleted")
		w.want(t, "synced")
	})
}
