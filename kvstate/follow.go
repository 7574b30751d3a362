package kvstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// resync is how often a follower compares itself with the bucket, though it missed nothing that it knows of.
	resync = 5 * time.Second

	// idleMost is how many times in a row it takes the stream's word that nothing was written, and reads nothing. It is not
	// for ever, since a snapshot of many keys comes from several replicas, of which one may have been behind.
	idleMost = 12

	// retry is how soon it tries again when it could not.
	retry = time.Second

	// backlog is how many messages of the feed may wait. When more come, they are dropped and a snapshot makes up for it.
	backlog = 4096
)

// An Update is what Follow tells.
type Update struct {
	Entry

	// Era numbers the histories that this Follow has seen, from 1. It grows when the bucket was made anew, or was put back to
	// an older state: then everything is told again, and its revisions may be lower than those of the era before. Of two
	// updates of one key the later era is the truth, and within an era the higher revision.
	Era uint64

	// Deleted says that the key is gone; Value is nil. Revision is the deletion's, or 0 where nothing is left of it.
	Deleted bool

	// Synced says that everything that stood in the bucket a moment ago has been told. Such an update has no key. It comes
	// after the first snapshot and after each one that follows, at least every five seconds while the bucket can be read: so
	// a follower that hears none for longer knows that its copy is old.
	Synced bool
}

// Follow tells f of every key: what stands there now, and then each change, some perhaps skipped but the last one always,
// and never one that is older than what f was told of that key, as long as it is one history: see Update.Era. It calls f on its own goroutine, one update at a time,
// and blocks until ctx ends; then it returns nil. An error means that it could not begin: the feed cannot be subscribed.
// A bucket that cannot be read is no error: Follow tries until it can.
func (b *Bucket) Follow(ctx context.Context, f func(Update)) error {
	w := &follower{
		bucket: b,
		tell:   f,
		feed:   make(chan *nats.Msg, backlog),
		kick:   make(chan struct{}, 1),
		known:  map[string]told{},
		era:    1,
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

// A follower is one Follow.
type follower struct {
	bucket *Bucket
	tell   func(Update)
	feed   chan *nats.Msg
	kick   chan struct{}   // a snapshot is due now
	known  map[string]told // what it told of each key, deleted ones included
	era    uint64

	created time.Time // when the stream was made: another time is another bucket, whose revisions begin anew
	whole   uint64    // the stream's last revision, when a snapshot that had it was told; 0: none had
	held    uint64    // how many messages there were then
	idle    int       // how many times nothing was read since, because nothing was written
}

// told is what was told of a key.
type told struct {
	rev  uint64
	gone bool
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
			w.whole = 0 // something may be missing
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
	if have := w.known[key].rev; have != 0 && number(m.Header, "Nats-Last-Sequence") > have {
		w.resync()
	}
	w.apply(Entry{Key: key, Value: m.Data, Revision: rev}, deleted(m.Header))
}

func (w *follower) apply(e Entry, gone bool) {
	if e.Revision <= w.known[e.Key].rev {
		return
	}
	w.known[e.Key] = told{e.Revision, gone}
	if gone {
		e.Value = nil
	}
	w.tell(Update{Entry: e, Era: w.era, Deleted: gone})
}

// sync takes a snapshot, where anything was written since the last, and says when the next one is due.
func (w *follower) sync(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, 2*opTimeout)
	defer cancel()
	info, err := w.bucket.info(ctx)
	if err != nil {
		return retry
	}
	same := w.created.IsZero() || info.Created.Equal(w.created)
	if same && w.whole != 0 && w.whole == info.State.LastSeq && w.held == info.State.Msgs && w.idle < idleMost {
		w.idle++
		w.tell(Update{Era: w.era, Synced: true})
		return resync
	}
	var entries []Update
	stand := map[string]uint64{}
	highest := uint64(0)
	err = w.bucket.snapshot(ctx, func(e Entry, gone bool) {
		entries = append(entries, Update{Entry: e, Deleted: gone})
		stand[e.Key] = max(stand[e.Key], e.Revision)
		highest = max(highest, e.Revision)
	})
	if err != nil {
		return retry
	}
	if same {
		if same, err = w.continues(ctx, stand); err != nil {
			return retry
		}
	}
	next := resync
	before := w.known
	if !same {
		w.era, w.known = w.era+1, map[string]told{}
		next = retry // the feed may still bring something of the history before
	}
	w.created, w.whole, w.held, w.idle = info.Created, 0, info.State.Msgs, 0
	if same && highest >= info.State.LastSeq { // else the replica that answered is behind
		w.whole = info.State.LastSeq
	}
	for _, e := range entries {
		w.apply(e.Entry, e.Deleted)
	}
	if !same {
		for key, was := range before {
			if _, ok := w.known[key]; !ok && !was.gone {
				w.tell(Update{Entry: Entry{Key: key}, Era: w.era, Deleted: true})
			}
		}
	}
	w.tell(Update{Era: w.era, Synced: true})
	return next
}

// looks is how many keys are looked at in one sync that a snapshot has older than we know them.
const looks = 8

// continues says that what stands in the bucket follows from what was told. A snapshot that has a key older, or not at
// all, may come from a replica that is behind; where the leader has it so too, the history is another one: the bucket was
// put back to an older state, or somebody purged it.
func (w *follower) continues(ctx context.Context, stand map[string]uint64) (bool, error) {
	n := 0
	for key, have := range w.known {
		rev, there := stand[key]
		if rev >= have.rev {
			continue
		}
		if !there && have.gone { // the marker was swept away
			delete(w.known, key)
			continue
		}
		if n++; n > looks {
			break // the others have their turn at the next: the order of a map is random
		}
		e, _, err := w.bucket.last(ctx, key)
		var api *jetstream.APIError
		if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeMessageNotFound {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if e.Revision < have.rev {
			return false, nil
		}
	}
	return true, nil
}
