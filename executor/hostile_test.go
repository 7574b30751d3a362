package executor_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 means a new one")

// allocated is how many bytes f allocated, others' included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// heap is what is live.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// outcome asks for a turn with plain NATS, and gives the first result.
func outcome(t *testing.T, nc *nats.Conn, h nats.Header, body []byte) tool.Result {
	t.Helper()
	m, err := nc.RequestMsg(&nats.Msg{Subject: "tb.v1.turn.run", Header: h, Data: body}, 20*time.Second)
	if err != nil {
		t.Fatalf("%.60q: %v, want an answer", body, err)
	}
	var ev wire.Event
	if err := wire.Decode(m.Data, &ev); err != nil || ev.Outcome == nil || len(ev.Outcome.Results) == 0 {
		t.Fatalf("%.60q: answer %.200q, %v, want an outcome", body, m.Data, err)
	}
	return ev.Outcome.Results[0]
}

func kindOf(r tool.Result) fault.Kind {
	if r.Fault == nil {
		return ""
	}
	return r.Fault.Kind
}

var bombs = map[string]string{
	"array of 4 G":     "\xdd\xff\xff\xff\xff",
	"map of 4 G":       "\xdf\xff\xff\xff\xff",
	"bytes of 2 G":     "\xc6\x7f\xff\xff\xff",
	"string of 2 G":    "\xdb\x7f\xff\xff\xff",
	"ext of 2 G":       "\xc9\x7f\xff\xff\xff\x05",
	"deep arrays":      strings.Repeat("\x91", 900_000),
	"deep maps":        strings.Repeat("\x81\xa1a", 300_000),
	"wide deep arrays": strings.Repeat("\xdc\xff\xff", 20_000),
	"reserved":         "\xc1",
}

