package turn

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// randomTool is one of a few tools with all that a manifest can say.
func randomTool(t *rapid.T, name string) *Tool {
	p := calm(nil)
	p.MaxAttempts = rapid.IntRange(1, 4).Draw(t, "attempts")
	p.JitterPercent = float64(rapid.SampledFrom([]int{0, 10}).Draw(t, "jitter"))
	p.Initial = time.Duration(rapid.IntRange(0, 3).Draw(t, "initial")) * 50 * time.Millisecond
	tl := &Tool{
		Name: name, Policy: p, Timeout: time.Duration(rapid.IntRange(1, 5).Draw(t, "timeout")) * time.Second,
		Effect:    rapid.SampledFrom([]tool.Effect{tool.Undeclared, tool.Read, tool.Idempotent, tool.Write}).Draw(t, "effect"),
		KeepsKeys: rapid.Bool().Draw(t, "keys"),
		Optional:  rapid.IntRange(0, 4).Draw(t, "optional") == 0,
	}
	if rapid.IntRange(0, 3).Draw(t, "idle") == 0 {
		tl.Idle = 700 * time.Millisecond
	}
	if rapid.IntRange(0, 4).Draw(t, "default") == 0 {
		tl.Default = []byte(`{"x":"default"}`)
	}
	if rapid.IntRange(0, 2).Draw(t, "fallback") == 0 {
		tl.Alternatives, tl.FallbackOn = []string{"t1", "t2"}, []string{tool.AnyPermanent}
	}
	return tl
}

// randomCall is a call that may wait for some of the first n calls.
func randomCall(t *rapid.T, n int) tool.Call {
	c := tool.Call{ID: fmt.Sprintf("c%d", n+1), Tool: rapid.SampledFrom([]string{"t0", "t1", "t2", "t3"}).Draw(t, "tool")}
	one := func(what string, of int) bool { return rapid.IntRange(1, of).Draw(t, what) == of }
	for i := range n {
		if one("after", 3) {
			c.After = append(c.After, fmt.Sprintf("c%d", i+1))
		}
	}
	if k := len(c.After); k > 0 {
		c.Join = rapid.SampledFrom([]tool.Join{"", tool.JoinAll, tool.JoinAny, tool.JoinAvailable, tool.Join(fmt.Sprint((k + 1) / 2))}).Draw(t, "join")
		otherwise := rapid.SampledFrom([]string{``, `,"default":1`}).Draw(t, "otherwise")
		if one("refers", 2) {
			c.Args = fmt.Appendf(nil, `{"in":{"$from":"%s","pointer":"/x"%s}}`, c.After[0], otherwise)
		}
	}
	if c.Join == tool.JoinAvailable && one("by", 2) {
		c.JoinByMs = int64(rapid.IntRange(1, 5000).Draw(t, "join_by"))
	}
	c.Optional = one("optional", 4)
	if one("default", 5) {
		c.Default = []byte(`{"x":"mine"}`)
	}
	if one("alternatives", 4) {
		for range rapid.IntRange(0, 3).Draw(t, "chain") {
			c.Alternatives = append(c.Alternatives, tool.Alternative{Tool: "t3", Args: rapid.SampledFrom([][]byte{nil, []byte(`{"y":{"$arg":"/in","default":0}}`)}).Draw(t, "mapped")})
		}
	}
	if one("timeout", 5) {
		c.TimeoutMs = 400
	}
	return c
}

