package wire

import (
	"bytes"
	"encoding/binary"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
)

var planRecords = []record{
	{"a turn with every field", "turn_request", &TurnRequest{
		ID: "t2", Session: "s-7", DeadlineMs: 60_000, DeadlineMode: DeadlineHard, Parallel: 8, ToolParallel: 2, OnFailure: FailureStop,
		OnClientLoss: LossCancel, Open: true,
		Calls: []tool.Call{
			{ID: "flights", Tool: "flight_search", Args: raw(`{"to":"OSL"}`), TimeoutMs: 2000, Key: "k-1", BreakerKey: "eu",
				Retry: &tool.RetryPolicy{Strategy: "exponential", InitialDelayMs: ptr[int64](50), MaxDelayMs: ptr[int64](400), Multiplier: ptr(2.0),
					JitterPercent: ptr(12.5), MaxAttempts: ptr(3), MaxTotalTimeMs: ptr[int64](5000)},
				Effect: tool.Read, Optional: true, Default: raw(`{"flights":[]}`),
				Alternatives: []tool.Alternative{
					{Tool: "flight_cache", Args: raw(`{"city":{"$arg":"/to"}}`), TimeoutMs: 300, Retry: &tool.RetryPolicy{MaxAttempts: ptr(1)}, BreakerKey: "eu"},
					{Tool: "flight_archive"},
				},
				FallbackOn: []string{"not_found", "permanent"}},
			{ID: "hotels", Tool: "hotel_search"},
			{ID: "book", Tool: "book_trip", Effect: tool.Write, Args: raw(`{"flight":{"$from":"flights","pointer":"/flights/0/id"},"note":{"$literal":{"$from":"me"}}}`),
				After: []string{"hotels"}, Join: tool.JoinAll},
			{ID: "summary", Tool: "summarize", After: []string{"flights", "hotels", "book"}, Join: tool.JoinAvailable, JoinByMs: 5000},
			{ID: "any", Tool: "echo", After: []string{"flights", "hotels"}, Join: tool.JoinAny},
			{ID: "two", Tool: "echo", After: []string{"flights", "hotels", "book"}, Join: "2"},
		},
	}},
	{"an open turn without calls", "turn_request", &TurnRequest{ID: "t3", Calls: []tool.Call{}, Open: true, DeadlineMode: DeadlineSoft, OnFailure: FailureContinue, OnClientLoss: LossContinue}},
}

var notThere = &fault.Fault{Kind: fault.NotFound, Message: "no late result of hotels is kept", Suggestions: []string{"Ask again once the call has ended"}}

var controlRecords = []record{
	{"cancel the turn", "turn_control", &TurnControl{}},
	{"cancel one call", "turn_control", &TurnControl{Call: "hotels"}},
	{"add two calls", "turn_control", &TurnControl{Seq: 1, Calls: []tool.Call{
		{ID: "r2-1", Tool: "echo", Args: raw(`{"of":{"$from":"flights","pointer":"/flights/0","default":null}}`)}, {ID: "r2-2", Tool: "echo", After: []string{"r2-1"}}}}},
	{"close the turn", "turn_control", &TurnControl{Seq: 2}},
	{"yes", "turn_reply", &TurnReply{OK: true}},
	{"no", "turn_reply", &TurnReply{Fault: &fault.Fault{Kind: fault.InvalidArguments, Message: "calls[0].after[0]: there is no call x"}}},
	{"which late result", "late_query", &LateQuery{Turn: "t2", Call: "hotels"}},
	{"which late result of any turn", "late_query", &LateQuery{Call: "hotels"}},
	{"a late result", "late_record", &LateRecord{V: 1, Turn: "t2", Session: "s-7", Time: "2026-11-21T08:00:09Z", Result: &tool.Result{
		Call: "hotels", Tool: "hotel_search", Status: tool.Success, Value: raw(`{"hotels":[{"id":"H1"}]}`), DurationMs: 8250.5,
		Attempts: []tool.Attempt{{N: 1, Tool: "hotel_search", Worker: "w-1", DurationMs: 8250}},
		Sentence: "Completed hotel_search.",
	}}},
	{"no late result", "late_record", &LateRecord{V: 1, Turn: "t2", Fault: notThere}},
	{"which journal", "trace_query", &TraceQuery{Turn: "t2"}},
	{"a page of a journal", "page", &Page{V: 1, Turn: "t2", Events: []Event{
		{V: 1, Type: CallReady, Seq: 2, AtMs: 0.25, Turn: "t2", Call: "hotels", Tool: "hotel_search"},
		{V: 1, Type: AttemptStarted, Seq: 3, AtMs: 0.25, Time: "2026-11-21T08:00:00Z", Turn: "t2", Call: "hotels", Tool: "hotel_search", Attempt: 1, TimeoutMs: 30_000},
	}}},
	{"the last page of a journal", "page", &Page{V: 1, Turn: "t2", Last: true}},
	{"no journal", "page", &Page{V: 1, Turn: "t9", Last: true, Fault: &fault.Fault{Kind: fault.NotFound, Message: "no journal of t9 is kept"}}},
}

