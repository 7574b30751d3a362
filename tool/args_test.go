package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolbus/toolbus/fault"
)

func TestParseArgs(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want map[string]any
	}{
		{``, map[string]any{}},
		{" \r\n\t", map[string]any{}},
		{` null `, map[string]any{}},
		{`{}`, map[string]any{}},
		{` { } `, map[string]any{}},
		{`{"n":12345678901234567890123}`, map[string]any{"n": json.Number("12345678901234567890123")}},
		{`{"n":-0.5e+10}`, map[string]any{"n": json.Number("-0.5e+10")}},
		{`{"s":"a\u0000b\n\"\\\/\ud83d\ude00é"}`, map[string]any{"s": "a\x00b\n\"\\/😀é"}},
		{`{"s":"\ud83dx"}`, map[string]any{"s": "\ufffdx"}},
		{`{"":[true,false,null,[],{}]}`, map[string]any{"": []any{true, false, nil, []any{}, map[string]any{}}}},
		{`{"__proto__":1,"constructor":2}`, map[string]any{"__proto__": json.Number("1"), "constructor": json.Number("2")}},
		{nested(MaxDepth), nil},
	} {
		got, f := ParseArgs([]byte(c.raw))
		if f != nil {
			t.Errorf("ParseArgs(%.60s) = %s, want it taken", c.raw, f.Message)
		}
		if c.want != nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("ParseArgs(%s) = %#v, want %#v", c.raw, got, c.want)
		}
	}
}

func nested(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + `{}` + strings.Repeat(`}`, depth-1)
}

