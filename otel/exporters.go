package otel

import (
	"context"
	"fmt"
	"strings"
)

// A signal is traces, metrics or logs, with what makes its exporters. Endpoint, headers and TLS those read from the environment
// themselves.
type signal[E exporting] struct {
	name                string // as OpenTelemetry's variables have it: TRACES
	grpc, http, console func(context.Context) (E, error)
	pulled              func() error // whether prometheus may be listed too, which exports nothing; nil for a signal without
}

type exporting interface{ Shutdown(context.Context) error }

// exporters makes those that OTEL_<name>_EXPORTER lists; none is nothing. None of them connects yet.
func (s *signal[E]) exporters(ctx context.Context) ([]E, error) {
	var all []E
	for which := range strings.SplitSeq(variable("OTEL_"+s.name+"_EXPORTER"), ",") {
		which = strings.TrimSpace(which)
		if which == "" || which == "none" {
			continue
		}
		made, err := s.exporter(ctx, which)
		if err != nil {
			for _, e := range all {
				_ = e.Shutdown(ctx) // it exported nothing yet
			}
			return nil, err
		}
		all = append(all, made...)
	}
	return all, nil
}

func (s *signal[E]) exporter(ctx context.Context, which string) ([]E, error) {
	switch {
	case which == "otlp":
		return s.otlp(ctx)
	case which == "console":
		return alone(s.console(ctx))
	case which == "prometheus" && s.pulled != nil:
		return nil, s.pulled()
	}
	want := "otlp, console or none"
	if s.pulled != nil {
		want = "otlp, console, prometheus or none"
	}
	return nil, fmt.Errorf("OTEL_%s_EXPORTER=%q: want %s", s.name, which, want)
}

// otlp makes the exporter for the protocol that is asked for.
func (s *signal[E]) otlp(ctx context.Context) ([]E, error) {
	name := "OTEL_EXPORTER_OTLP_" + s.name + "_PROTOCOL"
	if variable(name) == "" {
		name = "OTEL_EXPORTER_OTLP_PROTOCOL"
	}
	maker := s.http
	switch protocol := variable(name); protocol {
	case "grpc":
		maker = s.grpc
	case "", "http/protobuf":
	default:
		return nil, fmt.Errorf("%s=%q: want grpc or http/protobuf", name, protocol)
	}
	all, err := alone(maker(ctx))
	if err != nil {
		return nil, fmt.Errorf("set up the OTLP exporter (see OTEL_EXPORTER_OTLP_*): %w", err)
	}
	return all, nil
}

func alone[E any](e E, err error) ([]E, error) {
	if err != nil {
		return nil, err
	}
	return []E{e}, nil
}