// on is an event of the call flights.
func on(typ string, seq int64, atMs float64, fill Event) *Event {
	fill.V, fill.Type, fill.Seq, fill.AtMs, fill.Turn, fill.Call = 1, typ, seq, atMs, "t2", "flights"
	return &fill
}

var eventRecords = []record{
	{"TurnStarted with its request", "event", &Event{V: 1, Type: TurnStarted, Seq: 1, Time: "2026-11-21T08:00:00Z", Turn: "t2", Executor: "x-1",
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Request: &TurnRequest{ID: "t2", DeadlineMs: 5000, Open: true, Calls: []tool.Call{{ID: "flights", Tool: "flight_search", Args: raw(`{}`)}}}}},
	{"CallsAdded", "event", &Event{V: 1, Type: CallsAdded, Seq: 2, AtMs: 10, Turn: "t2",
		Request: &TurnRequest{ID: "t2", Calls: []tool.Call{{ID: "book", Tool: "book_trip", After: []string{"flights"}}}}}},
	{"TurnClosed", "event", &Event{V: 1, Type: TurnClosed, Seq: 3, AtMs: 11, Turn: "t2"}},
	{"CancelRequested for the turn", "event", &Event{V: 1, Type: CancelRequested, Seq: 4, AtMs: 12, Turn: "t2"}},
	{"CancelRequested for one call", "event", on(CancelRequested, 5, 12.5, Event{Tool: "flight_search"})},
	{"CallReady", "event", on(CallReady, 6, 13, Event{Tool: "flight_search"})},
	{"AttemptStarted", "event", on(AttemptStarted, 7, 13, Event{Tool: "flight_search", Attempt: 1, Worker: "w-1", TimeoutMs: 2000})},
	{"Progress", "event", on(ProgressEvent, 8, 40, Event{Tool: "flight_search", Attempt: 1, Worker: "w-1", Progress: &ProgressRecord{Done: 1, Total: 4, Message: "asking SK"}})},
	{"Partial", "event", on(PartialEvent, 9, 41, Event{Tool: "flight_search", Attempt: 1, Worker: "w-1", Piece: raw(`{"id":"TB101"}`), PieceSeq: 1})},
	{"ToolError", "event", on(ToolError, 10, 50.5, Event{Time: "2025-11-05T10:30:45Z", Tool: "flight_search", Attempt: 1, Worker: "w-1",
		Error: &fault.Fault{Kind: fault.Unavailable, Message: "Connection timeout"}, Classification: "transient", BreakerState: "closed", RetryCount: 2,
		Decision: "retry", Because: "nothing ran", DelayMs: 103.5})},
	{"RetryScheduled", "event", on(RetryScheduled, 11, 50.5, Event{Tool: "flight_search", Attempt: 2, DelayMs: 103.5, Because: "nothing ran"})},
	{"BreakerChanged", "event", on(BreakerChanged, 12, 60, Event{Tool: "flight_search", BreakerState: "open", Decision: "Circuit breaker opened for flight_search", Because: "5 failures in a row"})},
	{"AlternativeChosen", "event", on(AlternativeChosen, 13, 61, Event{Tool: "flight_cache", Attempt: 2, Because: "the circuit breaker of flight_search is open"})},
	{"CallSkipped", "event", &Event{V: 1, Type: CallSkipped, Seq: 14, AtMs: 70, Turn: "t2", Call: "book", Tool: "book_trip", BecauseOf: "flights"}},
	{"CallSettled by an alternative", "event", on(CallSettled, 15, 80, Event{Tool: "flight_search", Result: &tool.Result{Call: "flights", Tool: "flight_search", Status: tool.ViaFallback,
		FallbackTool: "flight_cache", Value: raw(`{"flights":[{"id":"TB101"}]}`), DurationMs: 67}})},
	{"CallSettled without having run", "event", &Event{V: 1, Type: CallSettled, Seq: 16, AtMs: 80, Turn: "t2", Call: "book", Tool: "book_trip",
		Result: &tool.Result{Call: "book", Tool: "book_trip", Status: tool.Skipped, BecauseOf: "flights", Sentence: "book was skipped: it cannot run without flights."}}},
	{"TurnDeadline", "event", &Event{V: 1, Type: TurnDeadline, Seq: 17, AtMs: 5000, Turn: "t2"}},
	{"TurnEnded at the deadline", "event", &Event{V: 1, Type: TurnEnded, Seq: 18, AtMs: 5000, Turn: "t2", Outcome: &Outcome{
		Turn: "t2", Status: TimedOutTurn, Results: []tool.Result{{Call: "hotels", Tool: "hotel_search", Status: tool.TimedOut, DurationMs: 5000}},
		Running: []string{"hotels"}, DurationMs: 5000}}},
	{"LateResult", "event", &Event{V: 1, Type: LateResult, Seq: 19, AtMs: 8250.5, Turn: "t2", Call: "hotels", Tool: "hotel_search",
		Result: &tool.Result{Call: "hotels", Tool: "hotel_search", Status: tool.Success, Value: raw(`[]`), DurationMs: 8250.5}}},
	{"Alive", "event", &Event{V: 1, Type: Alive, Turn: "t2", Executor: "x-1"}},
}

