package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func calls(ids ...string) []tool.Call {
	list := make([]tool.Call, len(ids))
	for i, id := range ids {
		list[i] = tool.Call{ID: id, Tool: "echo"}
	}
	return list
}

func ids(calls []tool.Call) string {
	var list []string
	for _, c := range calls {
		list = append(list, c.ID)
	}
	return strings.Join(list, " ")
}

func values(results []tool.Result) string {
	var list []string
	for _, r := range results {
		list = append(list, r.Call+"="+string(r.Value))
	}
	return strings.Join(list, " ")
}

// want checks that err is a fault of a kind whose message has all of parts.
func want(t *testing.T, what string, err error, kind fault.Kind, parts ...string) {
	t.Helper()
	if !errors.Is(err, &fault.Fault{Kind: kind}) {
		t.Errorf("%s: %v, want %s", what, err, kind)
		return
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("%s: %v, want %q in it", what, err, p)
		}
	}
}

func TestOpenTurn(t *testing.T) {
	bubble(t, func(st *stage) {
		var seen []string
		opened := later(func() (*client.Turn, error) {
			return st.c.Open(st.Context(), wire.TurnRequest{Calls: calls("c1", "")}, func(ev *wire.Event) { seen = append(seen, ev.Type) })
		})
		r := st.x.begin()
		turn := ok(st.T, opened)
		if !r.req.Open || r.req.ID != turn.ID() || ids(r.req.Calls) != "c1 c2" {
			t.Errorf("request %s, open %t, calls %s, want %s, true, c1 c2", r.req.ID, r.req.Open, ids(r.req.Calls), turn.ID())
		}

		// A round, in which the results come in another order and before the answer.
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a", "", "")...) })
		q := st.x.asked()
		if q.frame != wire.AddFrame || q.Seq != 1 || ids(q.Calls) != "a c3 c4" {
			t.Errorf("asked %s %d %s, want add 1 a c3 c4", q.frame, q.Seq, ids(q.Calls))
		}
		r.settle(good("c4", "4"))
		r.settle(good("c2", "2"))
		r.settle(good("a", "1"))
		q.yes()
		r.settle(good("c3", "3"))
		if got := values(ok(st.T, results)); got != "a=1 c3=3 c4=4" {
			t.Errorf("Call = %s, want a=1 c3=3 c4=4", got)
		}

		added := later(func() (any, error) { return nil, turn.Add(st.Context(), calls("b")...) })
		q = st.x.asked()
		q.yes()
		ok(st.T, added)
		if q.Seq != 2 || ids(q.Calls) != "b" {
			t.Errorf("asked %d %s, want 2 b", q.Seq, ids(q.Calls))
		}
		if rs, err := turn.Call(st.Context()); len(rs) > 0 || err != nil {
			t.Errorf("Call() = %v, %v, want nothing", rs, err)
		}

		closed := later(func() (*wire.Outcome, error) { return turn.Close(st.Context()) })
		q = st.x.asked()
		q.yes()
		if q.frame != wire.CloseFrame || q.Seq != 3 {
			t.Errorf("asked %s %d, want close 3", q.frame, q.Seq)
		}
		r.end(wire.Completed, good("a", "1"))
		out := ok(st.T, closed)
		if again, err := turn.Close(st.Context()); again != out || err != nil {
			t.Errorf("Close again = %v, %v, want the same outcome", again, err)
		}
		want(t, "Add after the end", turn.Add(st.Context(), calls("z")...), fault.InvalidArguments, "has ended (completed)")
		if got := strings.Join(seen, " "); got != "TurnStarted CallSettled CallSettled CallSettled CallSettled TurnEnded" {
			t.Errorf("events %s", got)
		}
	})
}

