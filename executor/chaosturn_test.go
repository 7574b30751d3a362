package executor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// Many turns of up to twelve calls that depend on one another, with deadlines, alternatives, defaults and cancels, some of
// them open, some of whose clients go away, played by workers that die, pause, and answer twice, late and wrongly. The
// workers keep journals of their own, and proofs compares them with what the executor says. See there what must hold.
//
// TOOLBUS_SEED takes the seed that a run printed; TOOLBUS_LONG=1 plays fifty rounds instead of four.
func TestTurnsAmongFailingWorkers(t *testing.T) {
	seed, rounds := rand.Uint64(), 4
	if testing.Short() {
		rounds = 1
	}
	if os.Getenv("TOOLBUS_LONG") != "" {
		rounds = 50
	}
	if text := os.Getenv("TOOLBUS_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal("TOOLBUS_SEED: ", err)
		}
	}
	t.Logf("TOOLBUS_SEED=%d", seed)
	all := map[string]int{}
	for i := range rounds {
		natstest.Bubble(t, func(t *testing.T) {
			p := newPlay(t, rand.New(rand.NewPCG(seed, uint64(i))))
			p.perform(500)
			for what, n := range p.did {
				all[what] += n
			}
		})
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	t.Logf("%v", all)
	for _, what := range []string{"attempts", "calls kept late", "turns cancelled", "calls cancelled", "calls added", "clients gone", "worker: dies", "worker: pauses"} {
		if all[what] == 0 {
			t.Errorf("%s: none, so that was not much of a test", what)
		}
	}
}

const actors = 12

// A play is the stage with its actors, and the turns that they play in.
type play struct {
	t      *testing.T
	stage  *stage
	cast   *cast
	ledger *ledger
	line   *kvstate.Line
	well   atomic.Bool // the actors do as they should

	mu    sync.Mutex
	rng   *rand.Rand
	did   map[string]int             // how often, for people
	deeds map[string][]*deed         // by <turn>/<call>, as they began
	gave  map[string]map[string]bool // by <turn>/<call>: values and pieces that actors sent as its
	turns []*drama
}

// A drama is one turn as its caller saw it.
type drama struct {
	req wire.TurnRequest
	out *wire.Outcome // nil where the caller went away
}

func newPlay(t *testing.T, rng *rand.Rand) *play {
	p := &play{t: t, rng: rng, did: map[string]int{}, deeds: map[string][]*deed{}, gave: map[string]map[string]bool{}}
	// Most breakers stay closed, or nothing would run.
	calm := &tool.BreakerPolicy{Mode: "failure_rate", FailureThreshold: new(1_000_000), MinCalls: new(1_000_000)}
	shaky := &tool.BreakerPolicy{FailureThreshold: new(3), SuccessThreshold: new(1), TimeoutMs: new(int64(100))}
	p.cast = newCast(t,
		tool.Manifest{ID: "look", Effect: tool.Read, Breaker: calm},
		tool.Manifest{ID: "ask", Breaker: calm},
		tool.Manifest{ID: "set", Effect: tool.Idempotent, Breaker: calm, Retry: &tool.RetryPolicy{InitialDelayMs: new(int64(0))}},
		tool.Manifest{ID: "buy", Effect: tool.Write, Breaker: calm},
		tool.Manifest{ID: "pay", Effect: tool.Write, KeepsKeys: true, Breaker: calm},
		tool.Manifest{ID: "shaky", Effect: tool.Read, Breaker: shaky},
		tool.Manifest{ID: "strict", Effect: tool.Read, Breaker: calm, Output: []byte(`{"type":"object","required":["x"]}`), Fallback: "look", FallbackOn: []string{"invalid_result"}},
		tool.Manifest{ID: "hint", Effect: tool.Read, Breaker: calm, Optional: true, Default: []byte(`{"x":"of the manifest"}`), IdleTimeoutMs: 120},
	)
	p.line = kvstate.NewMemory().Line()
	p.line.Trouble(kvstate.Trouble{There: func() time.Duration { return p.span(0, 60*time.Millisecond) }})
	p.stage = newStage(t, natstest.InProcess(t), journalled(t), func(cfg *executor.Config) {
		p.ledger = &ledger{Journal: cfg.Journal, turns: map[string][]wire.Event{}, kept: map[string][]*wire.LateRecord{}}
		cfg.Registry, cfg.Breakers, cfg.Journal, cfg.Observer = p.cast, p.line, p.ledger, nil
	})
	for i := range actors {
		a := &actor{p: p, id: "w-" + strconv.Itoa(i+1), nc: natstest.Connect(t, p.stage.server).NATS(), now: map[string]*deed{}}
		a.enter()
	}
	return p
}

func (p *play) n(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(n)
}

func (p *play) one(of int) bool { return p.n(of) == 0 }

func (p *play) span(from, to time.Duration) time.Duration {
	return (from + time.Duration(p.n(int(to-from)))).Truncate(time.Microsecond)
}

