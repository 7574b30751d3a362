package client_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// A fake is an executor that does what the test says: what it is asked waits in a channel.
type fake struct {
	t    *testing.T
	bus  *bus.Conn
	runs chan *nats.Msg
	ctl  chan *nats.Msg
}

func newFake(t *testing.T, s *bus.Server) *fake {
	x := &fake{t, natstest.Connect(t, s), make(chan *nats.Msg, 1000), make(chan *nats.Msg, 1000)}
	x.listen("tb.v1.turn.run", wire.ExecutorQueue, x.runs)
	x.listen("tb.v1.turn.ctl.*", "", x.ctl)
	return x
}

func (x *fake) listen(subject, queue string, ch chan *nats.Msg) *bus.Subscription {
	x.t.Helper()
	s, err := x.bus.Subscribe(subject, queue, func(m *nats.Msg) { ch <- m })
	if err != nil {
		x.t.Fatal(err)
	}
	return s
}

// A run is a turn that the fake has.
type run struct {
	x    *fake
	req  wire.TurnRequest
	to   string
	last int64
}

// take is the next turn that is handed over, before its first event.
func (x *fake) take() *run {
	x.t.Helper()
	m := next(x.t, x.runs)
	r := &run{x: x, to: m.Header.Get(wire.HeaderProgress)}
	x.decode(m, &r.req)
	if r.to == "" || r.to != m.Reply {
		x.t.Errorf("progress to %q, reply to %q, want the same", r.to, m.Reply)
	}
	return r
}

// begin is take, and the first event.
func (x *fake) begin() *run {
	x.t.Helper()
	r := x.take()
	r.tell(wire.Event{Type: wire.TurnStarted})
	return r
}

func (x *fake) decode(m *nats.Msg, record any) {
	x.t.Helper()
	data := m.Data
	if check := m.Header.Get(wire.HeaderBlob); check != "" {
		ref, err := wire.ParseBlobRef(check)
		if err != nil {
			x.t.Fatal(err)
		}
		blob, f := x.bus.GetBlob(x.t.Context(), ref)
		if f != nil {
			x.t.Fatal(f)
		}
		data = blob
	}
	if err := wire.Decode(data, record); err != nil {
		x.t.Fatal(err)
	}
}

func (x *fake) encode(record any) []byte {
	x.t.Helper()
	b, err := wire.Marshal(wire.MsgPack, record)
	if err != nil {
		x.t.Fatal(err)
	}
	return b
}

// send publishes an event as it is.
func (r *run) send(ev wire.Event) {
	r.x.t.Helper()
	h := wire.Header{wire.HeaderFrame: {string(wire.EventFrame)}}
	if f := r.x.bus.Respond(r.to, h, r.x.encode(&ev)); f != nil {
		r.x.t.Error(f)
	}
}

// tell sends the next event of the turn.
func (r *run) tell(ev wire.Event) {
	r.x.t.Helper()
	r.last++
	ev.V, ev.Turn, ev.Seq = wire.Version, r.req.ID, r.last
	r.send(ev)
}

// beat says that the executor lives until the test ends: for tests by the real clock.
func (r *run) beat() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for tick := time.Tick(time.Second); ; {
			select {
			case <-tick:
				r.send(wire.Event{V: 1, Type: wire.Alive})
			case <-stop:
				return
			}
		}
	}()
	r.x.t.Cleanup(func() { close(stop); <-stopped })
}

func (r *run) settle(res tool.Result) {
	r.x.t.Helper()
	r.tell(wire.Event{Type: wire.CallSettled, Call: res.Call, Result: &res})
}

func (r *run) end(status string, results ...tool.Result) {
	r.x.t.Helper()
	r.tell(wire.Event{Type: wire.TurnEnded, Outcome: &wire.Outcome{Turn: r.req.ID, Status: status, Results: results}})
}

func good(call, value string) tool.Result {
	return tool.Result{Call: call, Tool: "echo", Status: tool.Success, Value: []byte(value)}
}

// A question is a message on a turn's control subject.
type question struct {
	x     *fake
	m     *nats.Msg
	frame wire.Frame
	wire.TurnControl
}

func (x *fake) asked() question {
	x.t.Helper()
	q := question{x: x, m: next(x.t, x.ctl)}
	q.frame = wire.FrameOf(wire.Header(q.m.Header))
	if len(q.m.Data) > 0 || q.m.Header.Get(wire.HeaderBlob) != "" {
		x.decode(q.m, &q.TurnControl)
	}
	return q
}

func (q question) answer(r wire.TurnReply) {
	q.x.t.Helper()
	q.raw(q.x.encode(&r))
}

func (q question) raw(b []byte) {
	q.x.t.Helper()
	if f := q.x.bus.Respond(q.m.Reply, wire.Header{wire.HeaderFrame: {string(wire.TurnFrame)}}, b); f != nil {
		q.x.t.Error(f)
	}
}

func (q question) yes() {
	q.x.t.Helper()
	q.answer(wire.TurnReply{OK: true})
}

// next waits for one value, and fails the test where none comes.
func next[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
		panic("not reached")
	}
}

// An answer is what a call of the client came to.
type answer[T any] struct {
	v   T
	err error
}

// later runs f beside the test.
func later[T any](f func() (T, error)) <-chan answer[T] {
	ch := make(chan answer[T], 1)
	go func() {
		v, err := f()
		ch <- answer[T]{v, err}
	}()
	return ch
}

// ok is the value that came, where it came without an error.
func ok[T any](t *testing.T, ch <-chan answer[T]) T {
	t.Helper()
	a := next(t, ch)
	if a.err != nil {
		t.Fatalf("%v, want no error", a.err)
	}
	return a.v
}

// bad is the error that came.
func bad[T any](t *testing.T, ch <-chan answer[T]) error {
	t.Helper()
	a := next(t, ch)
	if a.err == nil {
		t.Fatalf("%+v, want an error", a.v)
	}
	return a.err
}

// A stage is a client and a fake executor in one bubble.
type stage struct {
	*testing.T
	server *bus.Server
	x      *fake
	c      *client.Client
}

func bubble(t *testing.T, f func(st *stage)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T) {
		s := natstest.InProcess(t)
		f(&stage{t, s, newFake(t, s), client.New(natstest.Connect(t, s))})
	})
}

// open opens a turn without calls.
func (st *stage) open() (*client.Turn, *run) {
	st.Helper()
	turn := later(func() (*client.Turn, error) { return st.c.Open(st.Context(), wire.TurnRequest{ID: "t1"}, nil) })
	r := st.x.begin()
	return ok(st.T, turn), r
}
