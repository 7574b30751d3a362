package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Limits of the stream behind claim checks.
const (
	maxBlobBytes = 1 << 30        // of all claim checks together
	maxBlobAge   = 24 * time.Hour // as long as late results are kept (design §10); most live for their own, shorter time
)

// blobStream is the stream of claim checks: one message per piece, read by direct get, so that reading takes one
// permission and no consumer. What is full refuses: a claim check that somebody holds is never evicted for a new one.
func (c *Conn) blobStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        c.blobStreamName(),
		Description: "toolbus: payloads that are too large for a message",
		Subjects:    []string{c.subjects.Blobs()},
		Storage:     jetstream.FileStorage,
		Replicas:    c.Replicas(),
		Discard:     jetstream.DiscardNew,
		MaxBytes:    maxBlobBytes,
		MaxAge:      maxBlobAge,
		AllowDirect: true,
		AllowMsgTTL: true,
	}
}

func (c *Conn) blobStreamName() string { return strings.ToUpper(c.prefix) + "_BLOBS" }

// Replicas is how many copies the streams of this deployment get: what Config says, else 3 where the server is part of
// a cluster and 1 where it is not.
func (c *Conn) Replicas() int {
	switch {
	case c.replicas > 0:
		return c.replicas
	case c.nc.ConnectedClusterName() != "":
		return 3
	}
	return 1
}

// EnsureTopology creates the streams that this package needs, or checks those that stand. Any number of processes may do
// it at once. A stream that stands is never changed: where it cannot serve, that is an error that says why; where it
// merely differs from what we would create, that is logged, for an operator may have had reasons.
func (c *Conn) EnsureTopology(ctx context.Context) error {
	ctx, ended := c.Guard(ctx, c.api)
	err := ended(c.ensureBlobs(ctx))
	if errors.Is(err, nats.ErrPermissionViolation) {
		return fmt.Errorf("bus: stream %s: %w; or create it once as a user who may", c.blobStreamName(), err)
	}
	return err
}

func (c *Conn) ensureBlobs(ctx context.Context) error {
	want := c.blobStream()
	_, err := c.js.CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return c.checkStream(ctx, want)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrNoResponders) { // nobody takes JetStream's own subjects
		err = jetstream.ErrJetStreamNotEnabled
	}
	return fmt.Errorf("bus: create stream %s: %w%s", want.Name, err, topologyAdvice(err, want))
}

func topologyAdvice(err error, want jetstream.StreamConfig) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "; " + noJetStream
	case !errors.As(err, &api):
		return ""
	case api.ErrorCode == errStorageFull, api.ErrorCode == errInsufficient:
		return fmt.Sprintf("; it may grow to %d MiB: raise max_file_store or the account's limit", want.MaxBytes>>20)
	case api.ErrorCode == errNoPeers, api.ErrorCode == errNotClustered:
		return fmt.Sprintf("; %d replicas need as many servers with JetStream: start them, or set the replicas to 1", want.Replicas)
	}
	return ""
}

func (c *Conn) checkStream(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := c.js.Stream(ctx, want.Name)
	if err != nil {
		return fmt.Errorf("bus: look at stream %s: %w", want.Name, err)
	}
	have := s.CachedInfo().Config
	var lacks, drift []string
	if !slices.Contains(have.Subjects, want.Subjects[0]) {
		lacks = append(lacks, fmt.Sprintf("subjects = %v, want %s among them", have.Subjects, want.Subjects[0]))
	}
	if !have.AllowDirect {
		lacks = append(lacks, "allow_direct = false, want true")
	}
	if !have.AllowMsgTTL {
		lacks = append(lacks, "allow_msg_ttl = false, want true")
	}
	if len(lacks) > 0 {
		return fmt.Errorf("bus: stream %s cannot hold claim checks: %s; edit or delete it", want.Name, strings.Join(lacks, "; "))
	}

	differs := func(name string, have, want any) {
		if have != want {
			drift = append(drift, fmt.Sprintf("%s = %v, want %v", name, have, want))
		}
	}
	differs("storage", have.Storage, want.Storage)
	differs("replicas", have.Replicas, want.Replicas)
	differs("discard", have.Discard, want.Discard)
	differs("max_bytes", have.MaxBytes, want.MaxBytes)
	differs("max_age", have.MaxAge, want.MaxAge)
	if len(drift) > 0 {
		c.log.Warn("a stream is not as we would create it; leaving it so", "stream", want.Name, "differs", strings.Join(drift, "; "))
	}
	return nil
}
