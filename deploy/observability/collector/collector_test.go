// Package collector_test starts what the configurations of deploy/observability are for, with these configurations: an
// OpenTelemetry Collector of the version in compose.yaml, in this process, Prometheus and Jaeger where they are installed.
// Executor, workers and NATS are real, and in processes of their own; workers are in Go, Python and TypeScript.
//
//	executor ──OTLP/HTTP──┐                         ┌── OTLP ──► where Jaeger would be
//	Go       ──OTLP/gRPC──┤                         │
//	Python   ──OTLP/HTTP──┼──► Collector (in here) ─┼── /metrics ──► Prometheus
//	Node.js  ──OTLP/HTTP──┘                         └── its own log
//
// It is a module of its own, because a Collector is larger than Toolbus.
package collector_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

const config = "../collector.yaml"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// components are those that the configuration names, as the Collector's builder would put them together.
func components() (f otelcol.Factories, err error) {
	f.Telemetry = otelconftelemetry.NewFactory()
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	if f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory(), memorylimiterprocessor.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](debugexporter.NewFactory(), otlpexporter.NewFactory(), prometheusexporter.NewFactory())
	return f, err
}

// assemble makes a Collector that is configured by our file and, over it, by what else is given, as its --config and --set do.
func assemble(t *testing.T, log zapcore.WriteSyncer, over ...string) *otelcol.Collector {
	t.Helper()
	lines := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()), log, zapcore.InfoLevel)
	c, err := otelcol.NewCollector(otelcol.CollectorSettings{
		Factories:               components,
		BuildInfo:               component.BuildInfo{Command: "otelcol", Version: "test"},
		DisableGracefulShutdown: true, // signals are the test's
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              append([]string{"file:" + config}, over...),
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory(), yamlprovider.NewFactory()},
		}},
		LoggingOptions: []zap.Option{zap.WrapCore(func(zapcore.Core) zapcore.Core { return lines })},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A record is a log that others write while it is read.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *record) Sync() error { return nil }

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// complaints are the lines of a Collector's log that are worse than information.
func (r *record) complaints() (all []string) {
	for line := range strings.Lines(r.String()) {
		if f := strings.Split(line, "\t"); len(f) > 1 && f[1] != "info" {
			all = append(all, line)
		}
	}
	return all
}

// A Collector that runs, and where it listens.
type collecting struct {
	grpc, http, prometheus string // host:port
	log                    *record
}

// collect runs a Collector until the test ends. It sends traces to jaeger, a host:port. Only addresses are not as the
// file has them; and it does not publish figures of its own, for their port may be taken.
func collect(t *testing.T, jaeger string) *collecting {
	t.Helper()
	ports := freePorts(t, 3)
	at := func(i int) string { return fmt.Sprint("127.0.0.1:", ports[i]) }
	c := &collecting{grpc: at(0), http: at(1), prometheus: at(2), log: &record{}}
	col := assemble(t, c.log,
		"yaml:receivers::otlp::protocols::grpc::endpoint: "+c.grpc,
		"yaml:receivers::otlp::protocols::http::endpoint: "+c.http,
		"yaml:exporters::prometheus::endpoint: "+c.prometheus,
		"yaml:exporters::otlp_grpc/jaeger::endpoint: "+jaeger,
		"yaml:service::telemetry::metrics::level: none")
	done := make(chan error, 1)
	go func() { done <- col.Run(context.Background()) }()
	t.Cleanup(func() {
		col.Shutdown()
		if err := <-done; err != nil {
			t.Error("the Collector ended with ", err)
		}
		if t.Failed() {
			t.Log("the Collector's log:\n", c.log)
		}
	})
	await(t, "the Collector runs", func() bool {
		select {
		case err := <-done:
			done <- err
			t.Fatal("the Collector did not start: ", err)
		default:
		}
		return col.GetState() == otelcol.StateRunning
	})
	return c
}

// The configuration as it stands is one that a Collector of the version in compose.yaml accepts.
func TestConfigurationIsValid(t *testing.T) {
	if err := assemble(t, &record{}).DryRun(t.Context()); err != nil {
		t.Fatal(err)
	}
	image := "otel/opentelemetry-collector-contrib:" + version(t)
	if compose, err := os.ReadFile("../compose.yaml"); err != nil || !strings.Contains(string(compose), image+"\n") {
		t.Errorf("compose.yaml does not have the image %s, whose version is tested here: %v", image, err)
	}
}

// version is that of the Collector in this module, without the v.
func version(t *testing.T) string {
	t.Helper()
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(mod), "\tgo.opentelemetry.io/collector/otelcol v")
	if !ok {
		t.Fatal("go.mod does not require otelcol")
	}
	v, _, _ := strings.Cut(rest, "\n")
	return v
}
