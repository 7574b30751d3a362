package tool

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
)

func flight(t testing.TB) *Compiled {
	t.Helper()
	c, err := Compile(Manifest{
		ID:     "flight_search",
		Input:  json.RawMessage(flightSchema),
		Output: json.RawMessage(`{"type":"object","required":["flights"]}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCheckArgs(t *testing.T) {
	c := flight(t)
	for _, k := range []struct{ args, want string }{
		{`{"from":"FRA","to":"JFK","date":"2026-03-01"}`, "nil"},
		{`{"from":5,"to":"JFK"}`, "invalid_arguments arguments of flight_search are invalid: /date: missing; /from: expected string, got number (5)"},
		{``, "invalid_arguments arguments of flight_search are invalid: /date: missing; /from: missing; /to: missing"},
		{`[1]`, "invalid_arguments the arguments are not one JSON object: expected object, got array"},
		{`{"from":"FR`, "truncated_call the JSON ends at byte 11 inside a string; the call may have been cut off"},
	} {
		f := c.CheckArgs([]byte(k.args))
		if got := say(f); got != k.want {
			t.Errorf("CheckArgs(%s) = %s\nwant %s", k.args, got, k.want)
		}
		if f != nil && (f.Tool != "flight_search" || f.Execution != fault.NotStarted) {
			t.Errorf("CheckArgs(%s): tool %q, execution %q", k.args, f.Tool, f.Execution)
		}
	}

	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, `,"an_unknown_property_with_a_long_name_%d":%d`, i, i)
	}
	f := c.CheckArgs([]byte(`{"from":"FRA"` + many.String() + `}`))
	if len(f.Message) > 2200 || !strings.Contains(f.Message, "more") || len(f.Violations) != MaxViolations+1 {
		t.Errorf("%d bytes, %d violations: %s", len(f.Message), len(f.Violations), f.Message)
	}

	any, err := Compile(Manifest{ID: "any"})
	if err != nil {
		t.Fatal(err)
	}
	if f := any.CheckArgs([]byte(`{"x":1}`)); f != nil {
		t.Errorf("without a schema: %s", say(f))
	}
}

func TestCheckResult(t *testing.T) {
	c := flight(t)
	for _, k := range []struct{ result, contentType, want string }{
		{`{"flights":[]}`, "", "nil"},
		{`{}`, "", "invalid_result the result of flight_search does not fit its output schema: /flights: missing"},
		{`{}`, "Application/JSON; charset=utf-8", "invalid_result the result of flight_search does not fit its output schema: /flights: missing"},
		{`[]`, "application/problem+json", "invalid_result the result of flight_search does not fit its output schema: the result: expected object, got array (0 items)"},
		{`{"flights":`, "", "invalid_result the result of flight_search is not JSON: the JSON ends at byte 11 inside an object"},
		{``, "", "invalid_result the result of flight_search is empty, but an output schema asks for a value"},
		{"\x81", "application/msgpack", "nil"},
		{"hello", "text/plain", "nil"},
	} {
		f := c.CheckResult([]byte(k.result), k.contentType)
		if got := say(f); got != k.want {
			t.Errorf("CheckResult(%s, %s) = %s\nwant %s", k.result, k.contentType, got, k.want)
		}
		if f != nil && f.Execution != fault.Done {
			t.Errorf("CheckResult(%s): execution %q, want %q", k.result, f.Execution, fault.Done)
		}
	}
}

func TestCompileRefusesMistakes(t *testing.T) {
	c, err := Compile(Manifest{ID: "a b", Input: json.RawMessage(doubling(26))})
	const want = `id: tool name "a b": character 2 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -
input_schema: the schema: expands to more than 100000 subschemas once every reference is followed`
	if c != nil || err == nil || err.Error() != want {
		t.Errorf("Compile = %v, %v\nwant %s", c, err, want)
	}
}

func TestOverrides(t *testing.T) {
	m, err := Parse("", []byte("id: a\nclassification: {codes: {503: permanent}, kinds: {rate_limited: {breaker: false}}}"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compile(*m)
	if err != nil {
		t.Fatal(err)
	}
	o := c.Overrides()
	if v := o.Judge(&fault.Fault{Kind: fault.Unavailable, Code: "503"}); v.Class != fault.Permanent {
		t.Errorf("503 is %s, want %s", v.Class, fault.Permanent)
	}
	if v := o.Judge(&fault.Fault{Kind: fault.RateLimited}); v.Breaker || v.Class != fault.Transient {
		t.Errorf("rate_limited: breaker %t, class %s, want false, transient", v.Breaker, v.Class)
	}
}

func TestWarnings(t *testing.T) {
	bare, _ := Compile(Manifest{ID: "a"})
	if got := bare.Warnings(); len(got) != 4 || got[0] != "a declares no effect: it will be sent again after an unknown run" {
		t.Errorf("Warnings = %q", got)
	}
	m, err := Parse("", []byte(fullManifest))
	if err != nil {
		t.Fatal(err)
	}
	full, err := Compile(*m)
	if err != nil {
		t.Fatal(err)
	}
	if full.Warnings() != nil {
		t.Errorf("Warnings = %q, want none", full.Warnings())
	}
	writes, _ := Compile(Manifest{ID: "a", Version: "1", Description: "x", Input: json.RawMessage(`{}`), Effect: Write})
	if got := writes.Warnings(); len(got) != 1 {
		t.Errorf("Warnings = %q, want one", got)
	}
}

func TestDigest(t *testing.T) {
	a := &Manifest{ID: "a", Input: json.RawMessage(`{"type": "object", "title": "<x>"}`)}
	b := &Manifest{ID: "a", Input: json.RawMessage("{\n\"title\":\"<x>\",\"type\":\"object\"}")}
	if a.Digest() != b.Digest() || len(a.Digest()) != 32 {
		t.Errorf("Digest = %s and %s, want the same 32 digits", a.Digest(), b.Digest())
	}
	if got, want := string(a.JSON()), `{"id":"a","input_schema":{"title":"<x>","type":"object"}}`; got != want {
		t.Errorf("JSON = %s, want %s", got, want)
	}
	b.Version = "2"
	if a.Digest() == b.Digest() {
		t.Error("another version has the same digest")
	}
	broken := &Manifest{ID: "a\xff", Input: json.RawMessage("{\xff"), Retry: &RetryPolicy{Multiplier: ptr(math.NaN()), JitterPercent: ptr(math.Inf(1))}}
	if got := Check(broken); len(got) != 4 {
		t.Errorf("Check = %v, want four problems", got)
	}
	if !json.Valid(broken.JSON()) {
		t.Errorf("JSON = %s, which is not valid", broken.JSON())
	}
}

func TestInfer(t *testing.T) {
	type query struct {
		City string `json:"city" jsonschema:"where to look"`
		Days int    `json:"days,omitempty"`
	}
	raw, err := Infer[query]()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compile(Manifest{ID: "weather", Input: raw})
	if err != nil {
		t.Fatal(err)
	}
	if f := c.CheckArgs([]byte(`{"city":"Berlin"}`)); f != nil {
		t.Errorf("CheckArgs = %s, want nil", say(f))
	}
	const want = "invalid_arguments arguments of weather are invalid: /city: missing; /day: unknown property, perhaps \"days\""
	if got := say(c.CheckArgs([]byte(`{"day":1}`))); got != want {
		t.Errorf("CheckArgs = %s\nwant %s", got, want)
	}
	if _, err := Infer[func()](); err == nil {
		t.Error("Infer[func()] = nil, want an error")
	}
}

func ExampleCompiled_CheckArgs() {
	weather, _ := Compile(Manifest{ID: "weather", Input: json.RawMessage(`{
		"type": "object", "required": ["city"], "additionalProperties": false,
		"properties": {"city": {"type": "string"}, "days": {"type": "integer", "maximum": 10}}}`)})
	f := weather.CheckArgs([]byte(`{"town": "Berlin", "days": 14}`))
	fmt.Println(f.Kind)
	fmt.Println(f.Message)
	// Output:
	// invalid_arguments
	// arguments of weather are invalid: /city: missing; /days: expected at most 10, got number (14); /town: unknown property
}

func BenchmarkCheckArgs(b *testing.B) {
	c := flight(b)
	raw := []byte(`{"from":"FRA","to":"JFK","date":"2026-03-01","cabin":"economy","passengers":2,"filter":{"max_price":899.5,"airlines":["LH","UA"]}}`)
	b.ReportAllocs()
	for b.Loop() {
		if f := c.CheckArgs(raw); f != nil {
			b.Fatal(f.Message)
		}
	}
}

func BenchmarkCheckArgsInvalid(b *testing.B) {
	c := flight(b)
	raw := []byte(`{"from":5,"to":"FRANKFURT","cabin":"eco","passengers":12,"filter":{"max_price":0},"dat":1}`)
	b.ReportAllocs()
	for b.Loop() {
		if f := c.CheckArgs(raw); f == nil {
			b.Fatal("taken")
		}
	}
}
