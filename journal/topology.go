package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// logStream and lateStream let go of the oldest where they are full: what is new is what people ask for.
func (j *Journal) logStream() jetstream.StreamConfig {
	return j.stream(jetstream.StreamConfig{
		Name:        j.log,
		Description: "toolbus: journals of turns",
		Subjects:    []string{j.bus.Subjects().Logs()},
		MaxBytes:    j.cfg.MaxBytes,
		MaxAge:      j.cfg.Retention,
	})
}

func (j *Journal) lateStream() jetstream.StreamConfig {
	return j.stream(jetstream.StreamConfig{
		Name:        j.late,
		Description: "toolbus: results that came after their turn had ended",
		Subjects:    []string{j.bus.Subjects().Lates()},
		MaxBytes:    j.cfg.MaxLateBytes,
		MaxAge:      j.cfg.LateFor,

		MaxMsgsPerSubject: 1, // one that is stored again, because its answer was lost, is the same
	})
}

func (j *Journal) stream(s jetstream.StreamConfig) jetstream.StreamConfig {
	s.Storage = jetstream.FileStorage
	if j.cfg.Memory {
		s.Storage = jetstream.MemoryStorage
	}
	s.Replicas = j.bus.Replicas()
	s.Discard = jetstream.DiscardOld
	s.AllowDirect = true
	return s
}

// Ensure creates the two streams, or checks those that stand: see bus.Conn.EnsureStream.
func (j *Journal) Ensure(ctx context.Context) error {
	return errors.Join(j.ensure(ctx, j.logStream()), j.ensure(ctx, j.lateStream()))
}

func (j *Journal) ensure(ctx context.Context, want jetstream.StreamConfig) error {
	if err := j.bus.EnsureStream(ctx, want, j.cfg.Logger); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}
