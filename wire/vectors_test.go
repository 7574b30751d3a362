package wire

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

var update = flag.Bool("update", false, "write testdata again instead of comparing with it")

// golden compares what we make of the vectors with the file that all languages share.
func golden(t *testing.T, name string, vectors any) {
	t.Helper()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(vectors); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(out.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("%s:%d: we make %q, the file says %q; if the change is meant, go test ./wire -update", path, i+1, at(got, i), line)
		}
	}
	if out.Len() != len(want) {
		t.Fatalf("%s: we make %d bytes, the file has %d", path, out.Len(), len(want))
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "no more lines"
}

func ptr[T any](v T) *T { return &v }

func raw(s string) json.RawMessage { return json.RawMessage(s) }

type record struct {
	name, kind string
	value      any // a pointer to a record
}

var records = slices.Concat(baseRecords, planRecords, controlRecords, eventRecords, outcomeRecords)

var baseRecords = []record{
	{"a beat", "heartbeat", &Heartbeat{
		Worker: "w-1", State: Beat, Running: 3, Capacity: 8, SDK: "toolbus-go/0.1.0", EveryMs: 1000, Seq: 42,
		Tools: []ToolLine{{ID: "search", Version: "1.2.0", Digest: "9f86d081884c7d65"}, {ID: "echo", Digest: "60303ae22b998861"}},
	}},
	{"a worker that leaves with leaked handlers", "heartbeat", &Heartbeat{
		Worker: "w-2", State: Bye, Tools: []ToolLine{}, Capacity: 300, Leaked: 200, Draining: true, EveryMs: 600_000, Seq: 1 << 53,
	}},
	{"a turn of two calls", "turn_request", &TurnRequest{
		ID: "t1", Session: "s-7", DeadlineMs: 60_000,
		Calls: []tool.Call{
			{ID: "a", Tool: "search", Args: raw(`{"q":"Zürich <-> Genève & back","n":3.0}`)},
			{ID: "b", Tool: "book", TimeoutMs: 70_000, Key: "order-17", Retry: &tool.RetryPolicy{
				Strategy: "linear", InitialDelayMs: ptr[int64](100), Multiplier: ptr(1.5), MaxAttempts: ptr(0)}},
		},
	}},
	{"a turn without ids", "turn_request", &TurnRequest{Calls: []tool.Call{{Tool: "echo"}}}},
	{"progress with fractions", "progress", &ProgressRecord{Done: 0.5, Total: 2, Message: "half of one"}},
	{"progress of nothing", "progress", &ProgressRecord{}},
	{"everything that a fault can say", "fault", &fault.Fault{
		Kind: fault.InvalidArguments, Message: "2 arguments are wrong", Detail: "schema search@1.2.0", Code: "E42", RetryAfterMs: 1500,
		Execution: fault.NotStarted, Suggestions: []string{"Correct the arguments"},
		Violations: []fault.Violation{{Pointer: "/n", Expected: "integer", Got: "string (\"3\")"}, {Pointer: "", Expected: "q"}},
		Tool:       "search", Worker: "w-1", Attempt: 2,
	}},
	{"the least that a fault can say", "fault", &fault.Fault{Kind: fault.Timeout, Message: "it took too long"}},
	{"a kind of a later version", "fault", &fault.Fault{Kind: "moon_phase", Message: "not today"}},
	{"a manifest with every field", "describe", &DescribeRecord{Worker: "w-1", Manifests: []tool.Manifest{{
		ID: "search", Version: "1.2.0", Description: "Finds things.",
		Input: raw(`{"type":"object","properties":{"q":{"type":"string"}}}`), Output: raw(`true`),
		Effect: tool.Read, TimeoutMs: 5000, IdleTimeoutMs: 500,
		Retry:   &tool.RetryPolicy{Strategy: "exponential_backoff", MaxDelayMs: ptr[int64](800), JitterPercent: ptr(10.0), MaxTotalTimeMs: ptr[int64](2000)},
		Breaker: &tool.BreakerPolicy{FailureThreshold: ptr(5), SuccessThreshold: ptr(2), TimeoutMs: ptr[int64](30_000)},
		Classification: &tool.Classification{
			Kinds: map[string]tool.Override{"upstream": {Retry: ptr(false)}, "timeout": {Class: "permanent"}},
			Codes: map[string]tool.Override{"503": {Class: "permanent"}, "429": {Breaker: ptr(true)}},
		},
		KeepsKeys: true, Fallback: "grep", Alternatives: []string{"find", "scan"}, FallbackOn: []string{"not_found"}, Optional: true, Default: raw(`[]`),
		Tags: []string{"web"}, Annotations: map[string]string{"title": "Search", "owner": "ann"},
	}, {ID: "echo"}}}},
	{"the start of a turn", "event", &Event{V: 1, Type: TurnStarted, Seq: 1, Time: "2026-11-21T08:00:00Z", Turn: "t1", Executor: "x-1"}},
	{"progress as an event", "event", &Event{V: 1, Type: ProgressEvent, Seq: 3, AtMs: 12.25, Turn: "t1", Call: "a", Tool: "search", Attempt: 1,
		Worker: "w-1", Progress: &ProgressRecord{Done: 1, Total: 3}}},
	{"a piece of a result", "event", &Event{V: 1, Type: PartialEvent, Seq: 4, AtMs: 13, Turn: "t1", Call: "a", Tool: "search", Attempt: 1, Piece: raw(`"Zü"`), PieceSeq: 1}},
	{"an error and what is done about it", "event", &Event{V: 1, Type: ToolError, Seq: 5, AtMs: 20, Turn: "t1", Call: "b", Tool: "book", Attempt: 1,
		Error: &fault.Fault{Kind: fault.Unavailable, Message: "no worker takes book"}, Classification: "transient", BreakerState: "closed",
		RetryCount: 1, Decision: "retry", Because: "nothing ran", DelayMs: 103.5}},
	{"the end of a call", "event", &Event{V: 1, Type: CallSettled, Seq: 6, AtMs: 130, Turn: "t1", Call: "a", Tool: "search",
		Result: &tool.Result{Call: "a", Tool: "search", Status: tool.Success, Value: raw(`{"hits":[1,2,3]}`), DurationMs: 117.75}}},
	{"the end of a turn", "event", &Event{V: 1, Type: TurnEnded, Seq: 9, AtMs: 60_000, Turn: "t1", Outcome: &Outcome{
		Turn: "t1", Status: "partial", Sentence: "Completed search, but book timed out.", DurationMs: 60_000,
		Results: []tool.Result{{Call: "a", Tool: "search", Status: tool.Success, Value: raw(`null`), DurationMs: 1}}}}},
	{"an outcome with a history", "outcome", &Outcome{Turn: "t1", Status: "escalated", DurationMs: 250.5, Results: []tool.Result{{
		Call: "b", Tool: "book", Status: tool.Failed, Fault: &fault.Fault{Kind: fault.Denied, Message: "you may not"},
		Attempts: []tool.Attempt{
			{N: 1, Tool: "book", Kind: fault.Unavailable, Message: "no worker takes book", DurationMs: 0.5, DelayMs: 103.5, Decision: "retry", Because: "nothing ran"},
			{N: 2, Tool: "book", Worker: "w-9", Kind: fault.Denied, Message: "you may not", StartMs: 104, DurationMs: 9},
		},
		Sentence: "Booking was refused.", DurationMs: 113,
	}}}},
}

