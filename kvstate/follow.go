package kvstate

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// resync is how often a follower compares itself with the bucket, though it missed nothing that it knows of.
	resync = 5 * time.Second

	// retry is how soon it tries again when it could not.
	retry = time.Second

	// backlog is how many messages of the feed may wait. When more come, they are dropped and a snapshot makes up for it.
	backlog = 4096
)

// An Update is what Follow tells.
type Update struct {
	Entry

	// Deleted says that the key is gone; Value is nil. Revision is the deletion's, or 0 where the whole bucket was made anew.
	Deleted bool

	// Synced says that everything that stood in the bucket a moment ago has been told. Such an update has no key. It comes
	// after the first snapshot and after each one that follows, at least every five seconds while the bucket can be read: so
	// a follower that hears none for longer knows that its copy is old.
	Synced bool
}

// Follow tells f of every key: what stands there now, and then each change, some perhaps skipped but the last one always,
// and never one that is older than what f was told of that key. It calls f on its own goroutine, one update at a time,
// and blocks until ctx ends; then it returns nil. An error means that it could not begin: the feed cannot be subscribed.
// A bucket that cannot be read is no error: Follow tries until it can.
func (b *Bucket) Follow(ctx context.Context, f func(Update)) error {
	w := &follower{
		bucket: b,
		tell:   f,
		feed:   make(chan *nats.Msg, backlog),
		kick:   make(chan struct{}, 1),
		known:  map[string]uint64{},
	}
	sub, err := b.bus.Subscribe(b.feed+">", "", w.receive)
	if err != nil {
		return fmt.Errorf("follow bucket %s: %w", b.name, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
		defer cancel()
		_ = sub.Drain(ctx) // the connection is gone: then so is the subscription
	}()
	defer b.bus.OnReconnect(w.resync)()

	w.run(ctx)
	return nil
}

// A follower is one Follow: which revision it told of each key, deleted ones included.
type follower struct {
	bucket  *Bucket
	tell    func(Update)
	feed    chan *nats.Msg
	kick    chan struct{} // a snapshot is due now
	known   map[string]uint64
	created time.Time // when the stream was made: another time is another bucket, whose revisions begin anew
}

// receive runs on the subscription's goroutine.
func (w *follower) receive(m *nats.Msg) {
	select {
	case w.feed <- m:
	default:
		w.resync()
	}
}

func (w *follower) resync() {
	select {
	case w.kick <- struct{}{}:
	default: // one is due already
	}
}

func (w *follower) run(ctx context.Context) {
	due := time.NewTimer(0) // the first snapshot; the subscription stands already, so there is no hole between them
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-w.feed:
			w.take(m)
			continue
		case <-w.kick:
		case <-due.C:
		}
		due.Reset(w.sync(ctx))
	}
}

// take applies one message of the feed. A message whose predecessor we never saw means that others may be missing too.
func (w *follower) take(m *nats.Msg) {
	key, ok := w.bucket.key(m.Header.Get("Nats-Subject"))
	rev := number(m.Header, "Nats-Sequence")
	if !ok || rev == 0 {
		return
	}
	if have := w.known[key]; have != 0 && number(m.Header, "Nats-Last-Sequence") > have {
		w.resync()
	}
	w.apply(Entry{Key: key, Value: m.Data, Revision: rev}, deleted(m.Header))
}

func (w *follower) apply(e Entry, gone bool) {
	if e.Revision <= w.known[e.Key] {
		return
	}
	w.known[e.Key] = e.Revision
	if gone {
		e.Value = nil
	}
	w.tell(Update{Entry: e, Deleted: gone})
}

// sync takes a snapshot and says when the next one is due.
func (w *follower) sync(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, 2*opTimeout)
	defer cancel()
	info, err := w.bucket.info(ctx)
	if err != nil {
		return retry
	}
	var entries []Update
	err = w.bucket.snapshot(ctx, func(e Entry, gone bool) { entries = append(entries, Update{Entry: e, Deleted: gone}) })
	if err != nil {
		return retry
	}
	var before map[string]uint64
	if !info.Created.Equal(w.created) {
		before, w.known, w.created = w.known, map[string]uint64{}, info.Created
	}
	for _, e := range entries {
		w.apply(e.Entry, e.Deleted)
	}
	for key := range before {
		if _, ok := w.known[key]; !ok {
			w.tell(Update{Entry: Entry{Key: key}, Deleted: true})
		}
	}
	w.tell(Update{Synced: true})
	return resync
}
