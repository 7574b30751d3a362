package executor_test

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A town is a catalogue of crews.
type town map[string]*crew

func (w town) Tool(name string) *registry.Tool {
	if c := w[name]; c != nil {
		return c.Tool(name)
	}
	return nil
}

func (town) Nearest(string) []string { return nil }

func (w town) Gone(id string) {
	for _, c := range w {
		c.Gone(id)
	}
}

// A chaos is workers that answer with any frames in any order, and what they know of the calls.
type chaos struct {
	mu    sync.Mutex
	rng   *rand.Rand
	well  bool            // they answer as they should
	may   map[string]bool // by <turn>/<call>: somebody got it and did not say that it would not run
	calls int
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) span(most time.Duration) time.Duration { return time.Duration(c.n(int(most))) }

// answers are the frames of a worker; those that say that nothing ran excuse it.
var answers = []struct {
	kind, body string
	excuse     bool
}{
	{"accept", "", false},
	{"accept", "", false},
	{"progress", `{"message":"so far"}`, false},
	{"partial", `{"piece":1}`, false},
	{"result", `1`, false},
	{"result", `1`, false},
	{"result", `"` + strings.Repeat("x", 20<<10) + `"`, false},
	{"result", "no JSON", false},
	{"error", `{"kind":"upstream","message":"500"}`, false},
	{"error", `{"kind":"failed","message":"no"}`, false},
	{"error", `{"kind":"unavailable","message":"not now"}`, true},
	{"error", `{"kind":"rate_limited","message":"slower","retry_after_ms":40}`, true},
	{"nack", nackFull, true},
	{"stopped", `{"kind":"cancelled","message":"it stopped"}`, false},
	{"dance", "", false},
}

// work is what the worker of an id does with a message.
func (c *chaos) work(nc *nats.Conn, id string) func(*nats.Msg) {
	return func(m *nats.Msg) {
		say := func(kind, body string, more ...string) {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: frame(kind, append(more, "Tb-Worker", id)...), Data: []byte(body)})
		}
		switch m.Header.Get("Tb-Frame") {
		case "":
			c.serve(m, say)
		case "ping":
			switch n := c.n(10); {
			case n == 0: // it hangs
			case n == 1:
				say("pong", "", "Tb-Running", "0")
			default:
				say("pong", "", "Tb-Running", "1")
			}
		}
	}
}

func (c *chaos) serve(m *nats.Msg, say func(kind, body string, more ...string)) {
	ref := m.Header.Get("Tb-Call")
	c.mu.Lock()
	c.calls++
	well := c.well
	c.mu.Unlock()
	if well {
		say("result", "1")
		return
	}
	excused := false
	for range c.n(5) {
		a := answers[c.n(len(answers))]
		excused = excused || a.excuse
		more := []string(nil)
		if a.kind == "result" && c.n(12) == 0 { // a claim check of nothing
			more = []string{"Tb-Blob", "v1;none;100000;1;" + strings.Repeat("0", 64)}
		}
		time.AfterFunc(c.span(150*time.Millisecond), func() {
			say(a.kind, a.body, more...)
			if c.n(8) == 0 {
				say(a.kind, a.body, more...)
			}
		})
	}
	if !excused {
		c.mu.Lock()
		c.may[ref[:strings.LastIndexByte(ref, '/')]] = true
		c.mu.Unlock()
	}
}

// A story is the events of one turn.
type story struct {
	t         *testing.T
	turn      string
	seq       int64
	ended     int
	late      []*tool.Result
	cancelled atomic.Bool
}

// Event is called under the call's lock.
func (s *story) Event(ev *wire.Event) {
	switch {
	case ev.Seq <= s.seq:
		s.t.Errorf("%s: event %s has number %d after %d", s.turn, ev.Type, ev.Seq, s.seq)
	case s.ended > 0 && ev.Type != wire.LateResult && ev.Type != wire.BreakerChanged:
		s.t.Errorf("%s: event %s after the end", s.turn, ev.Type)
	case ev.Type == wire.AttemptStarted && s.cancelled.Load():
		s.t.Errorf("%s: an attempt began after the cancel", s.turn)
	}
	s.seq = ev.Seq
	switch ev.Type {
	case wire.TurnEnded:
		s.ended++
	case wire.LateResult:
		s.late = append(s.late, ev.Result)
	}
}

