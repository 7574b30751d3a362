package otel_test

import (
	"context"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/otel"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func attributeOf(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// follow has a tracer follow one turn of one call.
func follow(t testing.TB, cfg otel.TraceConfig, in wire.Header) (executor.Trace, wire.Header) {
	t.Helper()
	tr, out := otel.NewTracer(cfg).Turn("t1", in)
	if tr != nil {
		tr.Event(&wire.Event{Type: wire.TurnStarted, Turn: "t1", Request: &wire.TurnRequest{ID: "t1", Session: "s\xff1", Calls: []tool.Call{
			{ID: "a", Tool: "search", Args: []byte(`{"q":"` + strings.Repeat("é", 10_000) + `"}`)},
		}}})
		tr.Event(&wire.Event{Type: wire.CallReady, Turn: "t1", Call: "a", Tool: "search"})
	}
	return tr, out
}

// settle ends the call and the turn.
func settle(tr executor.Trace, r tool.Result, status string) {
	tr.Event(&wire.Event{Type: wire.CallSettled, Turn: "t1", Call: "a", Tool: "search", Attempt: 1, Result: &r})
	tr.Event(&wire.Event{Type: wire.TurnEnded, Turn: "t1", Outcome: &wire.Outcome{Turn: "t1", Status: status}})
	tr.Over()
}

func TestContentOnOptIn(t *testing.T) {
	for _, env := range []string{"", "true", "SPAN_ONLY", "EVENT_ONLY"} {
		t.Setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", env)
		got := collect()
		tr, _ := follow(t, otel.TraceConfig{Provider: got.provider(t, "executor")}, nil)
		tr.Attempt("a", 1, "search")
		settle(tr, tool.Result{Status: tool.Success, Value: []byte("\"not \xff\xfe UTF-8\"")}, wire.Completed)
		wanted := env == "true" || env == "SPAN_ONLY"
		for _, s := range got.await(t, 1, "turn") {
			for _, a := range s.Attributes {
				if v := a.Value.String(); !utf8.ValidString(v) || len(v) > 8<<10 {
					t.Errorf("%q: %s of %s has %d bytes, valid UTF-8 %t", env, a.Key, s.Name, len(v), utf8.ValidString(v))
				}
			}
			if !strings.HasPrefix(s.Name, "execute_tool") {
				continue
			}
			args, result := attributeOf(s, "gen_ai.tool.call.arguments"), attributeOf(s, "gen_ai.tool.call.result")
			if (args != "") != wanted || (result != "") != wanted || (attributeOf(s, "toolbus.content.cut") == "true") != wanted {
				t.Errorf("%q: %d bytes of arguments, result %q, want them %t", env, len(args), result, wanted)
			}
		}
	}
}

// A turn that is cancelled because its client is gone says so on its span.
func TestCancelSaysWhy(t *testing.T) {
	kept := collect()
	tr, _ := follow(t, otel.TraceConfig{Provider: kept.provider(t, "test")}, nil)
	tr.Event(&wire.Event{Type: wire.CancelRequested, Because: "the turn's client is gone"})
	settle(tr, tool.Result{Call: "a", Status: tool.Cancelled}, wire.CancelledTurn)
	for _, s := range kept.await(t, 1, "turn") {
		for _, ev := range s.Events {
			if s.Name == "turn" && ev.Name == "toolbus.cancel" && len(ev.Attributes) == 1 && ev.Attributes[0].Value.AsString() == "the turn's client is gone" {
				return
			}
		}
	}
	t.Error("no span of a turn says why it was cancelled")
}

func TestUnsampledIsHandedOnAndNotFollowed(t *testing.T) {
	got := collect()
	never := got.provider(t, "executor", sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	const sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, in := range []wire.Header{nil, {"traceparent": {strings.TrimSuffix(sampled, "1") + "0"}, "baggage": {"x=1"}}} {
		tr, out := follow(t, otel.TraceConfig{Provider: never}, in)
		if tr != nil {
			t.Errorf("%v: the turn is followed", in)
		}
		if p := wire.Get(out, "traceparent"); !strings.HasSuffix(p, "-00") || len(out["baggage"]) != len(in["baggage"]) {
			t.Errorf("%v: handed on %v, want it unsampled and all else as it was", in, out)
		}
	}
	tr, out := follow(t, otel.TraceConfig{Provider: never}, wire.Header{"Traceparent": {sampled}})
	if tr == nil || len(out) != 1 || !strings.HasPrefix(out["traceparent"][0], sampled[:36]) || strings.Contains(out["traceparent"][0], sampled[36:52]) {
		t.Errorf("a sampled client: followed %t, headers %v, want the same trace and another span", tr != nil, out)
	}
	tr.Over()
}

func TestStatusOfACall(t *testing.T) {
	for _, test := range []struct {
		result    tool.Result
		status    codes.Code
		errorType string
	}{
		{tool.Result{Status: tool.Success}, codes.Unset, ""},
		{tool.Result{Status: tool.Cancelled, Fault: fault.New(fault.Cancelled, "x")}, codes.Unset, ""},
		{tool.Result{Status: tool.Failed, Fault: fault.New(fault.Upstream, "x")}, codes.Error, "upstream"},
		{tool.Result{Status: tool.NeverStarted}, codes.Error, "not_started"},
		{tool.Result{Status: tool.Defaulted, Fault: fault.New(fault.Upstream, "x")}, codes.Unset, ""},
	} {
		got := collect()
		tr, _ := follow(t, otel.TraceConfig{Provider: got.provider(t, "executor")}, nil)
		settle(tr, test.result, wire.Completed)
		for _, s := range got.await(t, 1, "turn") {
			if !strings.HasPrefix(s.Name, "execute_tool") {
				continue
			}
			if s.Status.Code != test.status || attributeOf(s, "error.type") != test.errorType {
				t.Errorf("%s: status %v, error.type %q, want %v, %q", test.result.Status, s.Status, attributeOf(s, "error.type"), test.status, test.errorType)
			}
		}
	}
}

// What is never heard of again ends with its turn, and progress without end does not grow.
func TestOverEndsEverything(t *testing.T) {
	got := collect()
	tr, _ := follow(t, otel.TraceConfig{Provider: got.provider(t, "executor")}, nil)
	first, again := tr.Attempt("a", 1, "search"), tr.Attempt("a", 1, "search")
	if first["traceparent"][0] != again["traceparent"][0] {
		t.Error("the same attempt to another worker is another span, want the same")
	}
	for i := range 1000 {
		tr.Event(&wire.Event{Type: wire.ProgressEvent, Call: "a", Tool: "search", Attempt: 1, Progress: &wire.ProgressRecord{Done: float64(i)}})
	}
	settle(tr, tool.Result{Status: tool.TimedOut}, wire.TimedOutTurn)
	spans := got.await(t, 3, "")
	for _, s := range spans {
		if s.EndTime.IsZero() {
			t.Errorf("%s has not ended", s.Name)
		}
		if strings.HasPrefix(s.Name, "send") && (len(s.Events) != 21 || attributeOf(s, "toolbus.progress.unshown") != "980") {
			t.Errorf("%d events and %s unshown, want 21 and 980", len(s.Events), attributeOf(s, "toolbus.progress.unshown"))
		}
	}
	if len(spans) != 3 {
		t.Errorf("%d spans, want turn, call and attempt", len(spans))
	}
}

func TestRefusedTurn(t *testing.T) {
	got := collect()
	h := build(t, natstest.Server(t), executor.Config{Trace: otel.NewTracer(otel.TraceConfig{Provider: got.provider(t, "executor")})}, nil, instrument("ok", ok))
	done := make(chan *wire.Outcome, 1)
	h.exec.Go(executor.Turn{Request: wire.TurnRequest{Calls: []tool.Call{
		{ID: "a", Tool: "ok", After: []string{"b"}}, {ID: "b", Tool: "ok", After: []string{"a"}},
	}}}, func(o *wire.Outcome) { done <- o })
	<-done
	if s := got.await(t, 1, "turn")[0]; attributeOf(s, "toolbus.status") != "refused" || s.Status.Code != codes.Error {
		t.Errorf("the turn's span says %q, %v, want refused", attributeOf(s, "toolbus.status"), s.Status)
	}
}

// An angry processor panics wherever it can.
type angry struct{ at string }

func (a angry) OnStart(context.Context, sdktrace.ReadWriteSpan) { a.panic("start") }
func (a angry) OnEnd(sdktrace.ReadOnlySpan)                     { a.panic("end") }
func (angry) Shutdown(context.Context) error                    { return nil }
func (angry) ForceFlush(context.Context) error                  { return nil }
func (a angry) panic(at string) {
	if a.at == at {
		panic("a span processor broke down at " + at)
	}
}

func TestPanicsDoNotReachCalls(t *testing.T) {
	for _, at := range []string{"start", "end"} {
		var log strings.Builder
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(angry{at}))
		cfg := otel.TraceConfig{Provider: provider, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		h := build(t, natstest.Server(t), executor.Config{Trace: otel.NewTracer(cfg)}, otel.NewWorkerTracer(otel.TraceConfig{Provider: provider}, "w-1"), instrument("ok", ok))
		if r := h.exec.Call(t.Context(), tool.Call{Tool: "ok"}); r.Status != tool.Success {
			t.Errorf("panic at %s: the call ended %s (%s), want success", at, r.Status, r.Sentence)
		}
		if n := strings.Count(log.String(), "tracing panicked"); n != 1 {
			t.Errorf("panic at %s: told of %d times, want once:\n%s", at, n, &log)
		}
	}
}

func TestOffIsNil(t *testing.T) {
	if _, err := setup(t, nil); err != nil {
		t.Fatal(err)
	}
	if tr, w := otel.NewTracer(otel.TraceConfig{}), otel.NewWorkerTracer(otel.TraceConfig{}, "w"); tr != nil || w != nil {
		t.Errorf("nothing is exported, and yet there are %v and %v", tr, w)
	}
}

// What tracing adds to a turn of one call, without the bus: go test ./otel -bench Turn -benchmem.
func BenchmarkTurn(b *testing.B) {
	for _, bench := range []struct {
		name    string
		sampler sdktrace.Sampler
	}{
		{"unsampled", sdktrace.NeverSample()},
		{"1 in 100", sdktrace.TraceIDRatioBased(0.01)},
		{"sampled", sdktrace.AlwaysSample()},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p := sdktrace.NewTracerProvider(sdktrace.WithSampler(bench.sampler))
			tracer := otel.NewTracer(otel.TraceConfig{Provider: p})
			started := &wire.Event{Type: wire.TurnStarted, Turn: "t1", Request: &wire.TurnRequest{ID: "t1", Calls: []tool.Call{{ID: "a", Tool: "search"}}}}
			ready := &wire.Event{Type: wire.CallReady, Turn: "t1", Call: "a", Tool: "search"}
			settled := &wire.Event{Type: wire.CallSettled, Turn: "t1", Call: "a", Tool: "search", Attempt: 1, Result: &tool.Result{Status: tool.Success}}
			ended := &wire.Event{Type: wire.TurnEnded, Turn: "t1", Outcome: &wire.Outcome{Turn: "t1", Status: wire.Completed}}
			b.ReportAllocs()
			for b.Loop() {
				tr, _ := tracer.Turn("t1", nil)
				if tr == nil {
					continue
				}
				tr.Event(started)
				tr.Event(ready)
				tr.Attempt("a", 1, "search")
				tr.Event(settled)
				tr.Event(ended)
				tr.Over()
			}
		})
	}
}

// What we write ourselves is what OpenTelemetry would write.
func TestHeadersAreThePropagators(t *testing.T) {
	got := collect()
	in := wire.Header{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "TraceState": {"a=1,b=2"}, "baggage": {"x=1"}}
	tr, out := follow(t, otel.TraceConfig{Provider: got.provider(t, "executor")}, in)
	defer tr.Over()
	for _, h := range []wire.Header{out, tr.Attempt("a", 1, "search")} {
		want := wire.Header{"baggage": {"x=1"}}
		propagator := propagation.TraceContext{}
		propagator.Inject(propagator.Extract(t.Context(), otel.HeaderCarrier(h)), otel.HeaderCarrier(want))
		if !reflect.DeepEqual(h, want) {
			t.Errorf("headers %v, want %v", h, want)
		}
	}
}