func TestOpenFails(t *testing.T) {
	open := func(st *stage, req wire.TurnRequest) <-chan answer[*client.Turn] {
		return later(func() (*client.Turn, error) { return st.c.Open(st.Context(), req, nil) })
	}
	bubble(t, func(st *stage) {
		refused := open(st, wire.TurnRequest{Calls: calls("a")})
		r := st.x.take()
		r.end(wire.Escalated, tool.Result{Call: "a", Status: tool.Failed, Fault: fault.New(fault.Overloaded, "too many turns")})
		want(t, "a refused turn", bad(st.T, refused), fault.Overloaded, "too many turns")

		empty := open(st, wire.TurnRequest{})
		st.x.take().end(wire.Escalated)
		want(t, "a turn refused without a reason", bad(st.T, empty), fault.Internal)

		illegal := open(st, wire.TurnRequest{ID: "a b", Calls: []tool.Call{{Tool: "x.y"}}})
		want(t, "an illegal request", bad(st.T, illegal), fault.InvalidArguments, "id:", "calls[0].tool:")

		began := time.Now()
		silent := open(st, wire.TurnRequest{})
		want(t, "a silent executor", bad(st.T, silent), fault.WorkerLost, "silent")
		if took := time.Since(began); took != client.Silence {
			t.Errorf("noticed after %v, want %v", took, client.Silence)
		}
	})
	natstest.Bubble(t, func(t *testing.T) {
		c := client.New(natstest.Connect(t, natstest.InProcess(t)))
		_, err := c.Open(t.Context(), wire.TurnRequest{}, nil)
		want(t, "Open", err, fault.Unavailable, "no executor is running: start one with")
	})
}

func TestAliveIsEnoughToBegin(t *testing.T) {
	bubble(t, func(st *stage) {
		opened := later(func() (*client.Turn, error) { return st.c.Open(st.Context(), wire.TurnRequest{}, nil) })
		r := st.x.take()
		r.send(wire.Event{V: 1, Type: wire.Alive})
		turn := ok(st.T, opened)
		turn.Cancel()
		if q := st.x.asked(); q.frame != wire.Cancel || q.Call != "" {
			t.Errorf("asked %s of %q, want cancel of the turn", q.frame, q.Call)
		}
		r.end(wire.CancelledTurn)
		if out, err := turn.Wait(st.Context()); err != nil || out.Status != wire.CancelledTurn {
			t.Errorf("Wait = %+v, %v, want cancelled", out, err)
		}
	})
}

func TestLostAnswerIsAskedForAgain(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		began := time.Now()
		added := later(func() (any, error) { return nil, turn.Add(st.Context(), calls("a")...) })
		first := st.x.asked()
		second := st.x.asked()
		if first.Seq != 1 || second.Seq != 1 || ids(second.Calls) != "a" || time.Since(began) != 500*time.Millisecond {
			t.Errorf("asked %d, then %d %s after %v, want 1, then 1 a after 500 ms", first.Seq, second.Seq, ids(second.Calls), time.Since(began))
		}
		second.yes()
		ok(st.T, added)

		closed := later(func() (*wire.Outcome, error) { return turn.Close(st.Context()) })
		if q := st.x.asked(); q.Seq != 2 {
			t.Errorf("asked %d, want 2", q.Seq)
		}
		r.end(wire.Completed, good("a", "1")) // without an answer
		ok(st.T, closed)
	})
}

func TestRefusedAdd(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		added := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a", "b")...) })
		st.x.asked().answer(wire.TurnReply{Fault: fault.New(fault.InvalidArguments, "calls[0].after[0]: no call x\ncalls[1].id: twice")})
		want(t, "Call", bad(st.T, added), fault.InvalidArguments, "calls[0].after[0]: no call x", "calls[1].id: twice")

		// What can be seen here is not sent.
		err := turn.Add(st.Context(), tool.Call{ID: "a", Tool: "x.y"}, tool.Call{ID: "a", Tool: "echo"})
		want(t, "Add", err, fault.InvalidArguments, "calls[0].tool", "calls[1].id")

		// A refused call leaves no trace: its id may come again.
		again := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a")...) })
		q := st.x.asked()
		if q.frame != wire.AddFrame || ids(q.Calls) != "a" {
			t.Errorf("asked %s %s, want add a", q.frame, ids(q.Calls))
		}
		q.yes()
		r.settle(good("a", "1"))
		ok(st.T, again)
		turn.Cancel()
		r.end(wire.CancelledTurn)
		_, _ = turn.Wait(st.Context())
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		for _, answer := range []string{"", "{}", `{"ok":false}`, "no", "\xc1", "\xdd\xff\xff\xff\xff", strings.Repeat("\x91", 1000)} {
			added := later(func() (any, error) { return nil, turn.Add(st.Context(), calls("")...) })
			st.x.asked().raw([]byte(answer))
			want(t, fmt.Sprintf("Add answered %.10q", answer), bad(st.T, added), fault.Internal)
		}
		// Faults are cut down to what may travel.
		added := later(func() (any, error) { return nil, turn.Add(st.Context(), calls("")...) })
		st.x.asked().answer(wire.TurnReply{Fault: &fault.Fault{Kind: "no such kind", Message: strings.Repeat("x", 100_000)}})
		err := bad(st.T, added)
		want(t, "Add", err, fault.Upstream)
		if n := len(err.Error()); n > 9<<10 {
			t.Errorf("an error of %d bytes, want at most 9 KiB", n)
		}
		turn.Cancel()
		r.end(wire.CancelledTurn)
		_, _ = turn.Wait(st.Context())
	})
}

