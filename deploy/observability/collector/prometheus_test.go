package collector_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// swap puts one thing in the place of another that must be there.
func swap(t *testing.T, text, old, with string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("prometheus.yaml does not have %s, in whose place the test puts %s", old, with)
	}
	return strings.ReplaceAll(text, old, with)
}

// prometheus starts it with our configuration and rules, and says where it listens. Only the targets are not as the file
// has them, and all is done once a second.
func prometheus(t *testing.T, executor, worker, collector string) (addr string) {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("SKIPPED: NO PROMETHEUS: there is no prometheus here (apt-get install prometheus)")
	}
	text, err := os.ReadFile("../prometheus.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg := swap(t, string(text), "host.docker.internal:9464", executor)
	cfg = swap(t, cfg, "host.docker.internal:9465", worker)
	cfg = swap(t, cfg, "otel-collector:8889", collector)
	cfg = swap(t, cfg, "interval: 15s", "interval: 1s")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "rules"), os.DirFS("../rules")); err != nil {
		t.Fatal(err)
	}
	addr = freePort(t)
	spawn(t, os.Environ(), program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--enable-feature=exemplar-storage", // as in compose.yaml
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	await(t, "Prometheus is ready", func() bool { return get(t, "http://"+addr+"/-/ready") != "" })
	return addr
}

// ask asks Prometheus' API.
func ask[T any](t *testing.T, addr, path string) (answer struct{ Data T }) {
	t.Helper()
	if text := get(t, "http://"+addr+"/api/v1/"+path); text != "" {
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			t.Fatal(path, ": ", err)
		}
	}
	return answer
}

// Prometheus starts with our configuration, reaches what it should, and can evaluate every rule. An executor that is scraped
// and a worker that sends its figures to the Collector are found under the names that alerts and dashboards know, and a
// figure leads to its trace.
func TestPrometheusScrapesAllThree(t *testing.T) {
	_, jaeger := keep(t)
	c := collect(t, jaeger)
	f := newFleet(t, c)
	worker := freePort(t)
	f.serve(t)
	f.golang(t, "TOOLBUS_METRICS_ADDR="+worker)
	addr := prometheus(t, f.metrics, worker, c.prometheus)
	trace := f.turn(t, "echo")
	f.golang(t, "OTEL_METRICS_EXPORTER=otlp")

	await(t, "all targets are up", func() bool {
		up := 0
		for _, target := range ask[struct{ ActiveTargets []struct{ Health string } }](t, addr, "targets").Data.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		return up == 3
	})
	for query, want := range map[string]int{
		`toolbus_calls_total{job="toolbus-executor"}`:   1,
		`toolbus_worker_capacity{job="toolbus-worker"}`: 2, // one is scraped, one comes through the Collector
	} {
		await(t, fmt.Sprint(query, " has ", want), func() bool {
			got := ask[struct{ Result []any }](t, addr, "query?query="+url.QueryEscape(query)).Data.Result
			return len(got) == want
		})
	}
	var sick []string
	await(t, "every rule was evaluated", func() bool {
		sick = nil
		rules := 0
		for _, g := range ask[struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}](t, addr, "rules").Data.Groups {
			for _, r := range g.Rules {
				rules++
				if r.LastError != "" {
					sick = append(sick, r.Name+": "+r.LastError)
				}
				if r.Health == "unknown" {
					return false
				}
			}
		}
		return rules > 20
	})
	slices.Sort(sick)
	if len(sick) > 0 {
		t.Errorf("rules that cannot be evaluated:\n%s", strings.Join(sick, "\n"))
	}
	await(t, "an exemplar names the trace", func() bool {
		return strings.Contains(get(t, "http://"+addr+"/api/v1/query_exemplars?query=toolbus_call_duration_seconds_bucket&start=0&end=99999999999"), trace)
	})
}
