package executor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// guarded is a server as we ship it, but for the permissions that are taken from users.
func guarded(t *testing.T, without ...string) *bus.Server {
	t.Helper()
	return natstest.Deployed(t, "../deploy/nats/toolbus.conf", without...)
}

// A quarter is what runs on a guarded server.
type quarter struct {
	server *bus.Server
	exec   *bus.Conn
	reg    *registry.Registry
	ex     *executor.Executor
}

// settle starts registry and executor as `executor serve` does.
func settle(t *testing.T, s *bus.Server) *quarter {
	t.Helper()
	q := &quarter{server: s, exec: natstest.As(t, s, "executor", "")}
	if err := q.exec.EnsureTopology(t.Context()); err != nil {
		t.Fatal(err)
	}
	store, err := kvstate.Open(t.Context(), q.exec, kvstate.Config{Bucket: "TB_TOOLS"})
	if err != nil {
		t.Fatal(err)
	}
	q.reg = registry.New(registry.Config{Bus: q.exec, Store: store})
	breakers, err := kvstate.Open(t.Context(), q.exec, kvstate.Config{Bucket: "TB_BREAKERS"})
	if err != nil {
		t.Fatal(err)
	}
	if q.ex, err = executor.New(executor.Config{Bus: q.exec, Registry: q.reg, Breakers: breakers}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- q.reg.Run(ctx) }()
	<-q.reg.Ready()
	go func() { ended <- q.ex.Run(ctx, time.Second) }()
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Errorf("registry or executor: %v", err)
			}
		}
	})
	return q
}

// hire starts the worker flight_search-1 with these tools.
func (q *quarter) hire(t *testing.T, tools ...worker.Tool) *worker.Worker {
	t.Helper()
	w, err := worker.New(worker.Config{Bus: natstest.As(t, q.server, "flight_search", "flight_search-1"), Tools: tools, Grace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("worker: %v", err)
		}
	})
	select {
	case <-w.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("worker: %v", err)
	}
	return w
}

// known waits until the registry has the worker and the manifest of its tool.
func (q *quarter) known(t *testing.T) {
	t.Helper()
	(&stage{t: t, reg: q.reg}).awaitWorker("flight_search", "flight_search-1")
}

// flights is a tool that does what its arguments say.
func flights(began chan<- struct{}) worker.Tool {
	return handler("flight_search", func(ctx context.Context, c *worker.Call) (any, error) {
		switch {
		case strings.Contains(string(c.Args), "wait"):
			c.Progress(1, 2, "waiting")
			if began != nil {
				began <- struct{}{}
			}
			<-ctx.Done()
			return nil, ctx.Err()
		case strings.Contains(string(c.Args), "many"):
			return strings.Repeat("x", 2<<20), nil
		}
		return c.Args, nil
	})
}

