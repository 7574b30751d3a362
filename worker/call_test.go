package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

type sumIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

type sumOut struct {
	Sum int `json:"sum"`
}

func sum(ctx context.Context, in sumIn) (sumOut, error) {
	Progress(ctx, 1, 2, "adding")
	return sumOut{in.A + in.B}, Partial(ctx, in.A)
}

// What comes back for one call, by what the handler does.
func TestAnswers(t *testing.T) {
	type table []struct {
		name   string
		tool   Tool
		header wire.Header
		args   string
		want   string
	}
	returns := func(v any, err error) Tool {
		return handler("t", func(context.Context, *Call) (any, error) { return v, err })
	}
	outSchema := Tool{
		Manifest: tool.Manifest{ID: "t", Output: json.RawMessage(`{"type":"integer"}`)},
		Handler:  HandlerFunc(func(context.Context, *Call) (any, error) { return "x", nil }),
	}
	cases := table{
		{"a bare request", echoAs("t"), nil, `{"a":1}`, `result {"a":1}`},
		{"no arguments", echoAs("t"), nil, ``, `result {}`},
		{"an attempt", echoAs("t"), attempt("t1/c1/1", 100), `{"a":1}`, `result {"a":1}`},
		{"typed", Func(tool.Manifest{ID: "t"}, sum), nil, `{"a":1,"b":2}`, `result {"sum":3}`},
		{"any value", returns(map[string]int{"n": 1}, nil), nil, ``, `result {"n":1}`},
		{"nothing", returns(nil, nil), nil, ``, `result null`},
		{"raw bytes", returns([]byte(`[1]`), nil), nil, ``, `result [1]`},
		{"another type", returns(Bytes{"text/plain", []byte("hi")}, nil), nil, ``, `result hi with map[Content-Type:[text/plain]]`},
		{"a type with a line break", returns(Bytes{"a\r\nb", nil}, nil), nil, ``, "error invalid_result done"},
		{"bytes that are no JSON", returns([]byte(`{`), nil), nil, ``, "error invalid_result done"},
		{"bytes that are not UTF-8", returns(json.RawMessage("\"\xff\""), nil), nil, ``, "error invalid_result done"},
		{"what JSON cannot hold", returns(make(chan int), nil), nil, ``, "error invalid_result done"},
		{"a result against the schema", outSchema, nil, ``, "error invalid_result done"},
		{"a fault", returns(nil, fault.New(fault.Failed, "no such city")), nil, ``, "error failed done"},
		{"a foreign error", returns(nil, errors.New("boom")), nil, ``, "error upstream unknown"},
		{"a wrapped fault", returns(nil, fmt.Errorf("x: %w", fault.New(fault.Denied, "no"))), nil, ``, "error denied not_started"},
		{"a panic", handler("t", func(context.Context, *Call) (any, error) { panic("boom") }), nil, ``, "error internal unknown"},
		{"a panic in MarshalJSON", returns(bomb{}, nil), nil, ``, "error internal unknown"},
		{"the end of the goroutine", handler("t", func(context.Context, *Call) (any, error) { runtime.Goexit(); return nil, nil }), nil, ``, "error internal unknown"},
		{"arguments that are no JSON", echoAs("t"), nil, `{"a":}`, "error invalid_arguments not_started"},
		{"arguments that are cut off", echoAs("t"), nil, `{"a":`, "error truncated_call not_started"},
		{"MessagePack", echoAs("t"), wire.Header{"Content-Type": {"application/msgpack"}}, "\x80", "error unsupported not_started"},
		{"JSON with a charset", echoAs("t"), wire.Header{"content-type": {"application/json; charset=utf-8"}}, `{}`, "result {}"},
		{"a bad Tb-Call", echoAs("t"), attempt("t1/c1", 0), `{}`, "error invalid_arguments not_started"},
		{"a bad timeout", echoAs("t"), wire.Header{"Tb-Timeout-Ms": {"0"}}, `{}`, "error invalid_arguments not_started"},
		{"another tool", echoAs("t"), wire.Header{"Tb-Tool": {"u"}}, `{}`, "error invalid_arguments not_started"},
		{"a frame", echoAs("t"), wire.Header{"Tb-Frame": {"cancel"}}, `{}`, "error invalid_arguments not_started"},
		{"a claim check and a body", echoAs("t"), wire.Header{"Tb-Blob": {"v1;x;1;1;" + strings.Repeat("0", 64)}}, `{}`, "error invalid_arguments not_started"},
		{"progress to a strange place", echoAs("t"), wire.Header{"Tb-Progress": {"$JS.API.INFO"}}, `{}`, "error invalid_arguments not_started"},
		{"a call across a foreign prefix", echoAs("t"), wire.Header{"tb-call": {"t1/c1/1"}, "Nats-Rollup": {"all"}}, `{}`, "result {}"},
	}
	bubble(t, func(h *house) {
		for _, c := range cases {
			w, done := h.run(Config{Plain: true}, c.tool)
			if got := said(h.ask("t", c.header, c.args).next()); got != c.want {
				h.Errorf("%s: got %s, want %s", c.name, got, c.want)
			}
			w.Shutdown(context.Background())
			if err := <-done; err != nil {
				h.Errorf("%s: Run = %v", c.name, err)
			}
		}
	})
}

