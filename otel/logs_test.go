package otel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/wire"
)

// lines makes a log whose lines, as JSON, are in the buffer.
func lines(t testing.TB, cfg otel.LogsConfig) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	t.Setenv("OTEL_LOGS_EXPORTER", "")
	var b bytes.Buffer
	cfg.Next = slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})
	log, _, err := otel.SetupLogs(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return log, &b
}

// read takes the lines out of the buffer.
func read(t testing.TB, b *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	d := json.NewDecoder(b)
	for d.More() {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		all = append(all, line)
	}
	return all
}

const (
	traceID     = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID      = "00f067aa0ba902b7"
	traceparent = "00-" + traceID + "-" + spanID + "-01"
)

func TestLinesNameTheirTrace(t *testing.T) {
	turns := new(otel.Turns)
	o := turns.Around()
	log, b := lines(t, otel.LogsConfig{Turns: turns})
	o.Event(&wire.Event{Type: wire.TurnStarted, Turn: "t1", Traceparent: traceparent})
	o.Event(&wire.Event{Type: wire.TurnStarted, Turn: "t2", Traceparent: strings.TrimSuffix(traceparent, "1") + "0"})
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))

	log.Info("of a turn", "turn", "t1")
	log.With("turn", "t1").Info("of a turn, by its logger")
	log.InfoContext(ctx, "of a span", "turn", "t1")
	log.Info("of a turn that is not sampled", "turn", "t2")
	log.WithGroup("g").Info("of something else that is called turn", "turn", "t1")
	o.Event(&wire.Event{Type: wire.TurnEnded, Turn: "t1"})
	log.Info("of a turn that is over", "turn", "t1")
	var got []any
	for _, line := range read(t, b) {
		got = append(got, line["trace_id"])
	}
	want := []any{traceID, traceID, "01000000000000000000000000000000", nil, nil, nil}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d has trace_id %v, want %v", i, got[i], want[i])
		}
	}
}

func TestLevelChangesAtRunTime(t *testing.T) {
	var level slog.LevelVar
	log, b := lines(t, otel.LogsConfig{Level: &level})
	log.Debug("one")
	level.Set(slog.LevelDebug)
	log.Debug("two")
	level.Set(slog.LevelError)
	log.Warn("three")
	if got := read(t, b); len(got) != 1 || got[0]["msg"] != "two" {
		t.Errorf("lines = %v, want two alone", got)
	}
}

func TestRepeatsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, b := lines(t, otel.LogsConfig{})
		for range 100 {
			log.Error("it is broken", "tool", "a", "n", 1)
			log.Info("it goes on")
		}
		log.Error("it is broken", "tool", "b") // another tool's is news
		log.Warn("it is broken", "tool", "a")  // and so is another level
		time.Sleep(10 * time.Second)
		log.Error("it is broken", "tool", "a")
		log.Error("it is broken", "tool", "a")
		count, more := 0, any(nil)
		for _, line := range read(t, b) {
			if line["level"] == "ERROR" && line["tool"] == "a" {
				count, more = count+1, line["more_like_it"]
			}
			if line["msg"] != "it goes on" {
				continue
			}
			count += 1000
		}
		if count != 2+100*1000 || more != float64(99) {
			t.Errorf("%d errors of a in 100 lines, the last with more_like_it=%v, want 2 and 99", count-100*1000, more)
		}
	})
}

// Ten thousand different errors take no more memory than a thousand, and all are said.
func TestManyDifferentErrors(t *testing.T) {
	log, b := lines(t, otel.LogsConfig{})
	for i := range 10_000 {
		log.Error("error "+strconv.Itoa(i%5000), "i", i)
	}
	if n := len(read(t, b)); n < 5000 || n > 10_000 {
		t.Errorf("%d lines, want 5,000 at least", n)
	}
}

type quoted struct {
	Name     string
	Password string
}

type lazy string

func (l lazy) LogValue() slog.Value { return slog.GroupValue(slog.String("api_key", string(l))) }

// No line has any of the secrets that are planted, wherever they stand.
func TestSecretsAreTakenOut(t *testing.T) {
	const planted = "hunter2hunter2"
	seed := "SUAM" + strings.Repeat("A2", 27)
	jwt := "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJoaSJ9.c2lnbmF0dXJl"
	pem := "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\n-----END OPENSSH PRIVATE KEY-----"
	log, b := lines(t, otel.LogsConfig{Level: slog.LevelDebug})
	log.Info("dial nats://admin:" + planted + "@nats.example:4222 failed")
	log.Info("x", "password", planted, "API-Key", planted, "authToken", planted, "tool", "a")
	log.Info("x", "error", errors.New("get https://u:"+planted+"@h/p: 401, authorization: Bearer "+planted))
	log.Info("x", "header", http.Header{"Authorization": {"Basic " + planted}, "Cookie": {"sid=" + planted}})
	log.Info("x", "user", quoted{"bob", planted}, "env", []string{"DB_PASSWORD=" + planted, "HOME=/root"})
	log.Info("x", "settings", map[string]any{"client_secret": planted, "n": 1})
	log.Info("x", slog.Group("g", slog.Group("credentials", slog.String("id", planted)), slog.String("token", planted)))
	log.Info("x", "lazy", lazy(planted), "body", []byte(`{"access_token":"`+planted+`"}`))
	log.With("secret", planted).WithGroup("g").With("passwd", planted).Info("x")
	log.Info("dial nats://admin:a@" + planted + "@nats.example:4222 failed")
	log.Info("seed " + seed + " jwt " + jwt + " " + pem)
	log.Info("x", "a", "sk-proj-"+planted+planted, "b", "AKIAABCDEFGHIJKLMNOP", "c", "ghp_"+planted+planted)
	text := b.String()
	for _, secret := range []string{planted, seed, jwt, "b3BlbnNzaC1rZXkt", "AKIAABCDEFGHIJKLMNOP"} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in the log:\n%s", secret, text)
		}
	}
	for _, kept := range []string{"nats.example:4222 failed", `"tool":"a"`, "bob", "HOME=", `401`} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s is not in the log, want it kept:\n%s", kept, text)
		}
	}
}