// Turn requests of every kind of wrong: each has one answer, soon and cheaply, and the executor goes on.
func TestHostileTurnRequests(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	st.work(handler("echo", echo, schema(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["n"]}`)))
	st.serve()
	nc := natstest.Connect(t, st.server).NATS()
	call := func(fields string) string { return `{"calls":[{"id":"a","tool":"echo","args":{"n":1}` + fields + `}]}` }
	many := `{"calls":[` + strings.Repeat(`{"tool":"echo","args":{"n":1}},`, 1000) + `{"tool":"echo"}]}`
	for name, c := range map[string]struct {
		body string
		want fault.Kind
	}{
		"1,001 calls":             {many, fault.InvalidArguments},
		"same call id twice":      {`{"calls":[{"id":"a","tool":"echo"},{"id":"a","tool":"echo"}]}`, fault.InvalidArguments},
		"timeout 0":               {call(`,"timeout_ms":0`), ""},
		"timeout -1":              {call(`,"timeout_ms":-1`), fault.InvalidArguments},
		"timeout 2^31":            {call(`,"timeout_ms":2147483648`), fault.InvalidArguments},
		"timeout 2^63":            {call(`,"timeout_ms":9223372036854775808`), fault.InvalidArguments},
		"timeout 1e300":           {call(`,"timeout_ms":1e300`), fault.InvalidArguments},
		"deadline -1":             {`{"deadline_ms":-1,"calls":[{"tool":"echo","args":{"n":1}}]}`, fault.InvalidArguments},
		"deadline 2^31":           {`{"deadline_ms":2147483648,"calls":[{"tool":"echo","args":{"n":1}}]}`, fault.InvalidArguments},
		"deadline 2^63-1":         {`{"deadline_ms":9223372036854775807,"calls":[{"tool":"echo","args":{"n":1}}]}`, fault.InvalidArguments},
		"retry for ever":          {call(`,"retry":{"max_attempts":2147483647,"initial_delay_ms":-9223372036854775807,"multiplier":-1,"jitter_percent":1e9}`), fault.InvalidArguments},
		"unknown field":           {call(`,"mood":"bad"`), ""},
		"NUL in the turn's id":    {`{"id":"a\u0000b","calls":[{"tool":"echo"}]}`, fault.InvalidArguments},
		"line break in the id":    {`{"id":"a\r\nPUB x 1","calls":[{"tool":"echo"}]}`, fault.InvalidArguments},
		"line break in the key":   {call(`,"key":"a\r\nNats-Rollup: all"`), fault.InvalidArguments},
		"NUL in the key":          {call(`,"key":"a\u0000"`), fault.InvalidArguments},
		"line break in session":   {`{"session":"a\r\nb","calls":[{"tool":"echo"}]}`, fault.InvalidArguments},
		"wildcard turn id":        {`{"id":"*","calls":[{"tool":"echo"}]}`, fault.InvalidArguments},
		"tool >":                  {`{"calls":[{"tool":">"}]}`, fault.ToolNotFound},
		"tool a..b":               {`{"calls":[{"tool":"a..b"}]}`, fault.ToolNotFound},
		"tool of 5,000 bytes":     {`{"calls":[{"tool":"` + long(5000) + `"}]}`, fault.ToolNotFound},
		"tool of the server":      {`{"calls":[{"tool":"$JS.API.STREAM.PURGE.X"}]}`, fault.ToolNotFound},
		"tool with a homoglyph":   {`{"calls":[{"tool":"ｅcho"}]}`, fault.ToolNotFound},
		"depth 10,000 in args":    {`{"calls":[{"tool":"echo","args":` + strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000) + `}]}`, fault.InvalidArguments},
		"duplicate keys in args":  {`{"calls":[{"tool":"echo","args":{"n":1,"n":2}}]}`, fault.InvalidArguments},
		"wrong types":             {`{"calls":[{"tool":"echo","args":{"n":"x","s":4}}]}`, fault.InvalidArguments},
		"__proto__ in args":       {`{"calls":[{"tool":"echo","args":{"n":1,"__proto__":{"x":1}}}]}`, ""},
		"trailing data":           {call("") + "{}", fault.InvalidArguments},
		"not UTF-8":               {"{\"calls\":[{\"tool\":\"echo\",\"args\":{\"s\":\"\xff\"}}]}", fault.InvalidArguments},
		"JSON of another version": {`{"v":99,"calls":[{"tool":"echo","args":{"n":1}}]}`, ""},
	} {
		r := outcome(t, nc, nil, []byte(c.body))
		if got := kindOf(r); got != c.want {
			t.Errorf("%s: %q (%v), want %q", name, got, r.Fault, c.want)
		}
	}
	for name, bomb := range bombs {
		var r tool.Result
		if n := allocated(func() { r = outcome(t, nc, nil, []byte(bomb)) }); n > 32<<20 {
			t.Errorf("%s: %d MiB allocated", name, n>>20)
		}
		if kindOf(r) != fault.InvalidArguments {
			t.Errorf("%s: %v, want invalid_arguments", name, r.Fault)
		}
	}
	// Raw arguments, of which the codec sees bytes only.
	for name, args := range map[string]string{
		"cut": `{"n":1`, "trailing": `{"n":1} x`, "twice": `{"n":1,"n":1}`, "bytes": "\x00\x01", "list": `[1]`,
		"deep": strings.Repeat(`[`, 10_000), "wrong": `{"n":"1","s":2}`,
	} {
		body, err := wire.Marshal(wire.MsgPack, &wire.TurnRequest{Calls: []tool.Call{{ID: "a", Tool: "echo", Args: []byte(args)}}})
		if err != nil {
			t.Fatal(err)
		}
		kind := fault.InvalidArguments
		if name == "cut" {
			kind = fault.TruncatedCall
		}
		if r := outcome(t, nc, nil, body); kindOf(r) != kind {
			t.Errorf("args %s: %v, want %s", name, r.Fault, kind)
		}
	}
	if r := outcome(t, nc, nil, []byte(call(""))); r.Status != tool.Success {
		t.Errorf("afterwards: %v", r.Fault)
	}
}

// Headers of a caller that must not travel on, and reply subjects that are not for replies.
func TestHostileTurnHeaders(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	got := make(chan wire.Header, 10)
	st.work(handler("look", func(_ context.Context, c *worker.Call) (any, error) { got <- c.Header; return 1, nil }))
	st.serve()
	nc := natstest.Connect(t, st.server).NATS()
	const parent = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	body := []byte(`{"calls":[{"tool":"look"}]}`)
	for name, c := range map[string]struct {
		h      nats.Header
		parent string
	}{
		"a good parent": {nats.Header{"traceparent": {parent}, "baggage": {"a=b"}}, parent},
		"garbage":       {nats.Header{"traceparent": {"garbage"}, "baggage": {"a=b"}}, ""},
		"zeroes":        {nats.Header{"traceparent": {"00-" + strings.Repeat("0", 32) + "-0123456789abcdef-01"}}, ""},
		"huge baggage":  {nats.Header{"traceparent": {parent}, "baggage": {strings.Repeat("x", 900_000)}}, parent},
		"Nats-*": {nats.Header{"Nats-Rollup": {"all"}, "Nats-Msg-Id": {"1"}, "Nats-Expected-Last-Sequence": {"0"},
			"Nats-Request-Info": {"{}"}, "nats-ttl": {"1s"}}, ""},
	} {
		if r := outcome(t, nc, c.h, body); r.Status != tool.Success {
			t.Errorf("%s: %v", name, r.Fault)
			continue
		}
		h := <-got
		if p := wire.Get(h, wire.HeaderTraceparent); p != c.parent {
			t.Errorf("%s: the worker got traceparent %q, want %q", name, p, c.parent)
		}
		if b := wire.Get(h, wire.HeaderBaggage); len(b) > 512 || c.parent == "" && b != "" {
			t.Errorf("%s: the worker got %d bytes of baggage", name, len(b))
		}
		for k := range h {
			if strings.HasPrefix(strings.ToLower(k), "nats-") {
				t.Errorf("%s: the worker got %s", name, k)
			}
		}
	}

	if _, err := st.conn.JetStream().Publish(t.Context(), "tb.v1.blob.keep.0", []byte("x")); err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 10)
	st.plain("$KV.>", "", func(m *nats.Msg) { heard <- m.Subject })
	for _, reply := range []string{"$JS.API.STREAM.PURGE.TB_BLOBS", "$KV.breaker.x", "tb.v1.call.look", "tb.v1.reply.look.x.1", "tb.v1.to.x"} {
		if err := nc.PublishRequest("tb.v1.turn.run", reply, body); err != nil { // as reply: no turn
			t.Fatal(err)
		}
		r := outcome(t, nc, nats.Header{"Tb-Progress": {reply}}, body) // as a place for events: no events there
		if r.Status != tool.Success {
			t.Errorf("progress to %s: %v", reply, r.Fault)
		}
		<-got
	}
	if s, err := st.conn.JetStream().Stream(t.Context(), "TB_BLOBS"); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("the stream was touched: %v", err)
	}
	if len(got)+len(heard) > 0 {
		t.Errorf("%d calls ran without a place to answer to, %d messages came to $KV", len(got), len(heard))
	}
}

func TestHostileControl(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	began, let := make(chan struct{}, 1), make(chan struct{})
	st.work(handler("hold", func(ctx context.Context, _ *worker.Call) (any, error) {
		began <- struct{}{}
		select {
		case <-let:
			return "held", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	st.serve()
	nc := natstest.Connect(t, st.server).NATS()
	c := client.New(natstest.Connect(t, st.server))
	req := one("hold", `{}`)
	req.ID = "mine"
	type ended struct {
		out *wire.Outcome
		err error
	}
	first := make(chan ended, 1)
	go func() { out, err := c.Run(context.Background(), req); first <- ended{out, err} }()
	<-began

	// The id is in use: the second is refused, the first goes on.
	out, err := c.Run(t.Context(), req)
	if err != nil || kindOf(out.Results[0]) != fault.InvalidArguments {
		t.Errorf("same turn id: %+v, %v, want invalid_arguments", out, err)
	}
	for _, subject := range []string{"tb.v1.turn.ctl.unknown", "tb.v1.turn.ctl.*", "tb.v1.turn.ctl.>", "tb.v1.turn.ctl.mine.x"} {
		if err := nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header{"Tb-Frame": {"cancel"}}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, frame := range []string{"", "dance", "drain"} {
		if err := nc.PublishMsg(&nats.Msg{Subject: "tb.v1.turn.ctl.mine", Header: nats.Header{"Tb-Frame": {frame}}}); err != nil {
			t.Fatal(err)
		}
	}
	outcome(t, nc, nil, []byte(`{}`)) // all of that was heard
	close(let)
	if e := <-first; e.err != nil || e.out.Status != "completed" {
		t.Errorf("the turn: %+v, %v, want completed", e.out, e.err)
	}
}

// Where the events of a turn go is chosen by who asks for it: another client's subject must not end that one's turn.
func TestEventsOfAnotherTurnAreIgnored(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	nc := natstest.Connect(t, st.server).NATS()
	st.plain("tb.v1.turn.run", "", func(m *nats.Msg) {
		_ = nc.Publish(m.Reply, []byte(`{"v":1,"type":"TurnEnded","seq":1,"turn":"theirs","outcome":{"turn":"theirs","status":"completed","results":[{"call":"x","value":2}]}}`))
		_ = nc.Publish(m.Reply, []byte(`{"v":1,"type":"TurnEnded","seq":1,"turn":"mine","outcome":{"turn":"mine","status":"completed","results":[{"call":"x","value":1}]}}`))
	})
	req := one("echo", `{}`)
	req.ID = "mine"
	out, err := client.New(natstest.Connect(t, st.server)).Run(t.Context(), req)
	if err != nil || out.Turn != "mine" {
		t.Errorf("Run = %+v, %v, want the outcome of its own turn", out, err)
	}
}

// A villain is a plain worker with bad manners; each call of say is one message to the caller.
func (st *stage) villain(name string, f func(say func(h nats.Header, body string), m *nats.Msg)) {
	st.t.Helper()
	nc := natstest.Connect(st.t, st.server).NATS()
	st.plain("tb.v1.call."+name, wire.QueueGroup, func(m *nats.Msg) {
		f(func(h nats.Header, body string) {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h, Data: []byte(body)})
		}, m)
	})
}

func frame(kind string, more ...string) nats.Header {
	h := nats.Header{"Tb-Frame": {kind}}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = []string{more[i+1]}
	}
	return h
}

var once = &tool.RetryPolicy{MaxAttempts: new(1)}

func TestHostileAnswers(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	const msgpack = "application/msgpack"
	result := func(say func(nats.Header, string)) { say(nil, `1`) }
	for name, c := range map[string]struct {
		f    func(say func(nats.Header, string), m *nats.Msg)
		want fault.Kind
	}{
		"forged_503": {func(say func(nats.Header, string), _ *nats.Msg) { say(nats.Header{"Status": {"503"}}, "") }, fault.ToolNotFound},
		"503_with_body": {func(say func(nats.Header, string), _ *nats.Msg) {
			say(nats.Header{"Status": {"503"}}, "1")
		}, ""},
		"end_then_more": {func(say func(nats.Header, string), _ *nats.Msg) {
			result(say)
			for range 100 {
				say(frame("partial", "Tb-Seq", "1"), `2`)
				say(frame("error"), `{"kind":"internal"}`)
			}
		}, ""},
		"nacks_for_ever": {func(say func(nats.Header, string), _ *nats.Msg) { say(frame("nack"), `{"kind":"overloaded"}`) }, fault.Overloaded},
		"nack_retry_after_for_ever": {func(say func(nats.Header, string), _ *nats.Msg) {
			say(frame("nack", "Tb-Retry-After-Ms", "9223372036854775807"), ``)
		}, fault.Overloaded},
		"bad_claim_check": {func(say func(nats.Header, string), _ *nats.Msg) {
			say(nats.Header{"Tb-Blob": {"v1;a;999999999999;1;" + strings.Repeat("0", 64)}}, "")
		}, fault.InvalidResult},
		"lying_claim_check": {func(say func(nats.Header, string), _ *nats.Msg) {
			say(nats.Header{"Tb-Blob": {"v1;a;67108864;4096;" + strings.Repeat("0", 64)}}, "")
		}, fault.NotFound},
		"strange_worker": {func(say func(nats.Header, string), _ *nats.Msg) {
			say(frame("accept", "Tb-Worker", "a.*.>"), "")
			say(frame("accept", "Tb-Worker", long(5000)), "")
			result(say)
		}, ""},
	} {
		st.villain(name, c.f)
		var r tool.Result
		n := allocated(func() { r = st.exec.Call(t.Context(), tool.Call{Tool: name, Retry: once}) })
		if kindOf(r) != c.want {
			t.Errorf("%s: %s, %v, want %q", name, r.Status, r.Fault, c.want)
		}
		if n > 64<<20 {
			t.Errorf("%s: %d MiB allocated", name, n>>20)
		}
	}
	for name, bomb := range bombs {
		for _, kind := range []string{"progress", "error", "nack", "stopped", "partial"} {
			id := tool.SafeName(kind + " " + name)
			st.villain(id, func(say func(nats.Header, string), _ *nats.Msg) {
				say(frame(kind, "Content-Type", msgpack), bomb)
				result(say)
			})
			var r tool.Result
			if n := allocated(func() { r = st.exec.Call(t.Context(), tool.Call{Tool: id, Retry: once}) }); n > 32<<20 {
				t.Errorf("%s as %s: %d MiB allocated", name, kind, n>>20)
			}
			if ends := wire.Frame(kind).Ends(); ends != (r.Status != tool.Success) {
				t.Errorf("%s as %s: %s, %v", name, kind, r.Status, r.Fault)
			}
		}
	}
	if n := st.exec.InFlight() + st.exec.Held(); n != 0 {
		t.Errorf("%d calls or attempts are left", n)
	}
}

// A worker that answers in the very moment in which its time is up: one result, whichever.
func TestAnswerAtTheDeadline(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t))
		for i := range 20 {
			name := fmt.Sprint("tight", i) // each has a breaker of its own
			st.villain(name, func(say func(nats.Header, string), _ *nats.Msg) {
				time.AfterFunc(100*time.Millisecond, func() { say(nil, `1`) })
			})
			r := st.exec.Call(context.Background(), tool.Call{Tool: name, TimeoutMs: 100, Retry: once})
			if r.Status != tool.Success && r.Status != tool.TimedOut {
				t.Fatalf("%s, %v", r.Status, r.Fault)
			}
		}
		if st.exec.InFlight() != 0 {
			t.Errorf("%d in flight", st.exec.InFlight())
		}
	})
}

func TestEndlessStreams(t *testing.T) {
	const hang = 120_000                                                                 // ms: far more than any of it takes, so that only what hangs fails
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.Observer = nil }) // the stage's keeps all it sees
	st.serve()
	// Pieces without end: cut off, and the worker is told to stop.
	stop := make(chan struct{})
	t.Cleanup(sync.OnceFunc(func() { close(stop) }))
	piece := `"` + long(500<<10) + `"`
	nc := natstest.Connect(t, st.server).NATS()
	var pouring sync.WaitGroup
	t.Cleanup(pouring.Wait)
	st.villain("pieces", func(say func(nats.Header, string), m *nats.Msg) {
		pouring.Go(func() {
			for i := range 200 { // 100 MB, where 64 MiB are too much
				select {
				case <-stop:
					return
				default:
				}
				say(frame("partial", "Tb-Seq", fmt.Sprint(i+1)), piece)
				if i%8 == 0 {
					_ = nc.Flush()
				}
			}
		})
	})
	before := heap()
	r := st.exec.Call(t.Context(), tool.Call{Tool: "pieces", Retry: once, TimeoutMs: hang})
	want(t, r, tool.PartialValue, fault.InvalidResult)
	pouring.Wait()
	for end := time.Now().Add(hang * time.Millisecond); ; { // what still waits on the connection, 256 MiB at most, goes away by itself
		now := heap()
		if now < before+32<<20 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d MiB more are live", (now-before)>>20)
		}
		<-time.After(20 * time.Millisecond)
	}

	// Progress without end: shown a hundred times a second at most, and the call ends as it would.
	st.villain("progress", func(say func(nats.Header, string), _ *nats.Msg) {
		for range 20_000 {
			say(frame("progress"), `{"done":1,"message":"`+long(100)+`"}`)
		}
		say(nil, `1`)
	})
	shown, began := 0, time.Now()
	c := client.New(natstest.Connect(t, st.server))
	req := one("progress", `{}`)
	req.Calls[0].TimeoutMs = hang
	out, err := c.Stream(t.Context(), req, func(ev *wire.Event) {
		if ev.Type == wire.ProgressEvent {
			shown++
		}
	})
	if err != nil || out.Status != "completed" {
		t.Fatalf("progress: %+v, %v", out, err)
	}
	if most := 100 * (int(time.Since(began)/time.Second) + 2); shown == 0 || shown > most {
		t.Errorf("%d progress events were shown, want at most %d", shown, most)
	}
}

// A client whose reader stands still, and an executor that pours events over it.
func TestClientKeepsLittle(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	nc := natstest.Connect(t, st.server).NATS()
	body := `{"v":1,"type":"Partial","seq":1,"turn":"mine","piece":"` + long(800<<10) + `"}`
	poured := make(chan struct{})
	st.plain("tb.v1.turn.run", "", func(m *nats.Msg) {
		defer close(poured)
		for range 200 { // 160 MB
			_ = nc.Publish(m.Reply, []byte(body))
			_ = nc.Flush()
		}
		_ = nc.Publish(m.Reply, []byte(`{"v":1,"type":"TurnEnded","seq":1,"turn":"mine","outcome":{"turn":"mine","status":"completed","results":[{"call":"x"}]}}`))
	})
	req := one("echo", `{}`)
	req.ID = "mine"
	conn := natstest.Connect(t, st.server)
	before := heap()
	var grown uint64
	out, err := client.New(conn).Stream(t.Context(), req, func(*wire.Event) {
		if grown == 0 {
			<-poured
			if err := conn.NATS().Flush(); err != nil { // the mux has it all
				t.Error(err)
			}
			grown = heap() - before
		}
	})
	if err != nil || out.Status != "completed" {
		t.Fatalf("%+v, %v: want the outcome, whatever was dropped", out, err)
	}
	if int64(grown) > 120<<20 {
		t.Errorf("%d MiB more are live", grown>>20)
	}
}

// 50 MB as a result, by claim check: whole, or refused, but never many at once.
func TestHugeResult(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	ref, f := st.conn.PutBlob(t.Context(), []byte(`"`+long(50<<20)+`"`), time.Minute)
	if f != nil {
		t.Fatal(f)
	}
	st.villain("huge", func(say func(nats.Header, string), _ *nats.Msg) { say(nats.Header{"Tb-Blob": {ref.String()}}, "") })
	if r := st.exec.Call(t.Context(), tool.Call{Tool: "huge"}); r.Status != tool.Success || len(r.Value) != 50<<20+2 {
		t.Errorf("%s, %d bytes, %v", r.Status, len(r.Value), r.Fault)
	}
}

// Workers that call themselves whatever they like do not fill the house, nor do tools that nobody has.
func TestMadeUpNamesAreForgotten(t *testing.T) {
	const n = 5000 // the bound does not depend on it: 100,000 only take longer
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.Observer = nil })
	var mu sync.Mutex
	i := 0
	st.villain("names", func(say func(nats.Header, string), _ *nats.Msg) {
		mu.Lock()
		i++
		id := fmt.Sprint("w", i)
		mu.Unlock()
		say(frame("accept", "Tb-Worker", id), "")
		say(frame("result", "Tb-Worker", id), `1`)
	})
	var all sync.WaitGroup
	room := make(chan struct{}, 64)
	for k := range n {
		room <- struct{}{}
		all.Add(1)
		name := "names"
		if k%10 == 0 {
			name = fmt.Sprint("nobody", k)
		}
		st.exec.Go(single(tool.Call{Tool: name}), func(*wire.Outcome) { <-room; all.Done() })
	}
	all.Wait()
	if p, h := st.exec.Peers(), st.exec.Held(); p != 0 || h != 0 {
		t.Errorf("%d workers are remembered and hold %d attempts, want none", p, h)
	}
	if k := st.exec.KnownTools(); k > 5 {
		t.Errorf("%d tools are remembered", k)
	}
}

// Pongs that nobody asked for, and pongs without end.
func TestPongFlood(t *testing.T) {
	st := newStage(t, natstest.Server(t))
	nc := natstest.Connect(t, st.server).NATS()
	let := make(chan struct{})
	var reply string
	st.plain("tb.v1.call.pongs", wire.QueueGroup, func(m *nats.Msg) {
		reply = m.Reply
		_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: frame("accept", "Tb-Worker", "ponger")})
		for range 10_000 {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: frame("pong", "Tb-Running", "0")})
		}
	})
	st.plain("tb.v1.to.ponger", "", func(m *nats.Msg) {
		for range 1000 {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: frame("pong", "Tb-Running", "1")})
		}
		select {
		case <-let:
		default:
			close(let)
			_ = nc.Publish(reply, []byte(`1`))
		}
	})
	want(t, st.exec.Call(t.Context(), tool.Call{Tool: "pongs", Retry: once}), tool.Success, "")
}

// Two thousand calls that end in every way there is leave nothing behind.
func TestNothingIsLeft(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("go test -run %s ./executor -args -seed=%d", t.Name(), *seed)
	rnd := rand.New(rand.NewPCG(*seed, 1))
	st := newStage(t, natstest.Server(t), func(c *executor.Config) { c.Observer, c.Grace = nil, 50*time.Millisecond })
	st.workWith(worker.Config{Concurrency: 200, Plain: true}, handler("any", func(ctx context.Context, c *worker.Call) (any, error) {
		var a struct{ Do string }
		_ = json.Unmarshal(c.Args, &a)
		switch a.Do {
		case "fail":
			return nil, upstream()
		case "panic":
			panic("asked to")
		case "hang":
			<-ctx.Done()
			return nil, ctx.Err()
		case "large":
			return long(70 << 10), nil
		case "talk":
			for i := range 5 {
				c.Progress(float64(i), 5, "talking")
				_ = c.Partial(i)
			}
		}
		return 1, nil
	}))
	st.villain("mute", func(func(nats.Header, string), *nats.Msg) {})
	st.villain("no", func(say func(nats.Header, string), _ *nats.Msg) { say(frame("nack"), ``) })
	st.villain("liar", func(say func(nats.Header, string), m *nats.Msg) {
		say(frame("accept", "Tb-Worker", fmt.Sprint("liar", len(m.Reply))), "")
		say(frame("error"), "\xdd\xff\xff\xff\xff")
		say(nil, `1`)
	})
	run := func(n int) {
		var all sync.WaitGroup
		room := make(chan struct{}, 100)
		for range n {
			room <- struct{}{}
			all.Add(1)
			name := []string{"any", "any", "any", "any", "mute", "no", "liar", "nobody"}[rnd.IntN(8)]
			do := []string{"", "", "fail", "panic", "hang", "large", "talk"}[rnd.IntN(7)]
			t := single(tool.Call{Tool: name})
			c := &t.Request.Calls[0]
			c.Args = []byte(`{"do":"` + do + `"}`)
			c.TimeoutMs = 20 + rnd.Int64N(80)
			c.Retry = &tool.RetryPolicy{MaxAttempts: new(1 + rnd.IntN(3)), InitialDelayMs: new(int64(1))}
			t.Request.DeadlineMs = 1 + rnd.Int64N(200)
			cancel := st.exec.Go(t, func(*wire.Outcome) { <-room; all.Done() })
			if rnd.IntN(4) == 0 {
				time.AfterFunc(time.Duration(rnd.IntN(50))*time.Millisecond, cancel)
			}
		}
		all.Wait()
	}
	run(100)
	base := runtime.NumGoroutine()
	run(2000)
	for end := time.Now().Add(10 * time.Second); st.exec.InFlight() > 0; { // some go on after their turn
		if time.Now().After(end) {
			t.Fatalf("%d calls in flight", st.exec.InFlight())
		}
		<-time.After(10 * time.Millisecond)
	}
	if n := st.exec.Held(); n != 0 {
		t.Errorf("%d attempts on workers' accounts", n)
	}
	if n := st.exec.Peers(); n > 1 {
		t.Errorf("%d workers are remembered, want the one that lives", n)
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > base+5; { // handlers end by their own timeouts, unseen
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, there were %d before", runtime.NumGoroutine(), base)
		}
		<-time.After(10 * time.Millisecond)
	}
}
