package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/wire"
)

// answers has the fake answer a subject with these messages.
func (x *fake) answers(subject string, frame wire.Frame, bodies ...[]byte) (stop func()) {
	x.t.Helper()
	s, err := x.bus.Subscribe(subject, wire.ExecutorQueue, func(m *nats.Msg) {
		for _, b := range bodies {
			if f := x.bus.Respond(m.Reply, wire.Header{wire.HeaderFrame: {string(frame)}}, b); f != nil {
				x.t.Error(f)
			}
		}
	})
	if err != nil {
		x.t.Fatal(err)
	}
	return func() { _ = s.Drain(x.t.Context()) }
}

func TestLate(t *testing.T) {
	res := good("a", "1")
	bubble(t, func(st *stage) {
		for _, c := range []struct {
			name, turn string
			rec        wire.LateRecord
			kind       fault.Kind // of the error; "" where there is none
		}{
			{"of one turn", "t1", wire.LateRecord{V: 1, Turn: "t1", Result: &res}, ""},
			{"of any turn", "", wire.LateRecord{V: 1, Turn: "t7", Result: &res}, ""},
			{"none", "t1", wire.LateRecord{V: 1, Fault: fault.New(fault.NotFound, "no late result")}, fault.NotFound},
			{"of another turn", "t2", wire.LateRecord{V: 1, Turn: "t1", Result: &res}, fault.Internal},
			{"empty", "t1", wire.LateRecord{V: 1}, fault.Internal},
			{"of another version", "t1", wire.LateRecord{V: 2, Turn: "t1", Result: &res}, fault.Internal},
		} {
			stop := st.x.answers("tb.v1.turn.late", wire.LateFrame, st.x.encode(&c.rec))
			rec, err := st.c.Late(st.Context(), c.turn, "a")
			stop()
			if c.kind != "" {
				want(t, c.name, err, c.kind)
				continue
			}
			if err != nil || rec.Turn != c.rec.Turn || string(rec.Result.Value) != "1" {
				t.Errorf("%s: Late = %+v, %v, want %+v", c.name, rec, err, c.rec)
			}
		}
		stop := st.x.answers("tb.v1.turn.late", wire.LateFrame, st.x.encode(&wire.LateRecord{V: 1, Turn: "t1", Result: &res}))
		defer stop()
		_, err := st.c.Late(st.Context(), "t1", "b")
		want(t, "of another call", err, fault.Internal)
	})
}

func TestLateQuery(t *testing.T) {
	bubble(t, func(st *stage) {
		asked := make(chan *nats.Msg, 1)
		st.x.listen("tb.v1.turn.late", wire.ExecutorQueue, asked)
		late := later(func() (*wire.LateRecord, error) { return st.c.Late(st.Context(), "t1", "a") })
		var q wire.LateQuery
		st.x.decode(next(t, asked), &q)
		if q != (wire.LateQuery{Turn: "t1", Call: "a"}) {
			t.Errorf("asked %+v", q)
		}
		began := time.Now()
		want(t, "nobody answers", bad(t, late), fault.Timeout, "tb.v1.turn.late")
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("gave up after %v, want 10s", took)
		}
		ctx, cancel := context.WithTimeout(st.Context(), time.Second)
		defer cancel()
		_, err := st.c.Late(ctx, "", "a")
		want(t, "the end of ctx", err, fault.Timeout, "did not come in time")
	})
}