func TestSilenceEndsEverythingThatWaits(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a", "b")...) })
		st.x.asked().yes()
		outcome := later(func() (*wire.Outcome, error) { return turn.Wait(st.Context()) })
		r.settle(good("a", "1"))
		added := later(func() (any, error) { return nil, turn.Add(st.Context(), calls("c")...) })
		began := time.Now()
		want(t, "Call", bad(st.T, results), fault.WorkerLost, "silent")
		want(t, "Wait", bad(st.T, outcome), fault.WorkerLost, "silent")
		want(t, "Add", bad(st.T, added), fault.WorkerLost, "silent")
		if took := time.Since(began); took != client.Silence {
			t.Errorf("noticed after %v, want %v", took, client.Silence)
		}
		_, err := turn.Close(st.Context())
		want(t, "Close", err, fault.WorkerLost)
		_, err = turn.Call(st.Context(), calls("d")...)
		want(t, "Call afterwards", err, fault.WorkerLost)
	})
}

// What waits goes on while the executor says that it lives, with or without a reply subject, which asks for nothing.
func TestAliveKeepsTheTurn(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a")...) })
		st.x.asked().yes()
		for i := range 60 {
			time.Sleep(time.Second)
			body := st.x.encode(&wire.Event{V: 1, Type: wire.Alive})
			if i%3 > 0 {
				r.send(wire.Event{V: 1, Type: wire.Alive})
			} else if err := st.x.bus.NATS().PublishRequest(r.to, "tb.v1.reply._turn.x.1", body); err != nil {
				t.Fatal(err)
			}
		}
		r.settle(good("a", "1"))
		ok(st.T, results)
		turn.Cancel()
		r.end(wire.CancelledTurn)
		_, _ = turn.Wait(st.Context())
	})
}

func TestEventsOfAnotherTurn(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a")...) })
		st.x.asked().yes()
		lie := good("a", `"a lie"`)
		r.send(wire.Event{V: 1, Type: wire.CallSettled, Seq: 9, Turn: "t2", Result: &lie})
		r.send(wire.Event{V: 1, Type: wire.TurnEnded, Seq: 10, Turn: "t2", Outcome: &wire.Outcome{Results: []tool.Result{lie}}})
		r.settle(tool.Result{Call: "nobody asked for it"})
		r.tell(wire.Event{Type: wire.CallSettled, Call: "a"}) // without a result
		r.tell(wire.Event{Type: "SomethingNew"})
		r.settle(good("a", "1"))
		r.settle(good("a", "2"))
		if got := values(ok(st.T, results)); got != "a=1" {
			t.Errorf("Call = %s, want a=1", got)
		}
		closed := later(func() (*wire.Outcome, error) { return turn.Close(st.Context()) })
		st.x.asked().yes()
		r.tell(wire.Event{Type: wire.TurnEnded})
		want(t, "an end without an outcome", bad(st.T, closed), fault.Internal, "without an outcome")
	})
}