// Many turns of one to four calls, some of which wait for others, each with workers that say anything in any order, and callers that lose their patience. Whatever happens, a
// call has one result, in time, that says nothing untrue of what ran; and nothing is left of it.
//
// TOOLBUS_SEED takes the seed that a run printed; TOOLBUS_LONG=1 plays a hundred rounds.
func TestAnyAnswersInAnyOrder(t *testing.T) {
	seed, rounds := rand.Uint64(), 4
	if os.Getenv("TOOLBUS_LONG") != "" {
		rounds = 100
	}
	if text := os.Getenv("TOOLBUS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("TOOLBUS_SEED: ", err)
		}
	}
	t.Logf("TOOLBUS_SEED=%d", seed)
	for i := range rounds {
		natstest.Bubble(t, func(t *testing.T) { playRound(t, rand.New(rand.NewPCG(seed, uint64(i)))) })
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
}

func playRound(t *testing.T, rng *rand.Rand) {
	const calls, grace, slack = 300, 250 * time.Millisecond, 5 * time.Millisecond
	c := &chaos{rng: rng, may: map[string]bool{}}
	every := &tool.BreakerPolicy{Mode: "failure_rate", FailureThreshold: new(1_000_000), MinCalls: new(1_000_000), WindowMs: new(int64(3_600_000))}
	shaky := &tool.BreakerPolicy{FailureThreshold: new(3), SuccessThreshold: new(1), TimeoutMs: new(int64(100))}
	ids := []string{"w-1", "w-2", "w-3", "w-none"}
	all := town{
		"steady": newCrew(t, tool.Manifest{ID: "steady", Effect: tool.Read, Breaker: every}, ids...),
		"shaky":  newCrew(t, tool.Manifest{ID: "shaky", Effect: tool.Read, Breaker: shaky}, ids...),
		"queued": newCrew(t, tool.Manifest{ID: "queued", Effect: tool.Read, Breaker: shaky}),
	}
	line := kvstate.NewMemory().Line()
	line.Trouble(kvstate.Trouble{There: func() time.Duration { return c.span(60 * time.Millisecond) }})
	st := newStage(t, natstest.InProcess(t), func(cfg *executor.Config) { cfg.Registry, cfg.Breakers, cfg.Observer = all, line, nil })
	for _, id := range ids[:3] {
		nc := natstest.Connect(t, st.server).NATS()
		for _, subject := range []string{"tb.v1.to." + id, "tb.v1.cancel.*"} {
			if _, err := nc.Subscribe(subject, c.work(nc, id)); err != nil {
				t.Fatal(err)
			}
		}
		subscribe(t, nc, "tb.v1.call.*", c.work(nc, id))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- st.exec.Run(ctx, time.Second) }()
	<-st.exec.Ready()
	synctest.Wait()

	var results sync.Map
	var several atomic.Int32
	var callers sync.WaitGroup
	stories := make([]*story, calls)
	for i := range calls {
		turn := "turn-" + strconv.Itoa(i)
		s := &story{t: t, turn: turn}
		stories[i] = s
		var list []tool.Call
		for k := range 1 + c.n(4) {
			call := tool.Call{
				ID: "c" + strconv.Itoa(k), Tool: []string{"steady", "shaky", "queued"}[c.n(3)], TimeoutMs: 20 + int64(c.n(300)),
				Retry: &tool.RetryPolicy{MaxAttempts: new(1 + c.n(4))}, Optional: c.n(2) == 0,
			}
			if k > 0 && c.n(2) == 0 {
				call.After, call.Join = []string{"c" + strconv.Itoa(c.n(k))}, []tool.Join{tool.JoinAll, tool.JoinAvailable}[c.n(2)]
			}
			if c.n(3) == 0 {
				call.Alternatives = []tool.Alternative{{Tool: "queued", TimeoutMs: 20 + int64(c.n(300))}}
			}
			if c.n(40) == 0 {
				call.Args = json.RawMessage(`{"a":"` + strings.Repeat("x", 1<<20) + `"}`)
			}
			list = append(list, call)
		}
		deadline := (50*time.Millisecond + c.span(1500*time.Millisecond)).Round(time.Millisecond)
		start, patience := c.span(4*time.Second), time.Duration(-1)
		if c.n(3) == 0 {
			patience = c.span(400 * time.Millisecond)
		}
		callers.Go(func() {
			time.Sleep(start)
			began := time.Now()
			done := make(chan *wire.Outcome, 2)
			req := wire.TurnRequest{ID: turn, Calls: list, DeadlineMs: deadline.Milliseconds()}
			stop := st.exec.Go(executor.Turn{Request: req, Observer: s}, func(out *wire.Outcome) {
				if _, twice := results.LoadOrStore(turn, out); twice {
					several.Add(1)
				}
				done <- out
			})
			most := deadline + grace
			var out *wire.Outcome
			if patience >= 0 {
				select {
				case out = <-done:
				case <-time.After(patience):
					stop()
					s.cancelled.Store(true)
					most = min(most, time.Since(began)+grace)
					out = <-done
				}
			} else {
				out = <-done
			}
			if took := time.Since(began); took > most+slack {
				t.Errorf("%s: took %v, want at most %v: %s", turn, took, most, told(out))
			}
			for i, r := range out.Results {
				if len(out.Results) != len(list) || r.Call != list[i].ID || r.Status == "" {
					t.Errorf("%s: results %s, want one for each of its %d calls, in order", turn, told(out), len(list))
				}
			}
			if len(turn)%2 == 0 {
				stop() // what goes on is not wanted either
			}
		})
	}
	callers.Wait()
	time.Sleep(10 * time.Second) // what is late, and what is to be written of breakers
	if n := st.exec.InFlight(); n != 0 || several.Load() != 0 {
		t.Errorf("%d calls in flight when all had ended, %d second results", n, several.Load())
	}
	said := 0
	heard := func(a tool.Attempt) {
		refused := strings.Contains(a.Message, "steady is not called") // by the breaker, for the wait that the tool asked for
		if a.Tool == "steady" && !refused && (a.Kind == "" || a.Kind.Spec().CountsForBreaker) {
			said++
		}
	}
	for _, s := range stories {
		of := map[string]bool{}
		for _, r := range s.late { // what came before its last attempt is in the outcome
			if of[r.Call] {
				t.Errorf("%s: two late results of %s, want one", s.turn, r.Call)
			}
			of[r.Call] = true
			heard(r.Attempts[len(r.Attempts)-1])
		}
	}
	c.mu.Lock()
	may := maps.Clone(c.may)
	c.mu.Unlock()
	results.Range(func(k, v any) bool {
		for _, r := range v.(*wire.Outcome).Results {
			if r.Fault != nil && r.Fault.Run() == fault.NotStarted && may[k.(string)+"/"+r.Call] {
				t.Errorf("%s/%s: %s says not_started, and a worker had it: %+v", k, r.Call, r.Fault, r.Attempts)
			}
			for _, a := range r.Attempts {
				heard(a)
			}
		}
		return true
	})
	record := func(key string) (v breaker.Shared) {
		e, err := line.Get(t.Context(), key)
		if err == nil {
			err = wire.Decode(e.Value, &v)
		}
		if err != nil {
			t.Errorf("breaker of %s: %v", key, err)
		}
		return v
	}
	if v := record("steady"); v.Now.Calls+v.Last.Calls != said {
		t.Errorf("the breaker heard of %d attempts, want %d", v.Now.Calls+v.Last.Calls, said)
	}
	for _, name := range []string{"shaky", "queued"} {
		if v := record(name); len(v.Probes) != 0 {
			t.Errorf("%s: %d probes were never settled", name, len(v.Probes))
		}
	}
	c.mu.Lock()
	c.well = true
	c.mu.Unlock()
	for _, name := range []string{"steady", "shaky", "queued"} {
		for i := 0; ; i++ { // a shared open state, one probe, then all go
			r := st.call(name, `{}`)
			if r.Status == tool.Success {
				break
			}
			if i == 20 {
				t.Errorf("%s: still %v, and all is well", name, r.Fault)
				break
			}
			time.Sleep(500 * time.Millisecond)
		}
	}
	time.Sleep(3 * time.Minute) // the watch forgets
	if n, m := st.exec.Held(), st.exec.Peers(); n != 0 || m > len(ids) {
		t.Errorf("%d attempts on the accounts of %d workers, want none of at most %d", n, m, len(ids))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
