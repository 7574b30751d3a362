package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrCannotServe says that a stream stands that is not what is needed: somebody made it otherwise, and time does not
// mend that.
var ErrCannotServe = errors.New("it cannot serve")

const (
	ensureTime  = 10 * time.Second       // bounds EnsureStream, whatever its context says
	firstAnswer = 500 * time.Millisecond // for the first question about a stream; each further one has twice as long
)

// EnsureStream creates a stream where there is none of that name, and else checks the one that stands. Any number of
// processes may do it at once. A stream that stands is never changed. Where it cannot serve, that is an ErrCannotServe
// that says why; where it merely differs from what we would create, log hears of it once, for an operator may have had
// reasons. A nil log hears nothing.
//
// Whoever may look at streams and not create them finds one that was created beforehand.
func (c *Conn) EnsureStream(ctx context.Context, want jetstream.StreamConfig, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, ensureTime)
	defer cancel()
	ctx, ended := c.Guard(ctx, c.api+"STREAM.CREATE."+want.Name, c.api+"STREAM.INFO."+want.Name)
	err := ended(c.ensureStream(ctx, want, log))
	if errors.Is(err, nats.ErrNoResponders) { // nobody takes JetStream's own subjects
		err = jetstream.ErrJetStreamNotEnabled
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w%s", want.Name, err, streamAdvice(err, want))
	}
	return nil
}

func (c *Conn) ensureStream(ctx context.Context, want jetstream.StreamConfig, log *slog.Logger) error {
	s, err := c.stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = c.js.CreateStream(ctx, want)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // somebody was faster
		s, err = c.stream(ctx, want.Name)
	}
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	if lacks := lacking(have, want); len(lacks) > 0 {
		return fmt.Errorf("%w: %s; edit or delete it", ErrCannotServe, strings.Join(lacks, "; "))
	}
	if log == nil {
		return nil
	}
	drift := strings.Join(drifted(have, want), "; ")
	if before, _ := c.drift.Swap(want.Name, drift); drift != "" && drift != before {
		log.Warn("a stream is not as we would create it; leaving it so", "stream", want.Name, "differs", drift)
	}
	return nil
}

// stream is the stream of that name. It asks again, for a cluster gives no answer at all about a stream that somebody is
// creating, until it has a leader.
func (c *Conn) stream(ctx context.Context, name string) (jetstream.Stream, error) {
	for wait := firstAnswer; ; wait *= 2 {
		once, cancel := context.WithTimeout(ctx, wait)
		s, err := c.js.Stream(once, name)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return s, err
		}
	}
}

// lacking is what a stream needs to serve, and does not have.
func lacking(have, want jetstream.StreamConfig) (lacks []string) {
	for _, subject := range want.Subjects {
		if !slices.Contains(have.Subjects, subject) {
			lacks = append(lacks, fmt.Sprintf("subjects = %v, want %s among them", have.Subjects, subject))
		}
	}
	if want.AllowDirect && !have.AllowDirect {
		lacks = append(lacks, "allow_direct = false, want true")
	}
	if want.AllowMsgTTL && !have.AllowMsgTTL {
		lacks = append(lacks, "allow_msg_ttl = false, want true")
	}
	if have.Retention != want.Retention {
		lacks = append(lacks, fmt.Sprintf("retention = %v, want %v", have.Retention, want.Retention))
	}
	if to := feed(have); want.RePublish != nil && to != feed(want) {
		lacks = append(lacks, fmt.Sprintf("republish to %q, want %q", to, feed(want)))
	}
	return lacks
}

// feed is where a stream publishes what it stored, or "".
func feed(cfg jetstream.StreamConfig) string {
	if cfg.RePublish == nil {
		return ""
	}
	return cfg.RePublish.Destination
}

// drifted is what differs and does no harm.
func drifted(have, want jetstream.StreamConfig) (drift []string) {
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
	return drift
}

// streamAdvice is what to do about err.
func streamAdvice(err error, want jetstream.StreamConfig) string {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return "; or create it once as a user who may"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "; " + noJetStream
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
