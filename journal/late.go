package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

// keepFor bounds Keep: the streams of a cluster come back 5 to 15 s after their leader died.
const keepFor = time.Minute

// Keep stores a late result and returns when JetStream has it. Where JetStream is away it tries again until ctx ends, for
// a minute at most; the error, then, is a fault, and the result may be stored all the same. Of results that are kept for
// one call of one turn the last holds.
func (j *Journal) Keep(ctx context.Context, rec *wire.LateRecord) (err error) {
	defer func(began time.Time) { j.appended(LateResult, began, err) }(time.Now())
	r := *rec
	r.V = wire.Version
	if err := r.Check(); err != nil {
		return fault.New(fault.Internal, "keep a late result: %w", err)
	}
	if r.Result == nil {
		return fault.New(fault.Internal, "keep a late result of turn %s: there is none in the record", r.Turn)
	}
	result := *r.Result
	r.Result = &result

	ctx, cancel := context.WithTimeout(ctx, keepFor)
	defer cancel()
	msg, err := j.lateMsg(ctx, &r)
	if err != nil {
		return err
	}
	if f := j.again(ctx, func() error { return j.put(ctx, msg) }); f != nil {
		return f
	}
	return nil
}

// lateMsg is r as a message, its value behind a claim check where it is too large for one.
func (j *Journal) lateMsg(ctx context.Context, r *wire.LateRecord) (*nats.Msg, error) {
	msg := nats.NewMsg(j.bus.Subjects().Late(r.Turn, r.Result.Call))
	encode := func() (err error) {
		if msg.Data, err = wire.Marshal(wire.MsgPack, r); err != nil {
			return fault.New(fault.Internal, "keep the late result of %s: %w", r.Result.Call, err)
		}
		return nil
	}
	if err := encode(); err != nil || len(msg.Data) <= j.bus.Inline() {
		return msg, err
	}

	if len(r.Result.Value) > 0 {
		f := j.again(ctx, func() error {
			ref, f := j.bus.PutBlob(ctx, r.Result.Value, j.cfg.LateFor)
			if f != nil {
				return f
			}
			msg.Header.Set(wire.HeaderBlob, ref.String())
			return nil
		})
		if f != nil {
			return nil, f
		}
		r.Result.Value = nil
	}
	if err := encode(); err != nil || len(msg.Data) <= j.bus.Inline() {
		return msg, err
	}
	r.Result.Attempts, r.Result.Fault = nil, brief(r.Result.Fault)
	return msg, encode()
}

// put stores msg, creating the stream where there is none.
func (j *Journal) put(ctx context.Context, msg *nats.Msg) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	ctx, ended := j.bus.Guard(ctx, strings.TrimSuffix(j.bus.Subjects().Lates(), "*.*"))
	_, err := j.bus.JetStream().PublishMsg(ctx, msg)
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		if err = j.ensure(ctx, j.lateStream()); err == nil {
			_, err = j.bus.JetStream().PublishMsg(ctx, msg)
		}
	}
	return ended(err)
}

// again does what may go well another time until it does, or ctx ends.
func (j *Journal) again(ctx context.Context, do func() error) *fault.Fault {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		if err == nil {
			return nil
		}
		f := j.fault(ctx, j.late, "keep a late result", err)
		if f.Spec().Class != fault.Transient {
			return f
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return f
		}
	}
}

// Late is the late result that was kept for a call of a turn, or of whichever turn had such a call last where the query
// names none. The fault is NotFound where there is none.
func (j *Journal) Late(ctx context.Context, q wire.LateQuery) (*wire.LateRecord, *fault.Fault) {
	if err := q.Check(); err != nil {
		return nil, fault.New(fault.InvalidArguments, "%w", err)
	}
	subject := j.bus.Subjects().LateOf(q.Call)
	if q.Turn != "" {
		subject = j.bus.Subjects().Late(q.Turn, q.Call)
	}
	msg, err := j.last(ctx, j.late, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, j.noLate(q)
	}
	if err != nil {
		return nil, j.fault(ctx, j.late, "read the late result of "+q.Call, err)
	}

	rec := &wire.LateRecord{}
	if err := j.readLate(msg, rec); err != nil {
		return nil, fault.New(fault.Internal, "the late result of %s cannot be read: %w", q.Call, err)
	}
	check := msg.Header.Get(wire.HeaderBlob)
	if check == "" {
		return rec, nil
	}
	ref, err := wire.ParseBlobRef(check)
	if err != nil {
		return nil, fault.New(fault.Internal, "the late result of %s: %w", q.Call, err)
	}
	value, f := j.bus.GetBlob(ctx, ref)
	if f != nil {
		return nil, f
	}
	rec.Result.Value = value
	return rec, nil
}

// readLate decodes a record and sees that it is about the call whose subject it stands under.
func (j *Journal) readLate(msg *nats.Msg, rec *wire.LateRecord) error {
	if err := wire.Decode(msg.Data, rec); err != nil {
		return err
	}
	if err := rec.Check(); err != nil {
		return err
	}
	at := msg.Header.Get(jetstream.SubjectHeader)
	switch {
	case rec.Result == nil:
		return errors.New("it has no result")
	case j.bus.Subjects().Late(rec.Turn, rec.Result.Call) != at:
		return fmt.Errorf("it is about call %.80q of turn %.80q and stands under %s", rec.Result.Call, rec.Turn, at)
	}
	return nil
}

func (j *Journal) noLate(q wire.LateQuery) *fault.Fault {
	of := "call " + q.Call
	if q.Turn != "" {
		of += " of turn " + q.Turn
	}
	f := fault.New(fault.NotFound, "there is no late result of %s: it may still run, or have ended before its turn did, or more than %s ago", of, span(j.cfg.LateFor))
	f.Suggestions = []string{
		"Look at the turn's outcome: it lists the calls that went on after it",
		"Ask again later where this one is among them",
	}
	return f
}

// span is d for people.
func span(d time.Duration) string {
	if d%time.Hour == 0 {
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return d.String()
}

// fault says what was being done when err happened. Where ctx, the caller's, has ended, that is why.
func (j *Journal) fault(ctx context.Context, stream, doing string, err error) *fault.Fault {
	f := bus.Fault(err)
	switch {
	case ctx.Err() != nil && !errors.Is(err, nats.ErrPermissionViolation):
		f = bus.Fault(ctx.Err())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		f = fault.New(fault.Unavailable, "nothing answers for the stream %s; enable JetStream and start an executor, which creates it, "+
			"or wait some seconds where a server was just lost", stream)
	case errors.Is(err, context.DeadlineExceeded):
		f = fault.New(fault.Unavailable, "the stream %s did not answer within %s; try again in some seconds", stream, opTimeout)
		f.Execution = fault.Unknown
	}
	g := f.WithCause(err)
	g.Message = doing + ": " + f.Message
	g.Detail = err.Error()
	return g
}
