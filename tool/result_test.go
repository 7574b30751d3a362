package tool

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/toolbus/toolbus/fault"
)

func TestResultJSON(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n\x00\xff")
	for _, c := range []struct {
		name  string
		typ   string
		value []byte
		want  string
	}{
		{"JSON", "", []byte(`{"a":1.10,"b":"<"}`), `"value":{"a":1.10,"b":"<"}`},
		{"JSON that says so", "application/json; charset=utf-8", []byte(`[1]`), `"value":[1],"content_type":"application/json; charset=utf-8"`},
		{"another JSON", "application/problem+json", []byte(`[1]`), `"value":[1]`},
		{"null", "", []byte(`null`), `"value":null`},
		{"a picture", "image/png", png, `"value":"iVBORw0KGgoA/w==","content_type":"image/png"`},
		{"text that could be JSON", "text/plain", []byte(`5`), `"value":"NQ==","content_type":"text/plain"`},
		{"JSON that is none", "", []byte(`hello`), `"value":"aGVsbG8="`},
		{"nothing", "image/png", nil, `"content_type":"image/png"`},
	} {
		in := Result{Call: "a", Tool: "echo", Status: Success, Value: c.value, ContentType: c.typ,
			Attempts: []Attempt{{N: 1, Tool: "echo"}}, Fault: fault.New(fault.Failed, "no")}
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(struct{ Results []Result }{[]Result{in}}); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s:\n got %s\nwant …%s…", c.name, b.String(), c.want)
		}
		var out struct{ Results []Result }
		if err := json.Unmarshal(b.Bytes(), &out); err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		in.Fault = out.Results[0].Fault
		if got := out.Results[0]; got.Fault == nil || !reflect.DeepEqual(got, in) {
			t.Errorf("%s: read back as %+v, want %+v", c.name, got, in)
		}
	}
}

func TestResultJSONMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"value":"NQ==","encoding":"gzip"}`, `encoding: expected base64 or nothing, got "gzip"`},
		{`{"value":5,"encoding":"base64"}`, `value: expected a string of base64`},
		{`{"value":"?","encoding":"base64"}`, `value: expected a string of base64`},
		{`{"encoding":"base64"}`, `value: expected a string of base64`},
		{`{"value":}`, `invalid character`},
	} {
		var r Result
		if err := json.Unmarshal([]byte(c.text), &r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Unmarshal(%s) = %v, want …%s…", c.text, err, c.want)
		}
	}
}

// MessagePack knows nothing of base64: the value is its bytes.
func TestResultMsgPack(t *testing.T) {
	in := Result{Call: "a", Tool: "echo", Status: Success, Value: []byte("\x00\xff"), ContentType: "image/png"}
	b, err := msgpack.Marshal(in)
	if err != nil || !bytes.Contains(b, []byte("\xc4\x02\x00\xff")) {
		t.Fatalf("Marshal = %q, %v, want the two bytes", b, err)
	}
	var out Result
	if err := msgpack.Unmarshal(b, &out); err != nil || !reflect.DeepEqual(out, in) {
		t.Errorf("Unmarshal = %+v, %v, want %+v", out, err, in)
	}
}

func BenchmarkResultJSON(b *testing.B) {
	r := Result{Call: "a", Tool: "echo", Status: Success, Value: []byte(`{"a":1}`), Attempts: []Attempt{{N: 1, Tool: "echo"}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(r); err != nil {
			b.Fatal(err)
		}
	}
}