func TestCloseWhileCallsRun(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		first := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a")...) })
		st.x.asked().yes()
		second := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("b", "c")...) })
		st.x.asked().yes()
		closed := later(func() (*wire.Outcome, error) { return turn.Close(st.Context()) })
		st.x.asked().yes()
		r.tell(wire.Event{Type: wire.TurnClosed})
		r.settle(good("a", "1"))
		r.settle(good("c", "3"))
		if got := values(ok(st.T, first)); got != "a=1" {
			t.Errorf("first Call = %s, want a=1", got)
		}
		want(t, "Add", turn.Add(st.Context(), calls("d")...), fault.InvalidArguments, "is closed")

		// The deadline: what has no result has one in the outcome.
		late := tool.Result{Call: "b", Status: tool.TimedOut, Fault: fault.New(fault.Deadline, "out of time")}
		r.end(wire.PartialTurn, good("a", "1"), late, good("c", "3"))
		rs := ok(st.T, second)
		if len(rs) != 2 || rs[0].Status != tool.TimedOut || rs[1].Status != tool.Success {
			t.Errorf("second Call = %+v, want b timed out and c", rs)
		}
		if out := ok(st.T, closed); out.Status != wire.PartialTurn {
			t.Errorf("Close = %s, want partial", out.Status)
		}
	})
}

func TestOutcomeThatForgetsACall(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a", "b")...) })
		st.x.asked().yes()
		r.end(wire.Completed, good("b", "1"))
		want(t, "Call", bad(st.T, results), fault.Internal, "without a result")
	})
}

func TestEndedContexts(t *testing.T) {
	bubble(t, func(st *stage) {
		open, end := context.WithCancel(st.Context())
		opened := later(func() (*client.Turn, error) { return st.c.Open(open, wire.TurnRequest{}, nil) })
		r := st.x.begin()
		turn := ok(st.T, opened)

		ctx, cancel := context.WithTimeout(st.Context(), 700*time.Millisecond)
		defer cancel()
		added := later(func() (any, error) { return nil, turn.Add(ctx, calls("a")...) })
		st.x.asked()
		st.x.asked()
		want(t, "Add", bad(st.T, added), fault.Timeout, "the answer of turn")

		ctx, cancel = context.WithCancel(st.Context())
		results := later(func() ([]tool.Result, error) { return turn.Call(ctx, calls("b")...) })
		q := st.x.asked()
		if q.Seq != 2 {
			t.Errorf("asked %d, want 2", q.Seq)
		}
		q.yes()
		synctest.Wait() // it has the answer and waits for the result
		cancel()
		want(t, "Call", bad(st.T, results), fault.Cancelled, "the results of the calls")
		_, err := turn.Wait(ctx)
		want(t, "Wait", err, fault.Cancelled, "the outcome of turn")
		_, err = turn.Close(ctx)
		want(t, "Close", err, fault.Cancelled)

		// The end of Open's own ctx is the end of the turn, and is said until it is heard.
		waiting := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("c")...) })
		for q = st.x.asked(); q.frame != wire.AddFrame; q = st.x.asked() {
		}
		q.yes()
		r.tell(wire.Event{Type: wire.CallReady})
		end()
		for range 3 {
			if q := st.x.asked(); q.frame != wire.Cancel {
				t.Errorf("asked %s, want cancel", q.frame)
			}
		}
		r.end(wire.CancelledTurn, tool.Result{Call: "c", Status: tool.Cancelled})
		if rs := ok(st.T, waiting); rs[0].Status != tool.Cancelled {
			t.Errorf("Call = %+v, want it cancelled", rs)
		}
		if out, err := turn.Wait(st.Context()); err != nil || out.Status != wire.CancelledTurn {
			t.Errorf("Wait = %+v, %v, want cancelled", out, err)
		}
	})
}

func TestCancelNobodyHears(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, _ := st.open()
		turn.Cancel()
		began := time.Now()
		_, err := turn.Wait(st.Context())
		want(t, "Wait", err, fault.WorkerLost, "was cancelled, and its outcome did not come")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("gave up after %v, want 2s", took)
		}
	})
}

