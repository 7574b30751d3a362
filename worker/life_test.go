package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func (a *asked) beat() wire.Heartbeat {
	a.h.Helper()
	var b wire.Heartbeat
	if err := wire.Decode(a.next().Data, &b); err != nil {
		a.h.Fatal(err)
	}
	return b
}

func TestHeartbeats(t *testing.T) {
	bubble(t, func(h *house) {
		hb := h.listen(h.subjects().Heartbeat("w1"))
		g := newGate()
		began := time.Now()
		tl := g.tool("t")
		tl.Manifest.Version = "1.2.0"
		w, done := h.run(Config{Concurrency: 3}, tl, echo())

		b := hb.beat()
		digest := tl.Manifest.Digest()
		if b.State != wire.Hello || b.Worker != "w1" || b.Capacity != 3 || b.Running != 0 || b.Seq != 1 || b.EveryMs != 1000 || b.SDK != SDK ||
			len(b.Tools) != 2 || b.Tools[0] != (wire.ToolLine{ID: "t", Version: "1.2.0", Digest: digest}) {
			h.Errorf("hello = %+v", b)
		}
		a := h.ask("t", nil, "")
		<-g.began
		b = hb.beat()
		if b.State != wire.Beat || b.Running != 1 || b.Seq != 2 || b.Draining || time.Since(began) != time.Second {
			h.Errorf("after %v: %+v, want a beat with one running after 1s", time.Since(began), b)
		}
		h.publish(h.subjects().Rollcall(), "", nil, "")
		b = hb.beat()
		if late := time.Since(began) - time.Second; b.State != wire.Beat || b.Seq != 3 || late > rollcallJitter {
			h.Errorf("%v after the roll call: %+v, want a beat within %v", late, b, rollcallJitter)
		}

		go w.Shutdown(context.Background())
		if b = hb.beat(); b.State != wire.Beat || !b.Draining || b.Running != 1 {
			h.Errorf("%+v, want a draining beat", b)
		}
		g.let <- 1
		a.want("result 1")
		if err := <-done; err != nil {
			h.Error(err)
		}
		if b = hb.beat(); b.State != wire.Bye || b.Seq != 5 {
			h.Errorf("%+v, want bye as number 5", b)
		}
		hb.silent()
	})
}

func TestPing(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{}, g.tool("t"))
		h.ask("t", attempt("t1/c1/2", 0), "")
		<-g.began
		for ref, running := range map[string]string{"": "", "t1/c1/2": "1", "t1/c1/1": "0", "t1/c1/3": "0", "t1/c2/2": "0", "x": "0"} {
			header := wire.Header{"Tb-Frame": {"ping"}}
			if ref != "" {
				header["Tb-Call"] = []string{ref}
			}
			m := h.send(h.subjects().To(w.ID()), header, "").next()
			if got := m.Header.Get(wire.HeaderRunning); said(m) != "pong" || m.Header.Get(wire.HeaderWorker) != "w1" || got != running {
				h.Errorf("ping %q: got %s with %v, want a pong of w1 with running %q", ref, said(m), m.Header, running)
			}
		}
		g.let <- 1
	})
}

func TestDescribe(t *testing.T) {
	bubble(t, func(h *house) {
		w := h.start(Config{}, Func(tool.Manifest{ID: "sum", Description: "adds"}, sum), echo())
		m := h.send(h.subjects().To(w.ID()), wire.Header{"Tb-Frame": {"describe"}}, "").next()
		var d wire.DescribeRecord
		if err := wire.Decode(m.Data, &d); err != nil {
			h.Fatal(err)
		}
		if said(m) != "manifests" || d.Worker != "w1" || len(d.Manifests) != 2 || d.Manifests[0].Description != "adds" || len(d.Manifests[0].Input) == 0 {
			h.Errorf("got %s %+v", said(m), d)
		}
	})
}

func TestQuarantine(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{}, g.tool("t"))
		a := h.ask("t", nil, "")
		<-g.began
		h.publish(h.subjects().To(w.ID()), "", wire.Header{"Tb-Frame": {"quarantine"}}, "")
		synctest.Wait()
		h.ask("t", nil, "").want("nack overloaded not_started")
		if !w.Stats().Draining {
			h.Error("Stats().Draining = false in quarantine")
		}
		g.let <- 1
		a.want("result 1")
	})
}

func TestUnknownFramesAreIgnored(t *testing.T) {
	bubble(t, func(h *house) {
		w := h.start(Config{}, echo())
		for _, frame := range []string{"result", "error", "future", "CANCEL", strings.Repeat("x", 8000)} {
			h.send(h.subjects().To(w.ID()), wire.Header{"Tb-Frame": {frame}}, "{}").silent()
		}
		h.ask("echo", nil, "").want("result {}")
	})
}

