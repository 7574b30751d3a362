package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// A fakeWorker beats when told to and describes itself when asked.
type fakeWorker struct {
	t     *testing.T
	c     *bus.Conn
	asked atomic.Int64 // how often it was asked to describe itself

	mu        sync.Mutex
	hb        wire.Heartbeat
	manifests []tool.Manifest
}

func newWorker(t *testing.T, c *bus.Conn, id string, manifests ...tool.Manifest) *fakeWorker {
	t.Helper()
	w := &fakeWorker{
		t:         t,
		c:         c,
		hb:        wire.Heartbeat{Worker: id, Capacity: 4, SDK: "test/1", EveryMs: 1000},
		manifests: manifests,
	}
	for _, m := range manifests {
		w.hb.Tools = append(w.hb.Tools, wire.ToolLine{ID: m.ID, Version: m.Version, Digest: m.Digest()})
	}
	w.subscribe(c.Subjects().To(id), w.receive)
	w.subscribe(c.Subjects().Rollcall(), func(*nats.Msg) { w.beat(wire.Beat) })
	return w
}

func (w *fakeWorker) subscribe(subject string, h func(*nats.Msg)) {
	w.t.Helper()
	if _, err := w.c.Subscribe(subject, "", h); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fakeWorker) receive(m *nats.Msg) {
	if m.Header.Get(wire.HeaderFrame) != string(wire.Describe) {
		return
	}
	w.asked.Add(1)
	w.mu.Lock()
	rec := wire.DescribeRecord{Worker: w.hb.Worker, Manifests: w.manifests}
	w.mu.Unlock()
	data, err := wire.Marshal(wire.MsgPack, &rec)
	if err != nil {
		w.t.Error(err)
	}
	if f := w.c.Respond(m.Reply, wire.Header{wire.HeaderFrame: {string(wire.Manifests)}}, data); f != nil && w.t.Context().Err() == nil {
		w.t.Error(f)
	}
}

// beat sends the next heartbeat; change, if any, is what is new in it.
func (w *fakeWorker) beat(state string, change ...func(*wire.Heartbeat)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hb.State = state
	w.hb.Seq++
	for _, f := range change {
		f(&w.hb)
	}
	data, err := wire.Marshal(wire.MsgPack, &w.hb)
	if err != nil {
		w.t.Error(err)
	}
	if f := w.c.Publish(w.c.Subjects().Heartbeat(w.hb.Worker), nil, data); f != nil && w.t.Context().Err() == nil { // the test may be over
		w.t.Error(f)
	}
}

// run runs a registry for the length of the test, or until stop. Changes come out of the channel.
func run(t *testing.T, cfg registry.Config) (r *registry.Registry, changes <-chan registry.Change, stop func()) {
	t.Helper()
	told := make(chan registry.Change, 1000)
	cfg.OnChange = func(c registry.Change) { told <- c }
	r = registry.New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	<-r.Ready()
	return r, told, stop
}

func await(t *testing.T, changes <-chan registry.Change, kind registry.ChangeKind) registry.Change {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case c := <-changes:
			if c.Kind == kind {
				return c
			}
		case <-timeout:
			t.Fatalf("no change of kind %s", kind)
		}
	}
}

func manifest(id, version string) tool.Manifest {
	return tool.Manifest{ID: id, Version: version, Description: "does " + id, Effect: tool.Read}
}

// holds says what the registry knows of a tool, in short.
func holds(r *registry.Registry, name string) string {
	t := r.Tool(name)
	if t == nil {
		return "nothing"
	}
	version := "?"
	if t.Compiled != nil {
		version = t.Compiled.Version
	}
	ids := []string{}
	for _, w := range t.Workers {
		ids = append(ids, w.ID)
	}
	return fmt.Sprint(version, ids)
}

func want(t *testing.T, r *registry.Registry, name, what string) {
	t.Helper()
	if got := holds(r, name); got != what {
		t.Errorf("Tool(%s) = %s, want %s", name, got, what)
	}
}