func (p *play) note(what string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did[what] += n
}

var chaosTools = []string{"look", "ask", "set", "buy", "pay", "shaky", "strict", "hint"}

func (p *play) tool() string { return chaosTools[p.n(len(chaosTools))] }

// call is one that may wait for some of the first n.
func (p *play) call(n int) tool.Call {
	c := tool.Call{
		ID: "c" + strconv.Itoa(n+1), Tool: p.tool(), TimeoutMs: 50 + int64(p.n(600)), Optional: p.one(3),
		Retry: &tool.RetryPolicy{MaxAttempts: new(1 + p.n(4)), InitialDelayMs: new(int64(10 + p.n(60)))},
	}
	var args []string
	for k := range n {
		if p.one(n + 1) {
			c.After = append(c.After, "c"+strconv.Itoa(k+1))
		}
	}
	if k := len(c.After); k > 0 {
		c.Join = []tool.Join{"", tool.JoinAll, tool.JoinAny, tool.JoinAvailable, tool.Join(strconv.Itoa((k + 1) / 2))}[p.n(5)]
		for _, of := range c.After {
			if p.one(2) {
				args = append(args, fmt.Sprintf(`"%s":{"$from":"%s","pointer":"/x","default":"none"}`, of, of))
			}
		}
	}
	if c.Join == tool.JoinAvailable && p.one(2) {
		c.JoinByMs = int64(1 + p.n(600))
	}
	c.Args = fmt.Appendf(nil, `{"me":"%s"`, c.ID)
	for _, a := range args {
		c.Args = fmt.Appendf(c.Args, `,%s`, a)
	}
	c.Args = append(c.Args, '}')
	if p.one(4) {
		c.Default = []byte(`{"x":"of the call"}`)
	}
	if p.one(8) {
		c.BreakerKey = "tenant-" + strconv.Itoa(p.n(2))
	}
	if p.one(3) {
		for range 1 + p.n(3) {
			a := tool.Alternative{Tool: p.tool(), TimeoutMs: 50 + int64(p.n(400))}
			if p.one(2) {
				a.Args = []byte(`{"me":{"$arg":"/me"},"instead":true}`)
			}
			c.Alternatives = append(c.Alternatives, a)
		}
		if p.one(2) {
			c.FallbackOn = []string{tool.AnyPermanent}
		}
	}
	return c
}

func (p *play) request(i int) wire.TurnRequest {
	req := wire.TurnRequest{
		ID: "t" + strconv.Itoa(i), DeadlineMs: p.span(60*time.Millisecond, 2500*time.Millisecond).Milliseconds(), Parallel: p.n(5), ToolParallel: p.n(3),
	}
	if p.one(6) {
		req.DeadlineMode = wire.DeadlineHard
	}
	if p.one(6) {
		req.OnFailure = wire.FailureStop
	}
	for n := range 1 + p.n(12) {
		req.Calls = append(req.Calls, p.call(n))
	}
	return req
}

// perform plays n turns, and proves what is to be proved.
func (p *play) perform(n int) {
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.stage.exec.Run(ctx, time.Second) }()
	<-p.stage.exec.Ready()
	synctest.Wait()
	clients := make([]*client.Client, 4)
	for i := range clients {
		clients[i] = p.stage.client()
	}
	var callers sync.WaitGroup
	for i := range n {
		d := &drama{req: p.request(i)}
		p.turns = append(p.turns, d)
		c, start, way := clients[p.n(len(clients))], p.span(0, 10*time.Second), p.n(10)
		callers.Go(func() {
			time.Sleep(start)
			switch {
			case way < 4:
				p.here(d)
			case way < 7:
				p.there(c, d)
			case way < 9:
				p.open(c, d)
			default:
				p.lost(d)
			}
		})
	}
	callers.Wait()
	time.Sleep(tool.DefaultTimeout + 5*time.Second) // what is late
	p.prove()
	p.mends()
	p.leavesNothing()
	cancel()
	if err := <-ended; err != nil {
		p.t.Error(err)
	}
}

// here is a turn from this process. Its caller may lose patience, before the end or after it.
func (p *play) here(d *drama) {
	done := make(chan *wire.Outcome, 2)
	patience := time.Hour
	if p.one(5) {
		patience = p.span(0, 1500*time.Millisecond)
	}
	stop := p.stage.exec.Go(executor.Turn{Request: d.req}, func(out *wire.Outcome) { done <- out })
	late := time.AfterFunc(patience, func() { p.note("turns cancelled", 1); stop() })
	d.out = <-done
	if patience < time.Hour {
		time.Sleep(patience)
	}
	late.Stop()
	if len(done) > 0 {
		p.t.Errorf("%s ended twice", d.req.ID)
	}
}

