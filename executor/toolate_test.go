package executor_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Workers refuse a call when its turn is over, or is while they are asked again: nothing is sent after the deadline. What
// comes late is that nothing ran.
func TestRefusedAtTheDeadline(t *testing.T) {
	for _, tc := range []struct {
		name    string
		workers []string
		after   time.Duration
		kind    fault.Kind
	}{
		{"there is another worker", []string{"w-1", "w-2"}, 1500 * time.Millisecond, fault.Overloaded},
		{"the only one is asked again in a moment", []string{"w-1"}, 999_500 * time.Microsecond, fault.Deadline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T) {
				c := newCrew(t, tool.Manifest{ID: "look", Effect: tool.Read}, tc.workers...)
				st := newStage(t, natstest.InProcess(t), c.lead)
				var asked atomic.Int32
				for _, id := range tc.workers {
					st.play(id, func(say func(kind, body string), m *nats.Msg) {
						switch m.Header.Get("Tb-Frame") {
						case "":
							asked.Add(1)
							time.AfterFunc(tc.after, func() { say("nack", nackFull) })
						case "ping":
							say("pong", "")
						}
					})
				}
				out := st.turn(wire.TurnRequest{DeadlineMs: 1000, Calls: []tool.Call{call("a", "look", `{}`)}})
				if out.Status != wire.TimedOutTurn || len(out.Running) != 1 {
					t.Fatalf("%s, running %v, want timed_out, and a running", told(out), out.Running)
				}
				late := st.seen.await(t, wire.LateResult)
				time.Sleep(5 * time.Second)
				if n := asked.Load(); n != 1 {
					t.Errorf("workers were asked %d times, want once: what comes after the deadline is too late", n)
				}
				if f := late.Result.Fault; late.Result.Status != tool.Failed || f.Kind != tc.kind || f.Run() != fault.NotStarted {
					t.Errorf("late result %+v, want %s, and that it did not run", late.Result, tc.kind)
				}
				if n, held := st.exec.InFlight(), st.exec.Held(); n+held != 0 {
					t.Errorf("%d calls in flight, %d attempts on workers' accounts, want none", n, held)
				}
			})
		})
	}
}