func TestLifeOfAWorker(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		want(t, r, "echo", "nothing")

		w := newWorker(t, c, "w1", manifest("echo", "1"))
		w.beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		want(t, r, "echo", "1[w1]")

		was := r.Tool("echo")
		time.Sleep(time.Second)
		w.beat(wire.Beat, func(hb *wire.Heartbeat) { hb.Running = 3 })
		synctest.Wait()
		if r.Tool("echo") != was {
			t.Error("a beat with nothing new made the tool anew, want the same one")
		}
		if i := was.Workers[0]; i.Running() != 3 || i.Capacity() != 4 || i.SDK != "test/1" || time.Since(i.LastSeen()) != 0 {
			t.Errorf("instance: %d of %d running, %s, seen %v ago, want 3 of 4, test/1, 0s", i.Running(), i.Capacity(), i.SDK, time.Since(i.LastSeen()))
		}

		last := time.Now()
		left := await(t, changes, registry.WorkerLeft)
		if took := time.Since(last); took < 3100*time.Millisecond || took > 3110*time.Millisecond {
			t.Errorf("left %v after its last beat, want 3.1s", took)
		}
		if left.Worker != "w1" || left.Because == "" {
			t.Errorf("left: %+v, want w1 and why", left)
		}
		want(t, r, "echo", "1[]")

		w.beat(wire.Beat)
		await(t, changes, registry.WorkerJoined)
		want(t, r, "echo", "1[w1]")
		w.beat(wire.Bye)
		await(t, changes, registry.WorkerLeft)
		want(t, r, "echo", "1[]")
		if n := w.asked.Load(); n != 1 {
			t.Errorf("the worker was asked to describe itself %d times, want once", n)
		}
	})
}

func TestGone(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		w := newWorker(t, c, "w1", manifest("echo", "1"))
		w.beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		was := r.Tool("echo").Workers[0]

		r.Gone("w1")
		want(t, r, "echo", "1[]")
		r.Gone("w1")
		r.Gone("nobody")
		w.beat(wire.Beat)
		await(t, changes, registry.WorkerJoined)
		want(t, r, "echo", "1[w1]")
		if r.Tool("echo").Workers[0] != was {
			t.Error("the worker came back as another Instance, want the same")
		}
	})
}

// Workers that were there before need not beat again: the roll call finds them, and Ready waits for their manifests.
func TestRollCall(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.InProcess(t)
		there := natstest.Connect(t, s)
		for i := range 20 {
			newWorker(t, there, fmt.Sprintf("w%02d", i), manifest("echo", "1"), manifest(fmt.Sprint("tool", i), "2"))
		}
		c := natstest.Connect(t, s)
		r, changes, _ := run(t, registry.Config{Bus: c})
		if n := len(r.Tool("echo").Workers); n != 20 || len(r.Workers()) != 20 {
			t.Errorf("echo has %d workers of %d, want 20 of 20", n, len(r.Workers()))
		}
		for _, info := range r.Tools() {
			if info.Description == "" {
				t.Errorf("%s: there is no manifest, want one once the registry is ready", info.Name)
			}
		}
		if got := r.Nearest("tool_1"); len(got) == 0 || got[0] != "tool1" {
			t.Errorf("Nearest(tool_1) = %v, want tool1 first", got)
		}

		time.Sleep(10 * time.Second) // nobody beats by itself here
		want(t, r, "echo", "1[]")
		for len(changes) > 0 {
			<-changes
		}
		if err := c.NATS().ForceReconnect(); err != nil {
			t.Fatal(err)
		}
		await(t, changes, registry.WorkerJoined)
	})
}

// A tool whose workers are all away is known after a restart.
func TestRestart(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	store, err := kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "manifests"})
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan string, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		_ = store.Follow(ctx, func(u kvstate.Update) {
			if !u.Synced {
				stored <- u.Key
			}
		})
	})
	defer following.Wait()
	defer cancel()

	_, _, stop := run(t, registry.Config{Bus: c, Store: store})
	m := manifest("echo", "1")
	m.Input = []byte(`{"type":"object","required":["text"]}`)
	theirs := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	newWorker(t, theirs, "w1", m).beat(wire.Hello)
	if got, want := <-stored, "echo."+m.Digest(); got != want {
		t.Errorf("stored under %s, want %s", got, want)
	}
	theirs.Close()
	stop()
	if _, err := store.Put(t.Context(), "junk", []byte("junk")); err != nil {
		t.Fatal(err)
	}

	r, _, _ := run(t, registry.Config{Bus: c, Store: store})
	want(t, r, "echo", "1[]")
	if f := r.Tool("echo").Compiled.CheckArgs([]byte(`{}`)); f == nil {
		t.Error("CheckArgs({}) = nil, want a fault: the schema is back as well")
	}
	if len(r.Tools()) != 1 || len(r.Workers()) != 0 {
		t.Errorf("tools %v, workers %v, want echo and none", r.Tools(), r.Workers())
	}
}

