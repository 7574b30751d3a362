package kvstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
)

// opTimeout bounds every single operation, whatever its context says.
const opTimeout = 5 * time.Second

// operation is the header by which KV marks what a message does to its key; a put carries none.
const operation = "KV-Operation"

// A Config describes a bucket. Only Bucket is required.
type Config struct {
	// Bucket is its name: letters, digits, dash and underscore. Deployments that share a server need different ones.
	Bucket string

	// Replicas is on how many servers it is kept. Zero means what the connection says: see bus.Conn.Replicas.
	Replicas int

	// MaxBytes bounds the bucket; a write that does not fit is refused. Zero means 64 MiB.
	MaxBytes int64

	// MaxValue bounds one value in bytes. Zero means 512 KiB.
	MaxValue int

	// Wrote is told of each try to write: how long the server took, and what came of it. It is called by whoever writes, so
	// it must not block. Nil tells nobody.
	Wrote func(took time.Duration, err error)
}

// A Bucket is an open bucket. It is safe for concurrent use and holds nothing that must be closed.
type Bucket struct {
	name  string
	bus   *bus.Conn
	max   int
	cfg   Config
	feed  string // where the stream publishes what it stored, up to the key
	store string // where keys are written, up to the key
}

// An Entry is one key as it stood at a revision.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64 // of the bucket, not of the key: it only grows, with gaps
}

// Open opens the bucket, or creates it where there is none: New and Ensure.
func Open(ctx context.Context, c *bus.Conn, cfg Config) (*Bucket, error) {
	b, err := New(c, cfg)
	if err == nil {
		err = b.Ensure(ctx)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// New is a bucket that asks the server for nothing: it may have to be made by Ensure first.
func New(c *bus.Conn, cfg Config) (*Bucket, error) {
	if !bucketName.MatchString(cfg.Bucket) {
		return nil, fmt.Errorf("bucket name %.80q: want 1 to 64 letters, digits, dashes and underscores", cfg.Bucket)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64 << 20
	}
	if cfg.MaxValue == 0 {
		cfg.MaxValue = 512 << 10
	}
	return &Bucket{
		name:  cfg.Bucket,
		bus:   c,
		max:   cfg.MaxValue,
		cfg:   cfg,
		feed:  feedOf(c, cfg.Bucket),
		store: "$KV." + cfg.Bucket + ".",
	}, nil
}

// Ensure creates the bucket where there is none, or somebody has deleted it, and checks the one that stands. That one is
// taken as it is, its replicas and bounds included, since an operator may have changed them; but it must publish its feed
// where we listen: else the error is a bus.ErrCannotServe.
func (b *Bucket) Ensure(ctx context.Context) error {
	err := b.bus.EnsureStream(ctx, b.stream(), nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bus.ErrCannotServe):
		return fmt.Errorf("open bucket %s: %w, or use another name for yours: this one was made by something else, or under another prefix", b.name, err)
	}
	f := bus.Fault(err).WithCause(err)
	f.Message = err.Error()
	return fmt.Errorf("open bucket %s: %w", b.name, f)
}

// stream is the bucket as it is created, such as any client of JetStream's KV would.
func (b *Bucket) stream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              "KV_" + b.name,
		Description:       "Toolbus",
		Subjects:          []string{b.store + ">"},
		Storage:           jetstream.FileStorage, // memory lost 18 % under single kills, at three replicas
		Replicas:          cmp.Or(b.cfg.Replicas, b.bus.Replicas()),
		Discard:           jetstream.DiscardNew,
		MaxMsgsPerSubject: 1,
		MaxBytes:          b.cfg.MaxBytes,
		MaxMsgSize:        int32(min(b.cfg.MaxValue, 64<<20)),
		MaxMsgs:           -1,
		MaxConsumers:      -1,
		Duplicates:        2 * time.Minute,
		AllowDirect:       true,
		AllowRollup:       true,
		DenyDelete:        true,
		RePublish:         &jetstream.RePublish{Source: b.store + ">", Destination: b.feed + ">"},
	}
}

// feedOf is <prefix>.v1.kv.<bucket>. with the root that all subjects share.
func feedOf(c *bus.Conn, bucket string) string {
	return strings.TrimSuffix(c.Subjects().Heartbeats(), "hb.*") + "kv." + bucket + "."
}