func TestLeastPrivilegeIsEnough(t *testing.T) {
	q := settle(t, guarded(t))
	began := make(chan struct{}, 4)
	q.hire(t, flights(began))

	// Through the queue group, before anybody is known; then by choice.
	for _, who := range []string{"the queue group", "the instance"} {
		if who == "the instance" {
			q.known(t)
		}
		r := q.ex.Call(t.Context(), tool.Call{Tool: "flight_search", Args: []byte(`{"to":"OSL"}`)})
		if r.Status != tool.Success || string(r.Value) != `{"to":"OSL"}` {
			t.Errorf("call through %s: %s, %v", who, r.Status, r.Fault)
		}
	}
	large := `{"text":"` + strings.Repeat("y", 3<<20) + `"}`
	if r := q.ex.Call(t.Context(), tool.Call{Tool: "flight_search", Args: []byte(large)}); string(r.Value) != large {
		t.Errorf("large arguments and result: %s, %v, %d bytes", r.Status, r.Fault, len(r.Value))
	}

	// A timeout is confirmed by the worker: cancel arrives.
	r := q.ex.Call(t.Context(), tool.Call{Tool: "flight_search", Args: []byte(`{"wait":1}`), TimeoutMs: 300, Retry: &tool.RetryPolicy{MaxAttempts: new(1)}})
	<-began
	if r.Status != tool.TimedOut || r.Fault.Execution != fault.Stopped {
		t.Errorf("timeout: %s, %v", r.Status, r.Fault)
	}

	// A client runs turns and cancels one.
	c := client.New(natstest.As(t, q.server, "client", "client-1"))
	out, err := c.Run(t.Context(), one("flight_search", `{"many":true}`))
	if err != nil || out.Status != "completed" || len(out.Results[0].Value) < 2<<20 {
		t.Errorf("client: %+.200v, %v", out, err)
	}
	if out, err = c.Run(t.Context(), one("flight_search", large)); err != nil || string(out.Results[0].Value) != large {
		t.Errorf("client with large arguments: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	progress := false
	out, err = c.Stream(ctx, one("flight_search", `{"wait":1}`), func(ev *wire.Event) { progress = progress || ev.Type == wire.ProgressEvent })
	if err != nil || out.Status != "cancelled" || !progress {
		t.Errorf("cancelled turn: %+v, %v, progress %v", out, err, progress)
	}

	// A bare request, with nothing but NATS.
	bare := natstest.As(t, q.server, "client", "client-2").NATS()
	m, err := bare.Request("tb.v1.turn.run", []byte(`{"calls":[{"tool":"flight_search","args":{"a":1}}]}`), 5*time.Second)
	if err != nil || !strings.Contains(string(m.Data), "completed") {
		t.Errorf("bare turn: %v", err)
	}

	// People: a direct call, and discovery.
	people := natstest.As(t, q.server, "admin", "admin-1").NATS()
	if m, err = people.Request("tb.v1.call.flight_search", []byte(`{"b":2}`), 5*time.Second); err != nil || string(m.Data) != `{"b":2}` {
		t.Errorf("direct call by admin: %v", err)
	}
	for _, verb := range []micro.Verb{micro.PingVerb, micro.InfoVerb, micro.StatsVerb} {
		for _, who := range [][2]string{{}, {worker.ServiceName}, {worker.ServiceName, "flight_search-1"}} {
			subject, _ := micro.ControlSubject(verb, who[0], who[1])
			if m, err := people.Request(subject, nil, 5*time.Second); err != nil || !strings.Contains(string(m.Data), "flight_search-1") {
				t.Errorf("%s: %v", subject, err)
			}
		}
	}

	// Manifests are kept: another executor knows the tool before any worker tells.
	keys := natstest.As(t, q.server, "admin", "admin-1")
	store, err := kvstate.Open(t.Context(), keys, kvstate.Config{Bucket: "TB_TOOLS"})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; { // it is written in the background, and says so to nobody
		all, err := store.All(t.Context())
		if err != nil || time.Now().After(end) {
			t.Fatalf("manifests: %d, %v", len(all), err)
		}
		if len(all) == 1 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	for _, conn := range []*bus.Conn{q.exec, keys} {
		if err := conn.NATS().LastError(); errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("refused on the way: %v", err)
		}
	}
}

func TestLeastPrivilegeIsLeast(t *testing.T) {
	q := settle(t, guarded(t))
	q.hire(t, flights(nil))
	q.known(t)
	ref, f := q.exec.PutBlob(t.Context(), []byte("somebody's"), 0)
	if f != nil {
		t.Fatal(f)
	}
	for user, list := range map[string]string{
		"executor": `
			pub $JS.API.STREAM.DELETE.TB_BLOBS
			pub $JS.API.STREAM.PURGE.TB_BLOBS
			pub $JS.API.STREAM.UPDATE.TB_BLOBS
			pub $JS.API.STREAM.CREATE.OTHER
			pub $JS.API.STREAM.NAMES
			pub $JS.API.STREAM.SNAPSHOT.TB_BLOBS
			pub $JS.API.STREAM.MSG.DELETE.KV_TB_TOOLS
			pub $JS.API.STREAM.DELETE.KV_TB_TOOLS
			pub $JS.API.STREAM.PURGE.KV_TB_TOOLS
			pub $JS.API.DIRECT.GET.TB_BLOBS
			pub $JS.API.CONSUMER.CREATE.TB_BLOBS.x
			pub $KV.OTHER.a.b
			pub tb.v1.hb.flight_search-1
			pub tb.v1.reply.flight_search.x.1
			pub tb.v1.turn.run
			pub $SYS.REQ.SERVER.PING
			sub tb.v1.turn.run
			sub tb.v1.turn.run others
			sub tb.v1.call.*
			sub tb.v1.to.*
			sub tb.v1.blob.>
			sub _INBOX.>
			sub >`,
		"flight_search": `
			pub tb.v1.call.flight_search
			pub tb.v1.call.hotel_search
			pub tb.v1.turn.run
			pub tb.v1.turn.ctl.x
			pub tb.v1.cancel.flight_search
			pub tb.v1.rollcall
			pub tb.v1.to.hotel_search-1
			pub tb.v1.hb.hotel_search-1
			pub tb.v1.reply.hotel_search.x.1
			pub tb.v1.reply._turn.client-1.1
			pub tb.v1.event.x
			pub _INBOX.x
			pub _INBOX_executor.x
			pub $JS.API.INFO
			pub $JS.API.STREAM.PURGE.TB_BLOBS
			pub $JS.API.STREAM.DELETE.TB_BLOBS
			pub $JS.API.STREAM.INFO.TB_BLOBS
			pub $JS.API.DIRECT.GET.TB_BLOBS
			pub $JS.API.STREAM.MSG.GET.TB_BLOBS
			pub $JS.API.DIRECT.GET.KV_TB_TOOLS
			pub $KV.TB_TOOLS.flight_search.x
			sub tb.v1.call.flight_search
			sub tb.v1.call.flight_search others
			sub tb.v1.call.hotel_search workers
			sub tb.v1.call.* workers
			sub tb.v1.to.*
			sub tb.v1.to.hotel_search-1
			sub tb.v1.cancel.*
			sub tb.v1.hb.*
			sub tb.v1.turn.run executors
			sub tb.v1.reply.>
			sub tb.v1.blob.>
			sub _INBOX.>
			sub _INBOX_executor.>
			sub >`,
		"client": `
			pub tb.v1.call.flight_search
			pub tb.v1.to.flight_search-1
			pub tb.v1.cancel.flight_search
			pub tb.v1.rollcall
			pub tb.v1.hb.x
			pub tb.v1.reply._turn.client-2.1
			pub tb.v1.reply.flight_search.x.1
			pub $JS.API.STREAM.PURGE.TB_BLOBS
			pub $JS.API.STREAM.MSG.GET.TB_BLOBS
			pub $JS.API.DIRECT.GET.TB_BLOBS
			pub $KV.TB_TOOLS.flight_search.x
			pub $SRV.PING
			sub tb.v1.call.flight_search
			sub tb.v1.call.flight_search workers
			sub tb.v1.to.flight_search-1
			sub tb.v1.turn.run
			sub tb.v1.turn.ctl.*
			sub tb.v1.reply.*.*.*
			sub tb.v1.reply._turn.client-3.*
			sub tb.v1.blob.>
			sub _INBOX.>
			sub _INBOX_admin.>`,
		"observer": `
			pub tb.v1.call.flight_search
			pub tb.v1.turn.run
			pub tb.v1.rollcall
			pub x
			pub $JS.API.INFO
			pub $SRV.PING
			sub tb.v1.call.*
			sub tb.v1.reply.>
			sub tb.v1.turn.>
			sub _INBOX_observer.>
			sub >`,
		"admin": `
			pub tb.v1.hb.flight_search-1
			pub tb.v1.reply.flight_search.x.1
			pub $JS.API.STREAM.CREATE.OTHER
			pub $JS.API.STREAM.DELETE.TB_BLOBS
			pub $KV.TB_TOOLS.flight_search.x
			pub $SYS.REQ.SERVER.PING
			sub tb.v1.call.*
			sub tb.v1.turn.run executors
			sub >`,
	} {
		t.Run(user, func(t *testing.T) {
			for _, line := range natstest.Allowed(t, q.server, user, list) {
				t.Errorf("%s may %s", user, line)
			}
		})
	}

	// JetStream answers to the reply subject of who asks, past all permissions, and a claim check that was put says with
	// which words. None of that may reach a stream. (That it reaches other subjects is in docs/security.md.)
	t.Run("answers as requests", func(t *testing.T) {
		nc := natstest.Bare(t, q.server, "flight_search")
		for i, body := range []string{`{}`, ``} {
			mine := "tb.v1.blob.mine" + string(rune('a'+i)) + ".0"
			if m, err := nc.Request(mine, []byte(body), 5*time.Second); err != nil || !strings.Contains(string(m.Data), `"seq"`) {
				t.Fatalf("put: %v", err)
			}
			for _, reply := range []string{
				"$JS.API.STREAM.PURGE.TB_BLOBS", "$JS.API.STREAM.DELETE.TB_BLOBS", "$JS.API.STREAM.DELETE.KV_TB_TOOLS",
				"$KV.TB_TOOLS.flight_search.x", "$KV.TB_TOOLS.hotel_search.x",
			} {
				for _, subject := range []string{"$JS.API.DIRECT.GET.TB_BLOBS." + mine, "tb.v1.blob.b.0"} {
					if err := nc.PublishRequest(subject, reply, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			// The answer to one more comes after the others'.
			if _, err := nc.Request("$JS.API.DIRECT.GET.TB_BLOBS."+mine, nil, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if data, f := q.exec.GetBlob(t.Context(), ref); f != nil || string(data) != "somebody's" {
			t.Errorf("another's claim check after the attack: %q, %v", data, f)
		}
		store, err := kvstate.Open(t.Context(), q.exec, kvstate.Config{Bucket: "TB_TOOLS"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := store.All(t.Context())
		for _, e := range all {
			if strings.HasSuffix(e.Key, ".x") {
				t.Errorf("the worker wrote %s = %q", e.Key, e.Value)
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A permission that is missing is said by name, and soon.
func TestMissingPermissionIsNamed(t *testing.T) {
	soon := func(t *testing.T, what string, f func() error, want ...string) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- f() }()
		select {
		case err := <-done:
			for _, w := range want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: %v, want %q in it", what, err, w)
				}
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s hangs", what)
		}
	}
	call := func(q *quarter, args string) func() error {
		return func() error {
			r := q.ex.Call(context.Background(), tool.Call{Tool: "flight_search", Args: []byte(args)})
			if r.Fault == nil {
				return nil
			}
			return errors.New(string(r.Fault.Kind) + ": " + r.Fault.Message)
		}
	}

	t.Run("executor start", func(t *testing.T) {
		for subject, say := range map[string]string{
			"tb.v1.turn.run executors": `let this user subscribe to "tb.v1.turn.run executors"`,
			"tb.v1.turn.ctl.*":         `let this user subscribe to "tb.v1.turn.ctl.*"`,
		} {
			c := natstest.As(t, guarded(t, "executor: "+subject), "executor", "")
			ex, err := executor.New(executor.Config{Bus: c, Registry: registry.New(registry.Config{Bus: c})})
			if err != nil {
				t.Fatal(err)
			}
			soon(t, subject, func() error { return ex.Run(t.Context(), time.Second) }, say)
		}
	})
	t.Run("registry start", func(t *testing.T) {
		c := natstest.As(t, guarded(t, "executor: tb.v1.hb.*"), "executor", "")
		soon(t, "registry", func() error { return registry.New(registry.Config{Bus: c}).Run(t.Context()) }, `let this user subscribe to "tb.v1.hb.*"`)
	})
	t.Run("worker start", func(t *testing.T) {
		for _, subject := range []string{"tb.v1.call.flight_search workers", "tb.v1.to.flight_search-1", "tb.v1.rollcall", "tb.v1.cancel.flight_search", "$SRV.*"} {
			c := natstest.As(t, guarded(t, "flight_search: "+subject), "flight_search", "flight_search-1")
			w, err := worker.New(worker.Config{Bus: c, Tools: []worker.Tool{flights(nil)}})
			if err != nil {
				t.Fatal(err)
			}
			soon(t, subject, func() error { return w.Run(t.Context()) }, "let this user subscribe to", strings.TrimSuffix(subject, "*"))
		}
	})
	t.Run("a worker under another's id", func(t *testing.T) {
		c := natstest.As(t, guarded(t), "flight_search", "hotel_search-1")
		w, err := worker.New(worker.Config{Bus: c, Tools: []worker.Tool{flights(nil)}})
		if err != nil {
			t.Fatal(err)
		}
		soon(t, "worker", func() error { return w.Run(t.Context()) }, `let this user subscribe to`, "hotel_search-1")
	})
	t.Run("streams", func(t *testing.T) {
		c := natstest.As(t, guarded(t, "executor: $JS.API.STREAM.CREATE.TB_BLOBS", "executor: $JS.API.STREAM.CREATE.KV_TB_TOOLS"), "executor", "")
		soon(t, "topology", func() error { return c.EnsureTopology(t.Context()) }, `"$JS.API.STREAM.CREATE.TB_BLOBS"`, "as a user who may")
		soon(t, "bucket", func() error {
			_, err := kvstate.Open(t.Context(), c, kvstate.Config{Bucket: "TB_TOOLS"})
			return err
		}, `"$JS.API.STREAM.CREATE.KV_TB_TOOLS"`)
	})
	t.Run("calls", func(t *testing.T) {
		q := settle(t, guarded(t, "executor: tb.v1.call.*"))
		soon(t, "by the queue group", call(q, `{}`), "denied", `publish to "tb.v1.call.flight_search"`)
		q = settle(t, guarded(t, "executor: tb.v1.to.*"))
		q.hire(t, flights(nil))
		for q.reg.Tool("flight_search") == nil {
			<-time.After(5 * time.Millisecond) // its manifest cannot be asked for, so no change tells of it
		}
		soon(t, "by the instance", call(q, `{}`), "denied", `publish to "tb.v1.to.flight_search-1"`)
	})
	t.Run("claim checks", func(t *testing.T) {
		q := settle(t, guarded(t, "executor: tb.v1.blob.*.*"))
		soon(t, "put", call(q, `{"text":"`+strings.Repeat("y", 3<<20)+`"}`), `publish to "tb.v1.blob.`)
		q = settle(t, guarded(t, "executor: $JS.API.DIRECT.GET.TB_BLOBS.tb.v1.blob.*.*"))
		q.hire(t, flights(nil))
		soon(t, "get", call(q, `{"many":1}`), `publish to "$JS.API.DIRECT.GET.TB_BLOBS.`)
	})
	t.Run("client", func(t *testing.T) {
		s := guarded(t, "client: tb.v1.turn.run", "client: tb.v1.reply.*.client-2.*")
		settle(t, s)
		for id, say := range map[string]string{"client-1": `publish to "tb.v1.turn.run"`, "client-2": "tb.v1.reply.*.client-2.*"} {
			soon(t, id, func() error {
				_, err := client.New(natstest.As(t, s, "client", id)).Run(t.Context(), one("flight_search", `{}`))
				return err
			}, say, "allow it")
		}
	})
}
