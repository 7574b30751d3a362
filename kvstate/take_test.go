package kvstate

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// The feed may lose, repeat and reorder: what is older is dropped, and a hole asks for a snapshot.
func TestTake(t *testing.T) {
	type msg struct{ rev, prev uint64 }
	for _, test := range []struct {
		name   string
		feed   []msg
		told   string
		resync bool
	}{
		{"in order", []msg{{3, 0}, {5, 3}}, "[3 5]", false},
		{"twice", []msg{{3, 0}, {3, 0}}, "[3]", false},
		{"reordered", []msg{{3, 0}, {7, 5}, {5, 3}}, "[3 7]", true},
		{"one lost", []msg{{3, 0}, {7, 5}}, "[3 7]", true},
		{"never seen before", []msg{{7, 5}}, "[7]", false},
		{"no revision", []msg{{0, 0}}, "[]", false},
	} {
		var revs []uint64
		w := &follower{
			bucket: &Bucket{store: "$KV.b."},
			tell:   func(u Update) { revs = append(revs, u.Revision) },
			kick:   make(chan struct{}, 1),
			known:  map[string]told{},
		}
		for _, m := range test.feed {
			w.take(&nats.Msg{Header: nats.Header{
				"Nats-Subject":       {"$KV.b.k"},
				"Nats-Sequence":      {fmt.Sprint(m.rev)},
				"Nats-Last-Sequence": {fmt.Sprint(m.prev)},
			}})
		}
		if fmt.Sprint(revs) != test.told || len(w.kick) == 1 != test.resync {
			t.Errorf("%s: told %v, resync %v, want %s, %v", test.name, revs, len(w.kick) == 1, test.told, test.resync)
		}
	}
}

// Messages that do not fit are dropped and made up for by a snapshot.
func TestBacklogFull(t *testing.T) {
	w := &follower{feed: make(chan *nats.Msg, 1), kick: make(chan struct{}, 1)}
	w.receive(&nats.Msg{})
	if len(w.kick) != 0 {
		t.Error("resync after one message that fits, want none")
	}
	w.receive(&nats.Msg{})
	w.receive(&nats.Msg{})
	if len(w.kick) != 1 {
		t.Error("no resync after messages were dropped, want one")
	}
}