// While the store is away, tools come from their workers, and are stored when it is back.
func TestStoreAway(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		open := func() *kvstate.Bucket {
			b, err := kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "manifests"})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		store := open()
		if err := c.JetStream().DeleteKeyValue(t.Context(), "manifests"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r, changes, _ := run(t, registry.Config{Bus: c, Store: store})
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("ready after %v, want 3s at most", took)
		}
		m := manifest("echo", "1")
		newWorker(t, c, "w1", m).beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		want(t, r, "echo", "1[w1]")

		open()
		time.Sleep(10 * time.Second)
		if _, err := store.Get(t.Context(), "echo."+m.Digest()); err != nil {
			t.Errorf("10s after the store came back: %v, want the manifest in it", err)
		}
	})
}

// Nothing that comes in on the heartbeat subject may get into the catalogue unless it is right.
func TestHostileHeartbeats(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		pack := func(hb wire.Heartbeat) []byte {
			data, err := wire.Marshal(wire.MsgPack, &hb)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		good := wire.Heartbeat{Worker: "w1", State: wire.Beat, EveryMs: 1000, Seq: 1, Tools: []wire.ToolLine{{ID: "evil", Digest: "aa"}}}
		negative, starred, crowded := good, good, good
		negative.Capacity = -1
		starred.Tools = []wire.ToolLine{{ID: "*"}}
		crowded.Tools = make([]wire.ToolLine, wire.MaxTools+1)
		for name, data := range map[string][]byte{
			"nothing":              nil,
			"garbage":              []byte("\xdd\xff\xff\xff\xff"),
			"JSON of no heartbeat": []byte(`{"worker":7}`),
			"another's name":       pack(wire.Heartbeat{Worker: "w2", State: wire.Beat, EveryMs: 1000, Seq: 1, Tools: good.Tools}),
			"a negative capacity":  pack(negative),
			"a tool named *":       pack(starred),
			"too many tools":       pack(crowded),
			"too many bytes":       append(pack(good), make([]byte, 64<<10)...),
		} {
			if f := c.Publish(c.Subjects().Heartbeat("w1"), nil, data); f != nil {
				t.Fatalf("%s: %v", name, f)
			}
		}
		newWorker(t, c, "w3", manifest("echo", "1")).beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		if tools, workers := r.Tools(), r.Workers(); len(tools) != 1 || len(workers) != 1 {
			t.Errorf("tools %v, workers %v, want only echo and w3", tools, workers)
		}
	})
}

// A heartbeat may come from a person, as JSON.
func TestHeartbeatAsJSON(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		beat := []byte(`{"worker":"w1","state":"beat","tools":[{"id":"echo","digest":""}],"capacity":1,"every_ms":1000,"seq":1}`)
		if f := c.Publish(c.Subjects().Heartbeat("w1"), nil, beat); f != nil {
			t.Fatal(f)
		}
		await(t, changes, registry.WorkerJoined)
		want(t, r, "echo", "?[w1]")
	})
}

// A worker whose manifest is not what it announced is asked again in 30 s, not with every beat, and its tool has no
// manifest meanwhile.
func TestWrongManifest(t *testing.T) {
	for name, lie := range map[string]func(*fakeWorker){
		"another digest": func(w *fakeWorker) { w.hb.Tools[0].Digest = "0123456789abcdef0123456789abcdef" },
		"no manifest":    func(w *fakeWorker) { w.manifests = nil },
		"broken schema": func(w *fakeWorker) {
			w.manifests[0].Input = []byte(`{"type":"nonsense"}`)
			w.hb.Tools[0].Digest = w.manifests[0].Digest()
		},
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				c := natstest.Connect(t, natstest.InProcess(t))
				r, changes, _ := run(t, registry.Config{Bus: c})
				w := newWorker(t, c, "w1", manifest("echo", "1"))
				lie(w)
				w.beat(wire.Hello)
				await(t, changes, registry.WorkerJoined)
				for range 20 {
					time.Sleep(time.Second)
					w.beat(wire.Beat)
				}
				synctest.Wait()
				if n := w.asked.Load(); n != 1 {
					t.Errorf("asked %d times within 20s, want once", n)
				}
				want(t, r, "echo", "?[w1]")
				for range 20 {
					time.Sleep(time.Second)
					w.beat(wire.Beat)
				}
				synctest.Wait()
				if n := w.asked.Load(); n != 2 {
					t.Errorf("asked %d times within 40s, want twice", n)
				}
			})
		})
	}
}

// A worker that does not answer is asked with every beat, and does not hold up the others.
func TestSilentWorker(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		for i := range 3 {
			silent := &fakeWorker{t: t, c: c, hb: wire.Heartbeat{Worker: fmt.Sprint("silent", i), EveryMs: 1000}}
			silent.hb.Tools = []wire.ToolLine{{ID: fmt.Sprint("tool", i), Digest: "aa"}}
			silent.subscribe(c.Subjects().To(silent.hb.Worker), func(*nats.Msg) {})
			silent.beat(wire.Hello)
		}
		begin := time.Now()
		newWorker(t, c, "w1", manifest("echo", "1")).beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("echo was known after %v, want at once", took)
		}
		want(t, r, "echo", "1[w1]")
	})
}

