package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// fetch gets what operators are told.
func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
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
}

// Operators get figures, health and the log's level from a program that serves.
func TestOperatorsAreAnswered(t *testing.T) {
	p := background(t, "Ctrl-C stops.", "dev", "--port=-1", "--store-dir="+t.TempDir(), "--log-level=info", "--metrics-addr=127.0.0.1:0", "--pprof-addr=127.0.0.1:0")
	at := "--nats-url=" + regexp.MustCompile(`nats://[0-9.:]+`).FindString(p.String())
	find := func(name string) string {
		found := regexp.MustCompile(name + `=(http://\S+)`).FindStringSubmatch(p.String())
		if found == nil {
			t.Fatalf("the log does not say where %s is:\n%s", name, p)
		}
		return found[1]
	}
	if status, said := fetch(t, find("ready")); status != http.StatusOK || said != "ready\n  turns: ok\n  nats: ok\n  jetstream: ok\n" {
		t.Errorf("/readyz = %d %q, want all ok", status, said)
	}
	command("", "call", at, "flaky", `{"fail_times": 2}`).check(t, "flaky", 0, nil, []string{"✓ flaky answered"})
	_, text := fetch(t, find("metrics"))
	for _, want := range []string{
		`toolbus_retries_total{tool="flaky"} 2`,
		`toolbus_retries_succeeded_total{tool="flaky"} 1`,
		`toolbus_breaker_state{tool="flaky"} 0`,
		`toolbus_workers{tool="flaky"} 1`,
		"toolbus_turns_in_flight 0",
		"toolbus_journal_dropped 0",
		"toolbus_connected 1",
		"toolbus_nats_jetstream_used_bytes{storage=",
		"go_goroutines ",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	if status, said := fetch(t, find("pprof")); status != http.StatusOK || !strings.Contains(said, "goroutine") {
		t.Errorf("pprof = %d", status)
	}
	command("", "dev", "--port=-1", "--store-dir="+t.TempDir(), "--metrics-addr=nonsense").check(t, "an address that cannot be", 2, nil, []string{"metrics_addr: expected host:port"})
}
