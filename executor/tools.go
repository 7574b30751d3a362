package executor

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/registry"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
)

// A toolState is what this executor keeps of one tool: its retry budget, and its manifest made ready. The budget
// outlives changes of the manifest.
type toolState struct {
	name    string
	subject string // of the queue group
	budget  *retry.Budget
	ready   atomic.Pointer[ready]
}

// ready is a manifest worked out once. It is immutable.
type ready struct {
	compiled  *tool.Compiled // nil: a tool without a manifest, a plain worker
	policy    retry.Policy
	breaker   *breaker.Policy
	overrides fault.Overrides
	effect    tool.Effect
	keeps     bool
	timeout   time.Duration
	idle      time.Duration
}

// maxTools bounds the states kept; calls to names beyond it run without a breaker of their own.
const maxTools = 20_000

// tool is the state of a tool, with its manifest as it is now in entry (nil: not in the catalogue).
func (e *Executor) tool(name string, entry *registry.Tool) (*toolState, *ready) {
	v, ok := e.tools.Load(name)
	if !ok {
		s := &toolState{name: name, subject: e.bus.Subjects().Call(name), budget: retry.NewBudget()}
		s.budget.Split(int(e.among.Load()))
		if e.known.Load() >= maxTools {
			v = s
		} else if v, ok = e.tools.LoadOrStore(name, s); !ok {
			e.known.Add(1)
		}
	}
	s := v.(*toolState)
	var c *tool.Compiled
	if entry != nil {
		c = entry.Compiled
	}
	rd := s.ready.Load()
	if rd == nil || rd.compiled != c {
		rd = e.prepare(c)
		s.ready.Store(rd)
	}
	return s, rd
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

func (e *Executor) prepare(c *tool.Compiled) *ready {
	if c == nil {
		return &ready{policy: *e.cfg.Retry, timeout: tool.DefaultTimeout, breaker: e.breakerPolicy(nil, tool.DefaultTimeout)}
	}
	m := &c.Manifest
	return &ready{
		compiled: c, policy: retry.Merge(*e.cfg.Retry, m.Retry), overrides: c.Overrides(),
		effect: m.Effect, keeps: m.KeepsKeys,
		breaker: e.breakerPolicy(c, m.Timeout()),
		timeout: m.Timeout(), idle: time.Duration(m.IdleTimeoutMs) * time.Millisecond,
	}
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