var outcomeRecords = []record{
	{"a completed turn", "outcome", &Outcome{Turn: "t2", Status: Completed, Sentence: "Completed flight search.", DurationMs: 12, Results: []tool.Result{
		{Call: "flights", Tool: "flight_search", Status: tool.Success, Value: raw(`{}`), DurationMs: 12}}}},
	{"a partial turn with a result of every kind", "outcome", &Outcome{Turn: "t2", Status: PartialTurn, Running: []string{"e"}, DurationMs: 5000, Results: []tool.Result{
		{Call: "a", Tool: "t", Status: tool.Success, Value: raw(`1`)},
		{Call: "b", Tool: "t", Status: tool.ViaFallback, FallbackTool: "u", Value: raw(`2`)},
		{Call: "c", Tool: "t", Status: tool.Defaulted, BecauseOf: "f", Value: raw(`3`)},
		{Call: "d", Tool: "t", Status: tool.PartialValue, Value: raw(`[4]`), Fault: &fault.Fault{Kind: fault.Partial, Message: "only a part came"}},
		{Call: "e", Tool: "t", Status: tool.TimedOut, Fault: &fault.Fault{Kind: fault.Deadline, Message: "the turn's deadline came"}},
		{Call: "f", Tool: "t", Status: tool.Failed, Fault: &fault.Fault{Kind: fault.NotFound, Message: "no such city"}},
		{Call: "g", Tool: "t", Status: tool.Skipped, BecauseOf: "f", Fault: &fault.Fault{Kind: fault.Failed, Message: "it cannot run without f"}},
		{Call: "h", Tool: "t", Status: tool.NeverStarted},
		{Call: "i", Tool: "t", Status: tool.Cancelled, Fault: &fault.Fault{Kind: fault.Cancelled, Message: "the caller cancelled it"}},
	}}},
	{"an escalated turn", "outcome", &Outcome{Turn: "t2", Status: Escalated, Results: []tool.Result{{Call: "a", Tool: "t", Status: tool.Failed}}, DurationMs: 3}},
	{"a turn out of time", "outcome", &Outcome{Turn: "t2", Status: TimedOutTurn, Results: []tool.Result{{Call: "a", Tool: "t", Status: tool.TimedOut}}, Running: []string{"a"}, DurationMs: 5000}},
	{"a cancelled turn", "outcome", &Outcome{Turn: "t2", Status: CancelledTurn, Results: []tool.Result{{Call: "a", Tool: "t", Status: tool.Cancelled}}, DurationMs: 1.5}},
	{"a value that is not JSON", "outcome", &Outcome{Turn: "t4", Status: Completed, DurationMs: 2, Results: []tool.Result{
		{Call: "a", Tool: "draw", Status: tool.Success, Value: raw("\x89PNG"), ContentType: "image/png", DurationMs: 2}}}},
	{"an open turn that got no calls", "outcome", &Outcome{Turn: "t3", Status: Completed, Results: []tool.Result{}, DurationMs: 40}},
}

