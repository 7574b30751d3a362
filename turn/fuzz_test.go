package turn

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// FuzzRestore garbles journals: Restore says what cannot be, and no event makes what it restored panic or run for ever.
func FuzzRestore(f *testing.F) {
	good := someJournal(f)
	page, err := wire.Marshal(wire.JSON, &wire.Page{V: 1, Turn: "t", Events: good})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page)
	f.Add([]byte{})
	for at := range byte(len(good)) {
		f.Add([]byte{15, 0, 0, 0, 14, at, 0, 0})
	}
	for op := range byte(16) {
		for at := range byte(len(good)) {
			f.Add([]byte{op, at, at / 2, op})
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var journal []wire.Event
		if len(data) > 0 && data[0] == '{' {
			var p wire.Page
			if wire.Unmarshal(wire.JSON, data, &p) != nil {
				return
			}
			journal = p.Events
		} else {
			journal = garbled(good, data)
		}
		turn, err := Restore(Config{Grace: time.Second, Recorded: true}, start, journal)
		if err == nil {
			torment(t, turn, data)
		}
	})
}

// someJournal is that of a turn in which much happens.
func someJournal(t testing.TB) []wire.Event {
	w := &world{
		failf: t.Fatalf, seed: 7,
		cfg: Config{Grace: worldGrace, Recorded: true, Request: &wire.TurnRequest{
			ID: "t", Open: true, DeadlineMs: 4000, Parallel: 3,
			Calls: []tool.Call{
				{ID: "c1", Tool: "a", Effect: tool.Read, TimeoutMs: 900, Alternatives: []tool.Alternative{{Tool: "b"}}},
				{ID: "c2", Tool: "b", After: []string{"c1"}, Default: []byte(`1`)},
				{ID: "c3", Tool: "a"},
				{ID: "c4", Tool: "c", After: []string{"c1", "c3"}, Join: tool.JoinAvailable, JoinByMs: 500},
			},
		}},
	}
	w.deliver(delivery{at: 100 * time.Millisecond, calls: []tool.Call{{ID: "c5", Tool: "d", After: []string{"c4"}, Optional: true}}})
	w.deliver(delivery{at: 700 * time.Millisecond, ev: Event{Kind: CancelCall, Call: 2}})
	w.start()
	w.play()
	return w.journal
}

// garbled is a journal after some mishaps, each of four bytes: what, to which event, and how.
func garbled(good []wire.Event, data []byte) []wire.Event {
	js := slices.Clone(good)
	for ; len(data) >= 4 && len(js) > 0; data = data[4:] {
		i, n := int(data[1])%len(js), int(data[2])
		ev, odd := &js[i], []float64{math.NaN(), math.Inf(1), -1, 1e300, 0, float64(n) * 100}[int(data[3])%6]
		other := js[n%len(js)]
		switch data[0] % 16 {
		case 0:
			js = slices.Delete(js, i, i+1)
		case 1:
			js = slices.Insert(js, i, other)
		case 2:
			js = js[:i+1]
		case 3:
			ev.Type = other.Type
		case 4:
			ev.Call = other.Call
		case 5:
			ev.Attempt = n - 3
		case 6:
			ev.AtMs = odd
		case 7:
			ev.DelayMs = odd
		case 8:
			ev.TimeoutMs = odd
		case 9:
			ev.Result = other.Result
		case 10:
			ev.Error = other.Error
		case 11:
			ev.Decision = []string{"retry", "alternative", "use_default", "accept_partial", "", "dance"}[n%6]
		case 12:
			ev.Request = other.Request
		case 13:
			ev.Result = &tool.Result{Status: tool.Status([]string{"", "success", "partial", "skipped"}[n%4])}
		case 14:
			if ev.Result != nil {
				res := *ev.Result
				res.Fault = nil
				ev.Result = &res
			}
		case 15:
			if ev.Request != nil {
				req := *ev.Request
				req.DeadlineMode, req.OnFailure = wire.DeadlineHard, wire.FailureStop
				ev.Request = &req
			}
		}
	}
	return js
}

// torment brings a turn whatever can come, and then lets it end.
func torment(t *testing.T, turn *Turn, data []byte) {
	now := start
	var out []Effect
	judge := func() {
		for i := 0; i < len(out); i++ {
			if out[i].Kind == Ended && out[i].Verdict != nil {
				out = turn.Step(out, now, Event{Kind: Judged, Call: out[i].Call, Budget: true})
			}
		}
		out = out[:0]
	}
	for i, b := range data[:min(len(data), 400)] {
		now = now.Add(time.Duration(int8(b)) * 50 * time.Millisecond) // and back
		ev := Event{Kind: EventKind(b % 14), Call: i%9 - 1, Attempt: int(b>>4) - 1, Value: []byte{b}, Timeout: time.Duration(b)}
		if b&1 == 1 {
			ev.Fault = fault.New(fault.Upstream, "it broke")
		}
		out = turn.Step(out, now, ev)
		if b == 200 {
			out, _ = turn.Add(out, now, []tool.Call{{Tool: "x"}})
		}
		judge()
	}
	out = turn.Step(out, now, Event{Kind: Close})
	judge()
	for n := 0; ; n++ {
		wake := turn.Wake()
		if wake.IsZero() {
			break
		}
		if n > 10_000 {
			t.Fatalf("it wants to be woken for ever")
		}
		if wake.After(now) {
			now = wake
		}
		out = turn.Step(out, now, Event{Kind: Due})
		judge()
	}
	if !turn.Ended() {
		t.Fatalf("it does not end: %d calls are left", turn.left)
	}
}