// kinds are the records that there are, by what the vectors call them.
var kinds = map[string]func() any{
	"heartbeat":    func() any { return &Heartbeat{} },
	"turn_request": func() any { return &TurnRequest{} },
	"turn_control": func() any { return &TurnControl{} },
	"turn_reply":   func() any { return &TurnReply{} },
	"late_query":   func() any { return &LateQuery{} },
	"late_record":  func() any { return &LateRecord{} },
	"trace_query":  func() any { return &TraceQuery{} },
	"page":         func() any { return &Page{} },
	"progress":     func() any { return &ProgressRecord{} },
	"fault":        func() any { return &fault.Fault{} },
	"describe":     func() any { return &DescribeRecord{} },
	"event":        func() any { return &Event{} },
	"outcome":      func() any { return &Outcome{} },
}

func emptyOf(kind string) any {
	empty, ok := kinds[kind]
	if !ok {
		panic("no record of type " + kind)
	}
	return empty()
}

func TestRecords(t *testing.T) {
	type vector struct {
		Name    string `json:"name"`
		Type    string `json:"type"`
		JSON    string `json:"json"`
		MsgPack string `json:"msgpack_hex"`
	}
	var vectors []vector
	for _, r := range records {
		t.Run(r.name, func(t *testing.T) {
			text, err := Marshal(JSON, r.value)
			if err != nil {
				t.Fatal(err)
			}
			packed, err := Marshal(MsgPack, r.value)
			if err != nil {
				t.Fatal(err)
			}
			vectors = append(vectors, vector{r.name, r.kind, string(text), hex.EncodeToString(packed)})

			for name, b := range map[string][]byte{JSON: text, MsgPack: packed} {
				got, sniffed := emptyOf(r.kind), emptyOf(r.kind)
				if err := Unmarshal(name, b, got); err != nil {
					t.Fatalf("Unmarshal(%s): %v", name, err)
				}
				if err := Decode(b, sniffed); err != nil {
					t.Fatalf("Decode of %s: %v", name, err)
				}
				if !reflect.DeepEqual(got, r.value) || !reflect.DeepEqual(sniffed, r.value) {
					t.Errorf("%s: decoded %+v, want %+v", name, got, r.value)
				}
				if again, _ := Marshal(name, got); !bytes.Equal(again, b) {
					t.Errorf("%s: encoded again it is %x, want %x", name, again, b)
				}
				for cut := range b {
					if err := Unmarshal(name, b[:cut], emptyOf(r.kind)); err == nil {
						t.Errorf("%s: its first %d of %d bytes are taken", name, cut, len(b))
					}
				}
				if err := Unmarshal(name, append(b[:len(b):len(b)], 'x'), emptyOf(r.kind)); err == nil {
					t.Errorf("%s: a byte after the end is taken", name)
				}
			}
		})
	}
	golden(t, "records.json", vectors)
}

