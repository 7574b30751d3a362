package tool

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
)

// The manifest of seed 000 §2.2, as it stands there.
const seedManifest = `tool:
  id: flight_search
  retry_policy:
    strategy: exponential_backoff
    initial_delay_ms: 50        # Override default 100ms
    max_delay_ms: 2000          # Override default 800ms
    multiplier: 2.0             # Override default 2.0
    jitter_percent: 15          # Override default 10%
    max_attempts: 3             # Override default 5
    max_total_time_ms: 5000     # Override default 2000ms
`

func TestSeed000_7_2_ManifestOverridesRetry(t *testing.T) {
	m, err := Parse("flight.yaml", []byte(seedManifest))
	if err != nil {
		t.Fatal(err)
	}
	want := &Manifest{ID: "flight_search", Retry: &RetryPolicy{
		Strategy:       "exponential_backoff",
		InitialDelayMs: ptr(int64(50)),
		MaxDelayMs:     ptr(int64(2000)),
		Multiplier:     ptr(2.0),
		JitterPercent:  ptr(15.0),
		MaxAttempts:    ptr(3),
		MaxTotalTimeMs: ptr(int64(5000)),
	}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("Parse = %s, want %s", m.JSON(), want.JSON())
	}
}

func ptr[T any](v T) *T { return &v }

const fullManifest = `
id: flight_search
version: "1.2"
description: |
  Finds flights.
  Prices are in euros.
input_schema:
  type: object
  required: [from]
  properties:
    from: {type: string, pattern: "^[A-Z]{3}$"}
    on: {type: string, default: 2026-03-01, enum: [yes, no]}
    n: {type: integer, maximum: 0x10, minimum: 12345678901234567890}
output_schema: {type: array}
effect: read
timeout_ms: 30000
idle_timeout_ms: 5000
idempotency_keys: true
alternatives: [other_search, third]
fallback_on: [not_found, denied]
optional: true
default: []
tags: [travel]
annotations: {owner: team-a}
retry_policy: {max_attempts: 3}
circuit_breaker: {failure_threshold: 7, success_threshold: 1, timeout_ms: 1000}
classification:
  kinds:
    rate_limited: {breaker: false}
  codes:
    503: permanent
    E42: {class: transient, retry: false}
`

func TestParse(t *testing.T) {
	m, err := Parse("flight.yaml", []byte(fullManifest))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"flight_search","version":"1.2","description":"Finds flights.\nPrices are in euros.\n",` +
		`"input_schema":{"properties":{"from":{"pattern":"^[A-Z]{3}$","type":"string"},"n":{"maximum":16,"minimum":12345678901234567890,"type":"integer"},` +
		`"on":{"default":"2026-03-01","enum":["yes","no"],"type":"string"}},"required":["from"],"type":"object"},"output_schema":{"type":"array"},` +
		`"effect":"read","timeout_ms":30000,"idle_timeout_ms":5000,"retry_policy":{"max_attempts":3},` +
		`"circuit_breaker":{"failure_threshold":7,"success_threshold":1,"timeout_ms":1000},` +
		`"classification":{"kinds":{"rate_limited":{"breaker":false}},"codes":{"503":{"class":"permanent"},"E42":{"class":"transient","retry":false}}},` +
		`"idempotency_keys":true,"alternatives":["other_search","third"],"fallback_on":["not_found","denied"],"optional":true,"default":[],"tags":["travel"],"annotations":{"owner":"team-a"}}`
	if got := string(m.JSON()); got != want {
		t.Errorf("Parse:\n got %s\nwant %s", got, want)
	}

	again, err := Parse("flight.json", m.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, m) || again.Digest() != m.Digest() {
		t.Errorf("Parse(JSON) = %s", again.JSON())
	}
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ doc, want string }{
		{"{\n\t\"id\":\t\"a\",\n\t\"description\": \"tab\\tslash\\/ \\ud83d\\ude00 \\u00e9 \\\\ud83d\"\n}", `{"id":"a","description":"tab\tslash/ 😀 é \\ud83d"}`},
		{`{"tool":{"id":"a","default":null,"fallback":null}}`, `{"id":"a","default":null}`},
		{"id: a\ninput_schema: &s {type: object}\noutput_schema: *s\n", `{"id":"a","input_schema":{"type":"object"},"output_schema":{"type":"object"}}`},
		{"id: a\ninput_schema: true\n", `{"id":"a","input_schema":true}`},
		{"id: a\nretry_policy:\n", `{"id":"a"}`},
	} {
		m, err := Parse("", []byte(c.doc))
		if err != nil {
			t.Errorf("Parse(%s): %v", c.doc, err)
			continue
		}
		if got := string(m.JSON()); got != c.want {
			t.Errorf("Parse(%s)\n got %s\nwant %s", c.doc, got, c.want)
		}
	}
}

func TestParseMistakes(t *testing.T) {
	many := func(n int, f string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, f, i)
		}
		return b.String()
	}
	for _, c := range []struct{ name, doc, want string }{
		{"everything at once", `
