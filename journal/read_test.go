package journal

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What is lost on the way is asked for again, and nothing behind it is handed on before.
func TestBatch(t *testing.T) {
	msg := func(seq, prev uint64) *nats.Msg {
		return &nats.Msg{Subject: "in.1", Header: nats.Header{"Nats-Sequence": {fmt.Sprint(seq)}, "Nats-Last-Sequence": {fmt.Sprint(prev)}}}
	}
	end := func(last, pending uint64) *nats.Msg {
		return &nats.Msg{Subject: "in.1", Header: nats.Header{"Status": {"204"}, "Nats-Last-Sequence": {fmt.Sprint(last)}, "Nats-Num-Pending": {fmt.Sprint(pending)}}}
	}
	status := func(s string) *nats.Msg { return &nats.Msg{Subject: "in.1", Header: nats.Header{"Status": {s}}} }
	old := msg(9, 0)
	old.Subject = "in.0"

	for _, test := range []struct {
		name    string
		answers []*nats.Msg
		told    string
		more    bool
		err     error
	}{
		{"whole", []*nats.Msg{msg(3, 0), msg(5, 3), end(5, 0)}, "[3 5]", false, nil},
		{"more to come", []*nats.Msg{msg(3, 0), end(3, 4)}, "[3]", true, nil},
		{"a hole", []*nats.Msg{msg(3, 0), msg(7, 5), msg(8, 7), end(8, 0)}, "[3]", true, nil},
		{"the first is lost", []*nats.Msg{msg(5, 3), end(5, 0)}, "[]", true, nil},
		{"the last is lost", []*nats.Msg{msg(3, 0), end(5, 0)}, "[3]", true, nil},
		{"of an earlier question", []*nats.Msg{old, msg(3, 0), end(3, 0)}, "[3]", false, nil},
		{"known already", []*nats.Msg{msg(1, 0), msg(3, 1), end(3, 0)}, "[3]", false, nil},
		{"nothing", []*nats.Msg{status("404")}, "[]", false, jetstream.ErrMsgNotFound},
		{"nobody", []*nats.Msg{status("503")}, "[]", false, nats.ErrNoResponders},
	} {
		told := []uint64{}
		r := reader{answers: make(chan *nats.Msg, 10), inbox: "in.1", last: 2, each: func(m *nats.Msg) error {
			told = append(told, number(m, "Nats-Sequence"))
			return nil
		}}
		for _, m := range test.answers {
			r.answers <- m
		}
		more, err := r.batch(t.Context())
		if fmt.Sprint(told) != test.told || more != test.more || !errors.Is(err, test.err) {
			t.Errorf("%s: told %v, more %v, %v, want %s, %v, %v", test.name, told, more, err, test.told, test.more, test.err)
		}
	}
}
