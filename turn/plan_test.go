package turn

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// chain is n calls, each of which waits for the one before.
func chain(n int) []tool.Call {
	calls := make([]tool.Call, n)
	for i := range calls {
		calls[i] = tool.Call{ID: fmt.Sprintf("c%d", i+1), Tool: "x"}
		if i > 0 {
			calls[i].After = []string{calls[i-1].ID}
		}
	}
	return calls
}

func TestPlanLimits(t *testing.T) {
	wide := make([]tool.Call, wire.MaxCalls+1)
	for i := range wide {
		wide[i].Tool = "x"
	}
	lost := make([]tool.Call, 200)
	for i := range lost {
		lost[i] = tool.Call{Tool: "x", After: []string{"nobody"}}
	}
	dear := make([]tool.Call, wire.MaxCalls) // a minute, where a guess is made for each
	for i := range dear {
		dear[i] = tool.Call{ID: fmt.Sprintf("a-rather-long-id-of-a-call-%d", i), Tool: "x"}
		for k := range 30 {
			dear[i].After = append(dear[i].After, fmt.Sprintf("another-rather-long-id-%d-%d", i, k))
		}
	}
	ring := chain(20)
	ring[0].After = []string{"c20"}
	for _, tc := range []struct {
		name  string
		calls []tool.Call
		want  string // "" for none
		n     int    // problems
	}{
		{"as many calls as are allowed", wide[:wire.MaxCalls], "", 0},
		{"one call too many", wide, "calls: at most 1000 calls are allowed in a turn, got 1001", 1},
		{"as deep as is allowed", chain(wire.MaxPlanDepth), "", 0},
		{"too deep", chain(wire.MaxPlanDepth + 1), "calls[100].after: it is number 101 of a chain of calls that wait for each other, at most 100 are allowed", 1},
		{"a long circle", ring, "calls[0].after: these calls wait for each other: c1 → c20 → c19 → c18 → c17 → c16 → … → c5 → c4 → c3 → c2 → c1", 1},
		{"30,000 unknown ids", dear, `calls[0].after[0]: there is no call "another-rather-long-id-0-0"`, maxProblems},
		{"more mistakes than are told", lost, `calls[0].after[0]: there is no call "nobody"`, maxProblems},
	} {
		err := Check(&wire.TurnRequest{ID: "t", Calls: tc.calls})
		var plan *PlanError
		if errors.As(err, &plan); tc.want == "" {
			if err != nil {
				t.Errorf("%s: Check = %v, want nil", tc.name, err)
			}
			continue
		}
		if plan == nil || len(plan.Problems) != tc.n || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: Check = %v, want %d problems, the first of them %s", tc.name, err, tc.n, tc.want)
		}
	}
}

// The limits hold of what an open turn has in all.
func TestAddLimits(t *testing.T) {
	turn, err := New(Config{Request: &wire.TurnRequest{ID: "t", Open: true, Calls: chain(wire.MaxPlanDepth)}})
	if err != nil {
		t.Fatal(err)
	}
	turn.Start(nil, start)
	deep := tool.Call{ID: "more", Tool: "x", After: []string{"c100"}}
	if _, err := turn.Add(nil, start, []tool.Call{deep}); err == nil || !strings.Contains(err.Error(), "number 101 of a chain") {
		t.Errorf("Add of a call that makes the chain too long = %v, want that it is number 101", err)
	}
	many := make([]tool.Call, wire.MaxCalls-wire.MaxPlanDepth+1)
	for i := range many {
		many[i].Tool = "x"
	}
	if _, err := turn.Add(nil, start, many); err == nil || !strings.Contains(err.Error(), "got 1001") {
		t.Errorf("Add of too many calls = %v, want that there would be 1001", err)
	}
	if got := turn.Len(); got != wire.MaxPlanDepth {
		t.Errorf("Len() = %d, want %d: nothing was added", got, wire.MaxPlanDepth)
	}
	if _, err := turn.Add(nil, start, many[1:]); err != nil {
		t.Errorf("Add of as many calls as are allowed = %v, want nil", err)
	}
}

// A circle is told of exactly where there is one, and what is told is one.
func TestRandomCycles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "calls")
		calls := make([]tool.Call, n)
		waits := map[string]map[string]bool{}
		for i := range calls {
			id := fmt.Sprintf("c%d", i)
			calls[i] = tool.Call{ID: id, Tool: "x"}
			waits[id] = map[string]bool{}
			for k := range n {
				if k != i && rapid.IntRange(0, n).Draw(t, "edge") == 0 {
					calls[i].After = append(calls[i].After, fmt.Sprintf("c%d", k))
					waits[id][fmt.Sprintf("c%d", k)] = true
				}
			}
		}
		err := Check(&wire.TurnRequest{ID: "t", Calls: calls})
		if got, want := err != nil, circular(waits); got != want {
			t.Fatalf("Check = %v, and there is a circle: %v", err, want)
		}
		var plan *PlanError
		if !errors.As(err, &plan) {
			return
		}
		for _, p := range plan.Problems {
			_, path, _ := strings.Cut(p.Message, ": ")
			ids := strings.Split(path, " → ")
			for i := range ids[1:] {
				if !strings.Contains(path, "…") && !waits[ids[i]][ids[i+1]] {
					t.Fatalf("%s: %s does not wait for %s", p.Message, ids[i], ids[i+1])
				}
			}
			if ids[0] != ids[len(ids)-1] {
				t.Fatalf("%s: that is no circle", p.Message)
			}
		}
	})
}

// circular takes away what waits for nothing until nothing is left, or only circles are.
func circular(waits map[string]map[string]bool) bool {
	left := map[string]bool{}
	for id := range waits {
		left[id] = true
	}
	for again := true; again; {
		again = false
		for id := range left {
			free := true
			for on := range waits[id] {
				free = free && !left[on]
			}
			if free {
				delete(left, id)
				again = true
			}
		}
	}
	return len(left) > 0
}
