//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/client"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/kvstate"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// A field is programs on servers, each at one of them: workers and clients at all, executors at some. So turns cross
// servers, and some clients have no executor of their own.
type field struct {
	t       *testing.T
	hands   *hands
	ready   []string // where each executor says how it is
	callers []*caller
	spies   []*spy

	over  atomic.Bool
	parts sync.WaitGroup
	did   map[string]int // trouble, by kind

	mu   sync.Mutex
	all  []*shot
	kept map[string]int // turns that were read from the journal, whole, with how many events each has
	slow time.Duration  // the longest wait beyond a turn's deadline
}

// newField starts a worker and a client at each server, and executors at the first of them.
func newField(t *testing.T, executors int, urls ...string) *field {
	t.Helper()
	f := &field{t: t, hands: &hands{}, kept: map[string]int{}, did: map[string]int{}}
	for i, url := range urls {
		f.hands.work(t, url, fmt.Sprint("w", i+1))
	}
	for _, url := range urls[:executors] {
		port := natstest.FreePort(t)
		begin(t, nil, url, "serve", "--metrics-addr", fmt.Sprint("127.0.0.1:", port)).says("executor is ready")
		f.ready = append(f.ready, fmt.Sprintf("http://127.0.0.1:%d/readyz", port))
	}
	for i, url := range urls {
		f.callers = append(f.callers, newCaller(t, url))
		f.spies = append(f.spies, newSpy(t, f.callers[i].conn))
	}
	return f
}

// shoot has n turns under way from each client until over.
func (f *field) shoot(seed uint64, n int) {
	for who := range f.callers {
		for k := range n {
			g := who*n + k
			rng := rand.New(rand.NewPCG(seed, uint64(g+1)))
			f.parts.Go(func() {
				for i := 0; !f.over.Load(); i++ {
					f.turn(who, clusterPlan(rng, fmt.Sprintf("turn-%d-%d", g, i)))
				}
			})
		}
	}
}

// clusterPlan is a randomPlan in which some reads fail at first, and some calls go on after the deadline.
func clusterPlan(rng *rand.Rand, id string) wire.TurnRequest {
	req := randomPlan(rng, id)
	for i := range req.Calls[:3] {
		switch rng.IntN(8) {
		case 0:
			req.Calls[i].Args = []byte(`{"seconds":0.02,"fails":1}`)
		case 1:
			req.DeadlineMs = 500
			req.Calls[i].Args = fmt.Appendf(nil, `{"seconds":%g}`, 0.8+rng.Float64())
		}
	}
	return req
}

// turn runs a turn to its end, from one of the clients.
func (f *field) turn(who int, req wire.TurnRequest) *shot {
	x := &shot{req: req, who: who}
	began := time.Now()
	x.out, x.err = f.callers[who].c.Run(context.Background(), req)
	beyond := time.Since(began) - time.Duration(req.DeadlineMs)*time.Millisecond
	f.mu.Lock()
	f.all = append(f.all, x)
	f.slow = max(f.slow, beyond)
	f.mu.Unlock()
	if x.out == nil {
		nap := time.NewTimer(20 * time.Millisecond) // a client without a server is refused at once
		<-nap.C
	}
	return x
}

// probe is a turn of two calls and one that goes on after it.
func probe(id string) wire.TurnRequest {
	return wire.TurnRequest{ID: id, DeadlineMs: 800, Calls: []tool.Call{
		{ID: "a", Tool: "read", Args: []byte(`{"seconds":0.01}`)},
		{ID: "b", Tool: "write", Args: []byte(`{"seconds":0.01}`), After: []string{"a"}},
		{ID: "slow", Tool: "write", Args: []byte(`{"seconds":1.2}`)},
	}}
}

// goesOn waits until a probe of every client is answered, journalled, and has its late result kept, and every executor
// says that it is well.
func (f *field) goesOn(what string) {
	f.t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for who := range f.callers {
		all.Go(func() {
			n := 0
			if !eventually(f.t.Context(), time.Minute, func() bool {
				n++
				return f.proved(f.turn(who, probe(fmt.Sprintf("%s-%d-%d", what, who+1, n))))
			}) {
				f.t.Errorf("%s: none of %d turns of client %d had all that it should have", what, n, who+1)
			}
		})
	}
	for _, url := range f.ready {
		all.Go(func() {
			var said string
			if !eventually(f.t.Context(), time.Minute, func() bool { said = fetch(url); return strings.HasPrefix(said, "ready\n") }) {
				f.t.Errorf("%s: an executor still says %q", what, said)
			}
		})
	}
	all.Wait()
	if f.t.Failed() {
		f.t.FailNow()
	}
	f.t.Logf("%s: all is well after %v", what, time.Since(began).Round(time.Millisecond))
}

