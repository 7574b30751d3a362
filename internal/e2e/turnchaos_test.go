//go:build unix

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A shot is a turn under fire: what was asked for, and how it ended for its client.
type shot struct {
	req wire.TurnRequest
	who int           // of several clients
	out *wire.Outcome // nil where its client was killed, until the journal is read
	err error
}

// What must hold of every turn while workers are killed, told to stop and paused at random, and clients are killed:
//
//	it ends exactly once, with one result for each call, in order, and its journal says so
//	a write is started at most once, and what succeeded was started
//	a call begins when those that it waits for have ended
//	what goes on after the outcome is kept
//	nothing is left in flight
//
// TOOLBUS_E2E_SEED takes the seed that a run printed.
func TestTurnsUnderRandomKills(t *testing.T) {
	length := 6 * time.Second
	if testing.Short() {
		length = 2 * time.Second
	}
	seed := seeded(t)

	url := natstest.URL(t)
	serve(t, url)
	b := newBench(t)
	// A worker that is killed takes many calls along: breakers that open at the fifth would keep most calls from running.
	const limits = "timeout_ms: 2500\ncircuit_breaker: {failure_threshold: 30, timeout_ms: 100}"
	s := newSlots(b, url, seed, limits)
	c := newCaller(t, url)
	spied := newSpy(t, c.conn)

	var over atomic.Bool
	var mu sync.Mutex
	var all []*shot
	var callers sync.WaitGroup
	shoot := func(g int, way func(*shot, *rand.Rand)) {
		rng := rand.New(rand.NewPCG(seed, uint64(g+1)))
		callers.Go(func() {
			for i := 0; !over.Load(); i++ {
				x := &shot{req: randomPlan(rng, fmt.Sprintf("turn-%d-%d", g, i))}
				way(x, rng)
				mu.Lock()
				all = append(all, x)
				mu.Unlock()
			}
		})
	}
	for g := range 6 {
		shoot(g, func(x *shot, _ *rand.Rand) { x.out, x.err = c.c.Run(context.Background(), x.req) })
	}
	shoot(6, func(x *shot, _ *rand.Rand) { x.out = runPlan(t, url, x.req) })
	shoot(7, func(x *shot, rng *rand.Rand) { killClient(t, url, x.req, rng) })
	s.trouble(length)
	over.Store(true)
	callers.Wait()

	inFlightIsNone(t, url)
	lines := b.lines("")
	how := map[string]int{}
	for i, x := range all {
		if x.out == nil && x.err == nil {
			how["client killed"]++
			until(t, "the end of "+x.req.ID, patience, func() bool { x.out = journalled(c, x.req.ID); return x.out != nil })
		}
		if x.out == nil {
			t.Errorf("%s: no outcome, although the executor was well: %v", x.req.ID, x.err)
			continue
		}
		how[x.out.Status]++
		x.holds(t, lines)
		for _, r := range x.out.Results {
			if r.Fault != nil {
				how[string(r.Fault.Kind)]++
			}
		}
		if n := spied.ended(x.req.ID); n != 1 {
			t.Errorf("%s ended %d times, want once", x.req.ID, n)
		}
		for _, id := range x.out.Running {
			how["late"]++
			if rec, err := c.c.Late(t.Context(), x.req.ID, id); err != nil || rec.Result.Call != id {
				t.Errorf("%s: Late(%s) = %+v, %v, want what it came to", x.req.ID, id, rec, err)
			}
		}
		if i%10 != 0 {
			continue
		}
		if told := journalled(c, x.req.ID); told == nil || told.Status != x.out.Status {
			t.Errorf("%s: the journal ends with %+v, want %s", x.req.ID, told, x.out.Status)
		}
	}
	t.Logf("%d turns, %d workers: %v; %v", len(all), s.made, s.did, how)
	if len(all) < 30 || how[wire.Completed] == 0 || s.did["SIGKILL"] == 0 {
		t.Error("that was not much of a test")
	}
}

// randomPlan is three calls at once, and two that wait for some of them.
func randomPlan(rng *rand.Rand, id string) wire.TurnRequest {
	req := wire.TurnRequest{ID: id, DeadlineMs: int64(1000 + rng.IntN(3000))}
	for i, after := range [][]string{nil, nil, nil, {"c1", "c2"}, {"c3", "c4"}} {
		c := tool.Call{
			ID: "c" + strconv.Itoa(i+1), Tool: []string{"read", "write"}[rng.IntN(2)], After: after,
			Args: fmt.Appendf(nil, `{"seconds":%g}`, float64(rng.IntN(200))/1000), Optional: rng.IntN(3) == 0,
		}
		if after != nil {
			c.Join = []tool.Join{tool.JoinAll, tool.JoinAny, tool.JoinAvailable}[rng.IntN(3)]
		}
		if rng.IntN(4) == 0 {
			c.Default = []byte(`"by default"`)
		}
		req.Calls = append(req.Calls, c)
	}
	return req
}

