package journal_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
)

func stream(t *testing.T, c *bus.Conn, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := c.JetStream().Stream(t.Context(), name)
	if err != nil {
		t.Fatalf("stream %s: %v", name, err)
	}
	return s.CachedInfo().Config
}

func TestStreams(t *testing.T) {
	for _, test := range []struct {
		name      string
		cfg       journal.Config
		storage   jetstream.StorageType
		log, late int64
		age, kept time.Duration
	}{
		{"the zero value", journal.Config{}, jetstream.FileStorage, 256 << 20, 256 << 20, 24 * time.Hour, 24 * time.Hour},
		{"in memory", journal.Config{Memory: true}, jetstream.MemoryStorage, 64 << 20, 64 << 20, 24 * time.Hour, 24 * time.Hour},
		{"as told", journal.Config{Retention: time.Minute, LateFor: time.Hour, MaxBytes: 1 << 20, MaxLateBytes: 2 << 20},
			jetstream.FileStorage, 1 << 20, 2 << 20, time.Minute, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := natstest.Dial(t, bus.Config{Server: natstest.InProcess(t), Prefix: "acme"})
			test.cfg.Bus = c
			begin(t, test.cfg)
			log, late := stream(t, c, "ACME_LOG"), stream(t, c, "ACME_LATE")
			if log.Storage != test.storage || log.MaxBytes != test.log || log.MaxAge != test.age || log.Subjects[0] != "acme.v1.log.*" || log.Discard != jetstream.DiscardOld {
				t.Errorf("ACME_LOG = %+v", log)
			}
			if late.Storage != test.storage || late.MaxBytes != test.late || late.MaxAge != test.kept || late.Subjects[0] != "acme.v1.late.*.*" || late.MaxMsgsPerSubject != 1 {
				t.Errorf("ACME_LATE = %+v", late)
			}
		})
	}
}

// A stream that stands stays as it is.
func TestStreamStands(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	var log strings.Builder
	begin(t, journal.Config{Bus: c, MaxBytes: 1 << 20})
	begin(t, journal.Config{Bus: c, MaxBytes: 1 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if log.Len() != 0 {
		t.Errorf("log = %q, want nothing: the streams are as they should be", log.String())
	}
	begin(t, journal.Config{Bus: c, MaxBytes: 2 << 20, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if want := "max_bytes = 1048576, want 2097152"; !strings.Contains(log.String(), want) || strings.Contains(log.String(), "TB_LATE") {
		t.Errorf("log = %q, want %s of TB_LOG alone", log.String(), want)
	}
	if got := stream(t, c, "TB_LOG").MaxBytes; got != 1<<20 {
		t.Errorf("max_bytes = %d, want %d as before", got, 1<<20)
	}
}

func TestStreamCannotServe(t *testing.T) {
	for _, test := range []struct {
		name string
		have jetstream.StreamConfig
		want string
	}{
		{"other subjects", jetstream.StreamConfig{Name: "TB_LOG", Subjects: []string{"x"}, AllowDirect: true},
			"stream TB_LOG: it cannot serve: subjects = [x], want tb.v1.log.* among them; edit or delete it"},
		{"no direct get", jetstream.StreamConfig{Name: "TB_LATE", Subjects: []string{"tb.v1.late.*.*"}}, "allow_direct = false, want true"},
		{"a queue", jetstream.StreamConfig{Name: "TB_LATE", Subjects: []string{"tb.v1.late.*.*"}, AllowDirect: true, Retention: jetstream.WorkQueuePolicy}, "want Limits"},
		{"subjects taken", jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"tb.v1.log.>"}}, "another stream takes tb.v1.log.*"},
	} {
		c := natstest.Connect(t, natstest.InProcess(t))
		if _, err := c.JetStream().CreateStream(t.Context(), test.have); err != nil {
			t.Fatal(err)
		}
		j := journal.New(journal.Config{Bus: c})
		if err := j.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: Ensure: %v, want %s", test.name, err, test.want)
		}
		finish(t, j)
	}
}

func TestNoRoomForStreams(t *testing.T) {
	c := natstest.Connect(t, natstest.Start(t, bus.ServerConfig{DontListen: true, Lazy: true, MaxMemory: 100 << 20}))
	j := journal.New(journal.Config{Bus: c, Memory: true})
	t.Cleanup(func() { finish(t, j) })
	if err := j.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "it may grow to 64 MiB: raise max_memory_store") {
		t.Errorf("Ensure: %v, want advice on max_memory_store", err)
	}
}
