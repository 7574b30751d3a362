package collector_test

import (
	"context"
	"net"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // what the Collector compresses with
)

// A span as it is found behind the Collector.
type span struct {
	service, name, kind, id, parent string
}

// A store takes OTLP over gRPC in Jaeger's place, and keeps the spans by their trace.
type store struct {
	ptraceotlp.UnimplementedGRPCServer

	mu     sync.Mutex
	traces map[string][]span
}

// keep starts a store, and says where it listens.
func keep(t *testing.T) (s *store, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = &store{traces: map[string][]span{}}
	server := grpc.NewServer()
	ptraceotlp.RegisterGRPCServer(server, s)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return s, l.Addr().String()
}

// Export is what the Collector calls.
func (s *store) Export(_ context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range req.Traces().ResourceSpans().All() {
		service, _ := r.Resource().Attributes().Get("service.name")
		for _, scope := range r.ScopeSpans().All() {
			for _, sp := range scope.Spans().All() {
				id := sp.TraceID().String()
				s.traces[id] = append(s.traces[id], spanOf(service.Str(), sp))
			}
		}
	}
	return ptraceotlp.NewExportResponse(), nil
}

func spanOf(service string, s ptrace.Span) span {
	return span{service, s.Name(), s.Kind().String(), s.SpanID().String(), s.ParentSpanID().String()}
}

// trace is what has come of one so far.
func (s *store) trace(id string) []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]span(nil), s.traces[id]...)
}