// holds checks an outcome against what the tools wrote down.
func (x *shot) holds(t *testing.T, lines []line) {
	if len(x.out.Results) != len(x.req.Calls) {
		t.Errorf("%s: %d results, want one for each of %d calls", x.req.ID, len(x.out.Results), len(x.req.Calls))
		return
	}
	first, ends := map[string]int{}, map[string]int{}
	for i, l := range lines {
		id, ok := strings.CutPrefix(l.call, x.req.ID+"/")
		switch {
		case !ok:
		case l.what == "end": // the first: a worker that was paused goes on after its call has been done by another
			if _, again := ends[id]; !again {
				ends[id] = i
			}
		case l.what == "start":
			if _, again := first[id]; again && l.tool == "write" {
				t.Errorf("%s: the write %s was started again", x.req.ID, id)
			} else if !again {
				first[id] = i
			}
		}
	}
	for i, r := range x.out.Results {
		c := x.req.Calls[i]
		began, started := first[c.ID]
		if r.Call != c.ID || r.Status == "" {
			t.Errorf("%s: result %d is %+v, want that of %s", x.req.ID, i, r, c.ID)
		}
		if _, ended := ends[c.ID]; r.Status == tool.Success && !ended {
			t.Errorf("%s: %s succeeded, and it never ended", x.req.ID, c.ID)
		}
		if (r.Status == tool.Skipped || r.Status == tool.NeverStarted) && started && len(r.Attempts) == 0 {
			t.Errorf("%s: %s is %s, and it was started", x.req.ID, c.ID, r.Status)
		}
		if f := r.Fault; f != nil && f.Run() == fault.NotStarted && started {
			t.Errorf("%s: %s is said not to have started, and it was: %v", x.req.ID, c.ID, f)
		}
		for _, id := range c.After {
			of := x.out.Results[slices.IndexFunc(x.req.Calls, func(c tool.Call) bool { return c.ID == id })]
			if started && c.Join == tool.JoinAll && of.Status == tool.Success && ends[id] > began {
				t.Errorf("%s: %s began before %s had ended", x.req.ID, c.ID, id)
			}
		}
	}
}

// planFile writes a plan down.
func planFile(t *testing.T, req wire.TurnRequest) string {
	data, err := json.Marshal(req)
	file := filepath.Join(t.TempDir(), req.ID+".json")
	if err = cmp.Or(err, os.WriteFile(file, data, 0o600)); err != nil {
		t.Error(err)
	}
	return file
}

// runPlan runs a turn by `executor turn run`.
func runPlan(t *testing.T, url string, req wire.TurnRequest) *wire.Outcome {
	p := begin(t, nil, url, "turn", "run", "--json", planFile(t, req))
	<-p.over
	lines := strings.Split(strings.TrimSpace(p.out.String()), "\n")
	var end wire.Event
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || end.Outcome == nil {
		t.Errorf("turn run wrote\n%s\n%s\nwant events, the last with an outcome", &p.out, &p.err)
	}
	return end.Outcome
}

// killClient runs a turn whose client is killed in the middle.
func killClient(t *testing.T, url string, req wire.TurnRequest, rng *rand.Rand) {
	for i := range req.Calls[:3] {
		req.Calls[i].Args = []byte(`{"seconds":0.7}`) // so that it does not end before
	}
	p := begin(t, nil, url, "turn", "run", "--json", planFile(t, req))
	p.saysOrEnds("TurnStarted")
	wait := time.NewTimer(time.Duration(rng.IntN(400)) * time.Millisecond)
	<-wait.C
	p.kill()
	<-p.over
}

// journalled is the outcome that the journal of a turn has, or nil.
func journalled(c *caller, turn string) *wire.Outcome {
	events, _ := c.c.Trace(context.Background(), turn)
	for _, ev := range events {
		if ev.Type == wire.TurnEnded {
			return ev.Outcome
		}
	}
	return nil
}

// inFlightIsNone waits until no executor has anything in flight.
func inFlightIsNone(t *testing.T, url string) {
	t.Helper()
	until(t, "executors with nothing in flight", patience, func() bool {
		var list []struct {
			InFlight int `json:"in_flight"`
		}
		r := run(t, url, "executors", "--json")
		if json.Unmarshal([]byte(r.out), &list) != nil || len(list) == 0 {
			return false
		}
		for _, e := range list {
			if e.InFlight != 0 {
				return false
			}
		}
		return true
	})
}