// Two manifests at once are a conflict, shown and logged once.
func TestConflict(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		var logged lines
		r, changes, _ := run(t, registry.Config{Bus: c, Logger: slog.New(slog.NewTextHandler(&logged, nil))})
		old, young := newWorker(t, c, "old", manifest("echo", "1.9")), newWorker(t, c, "young", manifest("echo", "1.10"))
		old.beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		young.beat(wire.Hello)
		await(t, changes, registry.ToolChanged)
		for range 5 {
			time.Sleep(time.Second)
			old.beat(wire.Beat)
			young.beat(wire.Beat)
		}
		synctest.Wait()
		want(t, r, "echo", "1.10[old young]")
		others := r.Tools()[0].Conflicts
		if len(others) != 1 || others[0].Version != "1.9" || !slices.Equal(others[0].Workers, []string{"old"}) {
			t.Errorf("conflicts: %+v, want 1.9 of old", others)
		}
		if n := logged.with("several manifests"); n != 1 {
			t.Errorf("the conflict was logged %d times, want once:\n%s", n, logged.String())
		}
	})
}

// What may surprise in a manifest is told to those who ask for it, once.
func TestAdvice(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		var asked, other lines
		_, changes, _ := run(t, registry.Config{Bus: c, Advise: true, Logger: slog.New(slog.NewTextHandler(&asked, nil))})
		_, others, _ := run(t, registry.Config{Bus: c, Logger: slog.New(slog.NewTextHandler(&other, nil))})
		w := newWorker(t, c, "w", tool.Manifest{ID: "send", Effect: tool.Write})
		w.beat(wire.Hello)
		w.beat(wire.Beat)
		await(t, changes, registry.ToolAdded)
		await(t, others, registry.ToolAdded)
		synctest.Wait() // the advice follows the news
		if n, m := asked.with("keeps no idempotency keys"), other.with("level=WARN"); n != 1 || m != 0 {
			t.Errorf("told %d times who asked and %d times who did not, want 1 and 0:\n%s%s", n, m, asked.String(), other.String())
		}
	})
}

// lines is a log that a test reads.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) with(text string) int { return strings.Count(l.String(), text) }

// Readers never see a tool half made.
func TestReadersAndWriters(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		r, changes, _ := run(t, registry.Config{Bus: c})
		workers := []*fakeWorker{newWorker(t, c, "w1", manifest("echo", "1")), newWorker(t, c, "w2", manifest("echo", "1"))}
		workers[0].beat(wire.Hello)
		await(t, changes, registry.ToolAdded)
		var all sync.WaitGroup
		all.Go(func() {
			for i := range 200 {
				workers[i%2].beat(wire.Beat, func(hb *wire.Heartbeat) { hb.Draining = i%3 == 0 })
				r.Gone(fmt.Sprint("w", i%2))
			}
		})
		for range 4 {
			all.Go(func() {
				for range 1000 {
					tl := r.Tool("echo")
					if tl.Compiled == nil || len(tl.Workers) > 2 {
						t.Errorf("Tool(echo) = %+v, want a manifest and two workers at most", tl)
					}
					for _, w := range tl.Workers {
						_ = w.Running() + w.Capacity()
					}
				}
				r.Tools()
				r.Workers()
			})
		}
		all.Wait()
	})
}

func TestRunWithoutBus(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	c.Close()
	if err := registry.New(registry.Config{Bus: c}).Run(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Run on a closed connection = %v, want an error that says so", err)
	}
}

func BenchmarkTool(b *testing.B) {
	s := natstest.InProcess(b)
	c := natstest.Connect(b, s)
	r := registry.New(registry.Config{Bus: c})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	defer func() { cancel(); <-done }()
	<-r.Ready()
	joined := make(chan struct{}, 1)
	defer r.OnChange(func(registry.Change) { joined <- struct{}{} })()
	beat := []byte(`{"worker":"w1","state":"beat","tools":[{"id":"echo"}],"every_ms":600000,"seq":1}`)
	if f := c.Publish(c.Subjects().Heartbeat("w1"), nil, beat); f != nil {
		b.Fatal(f)
	}
	<-joined
	b.ReportAllocs()
	for b.Loop() {
		if r.Tool("echo") == nil {
			b.Fatal("Tool(echo) = nil")
		}
	}
}
