package otel_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// measure makes metrics that can be pulled, with nothing of the machine's own environment.
func measure(t testing.TB, cfg otel.MetricsConfig) *otel.Metrics {
	t.Helper()
	for _, name := range []string{"OTEL_METRICS_EXPORTER", "OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} {
		t.Setenv(name, "")
	}
	cfg.Pull, cfg.Logger = true, slog.New(slog.DiscardHandler)
	m, shutdown, err := otel.SetupMetrics(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// scrape gets the figures as a server of /metrics gives them.
func scrape(t testing.TB, m *otel.Metrics, accept string) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics answered %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// sum adds up the series of a metric that have all the labels, each as key="value".
func sum(t testing.TB, text, metric string, labels ...string) float64 {
	t.Helper()
	all := 0.0
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		set, value, labelled := strings.Cut(rest, "} ")
		if !labelled {
			name, value, _ = strings.Cut(strings.TrimSpace(line), " ")
			set = ""
		}
		if name != metric || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(","+set+",", ","+l+",") }) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all += v
	}
	return all
}

// An injector is a tool that does what the call says for each attempt, and counts it.
type injector struct{ good, transient, permanent, hung, again, saved atomic.Int64 }

type script struct {
	Do []string `json:"do"`
}

func (i *injector) tool(id string, change func(*tool.Manifest)) worker.Tool {
	m := tool.Manifest{ID: id, Effect: tool.Read, TimeoutMs: 200, Retry: &tool.RetryPolicy{MaxAttempts: new(3), InitialDelayMs: new(int64(1)), MaxDelayMs: new(int64(1))}}
	change(&m)
	return worker.Func(m, func(ctx context.Context, in script) (string, error) {
		c, _ := worker.FromContext(ctx)
		n := c.Ref.Attempt
		if n > 1 {
			i.again.Add(1)
		}
		switch do := in.Do[min(n, len(in.Do))-1]; do {
		case "ok":
			i.good.Add(1)
			if n > 1 {
				i.saved.Add(1)
			}
			return "fine", nil
		case "hang":
			i.hung.Add(1)
			<-ctx.Done()
			return "", ctx.Err()
		case "permanent":
			i.permanent.Add(1)
			return "", fault.New(fault.NotFound, "there is none")
		default:
			i.transient.Add(1)
			return "", fault.New(fault.Upstream, "it is down")
		}
	})
}

// The eight figures of seed 000 §8.1 are what the injector did.
func TestFiguresAddUpToWhatTheInjectorDid(t *testing.T) {
	m := measure(t, otel.MetricsConfig{})
	var shop, bank injector
	h := build(t, natstest.InProcess(t), executor.Config{Observer: m}, m.Worker(),
		shop.tool("shop", func(m *tool.Manifest) { m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(100)} }),
		bank.tool("bank", func(m *tool.Manifest) {
			m.Retry.MaxAttempts = new(1)
			m.Breaker = &tool.BreakerPolicy{FailureThreshold: new(3), TimeoutMs: new(int64(60_000))}
			m.Alternatives = []string{"shop"}
		}))
	calls := [][]string{
		{"ok"}, {"ok"}, {"ok"}, {"transient", "ok"}, {"transient", "transient", "ok"}, {"transient", "transient", "transient"},
		{"permanent"}, {"permanent"}, {"hang", "ok"}, {"transient", "permanent"},
	}
	run := func(name string, do []string) tool.Result {
		return h.exec.Call(t.Context(), tool.Call{Tool: name, Args: []byte(`{"do":["` + strings.Join(do, `","`) + `"]}`)})
	}
	for _, do := range calls {
		run("shop", do)
	}
	retriedCalls, again, saved := 5.0, float64(shop.again.Load()), float64(shop.saved.Load())
	const tries = 5 // of bank: three open its breaker, two are refused; shop stands in for each
	for range tries {
		if r := run("bank", []string{"transient", "ok"}); r.Status != tool.ViaFallback {
			t.Fatalf("bank: %s %v, want the value of shop", r.Status, r.Fault)
		}
	}
	text := scrape(t, m, "text/plain")
	transient, permanent, hung := float64(shop.transient.Load()), float64(shop.permanent.Load()), float64(shop.hung.Load())
	down := float64(bank.transient.Load())
	for _, c := range []struct {
		figure, metric string
		labels         []string
		want           float64
	}{
		{"error_count of shop", "toolbus_errors_total", []string{`tool="shop"`}, transient + permanent + hung},
		{"transient_error_count of shop", "toolbus_errors_total", []string{`tool="shop"`, `class="transient"`}, transient + hung},
		{"permanent_error_count of shop", "toolbus_errors_total", []string{`tool="shop"`, `class="permanent"`}, permanent},
		{"retry_count of shop", "toolbus_retries_total", []string{`tool="shop"`}, again},
		{"retry_success_rate of shop, above", "toolbus_retries_succeeded_total", []string{`tool="shop"`}, saved},
		{"retry_success_rate of shop, below", "toolbus_calls_retried_total", []string{`tool="shop"`}, retriedCalls},
		{"timeout_count of shop", "toolbus_timeouts_total", []string{`tool="shop"`}, hung},
		{"circuit_breaker_opens of shop", "toolbus_breaker_transitions_total", []string{`tool="shop"`, `to="open"`}, 0},
		{"error_count of bank", "toolbus_errors_total", []string{`tool="bank"`}, tries},
		{"of them, what bank said", "toolbus_errors_total", []string{`tool="bank"`, `kind="upstream"`}, down},
		{"of them, what its breaker refused", "toolbus_errors_total", []string{`tool="bank"`, `kind="circuit_open"`}, tries - down},
		{"circuit_breaker_opens of bank", "toolbus_breaker_transitions_total", []string{`tool="bank"`, `to="open"`}, 1},
		{"fallbacks of bank", "toolbus_fallbacks_total", []string{`tool="bank"`, `status="success_via_fallback"`}, tries},
		{"calls of shop", "toolbus_calls_total", []string{`tool="shop"`}, float64(len(calls))},
		{"calls of bank", "toolbus_calls_total", []string{`tool="bank"`}, tries},
		{"timed calls of shop", "toolbus_call_duration_seconds_count", []string{`tool="shop"`}, float64(len(calls))},
		{"turns", "toolbus_turns_total", nil, float64(len(calls)) + tries},
		{"attempts at shop", "toolbus_attempts_total", []string{`tool="shop"`}, float64(len(calls)) + again + tries},
		{"timed attempts at bank", "toolbus_attempt_duration_seconds_count", []string{`tool="bank"`}, down},
	} {
		if got := sum(t, text, c.metric, c.labels...); got != c.want {
			t.Errorf("%s = %v, want %v", c.figure, got, c.want)
		}
	}
	if down != 3 || transient == 0 || saved != 3 {
		t.Errorf("the injector let bank fail %v times and saved %v calls of shop, want 3 and 3", down, saved)
	}
}

