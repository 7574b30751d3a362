package journal_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func record(turn, call, value string) *wire.LateRecord {
	return &wire.LateRecord{Turn: turn, Time: "2026-01-02T03:04:05Z",
		Result: &tool.Result{Call: call, Tool: "x", Status: tool.Success, Value: raw(value), Attempts: []tool.Attempt{{N: 1, Tool: "x"}}}}
}

func TestLate(t *testing.T) {
	each(t, func(t *testing.T, c *bus.Conn) {
		j := begin(t, journal.Config{Bus: c, LateFor: 3 * time.Hour})
		large := `"` + strings.Repeat("x", 3<<20) + `"`
		for _, r := range []*wire.LateRecord{
			record("t1", "hotels", `1`), record("t2", "hotels", `2`), record("t1", "cars", large), record("t2", "other", `3`), record("t2", "hotels", `4`),
		} {
			value := string(r.Result.Value)
			if err := j.Keep(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if r.V != 0 || string(r.Result.Value) != value {
				t.Error("Keep changed its record")
			}
		}
		for _, test := range []struct{ turn, call, from, want string }{
			{"t1", "hotels", "t1", `1`},
			{"t2", "hotels", "t2", `4`},
			{"", "hotels", "t2", `4`},
			{"", "cars", "t1", large},
			{"t1", "cars", "t1", large},
		} {
			r, f := j.Late(t.Context(), wire.LateQuery{Turn: test.turn, Call: test.call})
			if f != nil {
				t.Errorf("Late(%s, %s): %v", test.turn, test.call, f)
				continue
			}
			if r.Turn != test.from || string(r.Result.Value) != test.want || r.V != 1 || r.Time != "2026-01-02T03:04:05Z" || len(r.Result.Attempts) != 1 {
				t.Errorf("Late(%s, %s) = %d bytes of %s, want %d of %s", test.turn, test.call, len(r.Result.Value), r.Turn, len(test.want), test.from)
			}
		}
		_, f := j.Late(t.Context(), wire.LateQuery{Turn: "t2", Call: "cars"})
		const want = "there is no late result of call cars of turn t2: it may still run, or have ended before its turn did, or more than 3 h ago"
		if f == nil || f.Kind != fault.NotFound || f.Message != want {
			t.Errorf("Late(t2, cars): %v, want not_found: %s", f, want)
		}
	})
}

func TestLateIllegal(t *testing.T) {
	j := begin(t, journal.Config{Bus: natstest.Connect(t, natstest.InProcess(t))})
	for _, q := range []wire.LateQuery{{}, {Call: "*"}, {Call: "a.b"}, {Turn: ">", Call: "c"}, {Turn: "a b", Call: "c"}, {Call: strings.Repeat("c", 500)}} {
		if _, f := j.Late(t.Context(), q); f == nil || f.Kind != fault.InvalidArguments {
			t.Errorf("Late(%+v): %v, want invalid_arguments", q, f)
		}
		if err := j.Keep(t.Context(), record(q.Turn, q.Call, "1")); err == nil {
			t.Errorf("Keep(%+v): no error, want one", q)
		}
	}
	if err := j.Keep(t.Context(), &wire.LateRecord{Turn: "t"}); err == nil {
		t.Error("Keep of a record without a result: no error, want one")
	}
	if err := j.Keep(t.Context(), record("", "c", "1")); err == nil {
		t.Error("Keep of a record without a turn: no error, want one")
	}
}

func TestForeignLate(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	good := `{"v":1,"turn":"t","result":{"call":"c","tool":"x","status":"success","duration_ms":0}}`
	for i, test := range []struct{ body, check string }{
		{"", ""},
		{"{}", ""},
		{`{"v":2,"turn":"t"}`, ""},
		{strings.Replace(good, `"call":"c"`, `"call":"d"`, 1), ""},
		{strings.Replace(good, `"turn":"t"`, `"turn":"u"`, 1), ""},
		{good, "v1;a;b"},
		{good, "v1;none;1;1;" + strings.Repeat("0", 64)},
	} {
		msg := &nats.Msg{Subject: c.Subjects().Late("t", "c"), Data: []byte(test.body), Header: nats.Header{}}
		if test.check != "" {
			msg.Header.Set(wire.HeaderBlob, test.check)
		}
		if _, err := c.JetStream().PublishMsg(t.Context(), msg); err != nil {
			t.Fatal(err)
		}
		if r, f := j.Late(t.Context(), wire.LateQuery{Call: "c"}); f == nil {
			t.Errorf("Late of foreign record %d = %+v, want a fault", i, r)
		}
	}
}

// A call that failed in a thousand words is kept with fewer.
func TestLateLong(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	r := record("t", "c", "")
	for range 100 {
		r.Result.Attempts = append(r.Result.Attempts, tool.Attempt{Message: strings.Repeat("x", 20<<10)})
	}
	r.Result.Fault = fault.New(fault.Upstream, "%s", strings.Repeat("x", 20<<10))
	if err := j.Keep(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	got, f := j.Late(t.Context(), wire.LateQuery{Call: "c"})
	if f != nil || got.Result.Fault.Kind != fault.Upstream || len(got.Result.Attempts) != 0 || len(r.Result.Attempts) != 101 {
		t.Errorf("Late = %v, %v, want a fault upstream without attempts", got, f)
	}
}

// Keep makes the stream where there is none, and waits for a JetStream that comes back.
func TestKeepMakesTheStream(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := journal.New(journal.Config{Bus: c})
	t.Cleanup(func() { finish(t, j) })
	if err := j.Keep(t.Context(), record("t", "c", "1")); err != nil {
		t.Fatal(err)
	}
	if r, f := j.Late(t.Context(), wire.LateQuery{Call: "c"}); f != nil || string(r.Result.Value) != "1" {
		t.Errorf("Late = %v, %v, want 1", r, f)
	}
}

// A stream that cannot take it now may do so later.
func TestKeepTriesAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		s, err := c.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{Name: "TB_LATE", Subjects: []string{c.Subjects().Lates()},
			AllowDirect: true, MaxMsgs: 1, Discard: jetstream.DiscardNew})
		if err != nil {
			t.Fatal(err)
		}
		j := begin(t, journal.Config{Bus: c})
		if err := j.Keep(t.Context(), record("t", "a", "1")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		if err := j.Keep(ctx, record("t", "b", "2")); err == nil || time.Since(begun) != 10*time.Second {
			t.Errorf("Keep with a full stream: %v after %s, want an error after 10 s", err, time.Since(begun))
		}
		kept := make(chan error, 1)
		go func() { kept <- j.Keep(t.Context(), record("t", "b", "2")) }()
		time.Sleep(5 * time.Second)
		if err := s.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-kept; err != nil {
			t.Errorf("Keep when there is room again: %v, want nil", err)
		}
	})
}