tool:
  id: flight search
  version: 1.0
  efect: read
  effect: reed
  timeout_ms: 30s
  idle_timeout_ms: 0
  idempotency_keys: yes
  retry_policy:
    strategy: exponental
    initial_delay_ms: 500
    max_delay_ms: 100
    multiplier: 0.5
    jitter_percent: 101
    max_attempts: three
    max_total_time_ms: 1.5
  circuit_breaker:
    failure_threshold: 0
    success_threshold: -1
    timeout_ms: 90000000
  fallback: other
  alternatives: [a, flight search, b c, a]
  tags: [x, 5, "a b"]
  annotations: {a: 1, b: [], "c\n": x}
  classification:
    kinds: {rate_limitd: transient, circuit_open: permanent, timeout: {}}
    codes: {503: permanently, "": permanent}
    503: permanent
`, `flight.yaml:3: id: tool name "flight search": character 7 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -
flight.yaml:4: version: expected text, got 1.0; put it in quotes
flight.yaml:5: efect: unknown key; did you mean effect?
flight.yaml:6: effect: expected read or idempotent or write, got "reed"; did you mean read?
flight.yaml:7: timeout_ms: expected a whole number of milliseconds from 1 to 86400000, got "30s"
flight.yaml:8: idle_timeout_ms: expected a whole number of milliseconds from 1 to 86400000, got 0
flight.yaml:9: idempotency_keys: expected true or false, got "yes"
flight.yaml:11: retry_policy.strategy: expected exponential_backoff or exponential or linear or constant or none, got "exponental"; did you mean exponential?
flight.yaml:13: retry_policy.max_delay_ms: expected at least initial_delay_ms, which is 500, got 100
flight.yaml:14: retry_policy.multiplier: expected a number of at least 1, got 0.5
flight.yaml:15: retry_policy.jitter_percent: expected a number from 0 to 100, got 101
flight.yaml:16: retry_policy.max_attempts: expected a whole number of at least 1, got "three"
flight.yaml:17: retry_policy.max_total_time_ms: expected a whole number of milliseconds from 0 to 86400000, got 1.5
flight.yaml:19: circuit_breaker.failure_threshold: expected a whole number of at least 1, got 0
flight.yaml:20: circuit_breaker.success_threshold: expected a whole number of at least 1, got -1
flight.yaml:21: circuit_breaker.timeout_ms: expected a whole number of milliseconds from 1 to 86400000, got 90000000
flight.yaml:22: fallback: is short for one alternative, and alternatives are given too; keep one of the two
flight.yaml:23: alternatives: expected at most 3, got 4
flight.yaml:23: alternatives[1]: "flight search" is the tool itself; name another
flight.yaml:23: alternatives[2]: tool name "b c": character 2 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -
flight.yaml:23: alternatives[3]: "a" is there twice
flight.yaml:24: tags[1]: expected text, got 5; put it in quotes
flight.yaml:24: tags[2]: tag "a b": character 2 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -
flight.yaml:25: annotations.a: expected text, got 1; put it in quotes
flight.yaml:25: annotations.b: expected text, got a list
flight.yaml:25: annotations.c\n: expected text that prints, got "c\n"
flight.yaml:27: classification.kinds.circuit_open: this kind is the executor's own, no manifest can change it; remove it
flight.yaml:27: classification.kinds.rate_limitd: no fault is of this kind; did you mean rate_limited?
flight.yaml:27: classification.kinds.timeout: says nothing; give class, retry or breaker
flight.yaml:28: classification.codes.: expected a code, got nothing
flight.yaml:28: classification.codes.503: expected transient or permanent, got "permanently"; did you mean permanent?
flight.yaml:29: classification.503: unknown key; known are codes, kinds`},

		{"schemas", `id: a
input_schema:
  type: array
  properties:
    x:
      type: strin
      pattern: ((a{100}){100}){100}
output_schema:
  type: object
  properties:
    n: {type: integer}
default: {n: x}
`, `flight.yaml:7: input_schema: /properties/x/pattern: pattern "((a{100}){100}){100}" repeats something more than 10000 times
flight.yaml:12: default: does not fit output_schema: /n: expected integer, got string ("x")`},
		{"schema of arguments", "id: a\ninput_schema:\n  type: array\n", `flight.yaml:3: input_schema: /type: expected object, as arguments are always one JSON object`},
		{"schema elsewhere", "id: a\ninput_schema:\n  properties:\n    x:\n      $ref: file:///etc/passwd\n",
			`flight.yaml:5: input_schema: /properties/x/$ref: refers to "file:///etc/passwd", which is outside; a schema may refer only to itself, so copy it into $defs`},
		{"schema of text", "id: a\ninput_schema: object\n", `flight.yaml:2: input_schema: expected a JSON Schema, which is a mapping, got "object"`},
		{"not JSON", "id: a\ndefault: [.nan, !!binary aGk=, {[a]: b}, {a: 1, a: 2}]\n", `flight.yaml:2: default: expected a number that JSON can hold, got .nan