// Somebody who waits for a result that was lost on its way would wait for the deadline.
func TestLostEvents(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(r *run)
	}{
		{"the next event shows it", func(r *run) { r.last++; r.tell(wire.Event{Type: wire.ProgressEvent}) }},
		{"alive shows it", func(r *run) { r.last++; r.send(wire.Event{V: 1, Type: wire.Alive, Seq: r.last}) }},
		{"an absurd number", func(r *run) { r.send(wire.Event{V: 1, Type: wire.ProgressEvent, Turn: "t1", Seq: 1 << 53}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(st *stage) {
				turn, r := st.open()
				results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a", "b")...) })
				st.x.asked().yes()
				r.send(wire.Event{V: 1, Type: wire.Alive, Seq: r.last})
				r.settle(good("a", "1"))
				c.lose(r)
				want(t, "Call", bad(st.T, results), fault.WorkerLost, "lost on their way", "close the turn")
				r.settle(good("b", "2"))

				after := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("c")...) })
				st.x.asked().yes()
				r.settle(good("c", "3"))
				ok(st.T, after)
				closed := later(func() (*wire.Outcome, error) { return turn.Close(st.Context()) })
				st.x.asked().yes()
				r.end(wire.Completed, good("a", "1"), good("b", "2"), good("c", "3"))
				if got := values(ok(st.T, closed).Results); got != "a=1 b=2 c=3" {
					t.Errorf("Close = %s, want all", got)
				}
			})
		})
	}
}

// A reader that is slow is not told that its executor is silent, and is told where more came than is kept for it.
func TestSlowReader(t *testing.T) {
	bubble(t, func(st *stage) {
		read := make(chan struct{})
		opened := later(func() (*client.Turn, error) {
			return st.c.Open(st.Context(), wire.TurnRequest{ID: "t1"}, func(ev *wire.Event) {
				if ev.Type == wire.CallReady {
					<-read
				}
			})
		})
		r := st.x.begin()
		turn := ok(st.T, opened)
		results := later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("a")...) })
		st.x.asked().yes()
		r.tell(wire.Event{Type: wire.CallReady})
		r.settle(good("a", "1"))
		time.Sleep(2 * client.Silence)
		read <- struct{}{}
		ok(st.T, results)

		results = later(func() ([]tool.Result, error) { return turn.Call(st.Context(), calls("b")...) })
		st.x.asked().yes()
		r.tell(wire.Event{Type: wire.CallReady})
		synctest.Wait() // it is being read
		r.settle(good("b", "2"))
		for range 5000 {
			r.tell(wire.Event{Type: wire.ProgressEvent})
		}
		r.end(wire.Completed, good("a", "1"), good("c", "2"))
		synctest.Wait()
		read <- struct{}{}
		want(t, "Call", bad(st.T, results), fault.WorkerLost, "lost on their way")
		if out, err := turn.Wait(st.Context()); err != nil || out.Status != wire.Completed {
			t.Errorf("Wait = %+v, %v, want the outcome", out, err)
		}
	})
}

func TestExecutorThatLeaves(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, _ := st.open()
		st.x.bus.Close()
		began := time.Now()
		err := turn.Add(st.Context(), calls("a")...)
		want(t, "Add", err, fault.WorkerLost, "silent")
		if took := time.Since(began); took != client.Silence {
			t.Errorf("gave up after %v, want %v", took, client.Silence)
		}
	})
}

// The executor cannot see that a client has given up a turn whose connection lives on.
func TestLossCancelIsSaid(t *testing.T) {
	bubble(t, func(st *stage) {
		for _, loss := range []string{"", wire.LossCancel} {
			req := wire.TurnRequest{Calls: calls("a"), OnClientLoss: loss}
			outcome := later(func() (*wire.Outcome, error) { return st.c.Run(st.Context(), req) })
			st.x.begin()
			want(t, "Run", bad(st.T, outcome), fault.WorkerLost)
			if loss == wire.LossCancel {
				if q := st.x.asked(); q.frame != wire.Cancel {
					t.Errorf("asked %s, want cancel", q.frame)
				}
			}
		}
		if n := len(st.x.ctl); n > 0 {
			t.Errorf("%d more questions, want none", n)
		}
	})
}

func TestCancelCall(t *testing.T) {
	bubble(t, func(st *stage) {
		if f := st.c.CancelCall("t1", "a"); f != nil {
			t.Fatal(f)
		}
		if q := st.x.asked(); q.frame != wire.Cancel || q.Call != "a" || q.m.Subject != "tb.v1.turn.ctl.t1" {
			t.Errorf("asked %s of %q on %s", q.frame, q.Call, q.m.Subject)
		}
		for _, c := range [][2]string{{"", "a"}, {"t1", ""}, {"*", "a"}, {"t1", "a.b"}} {
			if f := st.c.CancelCall(c[0], c[1]); f == nil || f.Kind != fault.InvalidArguments {
				t.Errorf("CancelCall(%q, %q) = %v, want invalid_arguments", c[0], c[1], f)
			}
		}
		for _, turn := range []string{"", "*", "a b", "a\r\nPUB x 0"} {
			if f := st.c.Cancel(turn); f == nil || f.Kind != fault.InvalidArguments {
				t.Errorf("Cancel(%q) = %v, want invalid_arguments", turn, f)
			}
		}
	})
}

