package worker

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func says(id, what string) Tool {
	return handler(id, func(context.Context, *Call) (any, error) { return what, nil })
}

// ends checks the next frame but for an accept, which depends on how long the rest took.
func (a *asked) ends(want string) {
	a.h.Helper()
	got := said(a.next())
	if got == "accept" {
		got = said(a.next())
	}
	if got != want {
		a.h.Fatalf("got %s, want %s", got, want)
	}
}

func TestSetTools(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{}, g.tool("old"), says("stays", "one"))
		beats := h.listen(h.subjects().Heartbeat("w1"))
		running := h.ask("old", attempt("t1/c1/1", 0), "")
		cancelled := h.ask("old", attempt("t1/c2/1", 0), "")
		<-g.began
		<-g.began
		h.ask("stays", attempt("t1/c3/1", 0), "").want(`result "one"`)

		if err := w.SetTools([]Tool{says("new", "hello"), says("stays", "two")}); err != nil {
			h.Fatal(err)
		}
		h.ask("new", nil, "").want(`result "hello"`)
		h.ask("stays", nil, "").want(`result "two"`)
		h.ask("stays", attempt("t1/c3/1", 0), "").want(`result "one"`) // as it was answered before
		if m := h.ask("old", nil, "").next(); m.Header.Get("Status") != "503" {
			h.Errorf("the tool that went answered %s, want no responders", said(m))
		}
		var beat wire.Heartbeat
		for beat.Tools == nil || beat.Tools[0].ID != "new" {
			if err := wire.Decode(beats.next().Data, &beat); err != nil {
				h.Fatal(err)
			}
		}
		if len(beat.Tools) != 2 || beat.Running != 2 {
			h.Errorf("heartbeat %+v, want two tools and the two calls that go on", beat)
		}

		// What ran goes on, and can be cancelled.
		h.publish(h.subjects().To("w1"), "", wire.Header{"Tb-Call": {"t1/c2/1"}, "Tb-Frame": {"cancel"}}, "")
		cancelled.ends("stopped cancelled stopped")
		g.let <- "done"
		running.ends(`result "done"`)
		if s := w.Stats(); s.Calls != 5 {
			h.Errorf("Calls = %d, want those of the old tools too: 5", s.Calls)
		}
	})
}

func TestSetToolsRefuses(t *testing.T) {
	bubble(t, func(h *house) {
		w, done := h.run(Config{}, echo())
		for _, tools := range [][]Tool{nil, {echo(), echo()}, {handler("no good", nil)}, {{Manifest: tool.Manifest{ID: "x"}}}} {
			if err := w.SetTools(tools); err == nil {
				h.Errorf("SetTools(%v) = nil, want an error", tools)
			}
		}
		h.ask("echo", nil, `{"a":1}`).want(`result {"a":1}`) // nothing changed
		w.Shutdown(context.Background())
		<-done
		if err := w.SetTools([]Tool{echo()}); err == nil || !strings.Contains(err.Error(), "began to leave") {
			h.Errorf("after Shutdown: %v, want a refusal", err)
		}
		if _, err := h.caller.NATS().Request(h.subjects().Call("echo"), nil, 1e9); err != nats.ErrNoResponders {
			h.Errorf("after Shutdown: %v, want no responders", err)
		}
	})
}

func TestSetToolsBeforeRun(t *testing.T) {
	bubble(t, func(h *house) {
		cfg := Config{Bus: h.caller, Tools: []Tool{echo()}}
		w, err := New(cfg)
		if err != nil {
			h.Fatal(err)
		}
		if err := w.SetTools([]Tool{says("other", "hi")}); err != nil {
			h.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- w.Run(context.Background()) }()
		<-w.Ready()
		h.ask("other", nil, "").want(`result "hi"`)
		w.Shutdown(context.Background())
		<-done
	})
}