type bomb struct{}

func (bomb) MarshalJSON() ([]byte, error) { panic("boom") }

func echoAs(id string) Tool {
	return handler(id, func(_ context.Context, c *Call) (any, error) { return c.Args, nil })
}

func TestAllViolationsAtOnce(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, Func(tool.Manifest{ID: "sum"}, sum))
		m := h.ask("sum", nil, `{"a":"x","c":1}`).next()
		f := wire.DecodeFault(m.Header, m.Data)
		if f.Kind != fault.InvalidArguments || len(f.Violations) != 3 {
			h.Errorf("got %s, want invalid_arguments with 3 violations (a is no integer, b is missing, c is unknown)", h.faultOf(m))
		}
		if f.Tool != "sum" || f.Worker != "w1" {
			h.Errorf("fault of %s by %s, want sum by w1", f.Tool, f.Worker)
		}
	})
}

func TestAPanicIsForPeopleOnly(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(context.Context, *Call) (any, error) { panic(strings.Repeat("secret ", 10_000)) }))
		m := h.ask("t", nil, "").next()
		f := wire.DecodeFault(m.Header, m.Data)
		if f.Message != "the tool panicked" {
			h.Errorf("message = %q", f.Message)
		}
		if !strings.HasPrefix(f.Detail, "panic: secret") || len(f.Detail) > maxDetail {
			h.Errorf("detail has %d bytes and begins %.20q, want at most %d of the value and the stack", len(f.Detail), f.Detail, maxDetail)
		}
		h.ask("t", nil, "").next() // and the worker lives
	})
}

func TestABareErrorIsAServiceError(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(context.Context, *Call) (any, error) {
			return nil, fault.New(fault.NotFound, "no such\ncity")
		}))
		m := h.ask("t", nil, "").next()
		if got := m.Header.Get("Nats-Service-Error"); got != "no such city" {
			h.Errorf("Nats-Service-Error = %q", got)
		}
		if got := m.Header.Get("Nats-Service-Error-Code"); got != "404" {
			h.Errorf("Nats-Service-Error-Code = %q, want 404", got)
		}
	})
}

func TestFrames(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(_ context.Context, c *Call) (any, error) {
			c.Progress(1, 3, "one")
			c.Progress(2, 3, "too soon")
			if err := c.Partial("a"); err != nil {
				return nil, err
			}
			time.Sleep(progressEvery)
			c.Progress(3, 3, "three")
			return "all", c.Partial("b")
		}))
		frames := []string{"accept", "progress 1/3 one", `partial 1 "a"`, "progress 3/3 three", `partial 2 "b"`}

		h.ask("t", attempt("t1/c1/1", 0), "").want(append(frames, `result "all"`)...)

		elsewhere := h.listen(nats.NewInbox())
		main := h.ask("t", with(attempt("t1/c2/1", 0), wire.HeaderProgress, elsewhere.reply), "")
		main.want(`result "all"`)
		elsewhere.want(frames...)
		elsewhere.silent()
		main.silent()

		bare := h.ask("t", nil, "")
		bare.want(`result "all"`)
		bare.silent()
	})
}

func TestAcceptComesOnlyToSlowCalls(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(_ context.Context, c *Call) (any, error) {
			d, err := time.ParseDuration(c.Header["Sleep"][0])
			time.Sleep(d)
			return 1, err
		}))
		h.ask("t", with(attempt("t1/c1/1", 0), "Sleep", "24ms"), "").want("result 1")
		h.ask("t", with(attempt("t1/c2/1", 0), "Sleep", "26ms"), "").want("accept", "result 1")
		h.ask("t", wire.Header{"Sleep": {"26ms"}}, "").want("result 1")
	})
}

func TestPartialAfterTheEnd(t *testing.T) {
	bubble(t, func(h *house) {
		calls := make(chan *Call, 1)
		h.start(Config{}, handler("t", func(_ context.Context, c *Call) (any, error) { calls <- c; return 1, nil }))
		a := h.ask("t", attempt("t1/c1/1", 0), "")
		a.want("result 1")
		c := <-calls
		if err := c.Partial(1); err == nil {
			h.Error("Partial after the end = nil, want an error")
		}
		c.Progress(1, 1, "")
		a.silent()
	})
}

