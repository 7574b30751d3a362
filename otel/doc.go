// Package otel sets OpenTelemetry up for a program, by the environment variables that everything else understands too,
// and knows how trace context travels in NATS headers. Only programs import it, and nothing else imports OpenTelemetry.
//
// By default nothing is exported and every span is a no-op:
//
//	OTEL_TRACES_EXPORTER=otlp                               send spans; console prints them to stdout; none is the default
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318       where to
//	OTEL_EXPORTER_OTLP_PROTOCOL=grpc                        or http/protobuf, the default
//	OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES             who we are
//	OTEL_TRACES_SAMPLER, OTEL_BSP_*                         how much, and how much at once
//	OTEL_SDK_DISABLED=true                                  none of this
//
// Spans are exported in batches by a goroutine of their own, metrics and log lines by the SDK's. When the collector is slow
// or away the queue fills and spans are dropped, never calls held up; the log says so.
package otel
