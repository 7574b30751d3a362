package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolbus/toolbus/cmd/internal/telemetry"
	toolotel "github.com/toolbus/toolbus/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A collector that answers nobody before all three kinds have come gets all three: the last of each are sent at once, within
// the one bound.
func TestTheLastIsExportedAllAtOnce(t *testing.T) {
	var mu sync.Mutex
	came, whole := map[string]bool{}, make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		mu.Lock()
		if came[r.URL.Path] = true; len(came) == 3 {
			select {
			case <-whole:
			default:
				close(whole)
			}
		}
		mu.Unlock()
		select {
		case <-whole:
		case <-r.Context().Done():
		}
	}))
	defer collector.Close()
	said := last(t, collector.URL)
	if strings.Contains(said, "was not exported") || len(came) != 3 {
		t.Errorf("the collector got %v, and the log says\n%s", came, said)
	}
}

// What could not be exported is said of each kind.
func TestTheLastIsNotExported(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }))
	defer collector.Close()
	said := last(t, collector.URL)
	for _, kind := range []string{"the last spans: ", "the last metrics: ", "the last log lines: "} {
		if !strings.Contains(said, kind) {
			t.Errorf("the log says\n%s\nand nothing of %s", said, kind)
		}
	}
}

// last starts what sends all three kinds to a collector, has something of each to be sent at the end, and is what the log says.
func last(t *testing.T, collector string) string {
	t.Helper()
	for name, value := range map[string]string{
		"OTEL_SDK_DISABLED": "", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp", "OTEL_LOGS_EXPORTER": "otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_SAMPLER": "",
	} {
		t.Setenv(name, value)
	}
	var stderr bytes.Buffer
	seen, err := telemetry.Start(context.Background(), telemetry.Config{Service: "test", LogLevel: "info", LogFormat: "text", Stderr: &stderr})
	if err != nil {
		t.Fatal(err)
	}
	turn, _ := toolotel.NewTracer(toolotel.TraceConfig{}).Turn("the last", nil)
	turn.Over()
	seen.Log.Info("the last")
	seen.Close()
	return stderr.String()
}
