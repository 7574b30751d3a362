package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What one question may bring.
const (
	batch      = 256
	batchBytes = 4 << 20
)

// A replica that lags does not know yet what was just written: it is asked again, this often.
const (
	lagWait  = 50 * time.Millisecond
	lagTries = 6
)

// A query is a direct get (NATS ADR-31).
type query struct {
	LastFor  string `json:"last_by_subj,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	From     uint64 `json:"seq,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`
}

// last is the last message of subject, which may have wildcards, from any replica. ErrMsgNotFound says that there is none.
func (j *Journal) last(ctx context.Context, stream, subject string) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	req, err := json.Marshal(query{LastFor: subject})
	if err != nil {
		return nil, err
	}
	api := j.api + "DIRECT.GET." + stream
	ctx, ended := j.bus.Guard(ctx, api)
	for tries := 1; ; tries++ {
		m, err := j.bus.NATS().RequestWithContext(ctx, api, req)
		if err == nil {
			err = status(m)
		}
		if !errors.Is(err, jetstream.ErrMsgNotFound) || !j.lags(ctx, tries) {
			return m, ended(err)
		}
	}
}

// lags waits a moment where another replica may know more, and says whether to ask again.
func (j *Journal) lags(ctx context.Context, tries int) bool {
	if tries >= lagTries || j.bus.Replicas() == 1 {
		return false
	}
	select {
	case <-time.After(lagWait):
		return true
	case <-ctx.Done():
		return false
	}
}

// read gives every message of subject to each, in order. ErrMsgNotFound says that there is none.
func (j *Journal) read(ctx context.Context, stream, subject string, each func(*nats.Msg) error) error {
	nc := j.bus.NATS()
	api := j.api + "DIRECT.GET." + stream
	r := reader{answers: make(chan *nats.Msg, 2*batch), each: each}
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox+".*", r.answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is closed

	ctx, ended := j.bus.Guard(ctx, api)
	for n, tries := 1, 1; ; n++ {
		req, err := json.Marshal(query{NextFor: subject, From: r.last + 1, Batch: batch, MaxBytes: batchBytes})
		if err != nil {
			return ended(err)
		}
		r.inbox = inbox + "." + strconv.Itoa(n) // each question has its own: what is left of one before is not taken for it
		if err := nc.PublishRequest(api, r.inbox, req); err != nil {
			return ended(err)
		}
		before := r.last
		more, err := r.batch(ctx)
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			if !j.lags(ctx, tries) {
				return ended(r.end())
			}
			tries++
		case err != nil:
			return ended(err)
		case !more:
			return ended(r.end())
		case r.last == before: // all of it was lost on the way
			if tries++; tries > lagTries {
				return ended(nats.ErrTimeout)
			}
		default:
			tries = 1
		}
	}
}

// A reader takes in the answers to one batch after the other.
type reader struct {
	answers chan *nats.Msg
	inbox   string // of the batch
	last    uint64 // sequence of the last message that was handed on
	each    func(*nats.Msg) error
}

func (r *reader) end() error {
	if r.last == 0 {
		return jetstream.ErrMsgNotFound
	}
	return nil
}

// batch hands on the messages of one batch, and says whether there are more. After a hole, where one was lost on the way,
// the rest of the batch is let go, to be asked for again.
func (r *reader) batch(ctx context.Context) (more bool, err error) {
	patience := time.NewTimer(opTimeout) // for the server alone: each may take its time
	defer patience.Stop()
	whole := true
	for prev := uint64(0); ; {
		var m *nats.Msg
		select {
		case m = <-r.answers:
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-patience.C:
			return false, context.DeadlineExceeded
		}
		if m.Subject != r.inbox {
			continue
		}
		if m.Header.Get("Status") == "204" {
			whole = whole && number(m, jetstream.LastSequenceHeader) == prev
			return !whole || number(m, "Nats-Num-Pending") > 0, nil
		}
		if err := status(m); err != nil {
			return false, err
		}
		whole = whole && number(m, jetstream.LastSequenceHeader) == prev
		prev = number(m, jetstream.SequenceHeader)
		if !whole || prev <= r.last {
			continue
		}
		r.last = prev
		if err := r.each(m); err != nil {
			return false, err
		}
		patience.Reset(opTimeout)
	}
}

// status is the error that an answer of JetStream stands for.
func status(m *nats.Msg) error {
	switch s := m.Header.Get("Status"); s {
	case "":
		return nil
	case "404":
		return jetstream.ErrMsgNotFound
	case "503":
		return nats.ErrNoResponders
	default:
		return fmt.Errorf("direct get: status %s: %s", s, m.Header.Get("Description"))
	}
}

// number reads a header that is a number; 0 where there is none.
func number(m *nats.Msg, name string) uint64 {
	n, _ := strconv.ParseUint(m.Header.Get(name), 10, 64)
	return n
}
