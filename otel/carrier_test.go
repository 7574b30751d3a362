package otel_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/toolbus/toolbus/otel"
)

func TestCarrierReadsAnyCaseAndWritesLower(t *testing.T) {
	h := otel.HeaderCarrier{"Traceparent": {"a"}, "TRACEPARENT": {"b"}, "BAGGAGE": {"x=1", "y=2"}, "Tb-Call": {"t/c/1"}}
	for key, want := range map[string]string{"traceparent": "b", "Baggage": "x=1", "tb-call": "t/c/1", "tracestate": ""} {
		if got := h.Get(key); got != want {
			t.Errorf("Get(%s) = %q, want %q", key, got, want)
		}
	}
	if got, want := h.Values("baggage"), []string{"x=1", "y=2"}; !slices.Equal(got, want) {
		t.Errorf("Values(baggage) = %v, want %v", got, want)
	}
	h.Set("TraceParent", "c")
	if got, want := h.Keys(), []string{"BAGGAGE", "Tb-Call", "traceparent"}; !slices.Equal(got, want) {
		t.Errorf("after Set: Keys() = %v, want %v", got, want)
	}
	if got := h.Get("TRACEPARENT"); got != "c" {
		t.Errorf("after Set: Get(TRACEPARENT) = %q, want c", got)
	}
	if got := otel.HeaderCarrier(nil).Get("traceparent"); got != "" {
		t.Errorf("Get on nil = %q, want nothing", got)
	}
}

func ExampleHeaderCarrier() {
	from := otel.HeaderCarrier{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}} // as Go's net/http writes it
	ctx := propagation.TraceContext{}.Extract(context.Background(), from)
	fmt.Println(trace.SpanContextFromContext(ctx).TraceID())

	to := otel.HeaderCarrier{}
	propagation.TraceContext{}.Inject(ctx, to)
	fmt.Println(to.Keys())
	// Output:
	// 4bf92f3577b34da6a3ce929d0e0e4736
	// [traceparent]
}
