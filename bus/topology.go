package bus

import (
	"context"
	"fmt"
	"strings"
	"time"

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

// EnsureTopology creates the streams that this package needs, or checks those that stand: see EnsureStream.
func (c *Conn) EnsureTopology(ctx context.Context) error {
	if err := c.EnsureStream(ctx, c.blobStream(), c.log); err != nil {
		return fmt.Errorf("bus: %w", err)
	}
	return nil
}
