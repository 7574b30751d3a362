package worker

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/wire"
)

func TestLargeArguments(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("len", func(_ context.Context, c *Call) (any, error) {
			var in struct{ Text string }
			err := json.Unmarshal(c.Args, &in)
			return len(in.Text), err
		}))
		const size = 10 << 20
		ref, f := h.caller.PutBlob(h.Context(), []byte(`{"text":"`+strings.Repeat("x", size)+`"}`), 0)
		if f != nil {
			h.Fatal(f)
		}
		header := with(attempt("t1/c1/1", 0), wire.HeaderBlob, ref.String())
		h.ask("len", header, "").want("result 10485760")
		h.ask("len", with(attempt("t1/c1/2", 0), wire.HeaderBlob, ref.String()), "").want("result 10485760")
		h.ask("len", attempt("t1/c1/3", 0), "{}").want("error invalid_arguments not_started") // other arguments

		ref.ID = "gone"
		m := h.ask("len", wire.Header{wire.HeaderBlob: {ref.String()}}, "").next()
		f = wire.DecodeFault(m.Header, m.Data)
		if !strings.Contains(f.Message, "arguments could not be fetched") || f.Run() != "not_started" {
			h.Errorf("got %s", h.faultOf(m))
		}
	})
}

func TestLargeResults(t *testing.T) {
	bubble(t, func(h *house) {
		size := 3 << 20
		h.start(Config{}, handler("t", func(_ context.Context, c *Call) (any, error) {
			return Bytes{"text/plain", make([]byte, size)}, nil
		}))
		a := h.ask("t", attempt("t1/c1/1", 0), "")
		m := a.next()
		if said(m) == "accept" {
			m = a.next()
		}
		ref, err := wire.ParseBlobRef(m.Header.Get(wire.HeaderBlob))
		if err != nil || len(m.Data) != 0 || m.Header.Get("Content-Type") != "text/plain" {
			h.Fatalf("got %v with %d bytes, %v", m.Header, len(m.Data), err)
		}
		if data, f := h.caller.GetBlob(h.Context(), ref); f != nil || len(data) != size {
			h.Errorf("the claim check stands for %d bytes, %v", len(data), f)
		}
		h.ask("t", attempt("t1/c1/2", 0), "").want(said(m)) // not stored again

		size = wire.MaxBlob + 1
		m = h.ask("t", nil, "").next()
		if f := wire.DecodeFault(m.Header, m.Data); f.Kind != "invalid_result" || !strings.Contains(f.Message, "67108865 bytes, at most 67108864") {
			h.Errorf("got %s", h.faultOf(m))
		}
	})
}
