package otel_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// Calls that never could begin count, and take no time: the shortest bucket is for calls that were quick.
func TestSkippedCallsAreNotTimed(t *testing.T) {
	m := measure(t, otel.MetricsConfig{})
	for _, r := range []*tool.Result{
		{Status: tool.Success, DurationMs: 7, Attempts: []tool.Attempt{{N: 1, Tool: "calc", DurationMs: 7}}},
		{Status: tool.Failed, Attempts: []tool.Attempt{{N: 1, Tool: "calc", Kind: fault.InvalidArguments}}}, // at once, but it was tried
		{Status: tool.NeverStarted, DurationMs: 3},                                                          // it waited for its turn
		{Status: tool.NeverStarted},
		{Status: tool.Skipped, BecauseOf: "a"},
		{Status: tool.Defaulted, BecauseOf: "a"},
		{Status: tool.Cancelled},
	} {
		r.Tool = "calc"
		m.Event(&wire.Event{Type: wire.CallSettled, Turn: "t1", Tool: "calc", Result: r})
	}
	text := scrape(t, m, "text/plain")
	for metric, want := range map[string]float64{
		"toolbus_calls_total": 7, "toolbus_call_duration_seconds_count": 3, "gen_ai_execute_tool_duration_seconds_count": 3,
	} {
		if got := sum(t, text, metric); got != want {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
}

func TestStoresAreTimed(t *testing.T) {
	m := measure(t, otel.MetricsConfig{})
	m.BreakerFlushed(2*time.Second, nil)
	m.BreakerFlushed(time.Second, fmt.Errorf("update: %w", otel.ErrConflict))
	m.BreakerFlushed(time.Second, errors.New("JetStream is away"))
	m.JournalAppended("events", time.Second, nil)
	m.JournalAppended("late_result", time.Second, errors.New("JetStream is away"))
	m.JournalAppended("turn-7F", time.Second, nil) // not one of ours
	text := scrape(t, m, "text/plain")
	for _, want := range []struct {
		metric string
		labels []string
		value  float64
	}{
		{"toolbus_breaker_flush_duration_seconds_sum", []string{`status="success"`}, 2},
		{"toolbus_breaker_flush_duration_seconds_count", []string{`status="conflict"`}, 1},
		{"toolbus_breaker_flush_duration_seconds_count", []string{`status="failed"`}, 1},
		{"toolbus_journal_append_duration_seconds_count", []string{`what="events"`, `status="success"`}, 1},
		{"toolbus_journal_append_duration_seconds_count", []string{`what="late_result"`, `status="failed"`}, 1},
		{"toolbus_journal_append_duration_seconds_count", []string{`what="other"`}, 1},
	} {
		if got := sum(t, text, want.metric, want.labels...); got != want.value {
			t.Errorf("%s%v = %v, want %v", want.metric, want.labels, got, want.value)
		}
	}
}
