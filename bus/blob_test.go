package bus_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

// noise is n bytes that no two calls share.
func noise(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = src.Read(b)
	return b
}

func TestBlobRoundTrip(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t)) // the stream is made by the first put
	for _, tt := range []struct{ size, chunks int }{
		{0, 1}, {1, 1}, {c.Inline(), 1}, {c.Inline() + 1, 2}, {3 << 20, 4}, {40 << 20, 43},
	} {
		data := noise(tt.size)
		ref, f := c.PutBlob(t.Context(), data, time.Minute)
		if f != nil {
			t.Fatalf("PutBlob of %d bytes = %v", tt.size, f)
		}
		if ref.Chunks != tt.chunks {
			t.Errorf("PutBlob of %d bytes made %d pieces, want %d", tt.size, ref.Chunks, tt.chunks)
		}
		ref, err := wire.ParseBlobRef(ref.String())
		if err != nil {
			t.Error(err)
		}
		got, f := c.GetBlob(t.Context(), ref)
		if f != nil || !bytes.Equal(got, data) {
			t.Errorf("GetBlob of %d bytes = %d bytes, %v", tt.size, len(got), f)
		}
	}
	if _, f := c.PutBlob(t.Context(), make([]byte, wire.MaxBlob+1), 0); f == nil || f.Kind != fault.InvalidArguments {
		t.Errorf("PutBlob of more than MaxBlob = %v, want invalid_arguments", f)
	}
}

func TestBlobThatDiffers(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	ref, f := c.PutBlob(t.Context(), noise(2<<20), 0)
	if f != nil {
		t.Fatal(f)
	}
	for _, tt := range []struct {
		name   string
		change func(*wire.BlobRef)
		kind   fault.Kind
		want   string
	}{
		{"digest", func(r *wire.BlobRef) { r.Digest = strings.Repeat("0", 64) }, fault.Internal, "digest"},
		{"too small", func(r *wire.BlobRef) { r.Size-- }, fault.Internal, "more than the"},
		{"too large", func(r *wire.BlobRef) { r.Size++ }, fault.Internal, "expected 2097153"},
		{"fewer pieces", func(r *wire.BlobRef) { r.Chunks-- }, fault.Internal, "expected 2097152"},
		{"more pieces", func(r *wire.BlobRef) { r.Chunks++ }, fault.NotFound, "a piece is not there"},
		{"another id", func(r *wire.BlobRef) { r.ID = "nobody" }, fault.NotFound, "a piece is not there"},
		{"bad id", func(r *wire.BlobRef) { r.ID = "a.>" }, fault.InvalidArguments, "claim check"},
		{"huge", func(r *wire.BlobRef) { r.Size = 1 << 40 }, fault.InvalidArguments, "claim check"},
		{"no pieces", func(r *wire.BlobRef) { r.Chunks = 0 }, fault.InvalidArguments, "claim check"},
	} {
		r := ref
		tt.change(&r)
		data, f := c.GetBlob(t.Context(), r)
		if data != nil || f == nil || f.Kind != tt.kind || !strings.Contains(f.Message, tt.want) || f.Execution != "" {
			t.Errorf("%s: GetBlob = %d bytes, %v, want %s with %q and nothing said of the run", tt.name, len(data), f, tt.kind, tt.want)
		}
	}
}

func TestBlobRunsOut(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		ref, f := c.PutBlob(t.Context(), noise(10), 1500*time.Millisecond)
		if f != nil {
			t.Fatal(f)
		}
		if _, f := c.GetBlob(t.Context(), ref); f != nil {
			t.Error(f)
		}
		time.Sleep(time.Minute)
		if _, f := c.GetBlob(t.Context(), ref); f == nil || f.Kind != fault.NotFound {
			t.Errorf("GetBlob after its time = %v, want not_found", f)
		}
	})
}

func TestBlobWithoutJetStream(t *testing.T) {
	s := configured(t, "")
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	_, f := c.PutBlob(t.Context(), noise(10), 0)
	if f == nil || f.Kind != fault.Unsupported || !strings.Contains(f.Message, "payloads above 983040 bytes need JetStream") {
		t.Errorf("PutBlob = %v, want unsupported: needs JetStream", f)
	}
	_, f = c.GetBlob(t.Context(), wire.BlobRef{ID: "x", Size: 1, Chunks: 1, Digest: strings.Repeat("0", 64)})
	if f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, "need JetStream") {
		t.Errorf("GetBlob = %v, want unavailable: needs JetStream", f)
	}
	if err := c.EnsureTopology(t.Context()); !errors.Is(err, jetstream.ErrJetStreamNotEnabled) || !strings.Contains(err.Error(), "enable it") {
		t.Errorf("EnsureTopology = %v", err)
	}
}