// A server that refuses us without an answer is found out at once.
func TestRefused(t *testing.T) {
	s := natstest.Start(t, bus.ServerConfig{ConfigFile: file(t, fmt.Sprintf(`
		listen: "127.0.0.1:-1"
		jetstream { store_dir: %q }
		authorization { users: [ { user: u, password: p, permissions: { publish: { allow: ["tb.v1.log.*"] }, subscribe: ">" } } ] }`, t.TempDir()))})
	j := journal.New(journal.Config{Bus: natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "u", Password: "p"})})
	t.Cleanup(func() { finish(t, j) })
	begun := time.Now()
	if err := j.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "$JS.API.STREAM.INFO.TB_LOG") {
		t.Errorf("Ensure: %v, want one that names the subject", err)
	}
	if _, f := j.Late(t.Context(), wire.LateQuery{Call: "c"}); f == nil || f.Kind != fault.Denied || !strings.Contains(f.Message, "DIRECT.GET.TB_LATE") {
		t.Errorf("Late: %v, want denied, with the subject", f)
	}
	if f := j.Trace(t.Context(), "t", func(*wire.Page) error { return nil }); f == nil || f.Kind != fault.Denied || !strings.Contains(f.Message, "DIRECT.GET.TB_LOG") {
		t.Errorf("Trace: %v, want denied, with the subject", f)
	}
	if err := j.Keep(t.Context(), record("t", "c", "1")); err == nil || !strings.Contains(err.Error(), "tb.v1.late.t.c") {
		t.Errorf("Keep: %v, want one that names the subject", err)
	}
	if d := time.Since(begun); d > 4*time.Second {
		t.Errorf("four refusals took %s, want less than the time of one answer", d)
	}
}