flight.yaml:2: default: the tag !!binary is not supported
flight.yaml:2: default: expected a word as key, got a list
flight.yaml:2: default: the key "a" is there twice`},

		{"nothing", "", "flight.yaml: the manifest is empty"},
		{"null", "~\n", "flight.yaml: the manifest is empty"},
		{"no id", "version: \"1\"\n", "flight.yaml:1: id: tool name is empty"},
		{"empty version", "id: a\nversion: \"\"\n", "flight.yaml:2: version: is empty; fill it in or leave it out"},
		{"long version", "id: a\nversion: " + strings.Repeat("v", 65) + "\n", "flight.yaml:2: version: expected at most 64 characters, got 65"},
		{"long description", "id: a\ndescription: " + strings.Repeat("é", 4097) + "\n", "flight.yaml:2: description: expected at most 4096 characters, got 4097"},
		{"a list", "- id: a\n", "flight.yaml:1: expected a mapping with the fields of a manifest, got a list"},
		{"a word", "hello\n", `flight.yaml:1: expected a mapping with the fields of a manifest, got "hello"`},
		{"twice", "id: a\nid: b\n", "flight.yaml:2: id: is there twice"},
		{"tool and more", "tool: {id: a}\nid: b\n", "flight.yaml:1: tool: unknown key; known are alternatives, annotations, circuit_breaker, classification, default, description, effect, fallback, fallback_on, id, idempotency_keys, idle_timeout_ms, input_schema, optional, output_schema, retry_policy, tags, timeout_ms, version"},
		{"fallback_on", "id: a\nfallback_on:\n- not_found\n- timeout\n- deadline\n- not_found\n- deneid\n- 5\n", `flight.yaml:4: fallback_on[1]: timeout is transient, and after such faults an alternative is tried in any case; remove it
