package bus_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/internal/natstest"
)

func TestStoreDirInUse(t *testing.T) {
	dir := t.TempDir()
	cfg := bus.ServerConfig{Dir: dir, DontListen: true}
	first := natstest.Start(t, cfg)
	_, err := bus.StartServer(cfg)
	if err == nil || !strings.Contains(err.Error(), dir+" is in use by this process") || !strings.Contains(err.Error(), "--store-dir") {
		t.Fatalf("second server on one directory = %v", err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "toolbus.lock")); strings.TrimSpace(string(text)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("the lock file says %q, want our process id", text)
	}
	// Another holder is named by what it wrote.
	if err := os.WriteFile(filepath.Join(dir, "toolbus.lock"), []byte("1234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.StartServer(cfg); err == nil || !strings.Contains(err.Error(), "in use by process 1234") {
		t.Errorf("second server = %v, want process 1234 named", err)
	}

	first.Shutdown()
	first.Shutdown()
	natstest.Start(t, cfg)
}

func TestStoreDirKeepsData(t *testing.T) {
	cfg := bus.ServerConfig{Dir: t.TempDir(), DontListen: true}
	s := natstest.Start(t, cfg)
	c := natstest.Connect(t, s)
	ref, f := c.PutBlob(t.Context(), noise(100), 0)
	if f != nil {
		t.Fatal(f)
	}
	c.Close()
	s.Shutdown()
	if _, f := natstest.Connect(t, natstest.Start(t, cfg)).GetBlob(t.Context(), ref); f != nil {
		t.Errorf("GetBlob after a restart = %v", f)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := filepath.Join(t.TempDir(), "store")
	port := l.Addr().(*net.TCPAddr).Port
	_, err = bus.StartServer(bus.ServerConfig{Dir: dir, Port: port})
	if want := fmt.Sprintf("port %d of 127.0.0.1 is in use", port); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--port") {
		t.Errorf("StartServer = %v, want %q", err, want)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the store directory was made all the same")
	}
}

func TestServerConfigRefused(t *testing.T) {
	for _, tt := range []struct {
		cfg  bus.ServerConfig
		want string
	}{
		{bus.ServerConfig{Port: 70000}, "port = 70000"},
		{bus.ServerConfig{MaxPayload: 1 << 30}, "max payload = 1073741824"},
		{bus.ServerConfig{MaxStore: -1}, "max store = -1"},
		{bus.ServerConfig{DontListen: true, Dir: "/dev/null/x"}, "store directory"},
		{bus.ServerConfig{ConfigFile: "/no/nats.conf"}, "/no/nats.conf"},
		{bus.ServerConfig{ConfigFile: file(t, "nats.conf", "jetstream { bogus: 1 }")}, "bogus"},
		{bus.ServerConfig{ConfigFile: file(t, "nats.conf", "jetstream {}")}, "without store_dir"},
		{bus.ServerConfig{Host: "192.0.2.1", Port: 4222}, "listen on 192.0.2.1:4222"},
	} {
		s, err := bus.StartServer(tt.cfg)
		if err == nil {
			s.Shutdown()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("StartServer(%+v) = %v, want %q", tt.cfg, err, tt.want)
		}
	}
}

func TestTemporaryStore(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	old := time.Now().Add(-time.Hour)
	stale, foreign, young := filepath.Join(tmp, "toolbus-nats-1"), filepath.Join(tmp, "toolbus-nats-2"), filepath.Join(tmp, "toolbus-nats-3")
	for _, dir := range []string{stale, foreign, young} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if dir == foreign {
			continue // no lock file: not one of ours
		}
		if err := os.WriteFile(filepath.Join(dir, "toolbus.lock"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{stale, foreign} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}

	first, err := bus.StartServer(bus.ServerConfig{DontListen: true})
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{stale: false, foreign: true, young: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", filepath.Base(dir), err == nil, want)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "toolbus-nats-*")); len(left) != 3 {
		t.Errorf("directories while it runs = %v, want three", left)
	}
	first.Shutdown()
	if left, _ := filepath.Glob(filepath.Join(tmp, "toolbus-nats-*")); len(left) != 2 {
		t.Errorf("directories after Shutdown = %v, want two", left)
	}
}

func TestServerFigures(t *testing.T) {
	s := natstest.InProcess(t)
	if url := s.ClientURL(); url != "" {
		t.Errorf("ClientURL() = %q, want none: it does not listen", url)
	}
	if !strings.HasPrefix(natstest.URL(t), "nats://127.0.0.1:") {
		t.Error("a server that listens has no URL")
	}
	v, err := s.NATS().Varz(nil)
	if err != nil || !natstest.Start(t, bus.ServerConfig{DontListen: true}).NATS().JetStreamConfig().SyncAlways {
		t.Errorf("Varz = %v, %v; a server that is not Lazy must sync always", v, err)
	}
}

func BenchmarkStartServer(b *testing.B) {
	for b.Loop() {
		s, err := bus.StartServer(bus.ServerConfig{Dir: b.TempDir(), Port: -1})
		if err != nil {
			b.Fatal(err)
		}
		s.Shutdown()
	}
}
