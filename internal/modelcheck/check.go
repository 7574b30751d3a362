// Package modelcheck walks through every state that a small model can reach, the nearest first.
//
//	Start ──Next──► states ──Next──► …      Broken: what must never be, with the shortest way to it
//	                  ▲                     Stuck:  from where the goal cannot be reached any more
//	                  └── each is visited once
//
// A model is only as good as its steps: let them call the code that ships, and write again only what surrounds it.
//
// A state that was visited is remembered by a 64-bit hash. Two states that share one would be taken for the same; with a
// million states the chance of that is one in thirty million.
package modelcheck

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// A Model is what to walk through. Start and Next are required.
type Model[S comparable] struct {
	Start S

	// Next calls step with each state that may follow s, in the same order each time. By says in words what happens, and
	// broken what rule it breaks, "" for none. Fair steps are those that a system left in peace takes at some time; the
	// others are faults.
	Next func(s S, step func(to S, by Label, fair bool, broken string))

	// Goal is what must stay within reach by fair steps, from every state that is to be counted on.
	Goal    func(S) bool
	Counted func(S) bool // nil: every state

	// Show is a state in a line, for traces.
	Show func(S) string

	// Until is the rules that are to be broken: when all are, the walk ends. Nil: it never ends early.
	Until []string

	// Most is at how many states to give up. Zero means ten million.
	Most int
}

// A Label is what happened, and to whom.
type Label struct {
	Who  int // a number of the model's own; negative for nobody
	What string
}

func (l Label) String() string {
	if l.Who < 0 {
		return l.What
	}
	return fmt.Sprintf("%d: %s", l.Who, l.What)
}

// A Result is what was found.
type Result struct {
	States, Steps, Depth int
	Whole                bool             // all states were visited
	Broken               map[string]Trace // by rule: the shortest way to break it
	Stuck                Trace            // the shortest way to a state from which the goal is out of reach; nil: none
}

// A Trace is a way from the start, one line for each step.
type Trace []string

func (t Trace) String() string { return "\n\t" + strings.Join(t, "\n\t") }

// A walk is one run of Check. What a state was is forgotten once its steps were taken; how to get there again is not.
type walk[S comparable] struct {
	m      *Model[S]
	seed   maphash.Seed
	number map[uint64]int32 // by hash
	parent []int32
	edges  [][2]int32 // fair steps, where there is a goal
	goal   []bool
	count  []bool
	res    Result
}

// Check walks through all states of m. A state that breaks a rule is not walked on from.
func Check[S comparable](m Model[S]) Result {
	if m.Most == 0 {
		m.Most = 10_000_000
	}
	w := &walk[S]{m: &m, seed: maphash.MakeSeed(), number: map[uint64]int32{}, res: Result{Whole: true, Broken: map[string]Trace{}}}
	w.visit(m.Start, -1)
	now, next := []S{m.Start}, []S(nil)
	for from := int32(0); len(now) > 0; w.res.Depth++ {
		for _, s := range now {
			m.Next(s, func(to S, by Label, fair bool, broken string) {
				w.res.Steps++
				if broken != "" {
					if w.res.Broken[broken] == nil {
						w.res.Broken[broken] = append(w.way(from), by.String()+"   ⇒ "+broken)
					}
					return
				}
				n, fresh := w.visit(to, from)
				if fresh {
					next = append(next, to)
				}
				if fair && m.Goal != nil {
					w.edges = append(w.edges, [2]int32{from, n})
				}
			})
			from++
			if len(w.parent) > m.Most || w.enough() {
				w.res.Whole = false
				w.res.States = len(w.parent)
				return w.res
			}
		}
		now, next = next, now[:0]
	}
	w.res.States = len(w.parent)
	if m.Goal != nil {
		w.reach()
	}
	return w.res
}

func (w *walk[S]) visit(s S, from int32) (n int32, fresh bool) {
	h := maphash.Comparable(w.seed, s)
	if n, ok := w.number[h]; ok {
		return n, false
	}
	n = int32(len(w.parent))
	w.number[h] = n
	w.parent = append(w.parent, from)
	if w.m.Goal != nil {
		w.goal = append(w.goal, w.m.Goal(s))
		w.count = append(w.count, w.m.Counted == nil || w.m.Counted(s))
	}
	return n, true
}

func (w *walk[S]) enough() bool {
	for _, rule := range w.m.Until {
		if w.res.Broken[rule] == nil {
			return false
		}
	}
	return len(w.m.Until) > 0
}

// way goes from the start to state n once more, and writes down how.
func (w *walk[S]) way(n int32) Trace {
	var path []int32
	for at := n; at > 0; at = w.parent[at] {
		path = append(path, at)
	}
	s, trace := w.m.Start, Trace{}
	for i := len(path) - 1; i >= 0; i-- {
		found := false
		var to S
		var label Label
		w.m.Next(s, func(t S, by Label, _ bool, broken string) {
			if !found && broken == "" && w.number[maphash.Comparable(w.seed, t)] == path[i] {
				found, to, label = true, t, by
			}
		})
		if !found {
			panic("modelcheck: Next does not take the same steps twice")
		}
		line := label.String()
		if w.m.Show != nil {
			line = fmt.Sprintf("%-64s %s", line, w.m.Show(to))
		}
		s, trace = to, append(trace, line)
	}
	return trace
}

// reach goes backwards from the goal along fair steps. States are numbered by their distance from the start, so the first
// one that is left over is the nearest.
func (w *walk[S]) reach() {
	begin := make([]int32, len(w.parent)+1) // of the steps that lead to each state, in from
	for _, e := range w.edges {
		begin[e[1]+1]++
	}
	for i := range w.parent {
		begin[i+1] += begin[i]
	}
	from, at := make([]int32, len(w.edges)), append([]int32(nil), begin...)
	for _, e := range w.edges {
		from[at[e[1]]] = e[0]
		at[e[1]]++
	}
	var queue []int32
	for n, ok := range w.goal {
		if ok {
			queue = append(queue, int32(n))
		}
	}
	for len(queue) > 0 {
		n := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range from[begin[n]:begin[n+1]] {
			if !w.goal[p] {
				w.goal[p] = true
				queue = append(queue, p)
			}
		}
	}
	for n, ok := range w.goal {
		if !ok && w.count[n] {
			w.res.Stuck = append(w.way(int32(n)), "from here the goal is out of reach")
			return
		}
	}
}
