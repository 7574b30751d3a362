package worker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Bad calls over a real connection: each is answered once, and the worker goes on.
func TestHostileCalls(t *testing.T) {
	outside()
	h := newHouse(t, natstest.Server(t))
	ran := make(chan struct{}, 100)
	m := tool.Manifest{ID: "echo", Input: []byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)}
	w := h.start(Config{}, Tool{Manifest: m, Handler: HandlerFunc(func(_ context.Context, c *Call) (any, error) {
		ran <- struct{}{}
		for k := range c.Header {
			if strings.HasPrefix(strings.ToLower(k), "nats-") {
				return nil, fmt.Errorf("header %s came through", k)
			}
		}
		return c.Args, nil
	})})
	nc := h.caller.NATS()
	header := func(name, value string) nats.Header { return nats.Header{name: {value}} }
	const good = `{"n":1}`
	for name, c := range map[string]struct {
		h    nats.Header
		body string
		want fault.Kind
	}{
		"no JSON":               {nil, `n=1`, fault.InvalidArguments},
		"cut off":               {nil, `{"n":1`, fault.TruncatedCall},
		"duplicate keys":        {nil, `{"n":1,"n":2}`, fault.InvalidArguments},
		"trailing data":         {nil, good + `{}`, fault.InvalidArguments},
		"wrong types":           {nil, `{"n":"x"}`, fault.InvalidArguments},
		"depth 10,000":          {nil, strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000), fault.InvalidArguments},
		"no UTF-8":              {nil, "{\"n\":1,\"s\":\"\xff\"}", fault.InvalidArguments},
		"NUL":                   {nil, "{\"n\":1}\x00", fault.InvalidArguments},
		"a bomb":                {nil, strings.Repeat("\xdc\xff\xff", 20_000), fault.InvalidArguments},
		"a bomb, by its name":   {header("Content-Type", wire.MsgPack), "\xdd\xff\xff\xff\xff", fault.Unsupported},
		"nearly all of 1 MB":    {nil, `{"n":1,"s":"` + strings.Repeat("x", 900_000) + `"}`, ""},
		"70 KB of headers":      {header("X-Long", strings.Repeat("x", 70_000)), good, fault.InvalidArguments},
		"900 KB of baggage":     {header("baggage", strings.Repeat("x", 900_000)), good, fault.InvalidArguments},
		"NUL in a header":       {header("Tb-Key", "a\x00b"), good, fault.InvalidArguments},
		"timeout 0":             {header("Tb-Timeout-Ms", "0"), good, fault.InvalidArguments},
		"timeout -1":            {header("Tb-Timeout-Ms", "-1"), good, fault.InvalidArguments},
		"timeout 2^31":          {header("Tb-Timeout-Ms", "2147483648"), good, fault.InvalidArguments},
		"timeout 2^63":          {header("Tb-Timeout-Ms", "9223372036854775808"), good, fault.InvalidArguments},
		"call id with a space":  {header("Tb-Call", "a b/c/1"), good, fault.InvalidArguments},
		"attempt 0":             {header("Tb-Call", "a/b/0"), good, fault.InvalidArguments},
		"another tool":          {header("Tb-Tool", "other"), good, fault.InvalidArguments},
		"a result frame":        {header("Tb-Frame", "result"), good, fault.InvalidArguments},
		"a claim check, forged": {header("Tb-Blob", "v1;../x;1;1;"+strings.Repeat("0", 64)), "", fault.InvalidArguments},
		"progress to JetStream": {header("Tb-Progress", "$JS.API.STREAM.PURGE.X"), good, fault.InvalidArguments},
		"progress to others":    {header("Tb-Progress", "tb.v1.reply.other.x.1"), good, fault.InvalidArguments},
		"headers to the server": {nats.Header{"Nats-Rollup": {"all"}, "Nats-Msg-Id": {"x"}, "Nats-Expected-Last-Sequence": {"0"}}, good, ""},
	} {
		m, err := nc.RequestMsg(&nats.Msg{Subject: "tb.v1.call.echo", Header: c.h, Data: []byte(c.body)}, 10*time.Second)
		if err != nil {
			t.Errorf("%s: %v, want an answer", name, err)
			continue
		}
		got := fault.Kind("")
		if wire.FrameOf(wire.Header(m.Header)) != "" {
			got = wire.DecodeFault(wire.Header(m.Header), m.Data).Kind
		}
		if got != c.want {
			t.Errorf("%s: %s, want %q", name, said(m), c.want)
		}
		if k := wire.Get(wire.Header(m.Header), "Nats-Rollup"); k != "" {
			t.Errorf("%s: the answer has Nats-Rollup", name)
		}
	}
	if n := len(ran); n != 2 {
		t.Errorf("%d calls ran, want the two that were good", n)
	}

	// Replies that are not for us to answer, on every way in.
	before := w.Stats().BadReply
	replies := []string{"$JS.API.STREAM.PURGE.X", "$KV.breaker.x", "$SYS.REQ.SERVER.PING", "tb.v1.call.echo", "tb.v1.to.w2",
		"tb.v1.turn.run", "tb.v1.reply.other.x.1", "tb.v1.hb.w2"}
	for _, reply := range replies {
		for _, subject := range []string{"tb.v1.call.echo", "tb.v1.to.w1", "$SRV.PING"} {
			if err := nc.PublishRequest(subject, reply, []byte(good)); err != nil {
				t.Fatal(err)
			}
		}
		for _, frame := range []string{"ping", "describe"} {
			if err := nc.PublishMsg(&nats.Msg{Subject: "tb.v1.to.w1", Reply: reply, Header: header("Tb-Frame", frame)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, subject := range []string{"tb.v1.to.w1", "tb.v1.call.echo", "$SRV.PING"} { // each subscription has had its messages
		h := nats.Header{}
		if subject == "tb.v1.to.w1" {
			h = header("Tb-Frame", "ping")
		}
		if _, err := nc.RequestMsg(&nats.Msg{Subject: subject, Header: h, Data: []byte(good)}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := w.Stats().BadReply-before, uint64(5*len(replies)); got != want {
		t.Errorf("%d messages were ignored for their reply subject, want %d", got, want)
	}
	if n := len(ran); n != 3 {
		t.Errorf("%d calls ran, want 3", n)
	}
}

// Cancels for calls that never come, and keys that are never used again, are bounded.
func TestHostileMemory(t *testing.T) {
	outside()
	h := newHouse(t, natstest.Server(t))
	w := h.start(Config{MaxKeys: 100}, echo())
	nc := h.caller.NATS()
	for i := range maxCancels + 5000 {
		err := nc.PublishMsg(&nats.Msg{Subject: "tb.v1.cancel.echo", Header: nats.Header{"Tb-Frame": {"cancel"}, "Tb-Call": {fmt.Sprintf("t%d/c/1", i)}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 500 {
		if _, err := nc.RequestMsg(&nats.Msg{Subject: "tb.v1.call.echo", Header: nats.Header{"Tb-Key": {fmt.Sprint("key", i)}}}, 10*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.gone.items); n > maxCancels {
		t.Errorf("%d cancels are remembered, want at most %d", n, maxCancels)
	}
	if n := len(w.memory.items); n > 100 {
		t.Errorf("%d keys are remembered, want at most 100", n)
	}
}
