package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestOlderAttemptsAreRefused(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(context.Context, *Call) (any, error) { return nil, errors.New("boom") }))
		h.ask("t", attempt("t1/c1/2", 0), "").want("error upstream unknown")
		h.ask("t", attempt("t1/c1/1", 0), "").want("nack cancelled not_started")
		h.ask("t", attempt("t1/c1/2", 0), "").want("error upstream unknown")
		h.ask("t", attempt("t1/c1/3", 0), "").want("error upstream unknown")
		h.ask("t", attempt("t1/c2/1", 0), "").want("error upstream unknown")
	})
}

func TestARepeatGetsTheSameAnswer(t *testing.T) {
	bubble(t, func(h *house) {
		n := 0
		w := h.start(Config{},
			handler("t", func(context.Context, *Call) (any, error) { n++; return n, nil }),
			handler("no", func(context.Context, *Call) (any, error) { n++; return nil, fault.New(fault.Failed, "%d", n) }),
			handler("shaky", func(context.Context, *Call) (any, error) { n++; return nil, fault.New(fault.Upstream, "%d", n) }),
		)
		h.ask("t", attempt("t1/c1/1", 0), `{"a":1}`).want("result 1")
		h.ask("t", attempt("t1/c1/1", 0), `{"a":1}`).want("result 1")
		h.ask("t", attempt("t1/c1/2", 0), `{"a":1}`).want("result 1")
		h.ask("t", attempt("t1/c1/3", 0), `{"a":2}`).want("error invalid_arguments not_started")

		h.ask("no", attempt("t1/c1/4", 0), ``).want("error failed done") // another tool is another thing
		m := h.ask("no", attempt("t1/c1/5", 0), ``).next()
		if f := wire.DecodeFault(m.Header, m.Data); f.Message != "2" || f.Attempt != 5 {
			h.Errorf("the repeat got %q for attempt %d, want the first answer for attempt 5", f.Message, f.Attempt)
		}
		h.ask("shaky", attempt("t1/c1/6", 0), ``).want("error upstream unknown")
		h.ask("shaky", attempt("t1/c1/7", 0), ``).want("error upstream unknown")
		if n != 4 {
			h.Errorf("ran %d times, want 4: what time may mend runs again", n)
		}

		h.ask("t", with(attempt("t2/c1/1", 0), "Tb-Key", "order-7"), `{}`).want("result 5")
		h.ask("t", with(attempt("t3/c9/1", 0), "Tb-Key", "order-7"), `{}`).want("result 5")
		h.ask("t", wire.Header{"Tb-Key": {"order-7"}}, `{}`).want("result 5")
		h.ask("t", nil, `{}`).want("result 6")
		h.ask("t", nil, `{}`).want("result 7")
		if got := w.Stats().Repeated; got != 5 {
			h.Errorf("Repeated = %d, want 5", got)
		}
	})
}

func TestANewerAttemptTakesOver(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{}, g.tool("t"))
		first := h.ask("t", attempt("t1/c1/1", 0), "")
		first.want("accept")
		second := h.ask("t", attempt("t1/c1/2", 0), "")
		second.want("accept")
		again := h.ask("t", attempt("t1/c1/2", 0), "")
		again.want("accept")
		h.ask("t", attempt("t1/c1/1", 0), "").want("nack cancelled not_started")
		h.ask("t", attempt("t1/c1/3", 0), `{"a":1}`).want("error invalid_arguments not_started")
		(<-g.began).Progress(1, 1, "")
		g.let <- "x"
		again.want("progress 1/1 ", `result "x"`)
		first.silent()
		second.silent()
	})
}

func TestCallsWithOneKeyShareARun(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{}, g.tool("t"))
		a := h.ask("t", with(attempt("t1/a/1", 0), "Tb-Key", "k"), "")
		<-g.began
		b := h.ask("t", with(attempt("t2/b/1", 0), "Tb-Key", "k"), "")
		c := h.ask("t", with(attempt("t3/c/1", 0), "Tb-Key", "k"), "")
		b.want("accept")
		c.want("accept")
		h.publish(h.subjects().Cancel("t"), "", attempt("t2/b/1", 0), "")
		b.want("stopped cancelled unknown") // the others go on
		g.let <- 1
		a.want("accept", "result 1")
		c.want("result 1")
		b.silent()
	})
}

func TestAStoppingRunIsNotJoined(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		m := echo().Manifest
		m.ID = "t"
		h.start(Config{}, g.deaf(m))
		a := h.ask("t", attempt("t1/c1/1", 0), "")
		<-g.began
		h.publish(h.subjects().Cancel("t"), "", attempt("t1/c1/1", 0), "")
		h.ask("t", attempt("t1/c1/2", 0), "").want("nack overloaded not_started")
		g.let <- 1
		a.want("result 1") // it had completed
		h.ask("t", attempt("t1/c1/3", 0), "").want("result 1")
	})
}

// A run under a key of its own, for a call that has an answer already, does not hide that answer from the bound.
func TestAnAnswerCountsForAsLongAsItIsKept(t *testing.T) {
	for how, frames := range map[string][]string{
		"finish":  {"result 1"},
		"join":    {"accept", "result 1"},
		"abandon": {"accept", "error timeout unknown"},
	} {
		bubble(t, func(h *house) {
			g := newGate()
			w := h.start(Config{}, g.deaf(tool.Manifest{ID: "t", Effect: tool.Read}))
			g.let <- strings.Repeat("x", 10_000)
			h.ask("t", attempt("t1/c1/1", 0), "").next()
			first := w.memory.bytes
			if first < 10_000 {
				h.Fatalf("%d bytes are remembered, want the answer", first)
			}

			ref := "t1/c1/2"
			if how == "join" {
				ref = "t2/c1/1"
			}
			a := h.ask("t", with(attempt(ref, 1000), "Tb-Key", "k"), "")
			if how == "join" {
				h.ask("t", with(attempt("t1/c1/2", 0), "Tb-Key", "k"), "")
			}
			if how != "abandon" {
				g.let <- 1
			}
			a.want(frames...)
			synctest.Wait()
			if got := w.memory.bytes; got < first {
				h.Errorf("%s: %d bytes are remembered, want the %d of the first answer among them", how, got, first)
			}
			if how == "abandon" {
				g.let <- 1
			}
		})
	}
}