func TestTrace(t *testing.T) {
	ev := func(turn string, seq int64) wire.Event {
		return wire.Event{V: 1, Type: wire.CallReady, Turn: turn, Seq: seq}
	}
	page := func(last bool, events ...wire.Event) wire.Page {
		return wire.Page{V: 1, Turn: "t1", Events: events, Last: last}
	}
	many := make([]wire.Event, 500)
	for i := range many {
		many[i] = ev("t1", int64(i+1))
	}
	var endless []wire.Page
	for range 201 {
		endless = append(endless, page(false, many...))
	}
	bubble(t, func(st *stage) {
		for _, c := range []struct {
			name  string
			pages []wire.Page
			seqs  string
			kind  fault.Kind
		}{
			{"one page", []wire.Page{page(true, ev("t1", 1), ev("t1", 2))}, "1 2", ""},
			{"several", []wire.Page{page(false, ev("t1", 1)), page(false), page(false, ev("t1", 2)), page(true)}, "1 2", ""},
			{"more after the last", []wire.Page{page(true, ev("t1", 1)), page(true, ev("t1", 2))}, "1", ""},
			{"none", []wire.Page{{V: 1, Last: true, Fault: fault.New(fault.NotFound, "no journal")}}, "", fault.NotFound},
			{"an empty one", []wire.Page{page(true)}, "", fault.NotFound},
			{"a fault in the middle", []wire.Page{page(false, ev("t1", 1)), {V: 1, Fault: fault.New(fault.Unavailable, "JetStream is away")}}, "1", fault.Unavailable},
			{"an event of another turn", []wire.Page{page(true, ev("t2", 1))}, "", fault.Internal},
			{"a page of another turn", []wire.Page{{V: 1, Turn: "t2", Last: true, Events: []wire.Event{ev("t2", 1)}}}, "", fault.Internal},
			{"of another version", []wire.Page{{V: 2, Turn: "t1", Last: true}}, "", fault.Internal},
			{"the last is missing", []wire.Page{page(false, ev("t1", 1))}, "1", fault.Timeout},
			{"without end", endless, "", fault.Internal},
		} {
			var bodies [][]byte
			for _, p := range c.pages {
				bodies = append(bodies, st.x.encode(&p))
			}
			stop := st.x.answers("tb.v1.turn.trace", wire.PageFrame, bodies...)
			events, err := st.c.Trace(st.Context(), "t1")
			stop()
			if c.kind != "" {
				want(t, c.name, err, c.kind)
			} else if err != nil {
				t.Errorf("%s: %v, want no error", c.name, err)
			}
			if c.name == "without end" {
				if len(events) < 100_000 || len(events) > 101_000 {
					t.Errorf("%s: %d events, want 100,000 and little more", c.name, len(events))
				}
				continue
			}
			var seqs []string
			for _, e := range events {
				seqs = append(seqs, fmt.Sprint(e.Seq))
				if e.Turn != "t1" {
					t.Errorf("%s: an event of turn %q, want t1", c.name, e.Turn)
				}
			}
			if got := strings.Join(seqs, " "); got != c.seqs {
				t.Errorf("%s: Trace = %s, want %s", c.name, got, c.seqs)
			}
		}
	})
}

func TestQueriesThatCannotBe(t *testing.T) {
	bubble(t, func(st *stage) {
		for _, body := range []string{"", "no", "\xc1", "\xdd\xff\xff\xff\xff", strings.Repeat("\x91", 100_000)} {
			stopLate := st.x.answers("tb.v1.turn.late", "", []byte(body))
			stopTrace := st.x.answers("tb.v1.turn.trace", "", []byte(body))
			_, err := st.c.Late(st.Context(), "", "a")
			want(t, fmt.Sprintf("Late answered %.10q", body), err, fault.Internal)
			_, err = st.c.Trace(st.Context(), "t1")
			want(t, fmt.Sprintf("Trace answered %.10q", body), err, fault.Internal)
			stopLate()
			stopTrace()
		}
		for _, id := range []string{"", "a b", "*", "a.b"} {
			_, err := st.c.Late(st.Context(), "t1", id)
			want(t, fmt.Sprintf("Late(t1, %q)", id), err, fault.InvalidArguments, "call: ")
			_, err = st.c.Trace(st.Context(), id)
			want(t, fmt.Sprintf("Trace(%q)", id), err, fault.InvalidArguments, "turn: ")
		}
		_, err := st.c.Late(st.Context(), "a b", "a")
		want(t, "Late(a b, a)", err, fault.InvalidArguments, "turn: ")
	})
}

func TestNobodyToQuery(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := client.New(natstest.Connect(t, natstest.InProcess(t)))
		_, err := c.Late(t.Context(), "", "a")
		want(t, "Late", err, fault.Unavailable, "no executor is running")
		_, err = c.Trace(t.Context(), "t1")
		want(t, "Trace", err, fault.Unavailable, "no executor is running")
	})
}
