package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
)

func TestFaultThereAndBack(t *testing.T) {
	f := records[6].value.(*fault.Fault)
	for _, codec := range []string{"", JSON, MsgPack, "text/plain"} {
		h, body := EncodeFault(codec, f)
		if err := CheckHeader(h); err != nil {
			t.Errorf("%q: %v", codec, err)
		}
		if got := Get(h, HeaderServiceErrorCode); got != "400" {
			t.Errorf("%q: code %q, want 400", codec, got)
		}
		if got := Get(h, HeaderServiceError); got != f.Message {
			t.Errorf("%q: service error %q, want %q", codec, got, f.Message)
		}
		if got, want := Get(h, HeaderContentType), map[string]string{MsgPack: MsgPack}[codec]; got != want {
			t.Errorf("%q: content type %q, want %q", codec, got, want)
		}
		h[HeaderFrame] = []string{string(ErrorFrame)}
		if got := DecodeFault(h, body); !reflect.DeepEqual(got, f) {
			t.Errorf("%q: %+v, want %+v", codec, got, f)
		}
	}
}

func TestDecodeFault(t *testing.T) {
	header := func(pairs ...string) Header {
		h := Header{}
		for pair := range slices.Chunk(pairs, 2) {
			h[pair[0]] = []string{pair[1]}
		}
		return h
	}
	for _, c := range []struct {
		name string
		h    Header
		body string
		want fault.Fault // Suggestions are not compared
	}{
		{"nothing at all", nil, "", fault.Fault{Kind: fault.Upstream, Message: "the worker answered with an error and no words"}},
		{"text", header(HeaderFrame, "error"), " disk full\n", fault.Fault{Kind: fault.Upstream, Message: "disk full"}},
		{"bytes", header(HeaderFrame, "error"), "\xff\xfe", fault.Fault{Kind: fault.Upstream, Message: "2 bytes that are not text"}},
		{"JSON that is no record", header(HeaderFrame, "error"), `{"x":1}`, fault.Fault{Kind: fault.Upstream, Message: `{"x":1}`}},
		{"a record without a kind", header(HeaderFrame, "error"), `{"message":"no"}`, fault.Fault{Kind: fault.Upstream, Message: "no"}},
		{"a record of a later version", header(HeaderFrame, "error"), `{"kind":"moon_phase","message":"no","phase":3}`, fault.Fault{Kind: "moon_phase", Message: "no"}},
		{"a kind that cannot be one", header(HeaderFrame, "error"), `{"kind":"a b","message":"no","execution":"perhaps"}`, fault.Fault{Kind: fault.Upstream, Message: "no"}},
		{"MessagePack that nobody announced", header(HeaderFrame, "error"), "\x81\xa4kind\xa6denied", fault.Fault{Kind: fault.Denied}},
		{"MessagePack announced as JSON", header(HeaderFrame, "error", HeaderContentType, JSON), "\x81\xa4kind\xa6denied", fault.Fault{Kind: fault.Upstream, Message: "13 bytes that are not text"}},
		{"a plain NATS service", header(HeaderServiceError, "no such city", HeaderServiceErrorCode, "404"), "Atlantis",
			fault.Fault{Kind: fault.NotFound, Message: "no such city", Code: "404", Detail: "Atlantis"}},
		{"a plain NATS service without a number", header(HeaderServiceError, "no", HeaderServiceErrorCode, "E_NO"), "", fault.Fault{Kind: fault.Upstream, Message: "no", Code: "E_NO"}},
		{"a plain NATS service without words", header(HeaderServiceErrorCode, "503"), "", fault.Fault{Kind: fault.Unavailable, Message: "the worker answered with error code 503", Code: "503"}},
		{"a plain NATS service that says OK", header(HeaderServiceErrorCode, "200"), "", fault.Fault{Kind: fault.Upstream, Message: "the worker answered with error code 200", Code: "200"}},
		{"a record wins over the service headers", header(HeaderServiceError, "x", HeaderServiceErrorCode, "404"), `{"kind":"denied","message":"no"}`, fault.Fault{Kind: fault.Denied, Message: "no"}},
		{"a bare nack", header(HeaderFrame, "nack", HeaderWorker, "w-1", HeaderRetryAfter, "250"), "full",
			fault.Fault{Kind: fault.Overloaded, Message: "full", Execution: fault.NotStarted, Worker: "w-1", RetryAfterMs: 250}},
		{"a nack with a record", header(HeaderFrame, "nack"), `{"kind":"tool_not_found","message":"no such tool"}`, fault.Fault{Kind: fault.ToolNotFound, Message: "no such tool", Execution: fault.NotStarted}},
		{"a bare stopped", header(HeaderFrame, "stopped"), "", fault.Fault{Kind: fault.Cancelled, Message: "the worker stopped the call", Execution: fault.Stopped}},
		{"retry after that is none", header(HeaderFrame, "nack", HeaderRetryAfter, "-5"), "full", fault.Fault{Kind: fault.Overloaded, Message: "full", Execution: fault.NotStarted}},
		{"retry after a week", header(HeaderFrame, "nack", HeaderRetryAfter, "604800000"), "full", fault.Fault{Kind: fault.Overloaded, Message: "full", Execution: fault.NotStarted, RetryAfterMs: 86_400_000}},
	} {
		got := DecodeFault(c.h, []byte(c.body))
		got.Suggestions = nil
		if !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, *got, c.want)
		}
	}
}