// hostile are payloads that must be refused, or taken in one way only. The payload is Hex as often as Repeat says, then
// Tail. Into is scan for the scan alone, or the record to decode into, with "checked" before it where its Check follows.
type hostile struct {
	Name   string `json:"name"`
	Hex    string `json:"hex"`
	Repeat int    `json:"repeat,omitempty"`
	Tail   string `json:"tail_hex,omitempty"`
	Into   string `json:"into"`
	Code   Code   `json:"code"` // "" where it must be taken
}

func (h hostile) bytes() []byte {
	b, err := hex.DecodeString(h.Hex)
	if err != nil {
		panic(err)
	}
	tail, err := hex.DecodeString(h.Tail)
	if err != nil {
		panic(err)
	}
	return append(bytes.Repeat(b, max(1, h.Repeat)), tail...)
}

// packed is a map of one key, in hex.
func packed(key, value string) string {
	return hex.EncodeToString(append([]byte{0x81, 0xa0 | byte(len(key))}, key...)) + value
}

var hostiles = []hostile{
	{Name: "nothing", Into: "scan", Code: CodeEmpty},
	{Name: "reserved code", Hex: "c1", Into: "scan", Code: CodeReserved},
	{Name: "reserved code inside", Hex: "81a161c1", Into: "scan", Code: CodeReserved},
	{Name: "array32 of 4 G", Hex: "ddffffffff", Into: "scan", Code: CodeTruncated},
	{Name: "array32 of 20 M", Hex: "dd01312d00", Into: "scan", Code: CodeTruncated},
	{Name: "map32 of 4 G", Hex: "dfffffffff", Into: "scan", Code: CodeTruncated},
	{Name: "map32 of 20 M", Hex: "df01312d00", Into: "scan", Code: CodeTruncated},
	{Name: "map32 whose count overflows when doubled", Hex: "df80000001a16101", Into: "scan", Code: CodeTruncated},
	{Name: "bin32 of 2 GiB", Hex: "c680000000", Into: "scan", Code: CodeTruncated},
	{Name: "bin32 of 200 MB", Hex: "c60c800000", Into: "scan", Code: CodeTruncated},
	{Name: "str32 of 2 GiB", Hex: "db80000000", Into: "scan", Code: CodeTruncated},
	{Name: "str32 of 200 MB", Hex: "db0c800000", Into: "scan", Code: CodeTruncated},
	{Name: "ext32 of 2 GiB", Hex: "c98000000005", Into: "scan", Code: CodeExtension},
	{Name: "fixext without its body", Hex: "d4", Into: "scan", Code: CodeExtension},
	{Name: "a million arrays in each other", Hex: "91", Repeat: 1_000_000, Tail: "c0", Into: "scan", Code: CodeTooDeep},
	{Name: "a million maps in each other", Hex: "81a161", Repeat: 1_000_000, Tail: "c0", Into: "scan", Code: CodeTooDeep},
	{Name: "20,000 array16 of 65,535 in each other", Hex: "dcffff", Repeat: 20_000, Into: "scan", Code: CodeTruncated},
	{Name: "32 containers in each other", Hex: "91", Repeat: 32, Tail: "c0", Into: "scan"},
	{Name: "33 containers in each other", Hex: "91", Repeat: 33, Tail: "c0", Into: "scan", Code: CodeTooDeep},
	{Name: "an array of 9,999", Hex: "dc270f" + strings.Repeat("c0", 9_999), Into: "scan"},
	{Name: "an array of 10,000", Hex: "dc2710" + strings.Repeat("c0", 10_000), Into: "scan", Code: CodeTooMany},
	{Name: "a byte after the end", Hex: "8000", Into: "scan", Code: CodeTrailing},
	{Name: "two values", Hex: "8080", Into: "scan", Code: CodeTrailing},
	{Name: "a length cut off", Hex: "dd0000", Into: "scan", Code: CodeTruncated},
	{Name: "an integer cut off", Hex: "d300", Into: "scan", Code: CodeTruncated},
	{Name: "a map without its last value", Hex: "82a16101a162", Into: "scan", Code: CodeTruncated},
	{Name: "an integer as a map key", Hex: "810101", Into: "scan", Code: CodeKey},
	{Name: "bytes as a map key", Hex: "81c4016101", Into: "scan", Code: CodeKey},
	{Name: "nil as a map key", Hex: "81c001", Into: "scan", Code: CodeKey},
	{Name: "a map as a map key", Hex: "818001", Into: "scan", Code: CodeKey},
	{Name: "a string that is not UTF-8", Hex: "81a161a2c328", Into: "scan", Code: CodeText},
	{Name: "a surrogate as UTF-8", Hex: "a3eda080", Into: "scan", Code: CodeText},
	{Name: "a key that is not UTF-8", Hex: "81a1ff01", Into: "scan", Code: CodeText},
	{Name: "bytes that are not UTF-8", Hex: "81a161c401ff", Into: "scan"},
	{Name: "timestamp, ext -1", Hex: "81a161d6ff00000000", Into: "scan", Code: CodeExtension},
	{Name: "ext 5", Hex: "81a161c7000c05", Into: "scan", Code: CodeExtension},
	{Name: "undefined of msgpackr, ext 0", Hex: "81a161d40000", Into: "scan", Code: CodeExtension},
	{Name: "2^53", Hex: "cf0020000000000000", Into: "scan"},
	{Name: "2^53+1", Hex: "cf0020000000000001", Into: "scan", Code: CodeNumber},
	{Name: "2^64-1", Hex: "cfffffffffffffffff", Into: "scan", Code: CodeNumber},
	{Name: "-2^53", Hex: "d3ffe0000000000000", Into: "scan"},
	{Name: "-2^53-1", Hex: "d3ffdfffffffffffff", Into: "scan", Code: CodeNumber},
	{Name: "float32 NaN", Hex: "ca7fc00000", Into: "scan", Code: CodeNumber},
	{Name: "float64 NaN", Hex: "cb7ff8000000000000", Into: "scan", Code: CodeNumber},
	{Name: "infinity", Hex: "cb7ff0000000000000", Into: "scan", Code: CodeNumber},
	{Name: "keys of JavaScript's object", Hex: "82a95f5f70726f746f5f5fc0ab636f6e7374727563746f72c0", Into: "heartbeat"},

	{Name: "an array instead of a record", Hex: "90", Into: "heartbeat", Code: CodeType},
	{Name: "nil instead of a record", Hex: "c0", Into: "turn_request", Code: CodeType},
	{Name: "a string instead of a record", Hex: "a161", Into: "event", Code: CodeType},
	{Name: "a field that we do not know", Hex: packed("novel", "93010203"), Into: "heartbeat"},
	{Name: "a key twice: the last one holds", Hex: "82a772756e6e696e6701a772756e6e696e6702", Into: "heartbeat"},
	{Name: "nil for a string is an absent one", Hex: packed("worker", "c0"), Into: "heartbeat"},
	{Name: "64.0 for an integer", Hex: packed("running", "cb4050000000000000"), Into: "heartbeat"},
	{Name: "64.0 as float32 for an integer", Hex: packed("running", "ca42800000"), Into: "heartbeat"},
	{Name: "1.5 for an integer", Hex: packed("running", "cb3ff8000000000000"), Into: "heartbeat", Code: CodeType},
	{Name: "1e300 for an integer", Hex: packed("running", "cb7e37e43c8800759c"), Into: "heartbeat", Code: CodeType},
	{Name: "NaN for an integer", Hex: packed("running", "cb7ff8000000000000"), Into: "heartbeat", Code: CodeNumber},
	{Name: "a string for an integer", Hex: packed("running", "a133"), Into: "heartbeat", Code: CodeType},
	{Name: "a map for a list", Hex: packed("tools", "80"), Into: "heartbeat", Code: CodeType},
	{Name: "2^64-1 for an integer", Hex: packed("seq", "cfffffffffffffffff"), Into: "event", Code: CodeNumber},
	{Name: "an extension as arguments", Hex: packed("calls", "91"+packed("args", "d40500")), Into: "turn_request", Code: CodeExtension},
	{Name: "arguments as a string", Hex: packed("calls", "91"+packed("args", "a27b7d")), Into: "turn_request"},
	{Name: "arguments as a map", Hex: packed("calls", "91"+packed("args", "80")), Into: "turn_request", Code: CodeType},
	{Name: "an event of version 99", Hex: packed("v", "63"), Into: "checked event", Code: CodeVersion},
	{Name: "a heartbeat that says nothing", Hex: "80", Into: "checked heartbeat", Code: CodeRecord},
	{Name: "an event that says nothing but its version", Hex: packed("v", "01"), Into: "checked event", Code: CodeRecord},

	{Name: "10,001 calls of nothing", Hex: packed("calls", "dc2711"+strings.Repeat("80", 10_001)), Into: "turn_request", Code: CodeTooMany},
	{Name: "1,001 calls of nothing", Hex: packed("calls", "dc03e9"+strings.Repeat("80", 1001)), Into: "checked turn_request", Code: CodeRecord},
	{Name: "10,001 calls to add", Hex: packed("calls", "dc2711"+strings.Repeat("80", 10_001)), Into: "turn_control", Code: CodeTooMany},
	{Name: "a call whose join is a number", Hex: packed("calls", "91"+packed("join", "02")), Into: "turn_request", Code: CodeType},
	{Name: "a call whose join is a text", Hex: packed("calls", "91"+packed("join", "a132")), Into: "turn_request"},
	{Name: "a call that waits for numbers", Hex: packed("calls", "91"+packed("after", "9101")), Into: "turn_request", Code: CodeType},
	{Name: "a turn of no calls", Hex: packed("id", "a174"), Into: "checked turn_request", Code: CodeRecord},
	{Name: "an open turn of no calls", Hex: packed("open", "c3"), Into: "checked turn_request"},
	{Name: "a deadline mode that is none", Hex: "82a46f70656ec3" + packed("deadline_mode", "a4736f6d65")[2:], Into: "checked turn_request", Code: CodeRecord},
	{Name: "a control of nothing", Hex: "80", Into: "checked turn_control"},
	{Name: "a reply that is not ok and says no more", Hex: packed("ok", "c2"), Into: "checked turn_reply", Code: CodeRecord},
	{Name: "a question for no call", Hex: "80", Into: "checked late_query", Code: CodeRecord},
	{Name: "a question for a call with a wildcard", Hex: packed("call", "a12a"), Into: "checked late_query", Code: CodeRecord},
	{Name: "a question for a call of any turn", Hex: packed("call", "a161"), Into: "checked late_query"},
	{Name: "a question for no turn", Hex: "80", Into: "checked trace_query", Code: CodeRecord},
	{Name: "a question for a turn with a dot", Hex: packed("turn", "a3612e62"), Into: "checked trace_query", Code: CodeRecord},
	{Name: "a late result of version 99", Hex: packed("v", "63"), Into: "checked late_record", Code: CodeVersion},
	{Name: "a late result that is none", Hex: packed("v", "01"), Into: "checked late_record", Code: CodeRecord},
	{Name: "a page of version 99", Hex: packed("v", "63"), Into: "checked page", Code: CodeVersion},
	{Name: "a page of no turn", Hex: packed("v", "01"), Into: "checked page", Code: CodeRecord},
	{Name: "a page with an event of version 99", Hex: "83a17601a47475726ea174a66576656e747391" + packed("v", "63"), Into: "checked page", Code: CodeVersion},
	{Name: "a page with an event of another turn", Hex: "83a17601a47475726ea174a66576656e74739184a17601a474797065a158a373657101a47475726ea175", Into: "checked page", Code: CodeRecord},
	{Name: "10,001 events of nothing", Hex: packed("events", "dc2711"+strings.Repeat("80", 10_001)), Into: "page", Code: CodeTooMany},
}

func TestHostile(t *testing.T) {
	for _, h := range hostiles {
		if got := takes(h); got != h.Code {
			t.Errorf("%s: %q, want %q", h.Name, got, h.Code)
		}
	}
	golden(t, "hostile.json", hostiles)
}

// takes is the code with which a payload is refused, or "".
func takes(h hostile) Code {
	var err error
	into, check := strings.CutPrefix(h.Into, "checked ")
	if into == "scan" {
		err = Scan(h.bytes())
	} else {
		v := emptyOf(into)
		err = Unmarshal(MsgPack, h.bytes(), v)
		if c, ok := v.(interface{ Check() error }); ok && err == nil && check {
			err = c.Check()
		}
	}
	if err == nil {
		return ""
	}
	var e *Error
	if !errors.As(err, &e) {
		return Code("not an *Error: " + err.Error())
	}
	return e.Code
}