// proved says whether a probe had all that it should have, and notes that it was seen.
func (f *field) proved(x *shot) bool {
	if x.out == nil || x.out.Results[1].Status != tool.Success || len(x.out.Running) != 1 {
		return false
	}
	return eventually(f.t.Context(), 3*time.Second, func() bool {
		ctx, c := f.t.Context(), f.callers[x.who].c
		if rec, err := c.Late(ctx, x.req.ID, "slow"); err != nil || rec.Result.Status != tool.Success {
			return false
		}
		events, _ := c.Trace(ctx, x.req.ID)
		if !whole(events) || events[len(events)-1].Type != wire.LateResult {
			return false
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.kept[x.req.ID] = len(events)
		return true
	})
}

func fetch(url string) string {
	c := http.Client{Timeout: 5 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// whole says that a journal has every event of a turn up to its end.
func whole(events []wire.Event) bool {
	end := false
	for i, ev := range events {
		if ev.Seq != int64(i+1) {
			return false
		}
		end = end || ev.Type == wire.TurnEnded
	}
	return end
}

// What must hold of every turn on a cluster whose servers are killed, cut off and paused, whoever leads its streams:
//
//	its client has one outcome, or is told within a bound that what ran is unknown, which it then is
//	one result for each call, in order; a write is started at most once
//	what was read from its journal, or was kept of it, is still there
//	what its journal has is in order, and ends once, with the outcome that its client had
//	what goes on after the outcome is kept, once the servers are back
//	nothing is left in flight, and executors are well again by themselves
//
// TOOLBUS_LONG=5m goes on for five minutes. TOOLBUS_E2E_SEED takes the seed that a run printed.
func TestTurnsOnATroubledCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a cluster that loses its leader takes its time")
	}
	seed := seeded(t)
	c := newCluster(t)
	f := newField(t, 2, c.nodes[0].url, c.nodes[1].url, c.nodes[2].url)
	f.goesOn("start")
	f.shoot(seed, 6)
	leader := func() (n *node) {
		until(t, "the journal has a leader", time.Minute, func() bool { n = c.leader(f.callers[0].conn, "TB_LOG"); return n != nil })
		return n
	}
	trouble := func(kind string, n *node, span time.Duration) {
		f.did[kind]++
		c.trouble(kind, n, span)
	}
	trouble("kill", leader(), time.Second)
	if long() > 0 {
		f.goesOn("kill")
	}
	trouble("partition", c.nodes[0], 6*time.Second) // with an executor, and for longer than an executor may be silent
	f.goesOn("partition")
	rng := rand.New(rand.NewPCG(seed, 0))
	for end := time.Now().Add(long()); time.Now().Before(end); {
		n := leader()
		if rng.IntN(2) == 0 {
			n = c.nodes[rng.IntN(3)]
		}
		kind := []string{"kill", "partition", "pause"}[rng.IntN(3)]
		trouble(kind, n, time.Duration(500+rng.IntN(12_000))*time.Millisecond)
		f.goesOn(fmt.Sprintf("%s-%d", kind, f.did[kind]))
	}
	f.over.Store(true)
	f.parts.Wait()
	inFlightIsNone(t, c.urls())
	f.check()
}

// Executors that start while JetStream is away take turns at once, and have all that needs it when it comes: journals,
// late results, shared breakers, manifests that outlast their workers.
func TestJetStreamComesLater(t *testing.T) {
	t.Parallel()
	for name, lay := range map[string]func(*testing.T) (url string, comes func()){
		"a server without JetStream": func(t *testing.T) (string, func()) {
			dir, port := t.TempDir(), natstest.FreePort(t)
			n := &node{name: "n", file: filepath.Join(dir, "n.conf"), url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
			configure := func(more string) {
				conf := fmt.Sprintf("listen: \"127.0.0.1:%d\"\n%s", port, more)
				if err := os.WriteFile(n.file, []byte(conf), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			configure("")
			n.start(t)
			return n.url, func() {
				n.kill()
				configure(fmt.Sprintf("jetstream { store_dir: %q }\n", dir))
				n.start(t)
			}
		},
		"one server of three": func(t *testing.T) (string, func()) {
			c := layCluster(t)
			c.nodes[0].start(t)
			return c.nodes[0].url, func() {
				c.nodes[1].start(t)
				c.nodes[2].start(t)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, comes := lay(t)
			began := time.Now()
			f := newField(t, 1, url)
			t.Logf("the executor was ready after %v", time.Since(began).Round(time.Millisecond))
			x := f.turn(0, probe("without"))
			if x.out == nil || x.out.Results[1].Status != tool.Success {
				t.Errorf("without JetStream: %+v, %v, want results", x.out, x.err)
			}
			if said := fetch(f.ready[0]); !strings.HasPrefix(said, "ready, degraded\n") {
				t.Errorf("without JetStream: /readyz says %q, want that it is degraded", said)
			}
			comes()
			f.goesOn("with")
			until(t, "breakers are shared", patience, func() bool {
				return strings.Contains(run(t, url, "executors", "--json").out, `"breakers": "shared"`)
			})
			until(t, "manifests are kept", patience, func() bool {
				b, err := kvstate.Open(t.Context(), f.callers[0].conn, kvstate.Config{Bucket: "TB_TOOLS"})
				if err != nil {
					return false
				}
				all, err := b.All(t.Context())
				return err == nil && len(all) == 2
			})
			inFlightIsNone(t, url)
		})
	}
}

// check looks at every turn.
func (f *field) check() {
	lines := map[string][]line{} // by turn
	for _, l := range f.hands.lines() {
		of, _, _ := strings.Cut(l.call, "/")
		lines[of] = append(lines[of], l)
	}
	how := map[string]int{}
	next := make(chan *shot)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for x := range next {
				said := f.look(x, lines[x.req.ID])
				f.mu.Lock()
				for _, what := range said {
					how[what]++
				}
				f.mu.Unlock()
			}
		})
	}
	for _, x := range f.all {
		next <- x
	}
	close(next)
	all.Wait()
	f.t.Logf("%d turns, %v: %v; the longest wait beyond a deadline was %v", len(f.all), f.did, how, f.slow.Round(time.Millisecond))
	if most := client.Silence + 10*time.Second; f.slow > most {
		f.t.Errorf("a client waited %v beyond its deadline, want at most %v", f.slow, most)
	}
	if how[wire.Completed] < 50 || how["late"] == 0 || how["whole journals"] < 50 {
		f.t.Error("that was not much of a test")
	}
}

// look checks one turn, of which these lines are, and says how it was.
func (f *field) look(x *shot, lines []line) (how []string) {
	caller := f.callers[x.who]
	if n := f.spies[x.who].ended(x.req.ID); n > 1 || n == 0 && x.out != nil {
		f.t.Errorf("%s ended %d times for its client, want once", x.req.ID, n)
	}
	var events []wire.Event
	var err error
	if !eventually(f.t.Context(), patience, func() bool {
		events, err = caller.c.Trace(f.t.Context(), x.req.ID)
		return err == nil || errors.Is(err, &fault.Fault{Kind: fault.NotFound})
	}) {
		f.t.Errorf("%s: its journal cannot be read: %v", x.req.ID, err)
	}
	x.journalHolds(f.t, events)
	if want, ok := f.kept[x.req.ID]; ok && (len(events) != want || !whole(events)) {
		f.t.Errorf("%s: its journal had %d events and has %d", x.req.ID, want, len(events))
	}
	if x.out == nil {
		return []string{"client: " + x.honest(f.t, lines)}
	}
	how = append(how, x.out.Status)
	if whole(events) {
		how = append(how, "whole journals")
	}
	x.holds(f.t, lines)
	for _, r := range x.out.Results {
		if r.Fault != nil {
			how = append(how, string(r.Fault.Kind))
		}
	}
	for _, id := range x.out.Running {
		how = append(how, "late")
		if !eventually(f.t.Context(), patience, func() bool { _, err = caller.c.Late(f.t.Context(), x.req.ID, id); return err == nil }) {
			f.t.Errorf("%s: Late(%s): %v, want what it came to", x.req.ID, id, err)
		}
	}
	return how
}

// journalHolds checks that a journal is in order, ends once, and as the client was told.
func (x *shot) journalHolds(t *testing.T, events []wire.Event) {
	var last int64
	var end *wire.Outcome
	for _, ev := range events {
		if ev.Turn != x.req.ID || ev.Seq <= last || end != nil && ev.Type != wire.LateResult {
			t.Errorf("%s: its journal has %s %s number %d after %d", x.req.ID, ev.Turn, ev.Type, ev.Seq, last)
		}
		last = ev.Seq
		if ev.Type == wire.TurnEnded {
			end = ev.Outcome
		}
	}
	if end != nil && x.out != nil && end.Status != x.out.Status {
		t.Errorf("%s: its journal ends with %s, and its client was told %s", x.req.ID, end.Status, x.out.Status)
	}
}

// honest checks that a client without an outcome was told the truth, and is what it was told.
func (x *shot) honest(t *testing.T, lines []line) string {
	f := fault.Of(x.err)
	started := 0
	writes := map[string]int{}
	for _, l := range lines {
		if l.what == "start" {
			started++
			if l.tool == "write" {
				writes[l.call]++
			}
		}
	}
	for call, n := range writes {
		if n > 1 {
			t.Errorf("the write %s was started %d times", call, n)
		}
	}
	switch {
	case f.Run() == fault.NotStarted && started > 0:
		t.Errorf("%s: its client was told that nothing ran (%v), and %d calls were started", x.req.ID, f, started)
	case f.Kind != fault.WorkerLost && f.Kind != fault.Unavailable:
		t.Errorf("%s: its client was told %v, want unavailable or that what ran is unknown", x.req.ID, f)
	}
	return fmt.Sprintf("%s, %s", f.Kind, f.Run())
}