// constants are the texts in the group of constants that has name in it.
func constants(t *testing.T, name string) []string {
	t.Helper()
	f, err := parser.ParseFile(gotoken.NewFileSet(), "records.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != gotoken.CONST {
			continue
		}
		var texts []string
		found := false
		for _, s := range group.Specs {
			spec := s.(*ast.ValueSpec)
			found = found || spec.Names[0].Name == name
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		if found {
			return texts
		}
	}
	t.Fatalf("records.go has no constants with %s", name)
	return nil
}

func TestEveryTypeAndStatusHasItsVector(t *testing.T) {
	has := map[string]bool{}
	for _, r := range records {
		has[r.kind] = true
		switch v := r.value.(type) {
		case *Event:
			has[v.Type] = true
		case *Outcome:
			has["outcome "+v.Status] = true
			for _, res := range v.Results {
				has["result "+string(res.Status)] = true
			}
		}
	}
	for _, typ := range constants(t, "TurnStarted") {
		if !has[typ] {
			t.Errorf("no vector is an event of type %s", typ)
		}
	}
	for _, status := range constants(t, "Escalated") {
		if !has["outcome "+status] {
			t.Errorf("no vector is an outcome of status %s", status)
		}
	}
	for _, status := range []tool.Status{tool.Success, tool.ViaFallback, tool.Defaulted, tool.PartialValue, tool.Failed, tool.Skipped, tool.TimedOut, tool.NeverStarted, tool.Cancelled} {
		if !has["result "+string(status)] {
			t.Errorf("no vector has a result of status %s", status)
		}
	}
	for kind := range kinds {
		if !has[kind] {
			t.Errorf("no vector is a %s", kind)
		}
	}
}

// Every field that a record has is set in some vector, so that none travels untested.
func TestEveryFieldHasItsVector(t *testing.T) {
	set := map[string]bool{}
	known := map[string]bool{}
	var visit func(v reflect.Value)
	visit = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				visit(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				visit(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if !v.Type().Field(i).IsExported() {
					continue
				}
				name := v.Type().String() + "." + v.Type().Field(i).Name
				known[name] = true
				set[name] = set[name] || !v.Field(i).IsZero()
				visit(v.Field(i))
			}
		}
	}
	for _, r := range records {
		visit(reflect.ValueOf(r.value))
	}
	for name := range known {
		if !set[name] && !strings.HasPrefix(name, "tool.BreakerPolicy.") {
			t.Errorf("no vector sets %s", name)
		}
	}
}

// Later versions add fields. Whoever does not know them reads the rest.
func TestUnknownKeysAreIgnored(t *testing.T) {
	for _, r := range records {
		packed, err := Marshal(MsgPack, r.value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := Marshal(JSON, r.value)
		if err != nil {
			t.Fatal(err)
		}
		text = append([]byte(`{"novel":[{"a":1}],`), text[1:]...)
		text = bytes.Replace(text, []byte(",}"), []byte("}"), 1)
		for codec, b := range map[string][]byte{MsgPack: extended(packed), JSON: text} {
			got := emptyOf(r.kind)
			if err := Unmarshal(codec, b, got); err != nil {
				t.Errorf("%s: %s with a field that we do not know: %v", r.name, codec, err)
			} else if !reflect.DeepEqual(got, r.value) {
				t.Errorf("%s: %s with a field that we do not know is %+v, want %+v", r.name, codec, got, r.value)
			}
		}
	}
}

// extended is a MessagePack map with one more key.
func extended(b []byte) []byte {
	n, body := int(b[0]&0x0f), b[1:]
	if b[0] == 0xde {
		n, body = int(binary.BigEndian.Uint16(b[1:])), b[3:]
	}
	out := binary.BigEndian.AppendUint16([]byte{0xde}, uint16(n+1))
	out = append(out, "\xa5novel\x91\x81\xa1a\x01"...)
	return append(out, body...)
}

// The same record gives the same bytes, so that a digest of them means something.
func TestBytesAreTheSameEachTime(t *testing.T) {
	for _, r := range records {
		first, err := Marshal(MsgPack, r.value)
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if again, _ := Marshal(MsgPack, r.value); !bytes.Equal(again, first) {
				t.Fatalf("%s: %x, and before it was %x", r.name, again, first)
			}
		}
	}
}
