package otel

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/recovery"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

var _ executor.Observer = (*Metrics)(nil)

// Event measures what happened. It keeps nothing: what a result took is in the result.
func (m *Metrics) Event(ev *wire.Event) {
	defer survive()
	switch ev.Type {
	case wire.AttemptStarted:
		m.count(m.attempts, ev.Turn, m.tools.get(ev.Tool).get(plain, "", ""))
	case wire.ToolError:
		m.failed(ev)
	case wire.RetryScheduled:
		m.count(m.retries, ev.Turn, m.tools.get(ev.Tool).get(plain, "", ""))
	case wire.BreakerChanged:
		m.count(m.transitions, ev.Turn, m.tools.get(toolOf(ev.Tool)).get(withTo, stateOf(ev.BreakerState), ""))
	case wire.CallSettled:
		m.settled(ev)
	case wire.LateResult:
		m.cameLate(ev)
	case wire.TurnEnded:
		m.over(ev)
	}
}

// survive keeps what is wrong with telemetry from whoever is being measured.
func survive() { _ = recover() }

func (m *Metrics) count(c metric.Int64Counter, turn string, s *series) {
	c.Add(m.turns.context(turn), 1, s.add...)
}

// failed counts an attempt that failed.
func (m *Metrics) failed(ev *wire.Event) {
	if ev.Error == nil {
		return
	}
	l := m.tools.get(ev.Tool)
	m.count(m.errors, ev.Turn, l.get(withKind, kindOf(ev.Error), classOf(ev.Classification)))
	if ev.Error.Kind == fault.Timeout {
		m.count(m.timeouts, ev.Turn, l.get(plain, "", ""))
	}
	if ev.Error.Message == retry.BudgetSpent || strings.HasPrefix(ev.Because, retry.BudgetSpent) {
		m.count(m.exhausted, ev.Turn, l.get(plain, "", ""))
	}
}

// settled measures a call that has its result.
func (m *Metrics) settled(ev *wire.Event) {
	r := ev.Result
	if r == nil {
		return
	}
	ctx := m.turns.context(ev.Turn)
	l, failure := m.tools.get(r.Tool), ""
	if r.Fault != nil && !r.Status.HasValue() {
		failure = kindOf(r.Fault)
	}
	by := l.get(withStatus, statusOf(r.Status), "")
	m.calls.Add(ctx, 1, by.add...)
	if len(r.Attempts) > 0 || r.DurationMs > 0 { // else it never could begin, which took no time and says nothing of the tool
		m.callTime.Record(ctx, r.DurationMs/1000, by.record...)
		m.toolTime.Record(ctx, r.DurationMs/1000, l.get(genAI, failure, "").record...)
	}
	if len(r.Attempts) > 0 {
		m.queueTime.Record(ctx, r.Attempts[0].StartMs/1000, l.get(plain, "", "").record...)
	}
	retried, elsewhere := false, r.Status == tool.Defaulted
	for i := range r.Attempts {
		a := &r.Attempts[i]
		m.tried(ctx, a)
		if i+1 < len(r.Attempts) {
			retried = retried || a.Decision == string(recovery.Retry)
			elsewhere = elsewhere || a.Decision == string(recovery.Alternative)
		}
	}
	if elsewhere {
		m.fallbacks.Add(ctx, 1, by.add...)
	}
	if !retried {
		return
	}
	own := l.get(plain, "", "").add
	m.retried.Add(ctx, 1, own...)
	if r.Status == tool.Success {
		m.saved.Add(ctx, 1, own...)
	}
}

// tried times an attempt. One that was not sent, or whose end nobody waited for, says nothing of its tool.
func (m *Metrics) tried(ctx context.Context, a *tool.Attempt) {
	switch {
	case a.Kind == fault.Deadline, a.Kind == fault.Cancelled:
	case a.Kind != "" && a.Worker == "" && a.Kind.Spec().Execution == fault.NotStarted:
	default:
		m.attemptTime.Record(ctx, a.DurationMs/1000, m.tools.get(a.Tool).get(plain, "", "").record...)
	}
}

