package executor

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
)

// A toolState is what this executor keeps of one tool: its retry budget, and its manifest made ready. The budget
// outlives changes of the manifest.
type toolState struct {
	name    string
	subject string   // of the queue group
	named   []string // what the header Tb-Tool says
	budget  *retry.Budget
	ready   atomic.Pointer[ready]
	tally   tally
}

// ready is a manifest worked out once. It is immutable.
type ready struct {
	tool     turn.Tool // its Shell is this
	state    *toolState
	compiled *tool.Compiled // nil: a tool without a manifest, a plain worker
	breaker  *breaker.Policy
	timeout  string // what the header Tb-Timeout-Ms says where a call has the tool's own
}

// maxTools bounds the states kept; calls to names beyond it run without a breaker of their own.
const maxTools = 20_000

// tool is what is known of a tool, from its manifest as it is now in the catalogue. What the catalogue does not know is
// not kept before it is called: a plan may name what it likes.
func (e *Executor) tool(name string) *ready {
	var c *tool.Compiled
	if entry := e.cat.Tool(name); entry != nil {
		c = entry.Compiled
	}
	var s *toolState
	if v, ok := e.tools.Load(name); ok {
		s = v.(*toolState)
	} else {
		s = &toolState{name: name, subject: e.bus.Subjects().Call(name), named: []string{name}, budget: retry.NewBudget()}
		s.budget.Split(int(e.among.Load()))
		if c != nil {
			e.keep(s)
		}
	}
	rd := s.ready.Load()
	if rd == nil || rd.compiled != c {
		rd = e.prepare(s, c)
		s.ready.Store(rd)
	}
	return rd
}

// keep makes s the state of its tool, unless there is one.
func (e *Executor) keep(s *toolState) {
	if _, ok := e.tools.Load(s.name); ok || e.known.Load() >= maxTools {
		return
	}
	if _, was := e.tools.LoadOrStore(s.name, s); !was {
		e.known.Add(1)
	}
}

// split divides the retry budgets among so many executors.
func (e *Executor) split(executors int) {
	e.among.Store(int64(executors))
	e.tools.Range(func(_, v any) bool {
		v.(*toolState).budget.Split(executors)
		return true
	})
}

// forget drops the state of a tool that is none, so that made-up names do not fill the house.
func (e *Executor) forget(s *toolState) {
	if e.tools.CompareAndDelete(s.name, s) {
		e.known.Add(-1)
	}
}

func (e *Executor) prepare(s *toolState, c *tool.Compiled) *ready {
	rd := &ready{state: s, compiled: c}
	rd.tool = turn.Tool{Name: s.name, Timeout: tool.DefaultTimeout, Policy: *e.cfg.Retry, Shell: rd}
	if c != nil {
		m := &c.Manifest
		rd.tool = turn.Tool{
			Name: s.name, Timeout: m.Timeout(), Idle: time.Duration(m.IdleTimeoutMs) * time.Millisecond,
			Policy: retry.Merge(*e.cfg.Retry, m.Retry), Effect: m.Effect, KeepsKeys: m.KeepsKeys, Overrides: c.Overrides(),
			Alternatives: alternatives(m), FallbackOn: m.FallbackOn, Optional: m.Optional, Default: m.Default, Shell: rd,
		}
	}
	rd.breaker, rd.timeout = e.breakerPolicy(c, rd.tool.Timeout), millis(rd.tool.Timeout)
	return rd
}

// alternatives are the tools that a manifest names to stand in for its own.
func alternatives(m *tool.Manifest) []string {
	if m.Fallback != "" {
		return []string{m.Fallback}
	}
	return m.Alternatives
}

// breakerPolicy is the policy of a tool's breaker. A probe is given up on only after its own timeout, however long.
func (e *Executor) breakerPolicy(c *tool.Compiled, timeout time.Duration) *breaker.Policy {
	p := *e.cfg.Breaker
	p.ProbeLease = max(p.ProbeLease, timeout+2*e.cfg.Grace)
	if c == nil || c.Manifest.Breaker == nil {
		return &p
	}
	b := c.Manifest.Breaker
	p.FailureThreshold, p.SuccessThreshold = or(b.FailureThreshold, p.FailureThreshold), or(b.SuccessThreshold, p.SuccessThreshold)
	p.OpenFor = orMs(b.TimeoutMs, p.OpenFor)
	p.OpenMost = orMs(b.MaxTimeoutMs, p.OpenMost)
	p.Window, p.Slow = orMs(b.WindowMs, p.Window), orMs(b.SlowMs, p.Slow)
	p.MinCalls, p.Probes, p.MinReporters = or(b.MinCalls, p.MinCalls), or(b.Probes, p.Probes), or(b.MinReporters, p.MinReporters)
	p.Rate, p.Growth = or(b.Rate, p.Rate), or(b.TimeoutGrowth, p.Growth)
	p.Distinct, p.Ramp = b.DistinctCalls, b.RampUp
	switch b.Mode {
	case "failure_rate":
		p.Mode = breaker.FailureRate
	case "slow_calls":
		p.Mode = breaker.SlowCalls
	}
	return &p
}

func or[T any](v *T, otherwise T) T {
	if v == nil {
		return otherwise
	}
	return *v
}

func orMs(v *int64, otherwise time.Duration) time.Duration {
	if v == nil {
		return otherwise
	}
	return time.Duration(*v) * time.Millisecond
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
