package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// A house is a server with one caller on it.
type house struct {
	*testing.T
	server *bus.Server
	caller *bus.Conn
}

// bubble runs f with a house in fake time.
func bubble(t *testing.T, f func(h *house)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) { f(newHouse(t, natstest.InProcess(t))) })
}

// outside gets ready for a test outside bubbles: nats.go keeps timers in a pool, and one that was made in a bubble may
// not leave it. Two collections empty the pool.
func outside() {
	runtime.GC()
	runtime.GC()
}

func newHouse(t *testing.T, s *bus.Server) *house {
	return &house{T: t, server: s, caller: natstest.Connect(t, s)}
}

// start runs a worker until the end of the test, or until somebody shuts it down.
func (h *house) start(cfg Config, tools ...Tool) *Worker {
	h.Helper()
	w, done := h.run(cfg, tools...)
	h.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		w.Shutdown(ctx)
		<-done
	})
	return w
}

// run runs a worker; done gives what Run returned.
func (h *house) run(cfg Config, tools ...Tool) (w *Worker, done <-chan error) {
	h.Helper()
	if cfg.Bus == nil {
		cfg.Bus = natstest.Connect(h.T, h.server)
	}
	if cfg.ID == "" {
		cfg.ID = "w1"
	}
	cfg.Tools = tools
	w, err := New(cfg)
	if err != nil {
		h.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(context.Background()) }()
	select {
	case <-w.Ready():
	case err := <-ended:
		h.Fatalf("Run = %v", err)
	}
	return w, ended
}

func (h *house) subjects() wire.Subjects { return h.caller.Subjects() }

// An asked is one question and the frames that come back.
type asked struct {
	h     *house
	reply string
	came  chan *nats.Msg
}

// listen listens to a subject of its own.
func (h *house) listen(subject string) *asked {
	h.Helper()
	a := &asked{h, subject, make(chan *nats.Msg, 256)}
	sub, err := h.caller.NATS().ChanSubscribe(subject, a.came)
	if err != nil {
		h.Fatal(err)
	}
	h.flush()
	h.Cleanup(func() { sub.Unsubscribe() })
	return a
}

func (h *house) flush() {
	h.Helper()
	if err := h.caller.NATS().Flush(); err != nil {
		h.Fatal(err)
	}
}

// ask calls a tool through the queue group; send does so on any subject.
func (h *house) ask(tool string, header wire.Header, data string) *asked {
	h.Helper()
	return h.send(h.subjects().Call(tool), header, data)
}

func (h *house) send(subject string, header wire.Header, data string) *asked {
	h.Helper()
	a := h.listen(nats.NewInbox())
	h.publish(subject, a.reply, header, data)
	return a
}

func (h *house) publish(subject, reply string, header wire.Header, data string) {
	h.Helper()
	err := h.caller.NATS().PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Header: nats.Header(header), Data: []byte(data)})
	if err != nil {
		h.Fatal(err)
	}
	h.flush()
	synctest.Wait() // the worker has it: what follows comes after it, also on another subject
}

// next is the next message.
func (a *asked) next() *nats.Msg {
	a.h.Helper()
	select {
	case m := <-a.came:
		return m
	case <-time.After(time.Minute):
		a.h.Fatalf("nothing came to %s within a minute", a.reply)
		return nil
	}
}

// want checks the next frames, as said tells them.
func (a *asked) want(frames ...string) {
	a.h.Helper()
	for i, want := range frames {
		if got := said(a.next()); got != want {
			a.h.Fatalf("frame %d: got %s, want %s", i+1, got, want)
		}
	}
}

// silent checks that nothing comes for a second of the bubble's time.
func (a *asked) silent() {
	a.h.Helper()
	time.Sleep(time.Second) // fake
	synctest.Wait()
	select {
	case m := <-a.came:
		a.h.Fatalf("came %s, want nothing", said(m))
	default:
	}
}

// said is a frame in words.
func said(m *nats.Msg) string {
	switch frame := wire.FrameOf(m.Header); frame {
	case "":
		if len(m.Header) > 0 {
			return fmt.Sprintf("result %s with %v", m.Data, m.Header)
		}
		return "result " + string(m.Data)
	case wire.ErrorFrame, wire.Nack, wire.Stopped:
		f := wire.DecodeFault(m.Header, m.Data)
		return fmt.Sprintf("%s %s %s", frame, f.Kind, f.Run())
	case wire.Progress:
		var p wire.ProgressRecord
		if err := wire.Decode(m.Data, &p); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("progress %v/%v %s", p.Done, p.Total, p.Message)
	case wire.Partial:
		return fmt.Sprintf("partial %s %s", wire.Get(m.Header, wire.HeaderSeq), m.Data)
	default:
		return string(frame)
	}
}

// attempt is the headers of an attempt; of its own timeout where ms is not 0.
func attempt(ref string, ms int) wire.Header {
	h := wire.Header{wire.HeaderCall: {ref}}
	if ms > 0 {
		h[wire.HeaderTimeout] = []string{strconv.Itoa(ms)}
	}
	return h
}

func with(h wire.Header, name, value string) wire.Header {
	h[name] = []string{value}
	return h
}

// handler makes a tool without schemas.
func handler(id string, f HandlerFunc) Tool {
	return Tool{Manifest: tool.Manifest{ID: id}, Handler: f}
}

func echo() Tool {
	return handler("echo", func(_ context.Context, c *Call) (any, error) { return c.Args, nil })
}

// A gate is a tool whose calls say that they begin, and end when they are let or told to.
type gate struct {
	began chan *Call
	let   chan any // the result, or the error
}

func newGate() *gate { return &gate{make(chan *Call, 64), make(chan any, 64)} }

func (g *gate) tool(id string) Tool {
	return handler(id, func(ctx context.Context, c *Call) (any, error) {
		g.began <- c
		select {
		case v := <-g.let:
			if err, ok := v.(error); ok {
				return nil, err
			}
			return v, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
}

// deaf is a tool that ends only when it is let.
func (g *gate) deaf(m tool.Manifest) Tool {
	return Tool{Manifest: m, Handler: HandlerFunc(func(ctx context.Context, c *Call) (any, error) {
		g.began <- c
		return <-g.let, nil
	})}
}

func (h *house) faultOf(m *nats.Msg) string {
	f := wire.DecodeFault(m.Header, m.Data)
	b, err := json.Marshal(f)
	return string(b) + fmt.Sprint(errors.Join(err))
}
