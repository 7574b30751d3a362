package bus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/sync/errgroup"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

const (
	blobsInFlight = 8
	blobPatience  = time.Second     // how long what was just put may be unknown to the replica that we ask (facts of R3)
	blobTTL       = time.Hour       // where nobody says
	blobAnswer    = 5 * time.Second // for one piece
)

// PutBlob stores data under a claim check for ttl: whole seconds, rounded up, at most a day; 0 means an hour. Up to
// wire.MaxBlob bytes. The fault does not say what ran: only the caller knows whether this was an argument or a result.
func (c *Conn) PutBlob(ctx context.Context, data []byte, ttl time.Duration) (wire.BlobRef, *fault.Fault) {
	if len(data) > wire.MaxBlob {
		return wire.BlobRef{}, ranUnknown(fault.New(fault.InvalidArguments,
			"payload of %d bytes is larger than the %d that a claim check may hold; send less, or a reference to it", len(data), wire.MaxBlob))
	}
	if ttl <= 0 {
		ttl = blobTTL
	}
	ttl = min((ttl + time.Second - 1).Truncate(time.Second), maxBlobAge)

	chunk := c.Inline()
	sum := sha256.Sum256(data)
	ref := wire.BlobRef{
		ID:     nuid.Next(),
		Size:   int64(len(data)),
		Digest: hex.EncodeToString(sum[:]),
		Chunks: max(1, (len(data)+chunk-1)/chunk),
	}
	if ref.Chunks > wire.MaxChunks {
		return wire.BlobRef{}, ranUnknown(fault.New(fault.InvalidArguments,
			"payload of %d bytes is %d pieces of %d, at most %d are allowed; raise the server's max_payload", len(data), ref.Chunks, chunk, wire.MaxChunks))
	}

	ctx, ended := c.Guard(ctx, strings.TrimSuffix(c.subjects.Blobs(), ">")+ref.ID)
	err := c.putChunks(ctx, ref, data, chunk, ttl)
	if errors.Is(err, jetstream.ErrNoStreamResponse) { // the stream is not there yet
		if err = c.EnsureTopology(ctx); err == nil {
			err = c.putChunks(ctx, ref, data, chunk, ttl)
		}
	}
	if err = ended(err); err != nil {
		return wire.BlobRef{}, c.blobFault("put", err)
	}
	return ref, nil
}

// putChunks writes each piece to a subject that nobody wrote to before. What is left after a failure runs out by itself.
func (c *Conn) putChunks(ctx context.Context, ref wire.BlobRef, data []byte, chunk int, ttl time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(blobsInFlight)
	for i := range ref.Chunks {
		part := data[i*chunk : min((i+1)*chunk, len(data))]
		g.Go(func() error {
			_, err := c.js.Publish(ctx, c.subjects.Blob(ref.ID, i), part,
				jetstream.WithExpectLastSequencePerSubject(0), jetstream.WithMsgTTL(ttl))
			return err
		})
	}
	return g.Wait()
}

// GetBlob fetches and verifies what a claim check stands for. Not found means that it ran out, or was never whole: what
// was put a moment ago is waited for, up to a second. The fault does not say what ran.
func (c *Conn) GetBlob(ctx context.Context, ref wire.BlobRef) ([]byte, *fault.Fault) {
	if _, err := wire.ParseBlobRef(ref.String()); err != nil { // it may come from anybody, and says how much we hold
		return nil, ranUnknown(fault.New(fault.InvalidArguments, "%w", err))
	}
	ctx, ended := c.Guard(ctx, c.api+"DIRECT.GET."+c.blobStreamName())
	parts := make([][]byte, ref.Chunks)
	var total atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(blobsInFlight)
	for i := range parts {
		g.Go(func() (err error) {
			if gctx.Err() != nil {
				return gctx.Err()
			}
			parts[i], err = c.getChunk(gctx, c.subjects.Blob(ref.ID, i))
			if n := total.Add(int64(len(parts[i]))); err == nil && n > ref.Size {
				return fmt.Errorf("%w: more than the %d bytes that it says", errBlobDiffers, ref.Size)
			}
			return err
		})
	}
	if err := ended(g.Wait()); err != nil {
		return nil, c.blobFault("get", err)
	}

	data := make([]byte, 0, total.Load())
	for _, part := range parts {
		data = append(data, part...)
	}
	sum := sha256.Sum256(data)
	switch digest := hex.EncodeToString(sum[:]); {
	case int64(len(data)) != ref.Size:
		return nil, c.blobFault("get", fmt.Errorf("%w: %d bytes, expected %d", errBlobDiffers, len(data), ref.Size))
	case digest != ref.Digest:
		return nil, c.blobFault("get", fmt.Errorf("%w: digest %s, expected %s", errBlobDiffers, digest, ref.Digest))
	}
	return data, nil
}

// getChunk asks for one piece, again for a while where a replica does not know it yet.
func (c *Conn) getChunk(ctx context.Context, subject string) ([]byte, error) {
	end := time.Now().Add(blobPatience)
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		data, err := c.directGet(ctx, subject)
		retry := errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, nats.ErrNoResponders)
		if !retry || time.Now().After(end) {
			return data, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// directGet is the last message of a subject, from any replica. By hand, because jetstream.Stream asks for the stream's
// info first, which takes a round trip and a permission of its own.
func (c *Conn) directGet(ctx context.Context, subject string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, blobAnswer)
	defer cancel()
	m, err := c.nc.RequestWithContext(ctx, c.api+"DIRECT.GET."+c.blobStreamName()+"."+subject, nil)
	if err != nil {
		return nil, err
	}
	switch status := m.Header.Get("Status"); {
	case status == "404":
		return nil, jetstream.ErrMsgNotFound
	case status != "":
		return nil, fmt.Errorf("direct get: status %s: %s", status, m.Header.Get("Description"))
	case m.Header.Get(jetstream.SubjectHeader) != subject:
		return nil, fmt.Errorf("direct get of %s: the answer is about %q", subject, m.Header.Get(jetstream.SubjectHeader))
	}
	return m.Data, nil
}

var errBlobDiffers = errors.New("what is stored is not what was put")

// blobFault says what a claim check has to do with err.
func (c *Conn) blobFault(verb string, err error) *fault.Fault {
	stream := c.blobStreamName()
	f := Fault(err)
	switch {
	case errors.Is(err, errBlobDiffers):
		f = fault.New(fault.Internal, "claim check: %v", err)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		f = fault.New(fault.NotFound, "claim check: a piece is not there; it ran out, or was never stored whole")
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		f = fault.New(f.Kind, "payloads above %d bytes need JetStream with the stream %s, and nothing answers for it; enable JetStream, or send less",
			c.Inline(), stream)
	case f.Kind == fault.Overloaded:
		f = fault.New(f.Kind, "claim checks are full; try later, or raise max_bytes of the stream %s", stream)
	default:
		f = fault.New(f.Kind, "claim check (%s): %s", verb, f.Message)
	}
	f.Detail = err.Error()
	return ranUnknown(f.WithCause(err))
}

// ranUnknown takes back what a kind says of the run.
func ranUnknown(f *fault.Fault) *fault.Fault {
	f.Execution = ""
	return f
}