flight.yaml:5: fallback_on[2]: deadline ends a call, and no alternative is tried; remove it
flight.yaml:6: fallback_on[3]: "not_found" is there twice
flight.yaml:7: fallback_on[4]: no permanent fault is of the kind "deneid"; did you mean denied?
flight.yaml:8: fallback_on[5]: expected text, got 5; put it in quotes`},
		{"fallback_on of a word", "id: a\nfallback_on: permanent\n", `flight.yaml:2: fallback_on: expected a list, got "permanent"`},
		{"fallback to itself", "id: a\nfallback: a\n", `flight.yaml:2: fallback: "a" is the tool itself; name another`},
		{"idle", "id: a\ntimeout_ms: 10\nidle_timeout_ms: 11\n", "flight.yaml:3: idle_timeout_ms: expected at most timeout_ms, which is 10, got 11"},
		{"policy of text", "id: a\nretry_policy: none\n", `flight.yaml:2: retry_policy: expected a mapping, got "none"`},
		{"tags", "id: a\ntags:\n" + many(33, "- t%d\n"), "flight.yaml:2: tags: expected at most 32, got 33"},
		{"annotations", "id: a\nannotations:\n" + many(65, "  t%d: x\n"), "flight.yaml:2: annotations: expected at most 64, got 65"},
		{"merge", "id: a\nretry_policy:\n  <<: {max_attempts: 2}\n", "flight.yaml:3: retry_policy: merge keys (<<) are not supported; write the keys out"},

		{"tab", "id: a\nretry_policy:\n\tmax_attempts: 2\n", "flight.yaml:3: not YAML: found character that cannot start any token"},
		{"two documents", "id: a\n---\nid: b\n", "flight.yaml:2: expected one document, got a second one; give each tool its own file"},
		{"recursion", "id: a\ndefault: &x [*x]\n", "flight.yaml:2: the alias *x stands inside what it stands for"},
		{"bomb", "id: a\ndefault:\n  a: &a [" + strings.Repeat("1,", 500) + "]\n  b: [" + strings.Repeat("*a,", 60) + "]\n", "flight.yaml:3: the manifest holds more than 20000 values"},
		{"aliases", "id: a\ndefault:\n  a: &a 1\n  b: [" + strings.Repeat("*a,", 101) + "]\n", "flight.yaml:4: the manifest holds more than 100 aliases"},
		{"deep", "id: a\ndefault: " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "flight.yaml:2: values nest more than 64 deep"},
		{"large", "id: a\ndescription: " + strings.Repeat("x", 256<<10) + "\n", "flight.yaml: the manifest is 262164 bytes long, at most 262144 are allowed"},
		{"no anchor", "id: *a\n", "flight.yaml: not YAML: unknown anchor 'a' referenced"},
	} {
		m, err := Parse("flight.yaml", []byte(c.doc))
		var problems Problems
		if m != nil || !errors.As(err, &problems) {
			t.Errorf("%s: Parse = %v, %v, want Problems", c.name, m, err)
			continue
		}
		if got := err.Error(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestCheck(t *testing.T) {
	m := &Manifest{
		ID:             "a b",
		TimeoutMs:      -1,
		Retry:          &RetryPolicy{MaxAttempts: ptr(0), JitterPercent: ptr(-1.0)},
		Default:        []byte(`{`),
		Input:          []byte(``),
		Classification: &Classification{Codes: map[string]Override{"503": {}}},
	}
	const want = `id: tool name "a b": character 2 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -
timeout_ms: expected a whole number of milliseconds from 1 to 86400000, got -1
retry_policy.jitter_percent: expected a number from 0 to 100, got -1
retry_policy.max_attempts: expected a whole number of at least 1, got 0
classification.codes.503: says nothing; give class, retry or breaker
input_schema: the schema: is not JSON: the JSON ends at byte 0 inside a value
default: expected a JSON value: the JSON ends at byte 1 inside an object`
	if got := Check(m).Error(); got != want {
		t.Errorf("Check:\n got %s\nwant %s", got, want)
	}
	if got := Check(&Manifest{ID: "a"}); got != nil {
		t.Errorf("Check(good) = %v, want nil", got)
	}
}

// What only the executor may say is found by asking fault, so that the two lists do not part.
func TestOwnKinds(t *testing.T) {
	for _, kind := range fault.Kinds() {
		f := &fault.Fault{Kind: kind}
		before := fault.Overrides{}.Judge(f)
		changed := false
		for _, class := range []fault.Class{fault.Transient, fault.Permanent} {
			o := fault.Overrides{Kinds: map[fault.Kind]fault.Override{kind: {Class: class, Breaker: ptr(!before.Breaker)}}}
			after := o.Judge(f)
			changed = changed || after.Class != before.Class || after.Breaker != before.Breaker
		}
		m := &Manifest{ID: "a", Classification: &Classification{Kinds: map[string]Override{string(kind): {Class: "permanent"}}}}
		if allowed := Check(m) == nil; allowed != changed {
			t.Errorf("%s: a manifest can change it: %t, Check allows it: %t", kind, changed, allowed)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(seedManifest))
	f.Add([]byte(fullManifest))
	f.Add([]byte("id: &a [*a]\n<<: *a\n"))
	f.Add([]byte("{\"id\":\t\"\\ud83d\\ude00\"}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Parse("f", data)
		if err != nil {
			return
		}
		again, err := Parse("f", m.JSON())
		if err != nil {
			t.Fatalf("Parse(%q) is fine, its JSON %s is not: %v", data, m.JSON(), err)
		}
		if m.Digest() != again.Digest() {
			t.Errorf("Parse(%q): %s became %s", data, m.JSON(), again.JSON())
		}
	})
}

func TestCheckFallbackOn(t *testing.T) {
	for _, c := range []struct {
		list []string
		want string
	}{
		{nil, ""},
		{[]string{"permanent"}, ""},
		{[]string{"not_found", "invalid_result", "loop_blocked"}, ""},
		{[]string{"permanent", "cancelled", "circuit_open", ""}, `fallback_on[1]: cancelled ends a call, and no alternative is tried; remove it
fallback_on[2]: circuit_open is transient, and after such faults an alternative is tried in any case; remove it
fallback_on[3]: no permanent fault is of the kind ""; known are permanent, invalid_arguments, truncated_call, tool_not_found, denied, approval_required, not_found, unsupported, failed, invalid_result, loop_blocked`},
		{make([]string, 100), "fallback_on: expected at most 11, got 100"},
	} {
		got := ""
		if err := CheckFallbackOn(c.list); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("CheckFallbackOn(%.5q):\n got %s\nwant %s", c.list, got, c.want)
		}
	}
}

func TestCheckDefault(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{`null`, ""},
		{`{"flights":[]}`, ""},
		{``, "expected a JSON value: the JSON ends at byte 0 inside a value"},
		{`{}{}`, "expected a JSON value: at byte 2: there is more after the end of the value, near {}{}"},
		{strings.Repeat(" ", MaxDefault+1), "expected at most 65536 bytes, got 65537"},
	} {
		got := ""
		if err := CheckDefault([]byte(c.raw)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("CheckDefault(%.20q) = %s, want %s", c.raw, got, c.want)
		}
	}
}
