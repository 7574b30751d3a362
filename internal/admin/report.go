package admin

import "strings"

// A State is how one thing is, or all of them.
type State int

// The states, from good to bad.
const (
	OK       State = iota
	Degraded       // work goes on, with less
	Down           // work should go elsewhere
)

// A Report is what was looked at. The worst of it counts.
type Report []Check

// A Check is one thing that was looked at, and what is wrong with it.
type Check struct {
	Name  string
	State State
	Why   string // empty where it is OK
}

// State is the worst there is; OK where there is nothing.
func (r Report) State() State {
	worst := OK
	for _, c := range r {
		worst = max(worst, c.State)
	}
	return worst
}

// String is one line on the whole and one on each.
func (r Report) String() string {
	lines := []string{[...]string{"ready", "ready, degraded", "not ready"}[r.State()]}
	for _, c := range r {
		line := "  " + c.Name + ": " + [...]string{"ok", "degraded", "down"}[c.State]
		if c.Why != "" {
			line += ", " + c.Why
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
