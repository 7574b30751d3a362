package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

func TestRawJSONIsBytesInMessagePack(t *testing.T) {
	b, err := Marshal(MsgPack, &TurnRequest{Calls: []tool.Call{{Tool: "echo", Args: raw(`{}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte("\xa4args\xc4\x02{}"); !bytes.Contains(b, want) {
		t.Errorf("%x does not hold args as bin, %x", b, want)
	}
}

func TestForeignForms(t *testing.T) {
	for _, h := range hostiles {
		if h.Code != "" || h.Into != "heartbeat" && h.Into != "turn_request" {
			continue
		}
		v := emptyOf(h.Into)
		if err := Unmarshal(MsgPack, h.bytes(), v); err != nil {
			t.Errorf("%s: %v", h.Name, err)
		}
		switch v := v.(type) {
		case *Heartbeat:
			want := map[string]int{"64.0 for an integer": 64, "64.0 as float32 for an integer": 64, "a key twice: the last one holds": 2}[h.Name]
			if v.Running != want || v.Worker != "" {
				t.Errorf("%s: running %d, worker %q, want %d and none", h.Name, v.Running, v.Worker, want)
			}
		case *TurnRequest:
			if strings.HasPrefix(h.Name, "arguments") && string(v.Calls[0].Args) != "{}" {
				t.Errorf("%s: args %q, want {}", h.Name, v.Calls[0].Args)
			}
		}
	}
}

func TestIntegralLeavesItsInputAlone(t *testing.T) {
	in := []byte{0x92, 0xcb, 0x40, 0x50, 0, 0, 0, 0, 0, 0, 0xca, 0xc2, 0x80, 0, 0}
	before := bytes.Clone(in)
	want := []byte{0x92, 0xd3, 0, 0, 0, 0, 0, 0, 0, 64, 0xd2, 0xff, 0xff, 0xff, 0xc0}
	if got := integral(in); !bytes.Equal(got, want) {
		t.Errorf("integral = %x, want %x", got, want)
	}
	if !bytes.Equal(in, before) {
		t.Errorf("the input became %x", in)
	}
}

func TestRefusedJSON(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       Code
	}{
		{"nothing", "", CodeEmpty},
		{"blanks", " \n", CodeEmpty},
		{"null", "null", CodeJSON},
		{"an array", "[]", CodeJSON},
		{"cut off", `{"running":1`, CodeJSON},
		{"two objects", `{}{}`, CodeJSON},
		{"not UTF-8", "{\"worker\":\"\xff\"}", CodeText},
		{"a string for a number", `{"running":"1"}`, CodeType},
		{"a fraction for an integer", `{"running":1.5}`, CodeType},
		{"2^53+1", `{"seq":9007199254740993}`, CodeNumber},
		{"2^63", `{"seq":9223372036854775808}`, CodeType},
		{"64 deep", `{"x":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`, ""},
		{"65 deep", `{"x":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, CodeTooDeep},
		{"a million deep", `{"x":` + strings.Repeat("[", 1_000_000), CodeTooDeep},
		{"brackets in a string", `{"x":"` + strings.Repeat(`[\"{`, 100) + `"}`, ""},
	} {
		if got := codeOf(Unmarshal(JSON, []byte(c.text), &Heartbeat{})); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestMisuse(t *testing.T) {
	var none *Heartbeat
	for name, err := range map[string]error{
		"Marshal a map":         second(Marshal(JSON, map[string]any{})),
		"Marshal nil":           second(Marshal(MsgPack, nil)),
		"Marshal a nil pointer": second(Marshal(MsgPack, none)),
		"Unmarshal into nil":    Unmarshal(MsgPack, []byte{0x80}, nil),
		"into a nil pointer":    Unmarshal(MsgPack, []byte{0x80}, none),
		"into a struct":         Unmarshal(MsgPack, []byte{0x80}, Heartbeat{}),
		"into any":              Unmarshal(MsgPack, []byte{0x80}, new(any)),
		"bad raw JSON":          second(Marshal(JSON, &Event{Piece: raw("{")})),
	} {
		if codeOf(err) != CodeArgument {
			t.Errorf("%s: %v, want %s", name, err, CodeArgument)
		}
	}
	if err := Unmarshal("text/plain", nil, &Heartbeat{}); codeOf(err) != CodeContentType {
		t.Errorf("text/plain: %v, want %s", err, CodeContentType)
	}
}

func second[T any](_ T, err error) error { return err }

func TestMarshalRefusesWhatUnmarshalWould(t *testing.T) {
	for name, v := range map[string]any{
		"2^53+1": &Heartbeat{Seq: 1<<53 + 1},
		"2^60":   &ProgressRecord{Done: 1 << 60},
		"NaN":    &ProgressRecord{Done: math.NaN()},
	} {
		if _, err := Marshal(MsgPack, v); codeOf(err) != CodeNumber {
			t.Errorf("%s: %v, want %s", name, err, CodeNumber)
		}
	}
	b, err := Marshal(MsgPack, &ProgressRecord{Message: "caf\xe9 \xf0\x9f"})
	var got ProgressRecord
	if err != nil || Unmarshal(MsgPack, b, &got) != nil || got.Message != "caf? ??" {
		t.Errorf("text that is not UTF-8: %v, %q, want caf? ??", err, got.Message)
	}
}

func TestAFullTurnFits(t *testing.T) {
	policy := &tool.RetryPolicy{
		Strategy: "linear", InitialDelayMs: ptr[int64](1), MaxDelayMs: ptr[int64](1), Multiplier: ptr(1.5), JitterPercent: ptr(1.5),
		MaxAttempts: ptr(1), MaxTotalTimeMs: ptr[int64](1)}
	other := tool.Alternative{Tool: "echo", Args: raw(`{}`), TimeoutMs: 1, Retry: policy, BreakerKey: "k"}
	after := make([]string, 150)
	for i := range after {
		after[i] = fmt.Sprint("c", i)
	}
	r := TurnRequest{Calls: make([]tool.Call, MaxCalls), Open: true}
	o := Outcome{Results: make([]tool.Result, MaxCalls), Running: make([]string, MaxCalls)}
	for i := range r.Calls {
		id := fmt.Sprint("c", i)
		r.Calls[i] = tool.Call{ID: id, Tool: "echo", Args: raw(`{}`), TimeoutMs: 1, Key: id, BreakerKey: "k", Retry: policy, Effect: tool.Read,
			After: after, Join: tool.JoinAvailable, JoinByMs: 1, Optional: true, Default: raw(`{}`),
			Alternatives: []tool.Alternative{other, other, other}, FallbackOn: []string{"permanent", "not_found"}}
		o.Results[i] = tool.Result{Call: id, Tool: "echo", Status: tool.Failed, FallbackTool: "f", BecauseOf: "b", Value: raw(`{}`), Sentence: "no",
			Fault:    &fault.Fault{Kind: fault.Timeout, Message: "late", Detail: "d", Code: "c", Execution: fault.Unknown, Suggestions: []string{"a", "b"}},
			Attempts: make([]tool.Attempt, 10)}
		for j := range o.Results[i].Attempts {
			o.Results[i].Attempts[j] = tool.Attempt{N: j + 1, Tool: "echo", Worker: "w", Kind: "timeout", Message: "late", StartMs: 1, DurationMs: 1, DelayMs: 1, Decision: "retry", Because: "x"}
		}
	}
	many := &Page{V: 1, Turn: "t1", Events: make([]Event, MaxEvents)}
	for i := range many.Events {
		many.Events[i] = Event{V: 1, Type: AttemptStarted, Seq: int64(i), AtMs: 1, Time: "now", Turn: "t1", Call: "c", Tool: "echo", Attempt: 1, Worker: "w", TimeoutMs: 1}
	}
	started, ended := Event{V: 1, Request: &r}, Event{V: 1, Outcome: &o}
	for name, v := range map[string]any{
		"a request": &r, "a request as a value": r, "calls to add": &TurnControl{Calls: r.Calls, Seq: 1}, "an outcome": o, "TurnStarted": &started, "TurnEnded": &ended,
		"a page with a request": &Page{V: 1, Events: []Event{started}}, "a page with an outcome": &Page{V: 1, Events: []Event{ended}}, "a page of many events": many,
	} {
		if _, err := Marshal(MsgPack, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A few bytes must not make anybody allocate much, whatever they are decoded into.
func TestBombsAreCheap(t *testing.T) {
	for _, h := range hostiles {
		b := h.bytes()
		if h.Code == "" || len(b) > 1<<10 {
			continue
		}
		for kind := range kinds {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_ = Unmarshal(MsgPack, b, emptyOf(kind))
			_ = DecodeFault(nil, b)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%s into %s: %d bytes are allocated", h.Name, kind, n)
			}
		}
	}
}

func TestChecks(t *testing.T) {
	beat := func(change func(*Heartbeat)) *Heartbeat {
		h := Heartbeat{Worker: "w-1", State: Beat, Tools: []ToolLine{{ID: "search"}}, Capacity: 1, EveryMs: 1000, Seq: 1}
		change(&h)
		return &h
	}
	checks(t, []checked{
		{"a beat", beat(func(*Heartbeat) {}), nil},
		{"a state of a later version", beat(func(h *Heartbeat) { h.State = "moved" }), nil},
		{"no tools", beat(func(h *Heartbeat) { h.Tools = nil }), nil},
		{"all that a beat can get wrong",
			beat(func(h *Heartbeat) {
				h.Worker, h.Capacity, h.EveryMs, h.Running, h.SDK = "w.1", -1, 9, -2, "a\nb"
				h.Tools = []ToolLine{{ID: "a"}, {ID: "a"}, {ID: "*"}, {ID: "b", Digest: strings.Repeat("x", 200)}}
			}),
			[]string{"worker: ", "capacity: expected 0 to", "every_ms: expected 10 to 600000, got 9", "running: ", "sdk: ", "tools[1].id: \"a\" is also the id of tools[0]", "tools[2].id: ", "tools[3]: "}},
		{"every_ms at its ends", beat(func(h *Heartbeat) { h.EveryMs = 600_000 }), nil},
		{"every_ms beyond", beat(func(h *Heartbeat) { h.EveryMs = 600_001 }), []string{"every_ms"}},
		{"1,001 tools", beat(func(h *Heartbeat) { h.Tools = make([]ToolLine, 1001) }), []string{"tools: at most 1000 are allowed, got 1001", "problems more"}},

		{"manifests", &DescribeRecord{Worker: "w", Manifests: []tool.Manifest{{ID: "a"}, {ID: "b"}}}, nil},
		{"bad manifests", &DescribeRecord{Manifests: []tool.Manifest{{ID: "a"}, {ID: "a"}, {ID: ">"}}}, []string{"worker: ", "manifests[1].id: ", "manifests[2].id: "}},
	})
}

// A checked record is good where want is nil; else its Check says each of these.
type checked struct {
	name string
	v    interface{ Check() error }
	want []string
}

func checks(t *testing.T, table []checked) {
	t.Helper()
	for _, c := range table {
		err := c.v.Check()
		if c.want == nil && err != nil {
			t.Errorf("%s: %v, want no error", c.name, err)
		}
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want also %q", c.name, err, part)
			}
		}
		if err != nil && len(err.Error()) > 8<<10 {
			t.Errorf("%s: the message is %d bytes long", c.name, len(err.Error()))
		}
	}
}

func FuzzScan(f *testing.F) {
	for _, h := range hostiles {
		if b := h.bytes(); len(b) < 1<<10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		err := ScanLimits{AnyNumber: true}.Scan(b)
		if err != nil && Scan(b) == nil {
			t.Errorf("Scan takes %x, but not with any number: %v", b, err)
		}
		if err != nil {
			return
		}
		for cut := range b {
			if Scan(b[:cut]) == nil {
				t.Errorf("Scan takes %x and also its first %d bytes", b, cut)
			}
		}
		if c := integral(b); len(c) != len(b) || (ScanLimits{AnyNumber: true}).Scan(c) != nil {
			t.Errorf("integral(%x) = %x", b, c)
		}
	})
}

func fuzzRecord[T any](f *testing.F, kind string) {
	for _, r := range records {
		if r.kind != kind {
			continue
		}
		for _, codec := range []string{JSON, MsgPack} {
			b, err := Marshal(codec, r.value)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	for _, h := range hostiles {
		if b := h.bytes(); h.Into == kind || len(b) < 10 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, again := new(T), new(T)
		if Decode(b, v) != nil {
			return
		}
		if c, ok := any(v).(interface{ Check() error }); ok {
			_ = c.Check()
		}
		out, err := Marshal(MsgPack, v)
		if err != nil {
			return // JSON may hold numbers that MessagePack may not
		}
		if err := Unmarshal(MsgPack, out, again); err != nil {
			t.Fatalf("%x was taken, encoded as %x, and that is refused: %v", b, out, err)
		}
		if third, _ := Marshal(MsgPack, again); !bytes.Equal(third, out) {
			t.Errorf("%x, encoded again, is %x", out, third)
		}
	})
}

func FuzzDecodeHeartbeat(f *testing.F)   { fuzzRecord[Heartbeat](f, "heartbeat") }
func FuzzDecodeTurnRequest(f *testing.F) { fuzzRecord[TurnRequest](f, "turn_request") }
func FuzzDecodeTurnControl(f *testing.F) { fuzzRecord[TurnControl](f, "turn_control") }
func FuzzDecodeTurnReply(f *testing.F)   { fuzzRecord[TurnReply](f, "turn_reply") }
func FuzzDecodeLateQuery(f *testing.F)   { fuzzRecord[LateQuery](f, "late_query") }
func FuzzDecodeLateRecord(f *testing.F)  { fuzzRecord[LateRecord](f, "late_record") }
func FuzzDecodeTraceQuery(f *testing.F)  { fuzzRecord[TraceQuery](f, "trace_query") }
func FuzzDecodePage(f *testing.F)        { fuzzRecord[Page](f, "page") }
func FuzzDecodeEvent(f *testing.F)       { fuzzRecord[Event](f, "event") }
func FuzzDecodeOutcome(f *testing.F)     { fuzzRecord[Outcome](f, "outcome") }

func BenchmarkScan(b *testing.B) {
	for _, r := range records {
		packed, err := Marshal(MsgPack, r.value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(strings.ReplaceAll(r.name, " ", "_"), func(b *testing.B) {
			b.SetBytes(int64(len(packed)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Scan(packed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHeartbeat(b *testing.B) {
	for _, codec := range []string{JSON, MsgPack} {
		packed, err := Marshal(codec, records[0].value)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("Marshal/"+codec, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Marshal(codec, records[0].value)
			}
		})
		b.Run("Unmarshal/"+codec, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = Unmarshal(codec, packed, &Heartbeat{})
			}
		})
	}
}

// What the vectors say of JSON must be what others read, too.
func TestJSONIsPlain(t *testing.T) {
	for _, r := range records {
		b, err := Marshal(JSON, r.value)
		if err != nil {
			t.Fatal(err)
		}
		var ours, plain any
		theirs, err := json.Marshal(r.value)
		if err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal(b, &ours) != nil || json.Unmarshal(theirs, &plain) != nil || !reflect.DeepEqual(ours, plain) {
			t.Errorf("%s: %s, want the same as %s", r.name, b, theirs)
		}
	}
}
