package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestCancel(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		causes := make(chan error, 8)
		h.start(Config{ID: "w1"}, handler("t", func(ctx context.Context, c *Call) (any, error) {
			g.began <- c
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}))
		ways := []struct {
			subject string
			header  wire.Header
		}{
			{h.subjects().Cancel("t"), wire.Header{"Tb-Call": {"t1/c0/1"}}},
			{h.subjects().To("w1"), wire.Header{"Tb-Call": {"t1/c1/1"}, "Tb-Frame": {"cancel"}}},
			{h.subjects().To("w1"), wire.Header{"Tb-Call": {"t1/c2/9"}, "Tb-Frame": {"cancel"}}}, // and older ones
		}
		for i, way := range ways {
			a := h.ask("t", attempt("t1/c"+string(rune('0'+i))+"/1", 0), "")
			<-g.began
			h.publish(way.subject, "", way.header, "")
			a.want("stopped cancelled stopped")
			if cause := <-causes; !errors.Is(cause, errCancelled) {
				h.Errorf("cause = %v, want %v", cause, errCancelled)
			}
		}

		a := h.ask("t", attempt("t2/c1/2", 200), "")
		<-g.began
		for _, ref := range []string{"t2/c1/1", "t2/c2/2", "t9/c1/2", "nonsense", ""} {
			h.publish(h.subjects().Cancel("t"), "", wire.Header{"Tb-Call": {ref}}, "")
		}
		a.want("accept", "error timeout stopped") // none of these was meant
	})
}

func TestCancelBeforeTheCall(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, echo())
		h.publish(h.subjects().Cancel("echo"), "", attempt("t1/c1/2", 0), "")
		h.ask("echo", attempt("t1/c1/1", 0), "").want("stopped cancelled not_started")
		h.ask("echo", attempt("t1/c1/2", 0), "").want("stopped cancelled not_started")
		h.ask("echo", attempt("t1/c1/3", 0), "").want("result {}")

		h.publish(h.subjects().Cancel("echo"), "", attempt("t1/c2/1", 0), "")
		time.Sleep(cancelTTL + time.Second)
		h.ask("echo", attempt("t1/c2/1", 0), "").want("result {}")
	})
}

func TestCancelAfterTheEnd(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, echo())
		a := h.ask("echo", attempt("t1/c1/1", 0), "")
		a.want("result {}")
		h.publish(h.subjects().Cancel("echo"), "", attempt("t1/c1/1", 0), "")
		a.silent()
		h.ask("echo", attempt("t1/c1/1", 0), "").want("result {}") // a repeat is no new run
	})
}

func TestACancelThatIsIgnored(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{}, g.deaf(tool.Manifest{ID: "t"}))
		a := h.ask("t", attempt("t1/c1/1", 0), "")
		<-g.began
		began := time.Now()
		h.publish(h.subjects().Cancel("t"), "", attempt("t1/c1/1", 0), "")
		a.want("error cancelled unknown")
		if took := time.Since(began); took != wire.CancelGrace {
			h.Errorf("it ended after %v, want %v", took, wire.CancelGrace)
		}
		if got := w.Stats().Leaked; got != 1 {
			h.Errorf("Leaked = %d, want 1", got)
		}
		g.let <- 1
		synctest.Wait()
		if got := w.Stats().Leaked; got != 0 {
			h.Errorf("Leaked = %d, want 0", got)
		}
		a.silent()
	})
}