// everything is events that touch each metric, at a time when the figures of watch are there.
func everything(t testing.TB, m *otel.Metrics) {
	t.Helper()
	h := build(t, natstest.InProcess(t), executor.Config{}, m.Worker(), instrument("calc", ok))
	if r := h.exec.Call(t.Context(), tool.Call{Tool: "calc", Args: []byte(`{}`)}); r.Status != tool.Success {
		t.Fatal(r.Fault)
	}
	server := natstest.InProcess(t)
	c := natstest.Connect(t, server)
	if err := c.EnsureTopology(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop, err := m.Watch(otel.Figures{
		Calls: func() int { return 3 }, Turns: func() int { return 2 }, Workers: func(each func(string, int)) { each("calc", 1) },
		Fleet: func() (int, int) { return 1, 8 }, Breakers: func(each func(string, breaker.State)) {
			each("calc", breaker.HalfOpen)
			each("calc.00f0", breaker.Open)
		},
		Dropped: func() uint64 { return 7 }, Conn: c, Server: server, Worker: h.worker.Stats,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	m.BreakerFlushed(time.Millisecond, nil)
	m.JournalAppended("events", time.Millisecond, nil)
	lot(m, "calc", "t1")
}

// lot tells of a turn in which everything happened.
func lot(o executor.Observer, name, turn string) {
	f := fault.New(fault.Timeout, "too slow")
	r := &tool.Result{Call: "c1", Tool: name, Status: tool.Success, DurationMs: 25, Attempts: []tool.Attempt{
		{N: 1, Tool: name, Kind: fault.Timeout, DurationMs: 10, Decision: "retry", StartMs: 1}, {N: 2, Tool: name, DurationMs: 5},
	}}
	spent := fault.New(fault.Overloaded, retry.BudgetSpent)
	for _, ev := range []*wire.Event{
		{Type: wire.TurnStarted, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{Type: wire.CallReady, Call: "c1", Tool: name},
		{Type: wire.AttemptStarted, Call: "c1", Tool: name, Attempt: 1},
		{Type: wire.ToolError, Call: "c1", Tool: name, Error: f, Classification: "transient"},
		{Type: wire.RetryScheduled, Call: "c1", Tool: name},
		{Type: wire.AttemptStarted, Call: "c1", Tool: name, Attempt: 2},
		{Type: wire.ToolError, Call: "c1", Tool: name, Error: spent, Classification: "transient"},
		{Type: wire.BreakerChanged, Tool: name, BreakerState: "open"},
		{Type: wire.CallSettled, Call: "c1", Tool: name, Result: r},
		{Type: wire.CallSettled, Call: "c2", Tool: name, Result: &tool.Result{Tool: name, Status: tool.Defaulted}},
		{Type: wire.LateResult, Call: "c3", Tool: name, Result: r},
		{Type: wire.TurnEnded, Outcome: &wire.Outcome{Status: wire.Completed, DurationMs: 30}},
		{Type: "SomethingNew"}, {Type: wire.ToolError}, {Type: wire.CallSettled}, {Type: wire.LateResult}, {Type: wire.TurnEnded},
	} {
		ev.Turn = turn
		o.Event(ev)
	}
}

var family = regexp.MustCompile(`(?m)^# TYPE (\S+) `)

// Every metric that exists is in the docs, and the other way round.
func TestDocsNameEveryMetric(t *testing.T) {
	m := measure(t, otel.MetricsConfig{})
	everything(t, m)
	lives := map[string]bool{}
	for _, found := range family.FindAllStringSubmatch(scrape(t, m, "text/plain"), -1) {
		if name := found[1]; !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") {
			lives[name] = true
		}
	}
	page, err := os.ReadFile("../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:toolbus|gen_ai)_[a-z_]+)` \\|").FindAllSubmatch(page, -1) {
		said[string(row[1])] = true
	}
	for _, name := range slices.Sorted(maps.Keys(lives)) {
		if !said[name] {
			t.Errorf("%s exists, and docs/observability.md does not tell of it", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if !lives[name] {
			t.Errorf("docs/observability.md tells of %s, which does not exist", name)
		}
	}
}

// promtool knows what a good name is.
func TestPromtoolLikesTheNames(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("NOT CHECKED: promtool is not here (Debian's package prometheus has it)")
	}
	m := measure(t, otel.MetricsConfig{})
	everything(t, m)
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(scrape(t, m, "text/plain"))
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// However many tools and sessions there are, the number of series stays.
func TestSeriesAreBounded(t *testing.T) {
	m := measure(t, otel.MetricsConfig{Known: func(name string) bool { return !strings.HasPrefix(name, "made-up") }})
	stop, err := m.Watch(otel.Figures{
		Workers: func(each func(string, int)) {
			for i := range 10_000 {
				each(fmt.Sprintf("tool-%d", i), 1)
			}
		},
		Breakers: func(each func(string, breaker.State)) {
			for i := range 10_000 {
				each(fmt.Sprintf("tool-%d", i), breaker.Open)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	for i := range 1000 { // names that callers made up take nobody's place
		lot(m, fmt.Sprintf("made-up-%d", i), "t")
	}
	for i := range 100_000 {
		lot(m, fmt.Sprintf("tool-%d", i%10_000), fmt.Sprintf("session-%d", i))
	}
	text := scrape(t, m, "text/plain")
	if got, want := sum(t, text, "toolbus_calls_total"), 2*101_000.0; got != want {
		t.Errorf("calls = %v, want all %v", got, want)
	}
	if got, want := sum(t, text, "toolbus_calls_total", `tool="tool-7"`), 20.0; got != want {
		t.Errorf("calls of tool-7 = %v, want %v", got, want)
	}
	if got, want := sum(t, text, "toolbus_calls_total", `tool="other"`), 2*(101_000-200*10.0); got != want {
		t.Errorf("calls of other tools = %v, want %v", got, want)
	}
	if got, want := sum(t, text, "toolbus_workers"), 10_000.0; got != want {
		t.Errorf("workers = %v, want %v", got, want)
	}
	series := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
		if strings.Contains(line, "session-") || strings.Contains(line, "made-up") {
			t.Fatalf("a series by what has no bound: %s", line)
		}
	}
	// 201 tools: 12 counters and gauges, and histograms of 19 series, two of them by status and one by error.
	if most := 201*(14+19*6) + 500; series > most {
		t.Errorf("%d series, want %d at most", series, most)
	}
	t.Logf("%d series, %d KiB of text", series, len(text)>>10)
}

// What a foreign program says does not become a label.
func TestLabelsAreClosedSets(t *testing.T) {
	m := measure(t, otel.MetricsConfig{})
	evil := "x\"} 1\nevil 1\n\xff"
	for _, ev := range []*wire.Event{
		{Type: wire.ToolError, Tool: "a", Error: fault.New(fault.Kind(evil), "x"), Classification: evil},
		{Type: wire.CallSettled, Result: &tool.Result{Tool: "a", Status: tool.Status(evil)}},
		{Type: wire.BreakerChanged, Tool: "a.0123456789abcdef", BreakerState: evil},
		{Type: wire.TurnEnded, Outcome: &wire.Outcome{Status: evil}},
	} {
		m.Event(ev)
	}
	text := scrape(t, m, "text/plain")
	if strings.Contains(text, "evil") || strings.Contains(text, "\xff") {
		t.Errorf("a label is what somebody said:\n%s", text)
	}
	if got := sum(t, text, "toolbus_breaker_transitions_total", `tool="a"`, `to="other"`); got != 1 {
		t.Errorf("transitions of the breaker of a = %v, want 1", got)
	}
}

// A figure of a sampled turn names its trace, in OpenMetrics.
func TestExemplars(t *testing.T) {
	turns := new(otel.Turns)
	m := measure(t, otel.MetricsConfig{Turns: turns})
	lot(turns.Around(m), "calc", "t1")
	text := scrape(t, m, "application/openmetrics-text; version=1.0.0")
	if want := `trace_id="4bf92f3577b34da6a3ce929d0e0e4736"`; !strings.Contains(text, want) || !strings.HasSuffix(text, "# EOF\n") {
		t.Errorf("no exemplar with %s in:\n%s", want, text)
	}
}

// Metrics are pushed at the end.
func TestMetricsReachACollector(t *testing.T) {
	s, got := receiver(t)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
	m, shutdown, err := otel.SetupMetrics(t.Context(), otel.MetricsConfig{Config: otel.Config{Service: "ours"}})
	if err != nil {
		t.Fatal(err)
	}
	lot(m, "calc", "t1")
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := <-got
	for _, want := range []string{"/v1/metrics", "toolbus.calls", "calc", "ours"} {
		if !strings.Contains(text, want) {
			t.Errorf("the collector got %q, want %s in it", text, want)
		}
	}
}

// A disabled SDK pushes nothing, also where /metrics are asked for.
func TestDisabledPushesNothing(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("metrics were pushed") }))
	defer s.Close()
	for name, v := range map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": s.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "", "OTEL_SDK_DISABLED": "true"} {
		t.Setenv(name, v)
	}
	m, shutdown, err := otel.SetupMetrics(t.Context(), otel.MetricsConfig{Pull: true})
	if err != nil || m.Handler() == nil {
		t.Fatalf("SetupMetrics = %v, %v, want /metrics", m, err)
	}
	lot(m, "calc", "t1")
	if err := shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetricsAreOffByDefault(t *testing.T) {
	t.Setenv("OTEL_METRICS_EXPORTER", "")
	m, shutdown, err := otel.SetupMetrics(t.Context(), otel.MetricsConfig{})
	if m != nil || err != nil || shutdown(t.Context()) != nil {
		t.Errorf("SetupMetrics = %v, %v, want nothing", m, err)
	}
	if m.Worker() != nil || otel.WorkerObservers(m.Worker()) != nil {
		t.Error("a worker is observed, want nobody to look")
	}
	for env, want := range map[string]string{"statsd": `OTEL_METRICS_EXPORTER="statsd": want otlp`, "prometheus": "--metrics-addr"} {
		t.Setenv("OTEL_METRICS_EXPORTER", env)
		if _, _, err := otel.SetupMetrics(t.Context(), otel.MetricsConfig{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %s", env, err, want)
		}
	}
}

// usual is the events of a call that goes well.
func usual() []*wire.Event {
	return []*wire.Event{
		{Type: wire.TurnStarted, Turn: "t"}, {Type: wire.CallReady, Turn: "t", Tool: "calc"}, {Type: wire.AttemptStarted, Turn: "t", Tool: "calc"},
		{Type: wire.CallSettled, Turn: "t", Result: &tool.Result{Tool: "calc", Status: tool.Success, DurationMs: 1, Attempts: []tool.Attempt{{N: 1, Tool: "calc", DurationMs: 1}}}},
		{Type: wire.TurnEnded, Turn: "t", Outcome: &wire.Outcome{Status: wire.Completed}},
	}
}

func TestMeasuringAllocatesNothing(t *testing.T) {
	turns := new(otel.Turns)
	o := turns.Around(measure(t, otel.MetricsConfig{Turns: turns}))
	evs := usual()
	if n := testing.AllocsPerRun(1000, func() {
		for _, ev := range evs {
			o.Event(ev)
		}
	}); n > 0 {
		t.Errorf("measuring a call allocates %v times, want 0", n)
	}
}

func BenchmarkMetrics(b *testing.B) {
	evs, turns := usual(), new(otel.Turns)
	for name, o := range map[string]executor.Observer{
		"off": turns.Around(),
		"on":  turns.Around(measure(b, otel.MetricsConfig{Turns: turns})),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					for _, ev := range evs {
						o.Event(ev)
					}
				}
			})
		})
	}
}