func (b *Bucket) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	s, err := b.bus.JetStream().Stream(ctx, "KV_"+b.name)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil // fetched by the line above
}

// Name is the bucket's name.
func (b *Bucket) Name() string { return b.name }

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	keyToken   = regexp.MustCompile(`^[A-Za-z0-9_=/-]+(\.[A-Za-z0-9_=/-]+)*$`)
)

// CheckKey says what is wrong with a key: it is one or more tokens of letters, digits and -_=/ with dots between them, at
// most 256 bytes.
func CheckKey(key string) error {
	if len(key) > 256 || !keyToken.MatchString(key) {
		return fmt.Errorf("key %.80q: want tokens of letters, digits and -_=/ with dots between them, at most 256 bytes", key)
	}
	return nil
}

// Put writes the key whatever stands there, and returns the new revision.
func (b *Bucket) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	return b.write(ctx, "put", key, value, nil)
}

// Create writes the key if it is not there, or was deleted. Otherwise the error is ErrConflict.
func (b *Bucket) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	rev, err := b.write(ctx, "create", key, value, nil, jetstream.WithExpectLastSequencePerSubject(0))
	for try := 0; errors.Is(err, ErrConflict) && try < createTries; try++ {
		e, deleted, lerr := b.last(ctx, key)
		if lerr != nil || !deleted {
			return 0, err
		}
		if try > 0 { // servers of a cluster refuse for a moment while another write to the key is under way
			select {
			case <-time.After(createPause << try):
			case <-ctx.Done():
				return 0, err
			}
		}
		rev, err = b.write(ctx, "create", key, value, nil, jetstream.WithExpectLastSequencePerSubject(e.Revision))
	}
	return rev, err
}

// How often Create tries to write over the marker of a deletion.
const (
	createTries = 4
	createPause = 10 * time.Millisecond
)

// Update writes the key if its revision is still rev, and returns the new one. Otherwise the error is ErrConflict.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, rev uint64) (uint64, error) {
	return b.write(ctx, "update", key, value, nil, jetstream.WithExpectLastSequencePerSubject(rev))
}

// Delete deletes the key whatever stands there; that it is not there is no error. A small marker with a revision of its
// own stays, so that everybody who follows hears of it.
func (b *Bucket) Delete(ctx context.Context, key string) error {
	_, err := b.write(ctx, "delete", key, nil, nats.Header{operation: {"DEL"}})
	return err
}

func (b *Bucket) write(ctx context.Context, doing, key string, value []byte, h nats.Header, opts ...jetstream.PublishOpt) (uint64, error) {
	if err := CheckKey(key); err != nil {
		return 0, fmt.Errorf("%s in bucket %s: %w", doing, b.name, err)
	}
	if len(value) > b.max {
		return 0, fmt.Errorf("%s %s in bucket %s: value has %d bytes, want at most %d", doing, key, b.name, len(value), b.max)
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	msg := &nats.Msg{Subject: b.store + key, Data: value, Header: nats.Header{}}
	for k, v := range h {
		msg.Header[k] = v
	}
	began := time.Now()
	ctx, ended := b.guard(ctx)
	ack, err := b.bus.JetStream().PublishMsg(ctx, msg, opts...)
	if err = ended(err); err != nil {
		err = b.fail(doing, key, err)
	}
	if b.cfg.Wrote != nil {
		b.cfg.Wrote(time.Since(began), err)
	}
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// guard has a subject that the server refuses end ctx, which would else wait for an answer in vain: see bus.Conn.Guard.
func (b *Bucket) guard(ctx context.Context) (context.Context, func(error) error) {
	api := strings.TrimSuffix(b.api(""), ".KV_"+b.name)
	return b.bus.Guard(ctx, b.store, api)
}

// deleted says whether a message of the stream took its key away: by Delete, or because the server did (a marker).
func deleted(h nats.Header) bool { return h.Get(operation) != "" || h.Get("Nats-Marker-Reason") != "" }

// key is the key that a subject of the bucket stands for.
func (b *Bucket) key(subject string) (string, bool) { return strings.CutPrefix(subject, b.store) }
