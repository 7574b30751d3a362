package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/internal/natstest"
)

// goworker builds the conformance worker in Go, once.
var goworker = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "toolbus-conformance-")
	if err != nil {
		return "", err
	}
	built := filepath.Join(dir, "goworker")
	out, err := exec.Command("go", "build", "-o", built, "./goworker").CombinedOutput()
	if err != nil {
		os.Stderr.Write(out)
	}
	return built, err
})

func TestMain(m *testing.M) {
	if os.Getenv(asPlain) != "" {
		plainWorker()
	}
	code := m.Run()
	if built, err := goworker(); err == nil {
		os.RemoveAll(filepath.Dir(built))
	}
	os.Exit(code)
}

// asPlain in the environment makes this program a plain worker.
const asPlain = "CONFORMANCE_PLAIN_WORKER"

// plainWorker is all that a worker of level plain needs: a NATS client that replies.
func plainWorker() {
	nc, err := nats.Connect(os.Getenv("TOOLBUS_NATS_URL"))
	if err != nil {
		panic(err)
	}
	serve := func(tool string, f func(data []byte) []byte) {
		subject := os.Getenv("TOOLBUS_PREFIX") + ".v1.call." + tool
		if _, err := nc.QueueSubscribe(subject, "workers", func(m *nats.Msg) { _ = m.Respond(f(m.Data)) }); err != nil {
			panic(err)
		}
	}
	serve("conf_size", func(data []byte) []byte {
		var in struct{ Data string }
		_ = json.Unmarshal(data, &in)
		return fmt.Appendf(nil, `{"bytes":%d}`, len(in.Data))
	})
	serve("conf_echo", func(data []byte) []byte { return data })
	select {}
}

// A bare replier is a worker of level plain, and of no other.
func TestPlainReplier(t *testing.T) {
	t.Setenv(asPlain, "1")
	r := against(t, Config{Command: []string{os.Args[0]}, Level: Plain})
	var table strings.Builder
	_ = r.Table(&table)
	if !r.Passed() {
		t.Error(table.String())
	}
	random, err := Random(t.Context(), Config{Command: []string{os.Args[0]}, Level: Plain}, seed(t), time.Second)
	if err != nil || !random.Passed() {
		t.Errorf("Random = %v, %v", random.Problems, err)
	}
}

// A worker that cannot start fails every case, at once and with its own words.
func TestNoWorker(t *testing.T) {
	r := against(t, Config{Command: []string{"sh", "-c", "echo I would rather not >&2; exit 3"}})
	if n := r.Count("", Failed); n != len(r.Cases) {
		t.Errorf("%d of %d cases failed, want all", n, len(r.Cases))
	}
	if why := r.Cases[0].Why; !strings.Contains(why, "exit status 3") || !strings.Contains(why, "I would rather not") {
		t.Errorf("why = %s, want how it ended and what it said", why)
	}
}

// On a server of somebody else's, cases that cut the worker off are skipped.
func TestServerOfSomebodyElse(t *testing.T) {
	r := against(t, Config{URL: natstest.URL(t), Only: "reconnect/"})
	if r.Count("", Skipped) != len(r.Cases) || len(r.Cases) == 0 {
		t.Errorf("skipped %d of %d", r.Count("", Skipped), len(r.Cases))
	}
	if r = against(t, Config{URL: natstest.URL(t), Only: "cancel/during"}); r.Count("", Passed) != 1 {
		t.Errorf("cases = %+v", r.Cases[0])
	}
}

func TestConfigThatIsWrong(t *testing.T) {
	for want, cfg := range map[string]Config{
		"Command is empty":  {},
		"plain, standard":   {Command: []string{"x"}, Level: "most"},
		"no case of level":  {Command: []string{"x"}, Only: "nonsense"},
		"no case of level ": {Command: []string{"x"}, Level: Plain, Only: "drain/"},
	} {
		if _, err := Run(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run(%+v) = %v, want %q", cfg, err, want)
		}
	}
}

// against runs cases against the Go worker, as cfg breaks it.
func against(t *testing.T, cfg Config) Report {
	t.Helper()
	built, err := goworker()
	if err != nil {
		t.Fatal("build the worker: ", err)
	}
	if len(cfg.Command) == 0 {
		cfg.Command = []string{built}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := Run(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGoWorkerAtFull(t *testing.T) {
	t.Parallel()
	r := against(t, Config{Level: Full})
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	if !r.Passed() || r.Count("", Skipped) > 0 {
		t.Error(table.String())
	}
	t.Logf("%d cases in %d ms", len(r.Cases), r.DurationMs)
}
