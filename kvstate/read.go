package kvstate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// chunk is how many keys are asked for by name at once. The server answers at most 1,024 in one request.
	chunk = 512

	// page is how many bytes the server sends before we ask for more.
	page = 4 << 20
)

// Get reads the key from the stream's leader. The error is ErrNotFound where the key is not there.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	if err := CheckKey(key); err != nil {
		return Entry{}, fmt.Errorf("get from bucket %s: %w", b.name, err)
	}
	e, gone, err := b.last(ctx, key)
	if err == nil && gone {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{}, b.fail("get", key, err)
	}
	return e, nil
}

// last is the last message of a key, a deletion included. It asks for MSG.GET itself, since nats.go reads from any
// replica where the stream allows direct gets: measured, 22 % of the reads right after a write were old.
func (b *Bucket) last(ctx context.Context, key string) (e Entry, gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	req, err := json.Marshal(map[string]string{"last_by_subj": b.store + key})
	if err != nil {
		return e, false, err
	}
	ctx, ended := b.guard(ctx)
	msg, err := b.bus.NATS().RequestWithContext(ctx, b.api("STREAM.MSG.GET"), req)
	if err = ended(err); err != nil {
		return e, false, err
	}
	var resp struct {
		Error   *jetstream.APIError
		Message struct {
			Seq  uint64
			Hdrs []byte
			Data []byte
		}
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return e, false, fmt.Errorf("decode the answer to MSG.GET: %w", err)
	}
	if resp.Error != nil {
		return e, false, resp.Error
	}
	e = Entry{Key: key, Value: resp.Message.Data, Revision: resp.Message.Seq}
	if len(resp.Message.Hdrs) > 0 {
		h, err := nats.DecodeHeadersMsg(resp.Message.Hdrs)
		if err != nil {
			return e, false, fmt.Errorf("decode the headers of %s: %w", key, err)
		}
		gone = deleted(h)
	}
	return e, gone, nil
}

// All reads every key, sorted, from whichever replica answers: so some may be as old as that replica is behind.
func (b *Bucket) All(ctx context.Context) ([]Entry, error) {
	var all []Entry
	ctx, ended := b.guard(ctx)
	err := b.snapshot(ctx, func(e Entry, gone bool) {
		if !gone {
			all = append(all, e)
		}
	})
	if err = ended(err); err != nil {
		return nil, b.fail("read", "", err)
	}
	slices.SortStableFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Revision, a.Revision))
	})
	return slices.CompactFunc(all, func(a, b Entry) bool { return a.Key == b.Key }), nil
}

// snapshot gives every key to f, deletions included, a key that changes meanwhile perhaps twice.
func (b *Bucket) snapshot(ctx context.Context, f func(e Entry, gone bool)) error {
	err := b.read(ctx, []string{b.store + ">"}, f)
	if !errors.Is(err, errTooMany) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	s, err := b.bus.JetStream().Stream(ctx, "KV_"+b.name)
	if err != nil {
		return err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(b.store+">"))
	if err != nil {
		return err
	}
	names := make([]string, 0, len(info.State.Subjects))
	for name := range info.State.Subjects {
		names = append(names, name)
	}
	for some := range slices.Chunk(names, chunk) {
		if err := b.read(ctx, some, f); err != nil {
			return err
		}
	}
	return nil
}

var errTooMany = errors.New("more than 1,024 keys at once")

// read asks for the last message of each subject, page after page. Later pages do not say up to where (up_to_seq): a key
// that is written meanwhile has moved behind the end of the page before, and is still found.
func (b *Bucket) read(ctx context.Context, subjects []string, f func(e Entry, gone bool)) error {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	nc := b.bus.NATS()
	answers := make(chan *nats.Msg, 2048) // more than one page has
	inbox := nc.NewInbox()
	sub, err := nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is closed

	for from := uint64(0); ; {
		req, err := json.Marshal(struct {
			Subjects []string `json:"multi_last"`
			From     uint64   `json:"seq,omitempty"`
			MaxBytes int      `json:"max_bytes"`
		}{subjects, from, page})
		if err != nil {
			return err
		}
		if err := nc.PublishRequest(b.api("DIRECT.GET"), inbox, req); err != nil {
			return err
		}
		last, more, err := b.readPage(ctx, answers, f)
		if err != nil || !more || last < from {
			return err
		}
		from = last + 1
	}
}

// readPage takes the messages of one page in, up to the one that says that it was the last.
func (b *Bucket) readPage(ctx context.Context, answers <-chan *nats.Msg, f func(e Entry, gone bool)) (last uint64, more bool, err error) {
	for {
		var m *nats.Msg
		select {
		case <-ctx.Done():
			return 0, false, ctx.Err()
		case m = <-answers:
		}
		switch status := m.Header.Get("Status"); status {
		case "":
			key, ok := b.key(m.Header.Get("Nats-Subject"))
			last = number(m.Header, "Nats-Sequence")
			if ok && last > 0 {
				f(Entry{Key: key, Value: m.Data, Revision: last}, deleted(m.Header))
			}
		case "204": // the end of this page
			return last, last > 0 && number(m.Header, "Nats-Num-Pending") > 0, nil
		case "404":
			if d := m.Header.Get("Description"); d != "No Results" {
				return 0, false, fmt.Errorf("snapshot broke off: %s", d) // the store could not load a message that it has
			}
			return 0, false, nil
		case "413":
			return 0, false, errTooMany
		case "503":
			return 0, false, nats.ErrNoResponders
		default:
			return 0, false, fmt.Errorf("snapshot refused: %s %s", status, m.Header.Get("Description"))
		}
	}
}

// api is the subject of a JetStream request about the bucket's stream.
func (b *Bucket) api(verb string) string { return b.bus.JetStreamAPI() + verb + ".KV_" + b.name }

// number reads a header that is a number; 0 where there is none.
func number(h nats.Header, name string) uint64 {
	n, _ := strconv.ParseUint(h.Get(name), 10, 64)
	return n
}
