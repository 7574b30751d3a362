package bus_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

// Whoever may look and not create is content with what somebody else created, and told by which subject where nobody did.
func TestEnsureStreamOfAnother(t *testing.T) {
	s := configured(t, `jetstream { store_dir: "`+t.TempDir()+`" }
authorization { users: [
  { user: all, password: a }
  { user: looks, password: l, permissions: { publish: "$JS.API.STREAM.INFO.A", subscribe: "_INBOX_looks.>" } }
] }`)
	all := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "all", Password: "a"})
	looks := natstest.Dial(t, bus.Config{URL: s.ClientURL(), User: "looks", Password: "l"})
	want := jetstream.StreamConfig{Name: "A", Subjects: []string{"a.>"}, Replicas: 1}
	err := looks.EnsureStream(t.Context(), want, nil)
	if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `"$JS.API.STREAM.CREATE.A"`) {
		t.Errorf("EnsureStream of none = %v, want that creating it was refused", err)
	}
	for _, c := range []*bus.Conn{all, looks} {
		if err := c.EnsureStream(t.Context(), want, nil); err != nil {
			t.Errorf("EnsureStream = %v", err)
		}
	}
}

func TestEnsureStreamCannotServe(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	have := jetstream.StreamConfig{Name: "A", Subjects: []string{"a", "b"}, RePublish: &jetstream.RePublish{Source: "a", Destination: "c"}}
	if err := c.EnsureStream(t.Context(), have, nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		want jetstream.StreamConfig
		says string // "" where it serves
	}{
		{"fewer subjects", jetstream.StreamConfig{Subjects: []string{"a"}}, ""},
		{"another bound", jetstream.StreamConfig{Subjects: []string{"a"}, MaxBytes: 1 << 20}, ""},
		{"more subjects", jetstream.StreamConfig{Subjects: []string{"a", "d"}}, "subjects = [a b], want d among them"},
		{"no direct get", jetstream.StreamConfig{AllowDirect: true}, "allow_direct = false, want true"},
		{"no TTL", jetstream.StreamConfig{AllowMsgTTL: true}, "allow_msg_ttl = false, want true"},
		{"a queue", jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy}, "retention = Limits, want WorkQueue"},
		{"another feed", jetstream.StreamConfig{RePublish: &jetstream.RePublish{Source: "a", Destination: "d"}}, `republish to "c", want "d"`},
	} {
		test.want.Name = "A"
		var log strings.Builder
		err := c.EnsureStream(t.Context(), test.want, slog.New(slog.NewTextHandler(&log, nil)))
		switch {
		case test.says == "" && (err != nil || !strings.Contains(log.String(), "leaving it so")):
			t.Errorf("%s: %v, log %q, want nil and a word in the log", test.name, err, &log)
		case test.says != "" && (!errors.Is(err, bus.ErrCannotServe) || !strings.Contains(err.Error(), "stream A: it cannot serve: "+test.says)):
			t.Errorf("%s: %v, want that it cannot serve: %s", test.name, err, test.says)
		}
	}
}

// A cluster does not answer who asks for a stream that is being created. Whoever starts beside others must not wait for that
// answer until its time is up.
func TestEnsureStreamAsksAgain(t *testing.T) {
	c := natstest.Dial(t, bus.Config{URL: configured(t, "").ClientURL()})
	asked := 0
	sub, err := c.NATS().Subscribe("$JS.API.STREAM.INFO.A", func(m *nats.Msg) {
		if asked++; asked > 1 {
			_ = m.Respond([]byte(`{"type":"io.nats.jetstream.api.v1.stream_info_response","config":{"name":"A","subjects":["a"]}}`))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureStream(t.Context(), jetstream.StreamConfig{Name: "A", Subjects: []string{"a"}}, nil); err != nil {
		t.Errorf("EnsureStream = %v, want the answer to its second question", err)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
}