// What was sent before the drain runs, and what comes during it is answered too.
func TestDrainLosesNothing(t *testing.T) {
	for _, how := range []string{"Shutdown", "drain frame"} {
		bubble(t, func(h *house) {
			g := newGate()
			w, done := h.run(Config{Concurrency: 100}, g.tool("t"))
			var all []*asked
			for i := range 50 {
				all = append(all, h.ask("t", attempt(fmt.Sprintf("t1/c%d/1", i), 0), ""))
			}
			if how == "Shutdown" {
				go w.Shutdown(context.Background())
			} else {
				h.publish(h.subjects().To(w.ID()), "", wire.Header{"Tb-Frame": {"drain"}}, "")
			}
			synctest.Wait()
			h.send(h.subjects().To(w.ID()), wire.Header{"Tb-Tool": {"t"}}, "").want("nack overloaded not_started")
			m := h.send(h.subjects().To(w.ID()), wire.Header{"Tb-Frame": {"ping"}}, "").next()
			if said(m) != "pong" {
				h.Errorf("%s: a draining worker said %s to a ping", how, said(m))
			}
			if m := h.ask("t", nil, "").next(); m.Header.Get("Status") != "503" {
				h.Errorf("%s: a call after the drain got %s, want no responders", how, said(m))
			}
			time.Sleep(2 * wire.AcceptAfter) // fake
			for range all {
				g.let <- 1
			}
			for _, a := range all {
				if a.want("accept", "result 1"); h.Failed() {
					break
				}
			}
			if err := <-done; err != nil {
				h.Errorf("%s: Run = %v", how, err)
			}
		})
	}
}

// drained is how much of the bubble's time nats.go may take to see that a subscription is drained: it looks every 100 ms.
const drained = 500 * time.Millisecond

func TestShutdownStopsWhatGoesOn(t *testing.T) {
	bubble(t, func(h *house) {
		good, deaf := newGate(), newGate()
		w, done := h.run(Config{Grace: 2 * time.Second}, good.tool("good"), deaf.deaf(tool.Manifest{ID: "deaf"}))
		a, b := h.ask("good", attempt("t1/a/1", 0), ""), h.ask("deaf", attempt("t1/b/1", 0), "")
		<-good.began
		<-deaf.began
		began := time.Now()
		err := w.Shutdown(context.Background())
		if took := time.Since(began) - 2*time.Second - wire.CancelGrace; took < 0 || took > drained {
			h.Errorf("Shutdown took %v longer than both graces, want at most %v", took, drained)
		}
		if err == nil || !strings.Contains(err.Error(), "abandoned deaf t1/b/1") || strings.Contains(err.Error(), "good") {
			h.Errorf("Shutdown = %v, want one that names deaf t1/b/1", err)
		}
		if e := <-done; e != err {
			h.Errorf("Run = %v, Shutdown = %v", e, err)
		}
		a.want("accept", "error worker_lost stopped")
		b.want("accept", "error worker_lost unknown")
		deaf.let <- 1
	})
}

func TestShutdownInAHurry(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w, done := h.run(Config{}, g.tool("t"))
		a := h.ask("t", nil, "")
		<-g.began
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		began := time.Now()
		if err := w.Shutdown(ctx); err != nil {
			h.Error(err)
		}
		if took := time.Since(began) - time.Second; took < 0 || took > drained {
			h.Errorf("Shutdown took %v longer than its context's 1s, want at most %v", took, drained)
		}
		a.want("error worker_lost stopped")
		<-done
	})
}

func TestRunOnce(t *testing.T) {
	bubble(t, func(h *house) {
		w, err := New(Config{Bus: h.caller, Tools: []Tool{echo()}})
		if err != nil {
			h.Fatal(err)
		}
		if err := w.Shutdown(context.Background()); err != nil {
			h.Error(err)
		}
		if err := w.Run(context.Background()); err == nil {
			h.Error("Run after Shutdown = nil, want an error")
		}
	})
}

func TestRunEndsWithTheConnection(t *testing.T) {
	bubble(t, func(h *house) {
		conn := natstest.Connect(h.T, h.server)
		_, done := h.run(Config{Bus: conn}, echo())
		conn.Close()
		if err := <-done; err == nil || !strings.Contains(err.Error(), "connection was closed") {
			h.Errorf("Run = %v, want that the connection was closed", err)
		}
	})
}