func TestTimeout(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{}, g.tool("t"))
		began := time.Now()
		h.ask("t", attempt("t1/c1/1", 500), "").want("accept", "error timeout stopped")
		if took := time.Since(began); took != 500*time.Millisecond {
			h.Errorf("it ended after %v, want 500ms", took)
		}
		h.ask("t", nil, "").want("error timeout stopped") // the manifest's
		if took := time.Since(began); took != tool.DefaultTimeout+500*time.Millisecond {
			h.Errorf("the bare call ended after %v, want 30s", took)
		}
	})
}

func TestAHandlerThatDoesNotStopIsLeaked(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{Concurrency: 1}, g.deaf(tool.Manifest{ID: "t", Effect: tool.Write}))
		began := time.Now()
		a := h.ask("t", attempt("t1/c1/1", 500), "")
		a.want("accept", "error timeout unknown")
		if took := time.Since(began); took != 500*time.Millisecond+wire.CancelGrace {
			h.Errorf("it ended after %v, want the timeout and the grace", took)
		}
		if s := w.Stats(); s.Leaked != 1 || s.Running != 1 {
			h.Errorf("Stats = %+v, want one leaked and running", s)
		}
		h.ask("t", attempt("t1/c1/2", 0), "").want("nack overloaded not_started") // the key is held
		h.ask("t", attempt("t1/c2/1", 0), "").want("nack overloaded not_started") // and the place

		g.let <- "late"
		synctest.Wait()
		if s := w.Stats(); s.Leaked != 0 || s.Running != 0 || s.Errors != 1 {
			h.Errorf("Stats = %+v, want none leaked, none running and one error", s)
		}
		a.silent()
		h.ask("t", attempt("t1/c1/3", 0), "").want(`result "late"`) // it ran once
		if n := len(g.began); n != 1 {
			h.Errorf("ran %d times, want 1", n)
		}
	})
}

func TestALeakedReadMayRunAgain(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{}, g.deaf(tool.Manifest{ID: "t", Effect: tool.Read}))
		h.ask("t", attempt("t1/c1/1", 100), "").want("accept", "error timeout unknown")
		second := h.ask("t", attempt("t1/c1/2", 100), "")
		g.let <- "a"
		g.let <- "a"
		second.want(`result "a"`)
		if n := len(g.began); n != 2 {
			h.Errorf("ran %d times, want 2", n)
		}
	})
}

func TestFull(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		w := h.start(Config{Concurrency: 2}, g.tool("t"))
		a, b := h.ask("t", attempt("t1/a/1", 0), ""), h.ask("t", nil, "")
		<-g.began
		<-g.began
		m := h.ask("t", attempt("t1/c/1", 0), "").next()
		if got := said(m); got != "nack overloaded not_started" || m.Header.Get(wire.HeaderRetryAfter) == "" {
			h.Errorf("got %s with %v, want a nack with %s", got, m.Header, wire.HeaderRetryAfter)
		}
		if m := h.ask("t", nil, "").next(); m.Header.Get("Nats-Service-Error-Code") != "503" {
			h.Errorf("a bare request got %v, want a service error 503", m.Header)
		}
		g.let <- 1
		g.let <- 1
		a.want("result 1")
		b.want("result 1")
		if s := w.Stats(); s.Nacked != 2 || s.Calls != 2 {
			h.Errorf("Stats = %+v, want 2 nacked of 4", s)
		}
	})
}

func TestChosen(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{ID: "w1"}, echo())
		h.start(Config{ID: "w2"}, echo())
		to := h.subjects().To("w2")
		h.send(to, wire.Header{"Tb-Tool": {"echo"}}, `{"a":1}`).want(`result {"a":1}`)
		m := h.send(to, wire.Header{"Tb-Tool": {"ecko"}}, `{}`).next()
		f := wire.DecodeFault(m.Header, m.Data)
		if said(m) != "nack tool_not_found not_started" || fmt.Sprint(f.Suggestions) != "[echo]" || f.Worker != "w2" {
			h.Errorf("got %s, want a nack by w2 that suggests echo", h.faultOf(m))
		}
		h.send(to, nil, `{}`).want("nack tool_not_found not_started")
	})
}