// One of two executors is killed with a turn in its hands. Its client is told in time, and that nobody knows what ran; the
// turns of the other go on.
func TestExecutorKilledInTurn(t *testing.T) {
	url := natstest.URL(t)
	b := newBench(t)
	b.worker(url, "w1", b.manifest("pause", tool.Write), "--concurrency", "16")
	executors := map[string]*process{}
	for range 2 {
		p := serve(t, url)
		executors[idOf(p)] = p
	}
	c := newCaller(t, url)
	shots := make([]*shot, 6)
	by := make([]chan string, len(shots)) // the executor that has it
	when := make([]time.Time, len(shots))
	var callers sync.WaitGroup
	for i := range shots {
		x := &shot{req: wire.TurnRequest{ID: fmt.Sprintf("t%d", i), Calls: []tool.Call{
			{ID: "c1", Tool: "pause", Args: []byte(`{"seconds":1}`)},
			{ID: "c2", Tool: "pause", Args: []byte(`{"seconds":1}`), After: []string{"c1"}},
		}}}
		shots[i], by[i] = x, make(chan string, 1)
		callers.Go(func() {
			x.out, x.err = c.c.Stream(context.Background(), x.req, func(ev *wire.Event) {
				if ev.Type == wire.TurnStarted {
					by[i] <- ev.Executor
				}
			})
			when[i] = time.Now()
		})
	}
	b.await("start", len(shots))
	ids := make([]string, len(shots))
	for i := range by {
		ids[i] = <-by[i]
	}
	victim := ids[0]
	killed := executors[victim].kill()
	callers.Wait()
	for i, x := range shots {
		switch {
		case ids[i] != victim:
			if x.err != nil || x.out.Status != wire.Completed {
				t.Errorf("%s of the other executor: %+v, %v, want it completed", x.req.ID, x.out, x.err)
			}
		case x.err == nil || fault.Of(x.err).Kind != fault.WorkerLost || fault.Of(x.err).Run() != fault.Unknown:
			t.Errorf("%s: %+v, %v, want worker_lost, and that what ran is unknown", x.req.ID, x.out, x.err)
		case when[i].Sub(killed) > client.Silence+500*time.Millisecond:
			t.Errorf("%s: its client was told after %v, want %v", x.req.ID, when[i].Sub(killed), client.Silence)
		default:
			t.Logf("%s: its client was told after %v", x.req.ID, when[i].Sub(killed))
		}
	}
	for of, n := range b.starts() {
		if n != 1 {
			t.Errorf("the write %s was started %d times", of, n)
		}
	}
	inFlightIsNone(t, url)
}

// The NATS server dies with a turn under way and comes back. The turn has one end, nothing of it runs twice, and what waits
// for its inputs finds its worker again.
func TestServerRestartsInTurn(t *testing.T) {
	dir, port := t.TempDir(), natstest.FreePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	server := natsServer(t, dir, port)
	b := newBench(t)
	w := b.worker(url, "w1", b.manifest("pause", tool.Write, quickBreaker), "--concurrency", "4")
	ex := serve(t, url)
	c := newCaller(t, url)
	x := &shot{req: wire.TurnRequest{ID: "flying", Calls: []tool.Call{
		{ID: "c1", Tool: "pause", Args: []byte(`{"seconds":3}`)}, // it ends when the server is back
		{ID: "c2", Tool: "pause", Args: []byte(`{"seconds":0.3}`), Default: []byte("0")},
		{ID: "c3", Tool: "pause", Args: []byte(`{"seconds":0.1}`), After: []string{"c1", "c2"}, Join: tool.JoinAvailable},
	}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.out, x.err = c.c.Run(context.Background(), x.req)
	}()
	b.await("start", 2)
	server.kill()
	<-server.over
	b.await("end", 1)
	server = natsServer(t, dir, port)
	until(t, "calls work again", patience, func() bool { return c.call("", "pause", 0).ok() })
	<-done
	if x.out == nil {
		t.Logf("its client was told: %v", x.err)
		if fault.Of(x.err).Kind != fault.WorkerLost {
			t.Errorf("%v, want an outcome, or that what ran is unknown", x.err)
		}
	} else {
		t.Logf("%s: %s", x.out.Status, x.out.Sentence)
		x.holds(t, b.lines(""))
		if got := x.out.Results[2]; got.Status != tool.Success {
			t.Errorf("what came after is %+v, want a success", got)
		}
	}
	for of, n := range b.starts() {
		if n != 1 {
			t.Errorf("the write %s was started %d times", of, n)
		}
	}
	inFlightIsNone(t, url)
	for _, p := range []*process{ex, w, server} {
		p.stop(syscall.SIGTERM, cli.ExitOK)
	}
}
