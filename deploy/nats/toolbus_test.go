// Package nats_test holds toolbus.conf to what it says of journals and late results: who may write them, read them and ask
// for them. The rest of that file is in executor/permission_test.go.
package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// guarded is a server as we ship it, but for the permissions that are taken from users.
func guarded(t *testing.T, without ...string) *bus.Server {
	t.Helper()
	return natstest.Deployed(t, "toolbus.conf", without...)
}

// keeper is the journal of an executor, with its streams made.
func keeper(t *testing.T, s *bus.Server) (*bus.Conn, *journal.Journal) {
	t.Helper()
	c := natstest.As(t, s, "executor", "")
	if err := c.EnsureTopology(t.Context()); err != nil {
		t.Fatal(err)
	}
	j := journal.New(journal.Config{Bus: c})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := j.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := j.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, j
}

func late(turn, call, value string) *wire.LateRecord {
	return &wire.LateRecord{V: 1, Turn: turn, Result: &tool.Result{Call: call, Tool: "hotel_search", Status: tool.Success, Value: []byte(value)}}
}

// write puts events of a turn into the journal and waits until they can be read.
func write(t *testing.T, j *journal.Journal, turn string, types ...string) {
	t.Helper()
	for i, typ := range types {
		j.Write(&wire.Event{V: 1, Type: typ, Seq: int64(i + 1), Turn: turn})
	}
	for end := time.Now().Add(10 * time.Second); len(trace(t, j, turn)) < len(types); { // nobody tells when it is stored
		if time.Now().After(end) {
			t.Fatalf("the journal of %s has %v, want %v", turn, trace(t, j, turn), types)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// trace is the types of the events in a journal.
func trace(t *testing.T, j *journal.Journal, turn string) (types []string) {
	t.Helper()
	_ = j.Trace(t.Context(), turn, func(p *wire.Page) error { // a fault where there is none yet
		for _, e := range p.Events {
			types = append(types, e.Type)
		}
		return nil
	})
	return types
}

func TestExecutorsKeepAndReadJournals(t *testing.T) {
	s := guarded(t)
	c, j := keeper(t, s)
	write(t, j, "t1", wire.TurnStarted, wire.CallReady, wire.TurnEnded)
	write(t, j, "t2", wire.TurnStarted)
	if got := trace(t, j, "t1"); strings.Join(got, " ") != "TurnStarted CallReady TurnEnded" {
		t.Errorf("the journal of t1 is %v", got)
	}

	large := `"` + strings.Repeat("x", 2<<20) + `"`
	for _, rec := range []*wire.LateRecord{late("t1", "hotels", `[1]`), late("t2", "hotels", `[2]`), late("t1", "map", large)} {
		if err := j.Keep(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	for q, want := range map[wire.LateQuery]string{
		{Turn: "t1", Call: "hotels"}: `[1]`, {Turn: "t2", Call: "hotels"}: `[2]`, {Call: "hotels"}: `[2]`, {Call: "map"}: large,
	} {
		rec, f := j.Late(t.Context(), q)
		if f != nil || string(rec.Result.Value) != want {
			t.Errorf("Late(%+v) = %.40v, %v, want %.40s", q, rec, f, want)
		}
	}

	// Another executor finds the streams there.
	j2 := journal.New(journal.Config{Bus: natstest.As(t, s, "executor", "")})
	if err := errors.Join(j2.Ensure(t.Context()), j2.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if err := c.NATS().LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("refused on the way: %v", err)
	}
}

func TestWhoMayAskExecutors(t *testing.T) {
	s := guarded(t)
	c, _ := keeper(t, s)
	for _, subject := range []string{c.Subjects().TurnLate(), c.Subjects().TurnTrace()} {
		_, err := c.Subscribe(subject, wire.ExecutorQueue, func(m *nats.Msg) {
			if f := c.Respond(m.Reply, wire.Header{wire.HeaderFrame: {"result"}}, m.Data); f != nil {
				t.Error(f)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, who := range []struct{ user, id string }{{"client", "client-1"}, {"observer", "observer-1"}, {"admin", "admin-1"}} {
		asker := natstest.As(t, s, who.user, who.id)
		for _, subject := range []string{asker.Subjects().TurnTrace(), asker.Subjects().TurnLate()} {
			if who.user == "observer" && subject == asker.Subjects().TurnLate() {
				continue // a result
			}
			if fr, f := asker.Request(t.Context(), subject, wire.TurnToken, nil, []byte("ask")); f != nil || string(fr.Data) != "ask" {
				t.Errorf("%s asks on %s: %q, %v, want an answer", who.user, subject, fr.Data, f)
			}
		}
	}
	bare := natstest.As(t, s, "client", "client-2").NATS()
	if m, err := bare.Request("tb.v1.turn.late", []byte("ask"), 5*time.Second); err != nil || string(m.Data) != "ask" {
		t.Errorf("a client asks with plain NATS: %v", err)
	}
}

func TestWhoMayNot(t *testing.T) {
	s := guarded(t)
	keeper(t, s)
	const streams = `
		pub tb.v1.log.t1
		pub tb.v1.late.t1.a
		pub $JS.API.STREAM.CREATE.TB_LOG
		pub $JS.API.STREAM.INFO.TB_LOG
		pub $JS.API.STREAM.PURGE.TB_LOG
		pub $JS.API.STREAM.DELETE.TB_LOG
		pub $JS.API.STREAM.MSG.GET.TB_LOG
		pub $JS.API.DIRECT.GET.TB_LOG
		pub $JS.API.DIRECT.GET.TB_LOG.tb.v1.log.t1
		pub $JS.API.CONSUMER.CREATE.TB_LOG.x
		pub $JS.API.STREAM.CREATE.TB_LATE
		pub $JS.API.STREAM.INFO.TB_LATE
		pub $JS.API.STREAM.PURGE.TB_LATE
		pub $JS.API.STREAM.DELETE.TB_LATE
		pub $JS.API.STREAM.MSG.GET.TB_LATE
		pub $JS.API.DIRECT.GET.TB_LATE
		pub $JS.API.DIRECT.GET.TB_LATE.tb.v1.late.t1.a
		pub $JS.API.CONSUMER.CREATE.TB_LATE.x
		sub tb.v1.log.*
		sub tb.v1.log.>
		sub tb.v1.late.*.*
		sub tb.v1.late.>
		sub tb.v1.turn.late
		sub tb.v1.turn.late executors
		sub tb.v1.turn.trace
		sub tb.v1.turn.trace executors
		sub tb.v1.turn.ctl.*`
	for user, list := range map[string]string{
		"flight_search": streams + `
			pub tb.v1.turn.late
			pub tb.v1.turn.trace
			pub tb.v1.turn.ctl.t1`,
		"client": streams,
		"observer": streams + `
			pub tb.v1.turn.late
			pub tb.v1.turn.ctl.t1
			sub tb.v1.reply.*.client-1.*`,
		"admin": streams,
		"executor": `
			pub tb.v1.turn.late
			pub tb.v1.turn.trace
			pub $JS.API.STREAM.UPDATE.TB_LOG
			pub $JS.API.STREAM.PURGE.TB_LOG
			pub $JS.API.STREAM.DELETE.TB_LOG
			pub $JS.API.STREAM.MSG.GET.TB_LOG
			pub $JS.API.STREAM.MSG.DELETE.TB_LOG
			pub $JS.API.STREAM.SNAPSHOT.TB_LOG
			pub $JS.API.CONSUMER.CREATE.TB_LOG.x
			pub $JS.API.STREAM.UPDATE.TB_LATE
			pub $JS.API.STREAM.PURGE.TB_LATE
			pub $JS.API.STREAM.DELETE.TB_LATE
			pub $JS.API.STREAM.MSG.GET.TB_LATE
			pub $JS.API.STREAM.MSG.DELETE.TB_LATE
			pub $JS.API.STREAM.SNAPSHOT.TB_LATE
			pub $JS.API.CONSUMER.CREATE.TB_LATE.x
			sub tb.v1.log.*
			sub tb.v1.late.*.*
			sub tb.v1.turn.late
			sub tb.v1.turn.trace`,
	} {
		t.Run(user, func(t *testing.T) {
			for _, line := range natstest.Allowed(t, s, user, list) {
				t.Errorf("%s may %s", user, line)
			}
		})
	}
}

// JetStream answers to the reply subject of who asks, past all permissions. A worker that puts a claim check and gets it
// again, with the subject of a journal or a late result as the reply, must not write there.
func TestAnswersAreNoJournal(t *testing.T) {
	s := guarded(t)
	_, j := keeper(t, s)
	page, err := wire.Marshal(wire.MsgPack, &wire.Page{V: 1, Turn: "t1", Events: []wire.Event{{V: 1, Type: wire.TurnEnded, Seq: 9, Turn: "t1"}}})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := wire.Marshal(wire.MsgPack, late("t1", "hotels", `"forged"`))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"flight_search", "client"} {
		nc := natstest.Bare(t, s, user)
		for id, attack := range map[string]struct {
			body  []byte
			reply string
		}{"page": {page, "tb.v1.log.t1"}, "late": {forged, "tb.v1.late.t1.hotels"}} {
			blob := "tb.v1.blob." + user + id + ".0"
			if m, err := nc.Request(blob, attack.body, 5*time.Second); err != nil || !strings.Contains(string(m.Data), `"seq"`) {
				t.Fatalf("put: %v", err)
			}
			get := "$JS.API.DIRECT.GET.TB_BLOBS." + blob
			for _, subject := range []string{get, "tb.v1.blob.more.0"} {
				if err := nc.PublishRequest(subject, attack.reply, attack.body); err != nil {
					t.Fatal(err)
				}
			}
			// The answer to one more comes after the others'.
			if _, err := nc.Request(get, nil, 5*time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, j, "t2", wire.TurnStarted) // and what is stored now was stored after them
	if got := trace(t, j, "t1"); len(got) > 0 {
		t.Errorf("the journal of t1 has %v, want nothing", got)
	}
	if rec, f := j.Late(t.Context(), wire.LateQuery{Turn: "t1", Call: "hotels"}); f == nil {
		t.Errorf("a late result was forged: %s", rec.Result.Value)
	}
}

// A permission that is missing is said by its subject, and soon.
func TestMissingPermissionIsNamed(t *testing.T) {
	const patience = 20 * time.Second
	soon := func(t *testing.T, f func() error, want string) {
		t.Helper()
		began := time.Now()
		if err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
		if took := time.Since(began); took > patience {
			t.Errorf("it took %s", took)
		}
	}
	t.Run("make the streams", func(t *testing.T) {
		for _, stream := range []string{"TB_LOG", "TB_LATE"} {
			create := "$JS.API.STREAM.CREATE." + stream
			j := journal.New(journal.Config{Bus: natstest.As(t, guarded(t, "executor: "+create), "executor", "")})
			soon(t, func() error { return j.Ensure(t.Context()) }, create)
			if err := j.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("read them", func(t *testing.T) {
		_, j := keeper(t, guarded(t, "executor: $JS.API.DIRECT.GET.TB_LOG", "executor: $JS.API.DIRECT.GET.TB_LATE"))
		soon(t, func() error { return j.Trace(t.Context(), "t1", func(*wire.Page) error { return nil }) }, "$JS.API.DIRECT.GET.TB_LOG")
		soon(t, func() error {
			_, f := j.Late(t.Context(), wire.LateQuery{Call: "a"})
			return f
		}, "$JS.API.DIRECT.GET.TB_LATE")
	})
	t.Run("keep a late result", func(t *testing.T) {
		_, j := keeper(t, guarded(t, "executor: tb.v1.late.*.*"))
		soon(t, func() error { return j.Keep(t.Context(), late("t1", "a", `1`)) }, "tb.v1.late.t1.a")
	})
	t.Run("ask", func(t *testing.T) {
		c := natstest.As(t, guarded(t, "client: tb.v1.turn.late"), "client", "client-1")
		soon(t, func() error {
			fr, f := c.Request(t.Context(), c.Subjects().TurnLate(), wire.TurnToken, nil, nil)
			if f == nil {
				f = fr.Refused
			}
			return f
		}, "tb.v1.turn.late")
	})
}