func TestBlobsAreNeverEvicted(t *testing.T) {
	c := natstest.Connect(t, natstest.Server(t))
	cfg := jetstream.StreamConfig{Name: "TB_BLOBS", Subjects: []string{"tb.v1.blob.>"}, Discard: jetstream.DiscardNew,
		MaxBytes: 1 << 20, AllowDirect: true, AllowMsgTTL: true}
	if _, err := c.JetStream().CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	first, f := c.PutBlob(t.Context(), noise(600<<10), 0)
	if f != nil {
		t.Fatal(f)
	}
	if _, f := c.PutBlob(t.Context(), noise(600<<10), 0); f == nil || f.Kind != fault.Overloaded || !strings.Contains(f.Message, "full") {
		t.Errorf("PutBlob into a full stream = %v, want overloaded", f)
	}
	if _, f := c.GetBlob(t.Context(), first); f != nil {
		t.Errorf("the first blob is gone: %v", f)
	}
}

func TestEnsureTopology(t *testing.T) {
	log, lines := logged()
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{Server: s, Prefix: "acme", Logger: log})
	ensureAtOnce(t, []*bus.Conn{c})

	js := c.JetStream()
	stream, err := js.Stream(t.Context(), "ACME_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxAge = time.Hour
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureTopology(t.Context()); err != nil {
		t.Errorf("EnsureTopology over an operator's change = %v", err)
	}
	for !strings.Contains(next(t, lines), "max_age = 1h0m0s, want 24h0m0s") {
	}

	cfg.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureTopology(t.Context()); err == nil || !strings.Contains(err.Error(), "allow_direct = false, want true") {
		t.Errorf("EnsureTopology over a stream that cannot serve = %v", err)
	}

	three := natstest.Dial(t, bus.Config{Server: s, Prefix: "three", Replicas: 3})
	if err := three.EnsureTopology(t.Context()); err == nil || !strings.Contains(err.Error(), "3 replicas need as many servers") {
		t.Errorf("EnsureTopology with 3 replicas on one server = %v", err)
	}
	small := natstest.Connect(t, natstest.Start(t, bus.ServerConfig{DontListen: true, MaxStore: 1 << 20}))
	if err := small.EnsureTopology(t.Context()); err == nil || !strings.Contains(err.Error(), "may grow to 1024 MiB") {
		t.Errorf("EnsureTopology in 1 MiB = %v", err)
	}
}

// ensureAtOnce lets eight processes start at the same moment.
func ensureAtOnce(t *testing.T, conns []*bus.Conn) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := conns[i%len(conns)].EnsureTopology(t.Context()); err != nil {
				t.Errorf("EnsureTopology %d = %v", i, err)
			}
		})
	}
	wg.Wait()
}

// What was put through one node can be read at once through another, though that one may not have it yet.
func TestClusterBlobs(t *testing.T) {
	nodes := natstest.Cluster(t, 3)
	conns := make([]*bus.Conn, 3)
	for i := range conns {
		conns[i] = natstest.Dial(t, bus.Config{URL: nodes.URL(i)})
	}
	if got := conns[0].Replicas(); got != 3 {
		t.Errorf("Replicas() = %d, want 3", got)
	}
	ensureAtOnce(t, conns)
	stream, err := conns[0].JetStream().Stream(t.Context(), "TB_BLOBS")
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.CachedInfo().Config.Replicas; got != 3 {
		t.Errorf("the stream has %d replicas, want 3", got)
	}
	for i := range 60 {
		data := noise(200<<10 + i)
		ref, f := conns[i%3].PutBlob(t.Context(), data, time.Minute)
		if f != nil {
			t.Fatal(f)
		}
		got, f := conns[(i+1)%3].GetBlob(t.Context(), ref)
		if f != nil || !bytes.Equal(got, data) {
			t.Fatalf("blob %d read through another node: %d bytes, %v", i, len(got), f)
		}
	}
}

// A worker of least privilege reads claim checks with one permission.
func TestBlobPermission(t *testing.T) {
	s := configured(t, `jetstream { store_dir: "`+t.TempDir()+`" }
authorization { users: [
  { user: all, password: a }
  { user: worker, password: w, permissions: { publish: "$JS.API.DIRECT.GET.TB_BLOBS.tb.v1.blob.>", subscribe: "_INBOX_w.>" } }
] }`)
	all := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "all", Password: "a"})
	w := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "worker", Password: "w", InboxName: "w"})
	ref, f := all.PutBlob(t.Context(), noise(2<<20), 0)
	if f != nil {
		t.Fatal(f)
	}
	if _, f := w.GetBlob(t.Context(), ref); f != nil {
		t.Errorf("GetBlob by a worker = %v", f)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the server refuses without an answer
	defer cancel()
	if err := w.EnsureTopology(ctx); !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "as a user who may") {
		t.Errorf("EnsureTopology by a worker = %v, want a permissions violation", err)
	}
}