func TestParseArgsFaults(t *testing.T) {
	const not = "the arguments are not one JSON object: "
	const cut = "; the call may have been cut off"
	for _, c := range []struct {
		raw  string
		kind fault.Kind
		want string
	}{
		{`[]`, fault.InvalidArguments, not + "expected object, got array"},
		{`"x"`, fault.InvalidArguments, not + "expected object, got string"},
		{`12`, fault.InvalidArguments, not + "expected object, got number"},
		{`true`, fault.InvalidArguments, not + "expected object, got boolean"},
		{`hello`, fault.InvalidArguments, not + `at byte 0: expected a value, near hello`},
		{`{"a":1}x`, fault.InvalidArguments, not + `at byte 7: there is more after the end of the value, near {"a":1}x`},
		{`{}{}`, fault.InvalidArguments, not + `at byte 2: there is more after the end of the value, near {}{}`},
		{`{'a':1}`, fault.InvalidArguments, not + `at byte 1: expected a key in double quotes, near {'a':1}`},
		{`{"a" 1}`, fault.InvalidArguments, not + `at byte 5: expected a colon after the key "a", near {"a" 1}`},
		{`{"a":1 "b":2}`, fault.InvalidArguments, not + `at byte 7: expected a comma or }, near {"a":1 "b":2}`},
		{`{"a":[1 2]}`, fault.InvalidArguments, not + `at byte 8 in /a: expected a comma or ], near {"a":[1 2]}`},
		{`{"a":1,}`, fault.InvalidArguments, not + `at byte 7: a comma before } is too many, near {"a":1,}`},
		{`{"a":01}`, fault.InvalidArguments, not + `at byte 6: expected a comma or }, near {"a":01}`},
		{`{"a":.5}`, fault.InvalidArguments, not + `at byte 5 in /a: expected a value, near {"a":.5}`},
		{`{"a":-}`, fault.InvalidArguments, not + `at byte 6 in /a: expected a digit, near {"a":-}`},
		{`{"a":NaN}`, fault.InvalidArguments, not + `at byte 5 in /a: expected a value, near {"a":NaN}`},
		{`{"a":trux}`, fault.InvalidArguments, not + `at byte 5 in /a: expected a value, near {"a":trux}`},
		{`{"a":1e999999999}`, fault.InvalidArguments, not + `at byte 5 in /a: the number is beyond 400 digits or an exponent of 400, near {"a":1e999999999}`},
		{`{"a":1,"a":2}`, fault.InvalidArguments, not + `at byte 7 in /a: the key "a" occurs twice, near {"a":1,"a":2}`},
		{`{"a":1,"\u0061":2}`, fault.InvalidArguments, not + `at byte 7 in /a: the key "a" occurs twice, near {"a":1,"\u0061":2}`},
		{`{"o":[{"k~/":1,"k~/":2}]}`, fault.InvalidArguments, not + `at byte 15 in /o/0/k~0~1: the key "k~/" occurs twice, near {"o":[{"k~/":1,"k~/":2}]}`},
		{`{"a":"\x"}`, fault.InvalidArguments, not + `at byte 6 in /a: unknown escape in a string; a backslash is written \\, near {"a":"\x"}`},
		{`{"a":"\u12g4"}`, fault.InvalidArguments, not + `at byte 6 in /a: expected four hex digits after \u, near {"a":"\u12g4"}`},
		{"{\"a\":\"\x01\"}", fault.InvalidArguments, not + `at byte 6 in /a: the control character U+0001 in a string must be written as an escape, near {"a":"\x01"}`},
		{"{\"a\":\"b\xff\"}", fault.InvalidArguments, not + `at byte 7 in /a: the bytes of the string are not UTF-8, near {"a":"b\xff"}`},
		{"{\"a\":\"\\n\xff\"}", fault.InvalidArguments, not + `at byte 8 in /a: the bytes of the string are not UTF-8, near {"a":"\n\xff"}`},
		{"\x00", fault.InvalidArguments, not + `at byte 0: expected a value, near \x00`},
		{"{\"a\":\"\u202e\" x}", fault.InvalidArguments, not + `at byte 11: expected a comma or }, near {"a":"\u202e" x}`},
		{nested(MaxDepth + 1), fault.InvalidArguments, not + `at byte 320 in ` + strings.Repeat("/a", 40) + `…: objects and arrays nest more than 64 deep, near ` + strings.Repeat(`{"a":`, 4)[0:] + strings.Repeat(``, 0) + `{}}}}}}}}}}}}}}}}}}}`},

		{`{`, fault.TruncatedCall, "the JSON ends at byte 1 inside an object" + cut},
		{`{"city":"Frankfu`, fault.TruncatedCall, "the JSON ends at byte 16 inside a string" + cut},
		{`{"city":"Frankfur`, fault.TruncatedCall, "the JSON ends at byte 17 inside a string" + cut},
		{`{"city":"\`, fault.TruncatedCall, "the JSON ends at byte 10 inside a string" + cut},
		{`{"city":"\u00`, fault.TruncatedCall, "the JSON ends at byte 13 inside a string" + cut},
		{"{\"a\":\"caf\xc3", fault.TruncatedCall, "the JSON ends at byte 10 inside a string" + cut},
		{"{\"a\":\"\\ncaf\xc3", fault.TruncatedCall, "the JSON ends at byte 12 inside a string" + cut},
		{`{"a":1,"b":[1,`, fault.TruncatedCall, "the JSON ends at byte 14 inside an array" + cut},
		{`{"a":`, fault.TruncatedCall, "the JSON ends at byte 5 inside an object" + cut},
		{`{"a":fal`, fault.TruncatedCall, "the JSON ends at byte 8 inside the word false" + cut},
		{`{"a":1.`, fault.TruncatedCall, "the JSON ends at byte 7 inside a number" + cut},
		{`{"a":12345678`, fault.TruncatedCall, "the JSON ends at byte 13 inside an object" + cut},
	} {
		_, f := ParseArgs([]byte(c.raw))
		if f == nil || f.Kind != c.kind || f.Message != c.want {
			t.Errorf("ParseArgs(%.60q) = %v\nwant %s %s", c.raw, say(f), c.kind, c.want)
			continue
		}
		if f.Execution != fault.NotStarted || len(f.Suggestions) == 0 {
			t.Errorf("ParseArgs(%.60q): execution %q, suggestions %q", c.raw, f.Execution, f.Suggestions)
		}
	}
}

func say(f *fault.Fault) string {
	if f == nil {
		return "nil"
	}
	return fmt.Sprintf("%s %s", f.Kind, f.Message)
}

// Cut anywhere, good arguments are told from wrong ones.
func TestTruncatedAnywhere(t *testing.T) {
	raw := `{"a":[1,-2.5e3,{"b":"c\u00e9\n"}],"d":true,"e":null,"f":"` + "é" + `"}`
	for n := 1; n < len(raw); n++ {
		if _, f := ParseArgs([]byte(raw[:n])); f == nil || f.Kind != fault.TruncatedCall {
			t.Errorf("ParseArgs(%s) = %s, want %s", raw[:n], say(f), fault.TruncatedCall)
		}
	}
}

func TestParseArgsBounds(t *testing.T) {
	if _, f := ParseArgs(bytes.Repeat([]byte(" "), MaxArgs+1)); f == nil || f.Kind != fault.InvalidArguments {
		t.Errorf("ParseArgs(64 MiB and 1) = %s, want %s", say(f), fault.InvalidArguments)
	}
	many := `{"a":[` + strings.Repeat("1,", MaxValues) + `1]}`
	if _, f := ParseArgs([]byte(many)); f == nil || !strings.Contains(f.Message, "more than 1000000 values") {
		t.Errorf("ParseArgs(a million and one values) = %s", say(f))
	}
	long := `{"a":"` + strings.Repeat("é\\n", 3<<20) + `"}`
	if _, f := ParseArgs([]byte(long)); f != nil {
		t.Errorf("ParseArgs(12 MiB of text) = %s, want it taken", say(f))
	}
	deep := strings.Repeat("[", 10<<20)
	if _, f := ParseArgs([]byte(deep)); f == nil || len(f.Message) > 400 {
		t.Errorf("ParseArgs(10 MiB of brackets) = %.400s", say(f))
	}
}

func FuzzParseArgs(f *testing.F) {
	for _, s := range []string{``, `null`, `{"a":[1,2.5e3,"\u00e9\ud83d\ude00",true,null,{}]}`, `{"a":1,"a":2}`, `{"a":"` + "\xff" + `"}`, nested(65), `{"a":-0}`, `{"\ud800":"\udc00\ud800"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, bad := ParseArgs(raw)
		if bad != nil {
			if !utf8.ValidString(bad.Message) || len(bad.Message) > 500 {
				t.Errorf("ParseArgs(%q): message %q", raw, bad.Message)
			}
			return
		}
		if blank := bytes.TrimSpace(raw); len(blank) == 0 || string(blank) == "null" {
			return
		}
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var want map[string]any
		if err := d.Decode(&want); err != nil {
			t.Fatalf("ParseArgs(%q) took what encoding/json does not: %v", raw, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("ParseArgs(%q) = %#v, want %#v", raw, got, want)
		}
		if !json.Valid(raw) {
			t.Errorf("ParseArgs(%q) took what is not valid", raw)
		}
	})
}

var object200 = []byte(`{"from":"FRA","to":"JFK","date":"2026-03-01","cabin":"economy","passengers":2,"filter":{"max_price":899.5,"airlines":["LH","UA","DL"],"direct":true},"note":"window seat if there is one, please"}   `)

func BenchmarkParseArgs(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, f := ParseArgs(object200); f != nil {
			b.Fatal(f.Message)
		}
	}
}

func BenchmarkEncodingJSON(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		d := json.NewDecoder(bytes.NewReader(object200))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			b.Fatal(err)
		}
	}
}