// What is no secret stays what it was.
func TestLinesStayAsTheyWere(t *testing.T) {
	log, b := lines(t, otel.LogsConfig{})
	log.Info("worker w-1 takes calls of calc", "tokens", 17, "took", time.Second, "list", []string{"a", "b"}, "key", "calc", "ok", true,
		"why", "task at 10:30: the key is missing; see https://toolbus.example/docs?x=1")
	line := read(t, b)[0]
	want := map[string]any{"msg": "worker w-1 takes calls of calc", "tokens": 17.0, "took": 1e9, "key": "calc", "ok": true,
		"why": "task at 10:30: the key is missing; see https://toolbus.example/docs?x=1"}
	for k, v := range want {
		if line[k] != v {
			t.Errorf("%s = %v, want %v", k, line[k], v)
		}
	}
	if list, _ := line["list"].([]any); len(list) != 2 {
		t.Errorf("list = %v, want a list", line["list"])
	}
}

type silent struct{ why string }

func (s *silent) Error() string  { return s.why }
func (s *silent) String() string { return s.why }

// A value that panics when it is printed does not end who logs it.
func TestValuesThatPanic(t *testing.T) {
	log, b := lines(t, otel.LogsConfig{})
	log.With("who", (*silent)(nil)).Info("x", "error", (*silent)(nil), "n", 1)
	if line := read(t, b)[0]; line["n"] != 1.0 || line["error"] != "a *otel_test.silent that cannot be printed" {
		t.Errorf("line = %v, want n and what error is", line)
	}
}

// A collector of logs that is away is complained of in the log, not beside it, once.
func TestCollectorOfLogsIsAway(t *testing.T) {
	at := httptest.NewServer(http.NotFoundHandler())
	at.Close()
	for name, v := range map[string]string{"OTEL_LOGS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": at.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "", "OTEL_SDK_DISABLED": ""} {
		t.Setenv(name, v)
	}
	before := otelapi.GetErrorHandler()
	t.Cleanup(func() { otelapi.SetErrorHandler(before) })
	var b bytes.Buffer
	_, shutdown, err := otel.SetupLogs(t.Context(), otel.LogsConfig{Next: slog.NewTextHandler(&b, nil)})
	if err != nil {
		t.Fatal(err)
	}
	otelapi.Handle(errors.New("connection refused"))
	otelapi.Handle(errors.New("connection refused"))
	if err := shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(b.String(), "calls are not affected"); n != 1 {
		t.Errorf("the log complains %d times, want once:\n%s", n, b.String())
	}
}

func TestLinesReachACollector(t *testing.T) {
	s, got := receiver(t)
	t.Setenv("OTEL_LOGS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", s.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
	t.Setenv("OTEL_SDK_DISABLED", "")
	var b bytes.Buffer
	log, shutdown, err := otel.SetupLogs(t.Context(), otel.LogsConfig{Config: otel.Config{Service: "ours"}, Next: slog.NewTextHandler(&b, nil)})
	if err != nil {
		t.Fatal(err)
	}
	log.With("turn", "t1").Warn("it rains", "password", "hunter2")
	if err := shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	text := <-got
	for _, want := range []string{"/v1/logs", "ours", "it rains", "t1", "[redacted]"} {
		if !strings.Contains(text, want) {
			t.Errorf("the collector got %q, want %s in it", text, want)
		}
	}
	if strings.Contains(text, "hunter2") || !strings.Contains(b.String(), "it rains") {
		t.Errorf("the collector got %q and stderr %q", text, b.String())
	}
	t.Setenv("OTEL_LOGS_EXPORTER", "syslog")
	if _, _, err := otel.SetupLogs(t.Context(), otel.LogsConfig{Next: slog.DiscardHandler}); err == nil || !strings.Contains(err.Error(), `OTEL_LOGS_EXPORTER="syslog": want otlp`) {
		t.Errorf("SetupLogs = %v, want an error with the variable", err)
	}
}

func FuzzRedaction(f *testing.F) {
	f.Add("password=", "hunter2")
	f.Add("x", "nats://a:b@c")
	f.Fuzz(func(t *testing.T, key, value string) {
		log, b := lines(t, otel.LogsConfig{})
		log.Info(value, key, value, "password", value)
		read(t, b)
	})
}
