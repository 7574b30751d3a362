package otel

import (
	"context"
	"errors"
	"time"

	"github.com/toolbus/toolbus/tool"
)

// ErrConflict has BreakerFlushed say that somebody else wrote first.
var ErrConflict = errors.New("somebody else wrote first")

// BreakerFlushed times a try to write a shared circuit breaker. That somebody else was faster, errors.Is(err, ErrConflict),
// is how executors join what they saw, and no failure.
func (m *Metrics) BreakerFlushed(took time.Duration, err error) {
	defer survive()
	status := ended(err)
	if errors.Is(err, ErrConflict) {
		status = "conflict"
	}
	m.flushTime.Record(context.Background(), took.Seconds(), m.turn.get(withStatus, status, "").record...)
}

// JournalAppended times what was written into journals: events or late_result.
func (m *Metrics) JournalAppended(what string, took time.Duration, err error) {
	defer survive()
	if what != "events" && what != "late_result" {
		what = otherTool
	}
	m.appendTime.Record(context.Background(), took.Seconds(), m.turn.get(withWhat, what, ended(err)).record...)
}

func ended(err error) string {
	if err != nil {
		return string(tool.Failed)
	}
	return string(tool.Success)
}
