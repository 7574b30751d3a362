package otel_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	otelapi "go.opentelemetry.io/otel"
	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup clears what the machine's own environment says, sets env, and undoes what Setup changes in the process.
func setup(t *testing.T, env map[string]string) (shutdown func(context.Context) error, err error) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"OTEL_TRACES_SAMPLER",
	} {
		t.Setenv(name, env[name])
	}
	provider, propagator := otelapi.GetTracerProvider(), otelapi.GetTextMapPropagator()
	t.Cleanup(func() {
		otelapi.SetTracerProvider(provider)
		otelapi.SetTextMapPropagator(propagator)
	})
	return otel.Setup(t.Context(), otel.Config{Service: "ours", Version: "1.2.3", Logger: slog.New(slog.DiscardHandler)})
}

func recording(t *testing.T) bool {
	_, span := otelapi.Tracer("test").Start(t.Context(), "span")
	defer span.End()
	return span.IsRecording()
}

func TestNothingIsExportedByDefault(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_TRACES_EXPORTER": "none"},
		{"OTEL_TRACES_EXPORTER": " "},
		{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "TRUE"},
	} {
		shutdown, err := setup(t, env)
		if err != nil {
			t.Fatalf("%v: %v", env, err)
		}
		if recording(t) {
			t.Errorf("%v: spans are recorded, want none", env)
		}
		if err := shutdown(t.Context()); err != nil {
			t.Errorf("%v: shutdown = %v, want nil", env, err)
		}
	}
}

func TestPropagatorsAreW3C(t *testing.T) {
	if _, err := setup(t, nil); err != nil {
		t.Fatal(err)
	}
	fields := otelapi.GetTextMapPropagator().Fields()
	slices.Sort(fields)
	if want := []string{"baggage", "traceparent", "tracestate"}; !slices.Equal(fields, want) {
		t.Errorf("propagators write %v, want %v", fields, want)
	}
}

func TestVariablesThatCannotBeFollowed(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, `OTEL_TRACES_EXPORTER="zipkin": want otlp, console or none`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "console,nonsense"}, `"nonsense"`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, `OTEL_EXPORTER_OTLP_PROTOCOL="http/json": want grpc or http/protobuf`},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "carrier-pigeon"}, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"},
	} {
		if _, err := setup(t, test.env); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want an error with %s", test.env, err, test.want)
		}
	}
}

func TestSpansReachACollector(t *testing.T) {
	requests := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- r.URL.Path + " " + string(body)
	}))
	defer s.Close()
	shutdown, err := setup(t, map[string]string{
		"OTEL_TRACES_EXPORTER":        "otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT": s.URL,
		"OTEL_SERVICE_NAME":           "theirs",
		"OTEL_RESOURCE_ATTRIBUTES":    "team=blue",
	})
	if err != nil {
		t.Fatal(err)
	}
	if !recording(t) {
		t.Error("spans are not recorded, want them recorded")
	}
	if err := shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := <-requests
	for _, want := range []string{"/v1/traces ", "service.name", "theirs", "service.version", "1.2.3", "service.instance.id", "team", "blue", "span"} {
		if !strings.Contains(got, want) {
			t.Errorf("the collector got %q, want %q in it", got, want)
		}
	}
	if strings.Contains(got, "ours") {
		t.Errorf("the collector got %q, want the service name of the environment only", got)
	}
}

// A collector that takes and never answers must not keep the program from ending, or a span from being ended.
func TestCollectorHangs(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	defer close(hang)
	shutdown, err := setup(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": s.URL})
	if err != nil {
		t.Fatal(err)
	}
	for range 10_000 { // more than the queue holds
		recording(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shutdown = %v, want %v", err, context.DeadlineExceeded)
	}
}

func TestGRPC(t *testing.T) {
	shutdown, err := setup(t, map[string]string{
		"OTEL_TRACES_EXPORTER":        "otlp",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", // nobody there: found out by the exporter, later
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := shutdown(t.Context()); err != nil {
		t.Errorf("shutdown with nothing to export = %v, want nil", err)
	}
}
