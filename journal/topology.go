package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
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

// Ensure creates the two streams, or checks those that stand. Any number of processes may do it at once. A stream that
// stands is never changed: where it cannot serve, that is an error that says why; where it merely differs from what we
// would create, that is logged, for an operator may have had reasons.
func (j *Journal) Ensure(ctx context.Context) error {
	return errors.Join(j.ensure(ctx, j.logStream()), j.ensure(ctx, j.lateStream()))
}

func (j *Journal) ensure(ctx context.Context, want jetstream.StreamConfig) error {
	ctx, cancel := context.WithTimeout(ctx, 2*opTimeout)
	defer cancel()
	ctx, ended := j.bus.Guard(ctx, j.api+"STREAM.CREATE."+want.Name, j.api+"STREAM.INFO."+want.Name)
	_, err := j.bus.JetStream().CreateStream(ctx, want)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		err = j.check(ctx, want)
	}
	if err = ended(err); err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrNoResponders) { // nobody takes JetStream's own subjects
		err = jetstream.ErrJetStreamNotEnabled
	}
	return fmt.Errorf("journal: stream %s: %w%s", want.Name, err, advice(err, want))
}

// Error codes of JetStream that nats.go has no name for (nats-server's errors.json).
const (
	errNoPeers       jetstream.ErrorCode = 10005
	errInsufficient  jetstream.ErrorCode = 10023
	errMemoryFull    jetstream.ErrorCode = 10028
	errStorageFull   jetstream.ErrorCode = 10047
	errSubjectsTaken jetstream.ErrorCode = 10065
	errNotClustered  jetstream.ErrorCode = 10074
)

func advice(err error, want jetstream.StreamConfig) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "; or create it once as a user who may"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "; enable JetStream for this account: without it turns run, and leave no trace and no late results"
	case !errors.As(err, &api):
		return ""
	case slices.Contains([]jetstream.ErrorCode{errInsufficient, errMemoryFull, errStorageFull}, api.ErrorCode):
		limit := "max_file_store"
		if want.Storage == jetstream.MemoryStorage {
			limit = "max_memory_store"
		}
		return fmt.Sprintf("; it may grow to %d MiB: raise %s or the account's limit, or let it have less", want.MaxBytes>>20, limit)
	case api.ErrorCode == errSubjectsTaken:
		return fmt.Sprintf("; another stream takes %s: delete that one, or use another prefix", want.Subjects[0])
	case api.ErrorCode == errNoPeers, api.ErrorCode == errNotClustered:
		return fmt.Sprintf("; %d replicas need as many servers with JetStream: start them, or set the replicas to 1", want.Replicas)
	}
	return ""
}

// check looks at a stream that stands already.
func (j *Journal) check(ctx context.Context, want jetstream.StreamConfig) error {
	s, err := j.bus.JetStream().Stream(ctx, want.Name)
	if err != nil {
		return fmt.Errorf("look at it: %w", err)
	}
	have := s.CachedInfo().Config
	var lacks, drift []string
	if !slices.Contains(have.Subjects, want.Subjects[0]) {
		lacks = append(lacks, fmt.Sprintf("subjects = %v, want %s among them", have.Subjects, want.Subjects[0]))
	}
	if !have.AllowDirect {
		lacks = append(lacks, "allow_direct = false, want true")
	}
	if have.Retention != jetstream.LimitsPolicy {
		lacks = append(lacks, fmt.Sprintf("retention = %v, want %v", have.Retention, jetstream.LimitsPolicy))
	}
	if len(lacks) > 0 {
		return fmt.Errorf("it cannot serve: %s; edit or delete it", strings.Join(lacks, "; "))
	}

	differs := func(name string, have, want any) {
		if have != want {
			drift = append(drift, fmt.Sprintf("%s = %v, want %v", name, have, want))
		}
	}
	differs("storage", have.Storage, want.Storage)
	differs("replicas", have.Replicas, want.Replicas)
	differs("discard", have.Discard, want.Discard)
	differs("max_bytes", have.MaxBytes, want.MaxBytes)
	differs("max_age", have.MaxAge, want.MaxAge)
	if want.MaxMsgsPerSubject > 0 {
		differs("max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	}
	if len(drift) > 0 {
		j.cfg.Logger.Warn("a stream is not as we would create it; leaving it so", "stream", want.Name, "differs", strings.Join(drift, "; "))
	}
	return nil
}