func TestManyRoundsAtOnce(t *testing.T) {
	bubble(t, func(st *stage) {
		turn, r := st.open()
		const rounds = 40
		go func() {
			for want := int64(1); want <= rounds; want++ {
				q := st.x.asked()
				if q.Seq != want {
					t.Errorf("asked %d, want %d", q.Seq, want)
				}
				for _, c := range q.Calls {
					r.settle(good(c.ID, `"`+c.ID+`"`))
				}
				q.yes()
			}
		}()
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := map[string]bool{}
		for range rounds {
			wg.Go(func() {
				rs, err := turn.Call(st.Context(), calls("", "", "")...)
				if err != nil || len(rs) != 3 {
					t.Errorf("Call = %v, %v", rs, err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, res := range rs {
					if seen[res.Call] || string(res.Value) != `"`+res.Call+`"` {
						t.Errorf("result %s of %s, want one of each", res.Value, res.Call)
					}
					seen[res.Call] = true
				}
			})
		}
		wg.Wait()
		turn.Cancel()
		r.end(wire.CancelledTurn)
		_, _ = turn.Wait(st.Context())
	})
}

func TestLargeCallsAndResults(t *testing.T) {
	s := natstest.Server(t)
	st := &stage{t, s, newFake(t, s), client.New(natstest.Connect(t, s))}
	turn, r := st.open()
	r.beat()
	text := `{"text":"` + strings.Repeat("x", 3<<20) + `"}`
	results := later(func() ([]tool.Result, error) {
		return turn.Call(t.Context(), tool.Call{Tool: "echo", Args: []byte(text)})
	})
	q := st.x.asked()
	if len(q.Calls) != 1 || string(q.Calls[0].Args) != text {
		t.Errorf("%d calls, want one with all its arguments", len(q.Calls))
	}
	q.yes()

	r.last++
	res := good("c1", text)
	body := st.x.encode(&wire.Event{V: 1, Type: wire.CallSettled, Seq: r.last, Turn: r.req.ID, Result: &res})
	ref, f := st.x.bus.PutBlob(t.Context(), body, time.Minute)
	if f != nil {
		t.Fatal(f)
	}
	if f := st.x.bus.Respond(r.to, wire.Header{wire.HeaderBlob: {ref.String()}}, nil); f != nil {
		t.Fatal(f)
	}
	if rs := ok(t, results); string(rs[0].Value) != text {
		t.Errorf("a value of %d bytes, want %d", len(rs[0].Value), len(text))
	}
	turn.Cancel()
	r.end(wire.CancelledTurn)
	if _, err := turn.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

// An event that cannot be fetched is not the end of the turn; where none comes after it, it is why there is no outcome.
func TestEventThatCannotBeFetched(t *testing.T) {
	for _, ends := range []bool{true, false} {
		bubble(t, func(st *stage) {
			out := later(func() (*wire.Outcome, error) {
				return st.c.Run(st.Context(), wire.TurnRequest{ID: "t1", Calls: []tool.Call{{ID: "a", Tool: "echo"}}})
			})
			r := st.x.begin()
			ref := wire.BlobRef{ID: "gone", Size: 5, Chunks: 1, Digest: strings.Repeat("0", 64)}
			if f := st.x.bus.Respond(r.to, wire.Header{wire.HeaderFrame: {string(wire.EventFrame)}, wire.HeaderBlob: {ref.String()}}, nil); f != nil {
				t.Fatal(f)
			}
			if !ends {
				if err := bad(t, out); fault.Of(err).Kind == fault.WorkerLost || fault.Of(err).Execution != fault.Unknown {
					t.Errorf("error %v, want why the event could not be fetched", err)
				}
				return
			}
			r.end(wire.Completed, good("a", `1`))
			if got := ok(t, out); got.Status != wire.Completed {
				t.Errorf("outcome %+v, want completed", got)
			}
		})
	}
}