// cameLate counts what came after its turn. Of its attempts only the last is new.
func (m *Metrics) cameLate(ev *wire.Event) {
	r := ev.Result
	if r == nil {
		return
	}
	m.count(m.late, ev.Turn, m.turn.get(withStatus, statusOf(r.Status), ""))
	if n := len(r.Attempts); n > 0 {
		m.tried(m.turns.context(ev.Turn), &r.Attempts[n-1])
	}
}

// over measures a turn that ended.
func (m *Metrics) over(ev *wire.Event) {
	if ev.Outcome == nil {
		return
	}
	ctx, by := m.turns.context(ev.Turn), m.turn.get(withStatus, endOf(ev.Outcome.Status), "")
	m.ended.Add(ctx, 1, by.add...)
	m.turnTime.Record(ctx, ev.Outcome.DurationMs/1000, by.record...)
}

// What others say is one of ours, or other: attributes are closed sets.

func kindOf(f *fault.Fault) string {
	if f.Kind.Known() {
		return string(f.Kind)
	}
	return string(fault.Internal)
}

func classOf(s string) string {
	switch c := fault.Class(s); c {
	case fault.Transient, fault.Permanent, fault.Neutral:
		return s
	}
	return otherTool
}

func statusOf(s tool.Status) string {
	switch s {
	case tool.Success, tool.ViaFallback, tool.Defaulted, tool.PartialValue, tool.Failed, tool.Skipped, tool.TimedOut, tool.NeverStarted, tool.Cancelled:
		return string(s)
	}
	return otherTool
}

func endOf(s string) string {
	switch s {
	case wire.Completed, wire.PartialTurn, wire.Escalated, wire.TimedOutTurn, wire.CancelledTurn:
		return s
	}
	return otherTool
}

func stateOf(s string) string {
	if _, ok := breaker.ParseState(s); ok {
		return s
	}
	return otherTool
}

// toolOf is the tool of a breaker's key, which may be of one partition of it: <tool>.<hash>.
func toolOf(key string) string {
	name, _, _ := strings.Cut(key, ".")
	return name
}

// Worker gives what measures a worker's calls; nil, where nobody wants figures.
func (m *Metrics) Worker() worker.Observer {
	if m == nil {
		return nil
	}
	return workerMetrics{m}
}

type workerMetrics struct{ m *Metrics }

func (workerMetrics) CallStarted(ctx context.Context, _ *worker.Call) context.Context { return ctx }

func (w workerMetrics) CallEnded(ctx context.Context, c *worker.Call, took time.Duration, f *fault.Fault) {
	status := tool.Success
	switch {
	case f == nil:
	case f.Kind == fault.Timeout || f.Kind == fault.Deadline:
		status = tool.TimedOut
	case f.Kind == fault.Cancelled:
		status = tool.Cancelled
	default:
		status = tool.Failed
	}
	by := w.m.tools.get(c.Tool).get(withStatus, string(status), "")
	w.m.ran.Add(ctx, 1, by.add...)
	w.m.runTime.Record(ctx, took.Seconds(), by.record...)
}

// WorkerObservers is one observer that tells all, in order, but for those that are nil. Where none is left it is nil. Each
// gets the context that the one before it gave.
func WorkerObservers(all ...worker.Observer) worker.Observer {
	var some workerObservers
	for _, o := range all {
		if o != nil {
			some = append(some, o)
		}
	}
	if len(some) == 0 {
		return nil
	}
	return some
}

type workerObservers []worker.Observer

func (all workerObservers) CallStarted(ctx context.Context, c *worker.Call) context.Context {
	for _, o := range all {
		if own := o.CallStarted(ctx, c); own != nil {
			ctx = own
		}
	}
	return ctx
}

func (all workerObservers) CallEnded(ctx context.Context, c *worker.Call, took time.Duration, f *fault.Fault) {
	for _, o := range all {
		o.CallEnded(ctx, c, took, f)
	}
}