func TestNew(t *testing.T) {
	bubble(t, func(h *house) {
		type loop struct{ Next *loop }
		for name, c := range map[string]struct {
			cfg  Config
			want string
		}{
			"no bus":       {Config{Tools: []Tool{echo()}}, "Bus is nil"},
			"no tools":     {Config{Bus: h.caller}, "expected 1 to 1000, got 0"},
			"a bad id":     {Config{Bus: h.caller, ID: "a.b", Tools: []Tool{echo()}}, `character 2 is '.'`},
			"twice":        {Config{Bus: h.caller, Tools: []Tool{echo(), echo()}}, `Tools[1] "echo": it is there twice`},
			"a bad name":   {Config{Bus: h.caller, Tools: []Tool{echoAs("a b")}}, "Tools[0]"},
			"no handler":   {Config{Bus: h.caller, Tools: []Tool{{Manifest: tool.Manifest{ID: "a"}}}}, "Handler is nil"},
			"less than 0":  {Config{Bus: h.caller, Concurrency: -1, Tools: []Tool{echo()}}, "expected 0 or more"},
			"no schema in": {Config{Bus: h.caller, Tools: []Tool{Func(tool.Manifest{ID: "a"}, func(context.Context, loop) (any, error) { return nil, nil })}}, "infer the input schema"},
		} {
			_, err := New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				h.Errorf("%s: New = %v, want %q", name, err, c.want)
			}
		}
	})
}

func TestDiscovery(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{ID: "w1", Concurrency: 7}, Func(tool.Manifest{ID: "sum"}, sum), g.tool("t"))
		h.start(Config{ID: "w2", Plain: true}, echo())
		h.ask("sum", nil, `{"a":1,"b":2}`).want(`result {"sum":3}`)
		h.ask("sum", nil, `{"a":1}`).want(`error invalid_arguments not_started`)
		h.ask("t", nil, ``)
		<-g.began

		for _, subject := range []string{"$SRV.PING", "$SRV.PING.toolbus-worker", "$SRV.PING.toolbus-worker.w1"} {
			var ping micro.Ping
			h.record(subject, &ping)
			if ping.ID != "w1" || ping.Name != ServiceName || ping.Type != micro.PingResponseType || ping.Version == "" {
				h.Errorf("%s = %+v", subject, ping)
			}
		}
		var info micro.Info
		h.record("$SRV.INFO", &info)
		if len(info.Endpoints) != 2 || info.Endpoints[0].Subject != "tb.v1.call.sum" || info.Endpoints[0].QueueGroup != wire.QueueGroup ||
			!strings.Contains(info.Endpoints[0].Metadata["tb.manifest"], `"input_schema"`) {
			h.Errorf("$SRV.INFO = %+v", info)
		}
		var stats micro.Stats
		h.record("$SRV.STATS.toolbus-worker", &stats)
		if e := stats.Endpoints[0]; e.NumRequests != 2 || e.NumErrors != 1 || !strings.Contains(e.LastError, "b") {
			h.Errorf("stats of sum = %+v, want 1 error of 2", e)
		}
		if e := stats.Endpoints[1]; e.NumRequests != 1 || string(e.Data) != `{"capacity":7,"draining":false,"leaked":0,"running":1}` {
			h.Errorf("stats of t = %+v with %s, want one running", e, e.Data)
		}
		g.let <- 1
	})
}

func (h *house) record(subject string, v any) {
	h.Helper()
	a := h.send(subject, nil, "")
	if err := json.Unmarshal(a.next().Data, v); err != nil {
		h.Fatal(err)
	}
	a.silent()
}

// An answer that could not be sent waits for the connection.
func TestUnsentAnswers(t *testing.T) {
	bubble(t, func(h *house) {
		conn := natstest.Connect(h.T, h.server)
		g := newGate()
		w, done := h.run(Config{Bus: conn}, g.deaf(tool.Manifest{ID: "t"}))
		a := h.ask("t", nil, "")
		<-g.began
		conn.Close()
		<-done
		if got := w.Stats().Unsent; got != 1 {
			h.Fatalf("Unsent = %d, want 1", got)
		}

		w.bus = h.caller // as if it had come back
		w.resume()
		a.want("error worker_lost unknown")
		g.let <- "late"
		if got := w.Stats().Unsent; got != 0 {
			h.Errorf("Unsent = %d, want 0", got)
		}
	})
}

func TestPermissions(t *testing.T) {
	outside()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	text := `
		port: -1
		accounts { A { users [
			{ user: w, password: p, permissions { publish: ["tb.v1.>"], subscribe: ["tb.v1.to.*", "tb.v1.cancel.*", "tb.v1.rollcall", "tb.v1.call.ok workers"] } }
		] } }`
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, bus.ServerConfig{ConfigFile: conf})
	for _, c := range []struct {
		tool  string
		plain bool
		want  string
	}{
		{"ok", true, ""},
		{"other", true, `subscribe to "tb.v1.call.other": permission refused: let this user subscribe to "tb.v1.call.other workers"`},
		{"ok", false, `let this user subscribe to "$SRV.`},
	} {
		conn := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "w", Password: "p"})
		w, err := New(Config{Bus: conn, Tools: []Tool{echoAs(c.tool)}, Plain: c.plain})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		if c.want == "" {
			all.Go(func() { <-w.Ready(); cancel() })
		}
		err = w.Run(ctx)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: Run = %v, want %q", c.tool, err, c.want)
		}
		all.Wait()
		cancel()
	}
}
