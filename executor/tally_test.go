package executor

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/toolbus/toolbus/turn"
)

// The fifty with the most to tell are told of: those that were busy since the last time first, however much others did
// long ago.
func TestTellsOfTheBusiest(t *testing.T) {
	e := &Executor{gates: new(gates)}
	for i := range 60 {
		s := &toolState{name: fmt.Sprintf("t%02d", i)}
		s.tally.attempts.Store(int64(1000 - i))
		e.tools.Store(s.name, s)
	}
	e.tools.Store("idle", &toolState{name: "idle"})
	var p Presence
	e.tell(time.Now(), &p)
	if len(p.Tools) != maxTallies || p.MoreTools != 10 || p.Tools[0].Tool != "t00" || p.Tools[49].Tool != "t49" {
		t.Fatalf("first: %d tools, %d more, from %v to %v; want 50, 10, t00, t49", len(p.Tools), p.MoreTools, p.Tools[0], p.Tools[len(p.Tools)-1])
	}
	v, _ := e.tools.Load("t59")
	c := &v.(*toolState).tally
	c.out.Add(3)
	c.ended(true, true, 1500*time.Microsecond)
	c.ended(false, true, time.Second)
	c.ended(false, false, time.Second) // its turn was cancelled before it was sent
	p = Presence{}
	e.tell(time.Now(), &p)
	if want := (ToolTally{Tool: "t59", Attempts: 942, Errors: 1, Refused: 1, TookMs: 1.5}); p.Tools[0] != want {
		t.Errorf("then: %+v, want %+v", p.Tools[0], want)
	}
}

// The largest Presence there can be is one that listeners read.
func TestPresenceIsBounded(t *testing.T) {
	p := Presence{Executor: long(64), InFlight: 1e9, Turns: 1e9, Breakers: SharedBreakers, MoreTools: maxTools}
	for range maxTallies {
		p.Tools = append(p.Tools, ToolTally{Tool: long(64), InFlight: 1e9, Attempts: 1 << 62, Errors: 1 << 62, Refused: 1 << 62, TookMs: 1e15 / 7, Breaker: "forced-closed"})
	}
	b, err := json.Marshal(p)
	if err != nil || len(b) > MaxPresence {
		t.Errorf("a presence of %d bytes, %v; want at most %d", len(b), err, MaxPresence)
	}
}

func TestToCountCostsNothing(t *testing.T) {
	a := &attempt{ready: &ready{state: new(toolState)}, out: true}
	do := new(turn.Effect)
	if n := testing.AllocsPerRun(1000, func() { a.count(do, time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations to count an attempt, want 0", n)
	}
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'x'
	}
	return string(b)
}