// there is a turn over the bus. Some of its calls are cancelled, or all of it.
func (p *play) there(c *client.Client, d *drama) {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	for range p.n(3) {
		of := d.req.Calls[p.n(len(d.req.Calls))].ID
		time.AfterFunc(p.span(0, time.Second), func() {
			p.note("calls cancelled", 1)
			if f := c.CancelCall(d.req.ID, of); f != nil {
				p.t.Error(f)
			}
		})
	}
	switch p.n(10) {
	case 0:
		time.AfterFunc(p.span(0, time.Second), func() { p.note("turns cancelled", 1); cancel() })
	case 1:
		time.AfterFunc(p.span(0, time.Second), func() {
			p.note("turns cancelled", 1)
			if f := c.Cancel(d.req.ID); f != nil {
				p.t.Error(f)
			}
		})
	}
	last := &wire.Event{}
	p.got(c.Stream(ctx, d.req, func(ev *wire.Event) {
		if ev.Seq != last.Seq+1 {
			p.t.Errorf("%s: the client got event %d after event %d", d.req.ID, ev.Seq, last.Seq)
		}
		last = ev
	}))(d)
	if last.Type != wire.TurnEnded {
		p.t.Errorf("%s: the client's last event is %s, want the end", d.req.ID, last.Type)
	}
}

func (p *play) got(out *wire.Outcome, err error) func(*drama) {
	return func(d *drama) {
		if d.out = out; err != nil {
			p.t.Errorf("%s: %v, want an outcome", d.req.ID, err)
		}
	}
}

// open is a turn to which calls are added, until it is closed or its time is up.
func (p *play) open(c *client.Client, d *drama) {
	calls := d.req.Calls
	first := p.n(len(calls) + 1)
	d.req.Calls, d.req.Open = calls[:first:first], true
	if p.one(2) {
		d.req.OnClientLoss = wire.LossCancel
	}
	o, err := c.Open(p.t.Context(), d.req, nil)
	if err != nil {
		p.t.Errorf("%s: %v, want it open", d.req.ID, err)
		return
	}
	deadline := time.Duration(d.req.DeadlineMs) * time.Millisecond
	for left := calls[first:]; len(left) > 0; {
		if pause := p.span(0, 400*time.Millisecond); p.one(8) {
			time.Sleep(deadline) // the add comes when the turn ends
		} else {
			time.Sleep(pause)
		}
		k := 1 + p.n(len(left))
		err := o.Add(p.t.Context(), left[:k]...)
		switch {
		case err == nil:
			p.note("calls added", k)
		case fault.Of(err).Kind == fault.InvalidArguments: // it has ended, or what they wait for was not added
			p.note("adds refused", 1)
		default:
			p.t.Errorf("%s: Add = %v", d.req.ID, err)
		}
		left = left[k:]
	}
	if p.one(4) {
		p.got(o.Wait(p.t.Context()))(d) // it ends at its deadline
		return
	}
	p.got(o.Close(p.t.Context()))(d)
}

// lost is a turn whose client goes away in the middle.
func (p *play) lost(d *drama) {
	conn := natstest.Connect(p.t, p.stage.server)
	if p.one(2) {
		d.req.OnClientLoss = wire.LossCancel
	}
	time.AfterFunc(p.span(0, time.Second), func() { p.note("clients gone", 1); conn.Close() })
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	d.out, _ = client.New(conn).Run(ctx, d.req)
}

// A turn of five minutes: a chain of nine tools that take thirty seconds each, and one that is too slow and comes late.
func TestFiveMinutesTakeNone(t *testing.T) {
	began := time.Now()
	natstest.Bubble(t, func(t *testing.T) {
		st := newStage(t, natstest.InProcess(t), journalled(t))
		st.serveHere()
		st.workWith(worker.Config{Concurrency: 100}, sleeper("sleep"))
		req := wire.TurnRequest{ID: "long"}
		for i := range 9 {
			c := call("c"+strconv.Itoa(i), "sleep", fmt.Sprintf(`{"ms":30000,"value":%d}`, i))
			if i > 0 {
				c.After = []string{"c" + strconv.Itoa(i-1)}
			}
			req.Calls = append(req.Calls, c)
		}
		req.Calls = append(req.Calls, call("slow", "sleep", `{"ms":50000,"value":"at last"}`, after("c8")), call("never", "sleep", `{"ms":0}`, after("slow")))
		began := time.Now()
		c := st.client()
		out, err := c.Run(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := "partial c0=success:0 c1=success:1 c2=success:2 c3=success:3 c4=success:4 c5=success:5 c6=success:6 c7=success:7 c8=success:8 slow=timed_out never=not_started"
		if got := told(out); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if took := time.Since(began).Round(time.Millisecond); took != 5*time.Minute {
			t.Errorf("took %v, want 5 min", took)
		}
		time.Sleep(30 * time.Second)
		if rec, err := c.Late(t.Context(), "long", "slow"); err != nil || string(rec.Result.Value) != `"at last"` {
			t.Errorf("Late = %+v, %v, want it at last", rec, err)
		}
	})
	t.Logf("five and a half minutes took %v", time.Since(began).Round(time.Millisecond))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("five and a half minutes took %v", took)
	}
}
