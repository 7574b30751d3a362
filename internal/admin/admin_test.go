package admin_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/internal/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server on free ports, and gives a client for it.
func serve(t *testing.T, cfg admin.Config) (get func(method, path, body string) (int, string), s *admin.Server) {
	t.Helper()
	cfg.Addr = "127.0.0.1:0"
	s, err := admin.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		s.Close()
	})
	return func(method, path, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Body.Close()
		b, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return w.StatusCode, string(b)
	}, s
}

func TestReadiness(t *testing.T) {
	var report admin.Report
	get, _ := serve(t, admin.Config{Ready: func(context.Context) admin.Report { return report }})
	for _, c := range []struct {
		report admin.Report
		status int
		want   string
	}{
		{nil, 200, "ready\n"},
		{admin.Report{{Name: "turns"}, {Name: "nats"}}, 200, "ready\n  turns: ok\n  nats: ok\n"},
		{admin.Report{{Name: "turns"}, {Name: "jetstream", State: admin.Degraded, Why: "it is away"}}, 200, "ready, degraded\n  turns: ok\n  jetstream: degraded, it is away\n"},
		{admin.Report{{Name: "turns", State: admin.Down, Why: "draining"}, {Name: "jetstream", State: admin.Degraded}}, 503, "not ready\n  turns: down, draining\n  jetstream: degraded\n"},
	} {
		report = c.report
		if status, got := get("GET", "/readyz", ""); status != c.status || got != c.want {
			t.Errorf("%v: /readyz = %d %q, want %d %q", c.report, status, got, c.status, c.want)
		}
		if status, got := get("GET", "/healthz", ""); status != 200 || got != "alive\n" {
			t.Errorf("%v: /healthz = %d %q, want 200", c.report, status, got)
		}
	}
	if status, _ := get("GET", "/metrics", ""); status != 404 {
		t.Errorf("/metrics = %d where there are none, want 404", status)
	}
	if status, _ := get("GET", "/debug/pprof/", ""); status != 404 {
		t.Errorf("profiles on the listener of the figures: %d, want 404", status)
	}
}

func TestLevelIsSet(t *testing.T) {
	var level admin.Level
	get, _ := serve(t, admin.Config{Level: &level})
	for _, c := range []struct {
		body   string
		status int
		want   slog.Level
	}{{"debug", 200, slog.LevelDebug}, {" ERROR\n", 200, slog.LevelError}, {"loud", 400, slog.LevelError}, {strings.Repeat("x", 1<<20), 400, slog.LevelError}} {
		if status, said := get("PUT", "/loglevel", c.body); status != c.status || level.Level() != c.want {
			t.Errorf("PUT %.10q: %d %q, level %v, want %d and %v", c.body, status, said, level.Level(), c.status, c.want)
		}
	}
	if _, got := get("GET", "/loglevel", ""); got != "error\n" {
		t.Errorf("GET = %q, want error", got)
	}
	if status, _ := get("POST", "/loglevel", "debug"); status != 405 {
		t.Errorf("POST = %d, want 405", status)
	}
}

func TestSignalTogglesDebug(t *testing.T) {
	var level admin.Level
	if err := level.Parse("warn"); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	stop := level.OnSignal(slog.New(slog.NewTextHandler(writer(func(b []byte) { said <- string(b) }), nil)))
	defer stop()
	for _, want := range []string{"level=debug", "level=warn", "level=debug"} {
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		if got := <-said; !strings.Contains(got, want) {
			t.Errorf("SIGUSR1 said %q, want %s", got, want)
		}
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(bytes.Clone(b)); return len(b), nil }

func TestProfilesHaveTheirOwnListener(t *testing.T) {
	_, s := serve(t, admin.Config{PprofAddr: "127.0.0.1:0"})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.PprofAddr().String()+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	if b, err := io.ReadAll(w.Body); err != nil || w.StatusCode != 200 || !strings.Contains(string(b), "goroutine profile") {
		t.Errorf("the profile = %d %.80s %v", w.StatusCode, b, err)
	}
}

func TestNothingIsServedByDefault(t *testing.T) {
	s, err := admin.Start(t.Context(), admin.Config{})
	if s != nil || err != nil {
		t.Errorf("Start = %v, %v, want nothing", s, err)
	}
	s.Close()
}

func TestAddressesThatCannotBe(t *testing.T) {
	_, s := serve(t, admin.Config{})
	for _, c := range []struct {
		cfg  admin.Config
		want string
	}{
		{admin.Config{Addr: s.Addr().String()}, "metrics_addr"},
		{admin.Config{Addr: "nonsense"}, "metrics_addr"},
		{admin.Config{Addr: "127.0.0.1:0", PprofAddr: s.Addr().String()}, "pprof_addr"},
	} {
		if _, err := admin.Start(t.Context(), c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %s", c.cfg, err, c.want)
		}
	}
}