func TestFaultsAreCutDown(t *testing.T) {
	long := strings.Repeat("ü", 20_000)
	f := fault.Fault{
		Kind: "x\n", Message: "a\xffb\r\n" + long, Detail: long, Code: long, Tool: long, Worker: long, Attempt: -1, RetryAfterMs: -1, Execution: "x",
		Suggestions: slices.Repeat([]string{long}, 11), Violations: slices.Repeat([]fault.Violation{{Pointer: long, Expected: long, Got: long}}, 51),
	}
	h, body := EncodeFault(MsgPack, &f)
	if len(f.Violations) != 51 || len(f.Suggestions[0]) != len(long) || f.Attempt != -1 {
		t.Error("EncodeFault changed the fault that it was given")
	}
	if err := CheckHeader(h); err != nil {
		t.Error(err)
	}
	line := Get(h, HeaderServiceError)
	if len(line) > 512 || !strings.HasPrefix(line, "a\uFFFDb  ü") || !utf8.ValidString(line) {
		t.Errorf("the service error is %d bytes: %.20q", len(line), line)
	}

	for name, got := range map[string]*fault.Fault{"as it came": DecodeFault(h, body), "in place": &f} {
		CheckFault(got)
		for part, n := range map[string][2]int{
			"message": {len(got.Message), 8 << 10}, "detail": {len(got.Detail), 16 << 10}, "violations": {len(got.Violations), 50},
			"suggestions": {len(got.Suggestions), 10}, "a suggestion": {len(got.Suggestions[0]), 1 << 10}, "a pointer": {len(got.Violations[0].Pointer), 1 << 10},
		} {
			if n[0] > n[1] || n[0] < n[1]-4 {
				t.Errorf("%s: %s is %d long, want about %d", name, part, n[0], n[1])
			}
		}
		if got.Kind != fault.Upstream || got.Execution != "" || got.Attempt != 0 || got.RetryAfterMs != 0 {
			t.Errorf("%s: %s, %q, attempt %d, retry after %d", name, got.Kind, got.Execution, got.Attempt, got.RetryAfterMs)
		}
	}
	CheckFault(nil)
	if _, body := EncodeFault("", nil); !strings.Contains(string(body), `"internal"`) {
		t.Errorf("a nil fault is %s, want internal", body)
	}
}

func TestEveryKindGoesToPlainClients(t *testing.T) {
	for _, kind := range fault.Kinds() {
		h, _ := EncodeFault("", fault.New(kind, "no"))
		if got, want := Get(h, HeaderServiceErrorCode), fmt.Sprint(kind.Spec().HTTP); got != want {
			t.Errorf("%s: code %s, want %s", kind, got, want)
		}
	}
}

func FuzzDecodeFault(f *testing.F) {
	for _, r := range records {
		if v, ok := r.value.(*fault.Fault); ok {
			for _, codec := range []string{JSON, MsgPack} {
				_, body := EncodeFault(codec, v)
				f.Add("error", codec, "x", "500", body)
			}
		}
	}
	f.Add("nack", "", "", "", []byte("full"))
	f.Fuzz(func(t *testing.T, frame, contentType, message, code string, body []byte) {
		got := DecodeFault(Header{HeaderFrame: {frame}, HeaderContentType: {contentType}, HeaderServiceError: {message}, HeaderServiceErrorCode: {code}}, body)
		if got == nil || got.Kind == "" || len(got.Message) > 8<<10 || len(got.Violations) > 50 {
			t.Fatalf("DecodeFault = %+v", got)
		}
		h, out := EncodeFault(MsgPack, got)
		if err := CheckHeader(h); err != nil {
			t.Error(err)
		}
		if again := DecodeFault(h, out); !reflect.DeepEqual(again, got) {
			t.Errorf("there and back it is %+v, want %+v", again, got)
		}
	})
}

func ExampleDecodeFault() {
	plain := Header{"Nats-Service-Error": {"no such city"}, "Nats-Service-Error-Code": {"404"}}
	fmt.Println(DecodeFault(plain, nil))
	// Output: not_found: no such city
}