func TestStrangeReplies(t *testing.T) {
	bubble(t, func(h *house) {
		js := h.caller.NATS()
		if _, err := js.Request("$JS.API.STREAM.CREATE.X", []byte(`{"name":"X","subjects":["x"],"storage":"memory"}`), time.Second); err != nil {
			h.Fatal(err)
		}
		if _, err := js.Request("x", []byte("keep me"), time.Second); err != nil {
			h.Fatal(err)
		}
		w := h.start(Config{ID: "w1"}, echo())
		to := h.subjects().To("w1")
		others := h.listen(h.subjects().Reply("other", "e", "1"))
		for _, reply := range []string{"$JS.API.STREAM.PURGE.X", "", "x", "tb.v1.hb.w1", others.reply} {
			h.publish(h.subjects().Call("echo"), reply, nil, `{}`)
			h.publish(to, reply, wire.Header{"Tb-Tool": {"echo"}}, `{}`)
			h.publish(to, reply, wire.Header{"Tb-Frame": {"ping"}}, ``)
			h.publish(to, reply, wire.Header{"Tb-Frame": {"describe"}}, ``)
			h.publish("$SRV.PING", reply, nil, ``)
		}
		h.ask("echo", nil, `{}`).want("result {}")
		others.silent()
		if got := w.Stats().BadReply; got != 25 {
			h.Errorf("BadReply = %d, want 25", got)
		}
		m, err := js.Request("$JS.API.STREAM.INFO.X", nil, time.Second)
		if err != nil || !strings.Contains(string(m.Data), `"messages":1,`) {
			h.Errorf("the stream was touched: %s, %v", m.Data, err)
		}
		ok := h.listen(h.subjects().Reply("echo", "e", "1"))
		h.publish(h.subjects().Call("echo"), ok.reply, wire.Header{"Nats-Rollup": {"all"}}, `{}`)
		ok.want("result {}") // and without headers
	})
}

func TestHandlersSeeNoNATSHeaders(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(_ context.Context, c *Call) (any, error) { return c.Header, nil }))
		h.ask("t", wire.Header{"Nats-Rollup": {"all"}, "nats-msg-id": {"1"}, "X": {"1"}}, "").want(`result {"X":["1"]}`)
	})
}

func TestTheCallAsItsHandlerSeesIt(t *testing.T) {
	bubble(t, func(h *house) {
		h.start(Config{}, handler("t", func(ctx context.Context, c *Call) (any, error) {
			own, ok := FromContext(ctx)
			deadline, _ := ctx.Deadline()
			c.Logger().Info("hello")
			return fmt.Sprintf("%v %v %s %s %s %s %v", own == c, ok, c.Tool, c.Ref, c.Key, c.Session, time.Until(deadline)), nil
		}))
		header := with(with(attempt("t1/c1/2", 700), wire.HeaderKey, "k"), wire.HeaderSession, "s")
		h.ask("t", header, "").want(`result "true true t t1/c1/2 k s 700ms"`)
	})
}

func TestObserver(t *testing.T) {
	bubble(t, func(h *house) {
		o := &watcher{events: make(chan string, 16)}
		h.start(Config{Observer: o}, handler("t", func(ctx context.Context, c *Call) (any, error) {
			if ctx.Value(spanKey{}) != "span" {
				return nil, errors.New("the handler did not get the observer's context")
			}
			time.Sleep(10 * time.Millisecond)
			return 1, nil
		}), handler("sad", func(context.Context, *Call) (any, error) { return nil, fault.New(fault.Failed, "no") }))
		for _, c := range []struct{ tool, frame, started, ended string }{
			{"t", "result 1", "t", "t 10ms span"},
			{"sad", "error failed done", "sad", "sad 0s span failed"},
		} {
			h.ask(c.tool, nil, "").want(c.frame)
			if started, ended := <-o.events, <-o.events; started != c.started || ended != c.ended {
				h.Errorf("observer heard %q and %q, want %q and %q", started, ended, c.started, c.ended)
			}
		}
	})
}

type spanKey struct{}

type watcher struct{ events chan string }

func (o *watcher) CallStarted(ctx context.Context, c *Call) context.Context {
	o.events <- c.Tool
	return context.WithValue(ctx, spanKey{}, "span")
}

func (o *watcher) CallEnded(ctx context.Context, c *Call, took time.Duration, f *fault.Fault) {
	s := fmt.Sprintf("%s %v %v", c.Tool, took, ctx.Value(spanKey{}))
	if f != nil {
		s += " " + string(f.Kind)
	}
	o.events <- s
	panic("an observer does not break a worker")
}

// A bridge passes the wish to stop on, and cannot see whether the other side granted it.
func TestAFaultThatSaysUnknownStaysUnknown(t *testing.T) {
	bubble(t, func(h *house) {
		g := newGate()
		h.start(Config{}, handler("t", func(ctx context.Context, c *Call) (any, error) {
			g.began <- c
			<-ctx.Done()
			f := fault.New(fault.Upstream, "the server was left alone")
			f.Execution = fault.Unknown
			return nil, f
		}))
		a := h.ask("t", attempt("t1/c1/1", 500), "")
		<-g.began
		a.want("accept", "error timeout unknown")

		b := h.ask("t", attempt("t1/c2/1", 0), "")
		<-g.began
		h.publish(h.subjects().Cancel("t"), "", attempt("t1/c2/1", 0), "")
		b.want("error cancelled unknown")
	})
}
