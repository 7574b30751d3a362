package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func benched(b *testing.B) *Journal {
	j := New(Config{Bus: natstest.Connect(b, natstest.InProcess(b)), Memory: true, FlushEvery: time.Hour})
	b.Cleanup(func() {
		if err := j.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	if err := j.Ensure(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	return j
}

// drain sends all that waits.
func (j *Journal) drain() {
	for held := 1; held > 0; {
		j.mu.Lock()
		j.ripen()
		held = j.held
		j.mu.Unlock()
		j.wake()
		runtime.Gosched()
	}
}

// life is the journal of a turn of ten calls, which all go well.
func life(turn string) []wire.Event {
	event := func(kind string) wire.Event {
		return wire.Event{V: 1, Type: kind, Turn: turn, Seq: 1, AtMs: 1.5, Time: "2026-01-02T03:04:05.678Z"}
	}
	started, ended := event(wire.TurnStarted), event(wire.TurnEnded)
	started.Request, ended.Outcome = &wire.TurnRequest{ID: turn}, &wire.Outcome{Turn: turn, Status: wire.Completed}
	all := []wire.Event{started}
	for i := range 10 {
		id := fmt.Sprintf("call-%d", i)
		result := &tool.Result{Call: id, Tool: "noop", Status: tool.Success, Value: json.RawMessage(`{"ok":true}`)}
		all[0].Request.Calls = append(all[0].Request.Calls, tool.Call{ID: id, Tool: "noop", Args: json.RawMessage(`{"city":"Oslo"}`)})
		ended.Outcome.Results = append(ended.Outcome.Results, *result)
		for _, kind := range []string{wire.CallReady, wire.AttemptStarted, wire.CallSettled} {
			ev := event(kind)
			ev.Call, ev.Tool = id, "noop"
			if kind == wire.CallSettled {
				ev.Result = result
			}
			all = append(all, ev)
		}
	}
	return append(all, ended)
}

// What writing costs the one who writes.
func BenchmarkWrite(b *testing.B) {
	events := life("t")
	for _, ev := range events[len(events)-3:] {
		b.Run(ev.Type, func(b *testing.B) {
			j := benched(b)
			for n := 1; b.Loop(); n++ {
				j.Write(&ev)
				if n%32 == 0 { // as many as a turn of ten calls has
					b.StopTimer()
					j.drain()
					b.StartTimer()
				}
			}
			if n := j.Dropped(); n > 0 {
				b.Errorf("Dropped = %d, want 0", n)
			}
		})
	}
}

// What encoding and sending a turn of ten calls costs, on the journal's own goroutine.
func BenchmarkSend(b *testing.B) {
	j := benched(b)
	events := life("t")
	for i := range events {
		leaveOut(&events[i])
	}
	for b.Loop() {
		j.send("t", events)
	}
}