// randomWorld is a turn and all that will happen to it.
func randomWorld(t *rapid.T) *world {
	tools := map[string]*Tool{}
	for _, name := range []string{"t0", "t1", "t2", "t3"} {
		tools[name] = randomTool(t, name)
	}
	req := &wire.TurnRequest{
		ID: "t", Open: rapid.Bool().Draw(t, "open"),
		Parallel: rapid.IntRange(0, 3).Draw(t, "parallel"), ToolParallel: rapid.IntRange(0, 2).Draw(t, "tool_parallel"),
		DeadlineMs:   rapid.SampledFrom([]int64{0, 800, 3000, 8000, 60_000}).Draw(t, "deadline"),
		DeadlineMode: rapid.SampledFrom([]string{"", wire.DeadlineSoft, wire.DeadlineHard}).Draw(t, "mode"),
		OnFailure:    rapid.SampledFrom([]string{"", "", wire.FailureStop}).Draw(t, "on_failure"),
	}
	n := rapid.IntRange(1, 7).Draw(t, "calls")
	if req.Open {
		n--
	}
	for i := range n {
		req.Calls = append(req.Calls, randomCall(t, i))
	}
	w := &world{
		failf: t.Fatalf, seed: rapid.Uint64().Draw(t, "seed"),
		cfg: Config{Request: req, Grace: worldGrace, Recorded: true, Tools: func(name string) *Tool { return tools[name] }},
	}
	at := func() time.Duration {
		return time.Duration(rapid.IntRange(0, 8000).Draw(t, "at")) * time.Millisecond
	}
	total := n
	if req.Open {
		var when []time.Duration
		for range rapid.IntRange(0, 3).Draw(t, "adds") {
			when = append(when, at())
		}
		slices.Sort(when)
		for _, at := range when {
			w.deliver(delivery{at: at, calls: []tool.Call{randomCall(t, total)}})
			total++
		}
		w.deliver(delivery{at: 8 * time.Second, ev: Event{Kind: Close}})
	}
	for range rapid.IntRange(0, 2).Draw(t, "cancels") {
		w.deliver(delivery{at: at(), ev: Event{Kind: CancelCall, Call: rapid.IntRange(0, total).Draw(t, "cancel")}})
	}
	if rapid.IntRange(0, 5).Draw(t, "cancel_turn") == 0 {
		w.deliver(delivery{at: at(), ev: Event{Kind: rapid.SampledFrom([]EventKind{CancelTurn, ClientLost}).Draw(t, "by")}})
	}
	for range rapid.IntRange(0, 4).Draw(t, "noise") {
		w.deliver(delivery{at: at(), ev: Event{
			Kind: EventKind(rapid.SampledFrom([]EventKind{0, Accepted, Pieced, Succeeded, Failed, Judged, Limited, Due, 77}).Draw(t, "kind")),
			Call: rapid.IntRange(-1, total+1).Draw(t, "call"), Attempt: rapid.SampledFrom([]int{-1, 0, 99}).Draw(t, "attempt"),
			Fault: fault.New(fault.Internal, "noise"),
		}})
	}
	return w
}

// Whatever happens, a turn ends as it must: see checker for what is looked at on the way.
func TestRandomTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.limits = true
		defer func() {
			if t.Failed() {
				for _, ev := range w.journal {
					t.Log(encoded(t, ev))
				}
			}
		}()
		w.start()
		w.play()
		ends(w)
		folds(t, w)
	})
}

// ends holds of a world in which nothing can happen any more.
func ends(w *world) {
	c, deadline := &w.check, w.turn.deadline
	switch {
	case c.finished != 1 || (c.over != 1 && len(w.steps) > 0):
		w.failf("Finish came %d times and Over %d times, want once each", c.finished, c.over)
	case c.cancelled && deadline != never:
		deadline = max(deadline, w.since) + worldGrace // it waits for those that it stopped
	}
	if c.at > deadline {
		w.failf("Finish at %v, the deadline is at %v", c.at, deadline)
	}
	for id, x := range c.calls {
		if x.result == nil {
			w.failf("%s is not settled in the journal", id)
		}
	}
}

// folds holds of the journal of a whole turn, in both codecs: the turn that is restored from it is over, and its outcome is
// the one that there was.
func folds(t *rapid.T, w *world) {
	for _, codec := range []string{wire.JSON, wire.MsgPack} {
		journal := make([]wire.Event, len(w.journal))
		for i := range w.journal {
			b, err := wire.Marshal(codec, &w.journal[i])
			if err != nil {
				t.Fatalf("event %d: %v", i+1, err)
			}
			if err := wire.Unmarshal(codec, b, &journal[i]); err != nil {
				t.Fatalf("event %d: %v", i+1, err)
			}
		}
		back, err := Restore(w.cfg, start, journal)
		if err != nil {
			t.Fatalf("Restore of the journal as %s: %v", codec, err)
		}
		if got, want := encoded(t, back.Outcome()), encoded(t, w.turn.Outcome()); got != want {
			t.Fatalf("the outcome of the journal as %s is\n%s\nwant\n%s", codec, got, want)
		}
		if wake := back.Wake(); !back.over || !wake.IsZero() {
			t.Fatalf("restored as a whole it is over: %v, and wants to be woken at %v", back.over, wake)
		}
	}
}

// A turn that is restored from any part of its journal ends as it would have ended.
func TestRandomRestores(t *testing.T) {
	compared, all := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := randomWorld(t)
		w.start()
		w.play()
		want := encoded(t, w.turn.Outcome())
		for n := 1; n < len(w.journal); n++ {
			back, same := w.restored(n)
			back.failf = func(format string, args ...any) {
				t.Fatalf("restored from %d events of %d: %s", n, len(w.journal), fmt.Sprintf(format, args...))
			}
			back.play()
			ends(back)
			all++
			if !same {
				continue
			}
			compared++
			if got := encoded(t, back.turn.Outcome()); got != want {
				t.Fatalf("restored from %d events of %d it ends with\n%s\nwant\n%s", n, len(w.journal), got, want)
			}
		}
	})
	if compared < all/2 {
		t.Errorf("only %d of %d restored turns could be compared", compared, all)
	}
}
