package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
)

var results = map[string]string{
	"search":  `{"flights": [{"id": "TB101", "price": 120.10, "n": 12345678901234567890}], "none": null}`,
	"weather": `"sunny"`,
	"plain":   `1,"admin":true`,
	"rubbish": `hello`,
}

const ownArgs = `{"city": "Rome", "nights": 3}`

// look fills a hole from results and ownArgs.
func look(h Hole) ([]byte, bool, string) {
	if h.Arg {
		raw, ok := h.Pointer.Find([]byte(ownArgs))
		return raw, ok, ""
	}
	raw, ok := results[h.From]
	if !ok {
		return nil, false, "it was skipped"
	}
	if len(h.Pointer) == 0 {
		return []byte(raw), true, ""
	}
	part, ok := h.Pointer.Find([]byte(raw))
	return part, ok, ""
}

func TestTemplateFill(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"a part", `{"id": {"$from": "search", "pointer": "/flights/0/id"}, "n": 1.50}`, `{"id": "TB101", "n": 1.50}`},
		{"digits are kept", `{"p":{"pointer":"/flights/0/price","$from":"search"},"n":{"$from":"search","pointer":"/flights/0/n"}}`, `{"p":120.10,"n":12345678901234567890}`},
		{"the whole", `{"w":{"$from":"weather"}}`, `{"w":"sunny"}`},
		{"the whole, said so", `{"w":{"$from":"weather","pointer":""}}`, `{"w":"sunny"}`},
		{"all the arguments", ` {"$from":"search","pointer":"/flights/0"} `, ` {"id": "TB101", "price": 120.10, "n": 12345678901234567890} `},
		{"null is a value", `{"a":{"$from":"search","pointer":"/none","default":1}}`, `{"a":null}`},
		{"a default", `{"a":{"$from":"search","pointer":"/none/a","default":{"$from":"b"}}}`, `{"a":{"$from":"b"}}`},
		{"a default of null", `{"a":{"$from":"nobody","default":null}}`, `{"a":null}`},
		{"a default for what is not JSON", `{"a":{"$from":"rubbish","default":0}}`, `{"a":0}`},
		{"in arrays", `{"a":[1,{"$from":"weather"},[{"$from":"weather"}]]}`, `{"a":[1,"sunny",["sunny"]]}`},
		{"of its own", `{"town":{"$arg":"/city"},"all":{"$arg":""},"x":{"$arg":"/x","default":2}}`, `{"town":"Rome","all":{"city": "Rome", "nights": 3},"x":2}`},
		{"a literal", `{"q": {"$literal": {"$from": "search", "x": {"$arg": 1}}}, "w": {"$from":"weather"}}`, `{"q": {"$from": "search", "x": {"$arg": 1}}, "w": "sunny"}`},
		{"a literal literal", `{"q":{"$literal":{"$literal":1}}}`, `{"q":{"$literal":1}}`},
		{"an escape is the same key", `{"q":{"\u0024from":"weather"}}`, `{"q":"sunny"}`},
		{"of any of its letters", `{"q":{"$\u0066rom":"weather"}}`, `{"q":"sunny"}`},
	} {
		tmpl, errs := ParseTemplate([]byte(c.args))
		if errs != nil || tmpl == nil {
			t.Errorf("%s: ParseTemplate = %v, %v", c.name, tmpl, errs)
			continue
		}
		for range 2 { // a template can be filled again
			got, f := tmpl.Fill(look)
			if f != nil || string(got) != c.want {
				t.Errorf("%s: Fill = %s, %v\nwant %s", c.name, got, f, c.want)
			}
		}
	}
}

func TestTemplateNothingToFill(t *testing.T) {
	for _, args := range []string{``, `{}`, `null`, `{"a":1}`, `not JSON`, `{"$ref":"x","from":"search"}`, `{"a":"$from"}`, `{"a":"\u0024from"}`, `{"pointer":"/a","default":1,"b":"$arg"}`} {
		if tmpl, errs := ParseTemplate([]byte(args)); tmpl != nil || errs != nil {
			t.Errorf("ParseTemplate(%s) = %v, %v, want nothing", args, tmpl, errs)
		}
	}
}

func TestTemplateHoles(t *testing.T) {
	tmpl, errs := ParseTemplate([]byte(`{"a/b":[0,{"$from":"x","pointer":"/y/0","default":7}],"c":{"$arg":"/d"},"e":{"$from":"z"}}`))
	if errs != nil {
		t.Fatal(errs)
	}
	var got []string
	for _, h := range tmpl.Holes() {
		got = append(got, fmt.Sprintf("%s: %s, default %s", h.At, h, h.Default))
	}
	want := []string{
		"/a~1b/1: /y/0 of the result of x, default 7",
		"/c: /d of the call's own arguments, default ",
		"/e: the result of z, default ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Holes:\n got %q\nwant %q", got, want)
	}
}

func TestTemplateMistakes(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"all at once", `{"a":{"$from":5},"b":{"$from":"x","pointer":"y"},"c":[{"$arg":true}],"d":{"$from":"a b"}}`,
			`/a: $from: expected the id of a call, got number (5); to pass the object itself on, write {"$literal": …} around it
/b: pointer: pointer "y": expected a / first, such as /flights/0/id, or nothing for the whole value
/c/0: $arg: expected a pointer, such as /flights/0/id, got boolean (true)
/d: $from: id "a b": character 2 is ' ' (U+0020); use letters A-Z a-z, digits, _ and -`},
		{"another key", `{"a":{"$from":"x","pinter":"/y"}}`, `/a: expected $from with pointer and default, got the key "pinter"; to pass the object itself on, write {"$literal": …} around it`},
		{"another key of $arg", `{"a":{"$arg":"/x","b":1}}`, `/a: expected $arg with default, got the key "b"; to pass the object itself on, write {"$literal": …} around it`},
		{"a pointer beside $arg", `{"a":{"$arg":"/x","pointer":"/y"}}`, `/a: expected $arg with default, got the key pointer; $arg is the pointer; to pass the object itself on, write {"$literal": …} around it`},
		{"both", `{"$from":"x","$arg":""}`, `the arguments: expected $from or $arg, got both; to pass the object itself on, write {"$literal": …} around it`},
		{"a literal and more", `{"a":{"$literal":1,"b":2}}`, `/a: $literal: expected no other key beside it; to pass the object itself on, write {"$literal": …} around it`},
		{"twice", `{"a":{"$from":"x","$from":"y"}}`, `/a: the key $from occurs twice`},
		{"no id", `{"a":{"$from":""}}`, `/a: $from: id is empty`},
		{"a pointer of another type", `{"a":{"$from":"x","pointer":["a"]}}`, `/a: pointer: expected a pointer, such as /flights/0/id, got array (1 item)`},
		{"not JSON", `{"x":{"a":{"$from":"x"},}}`, `the arguments: at byte 24 in /x: a comma before } is too many, near :{"a":{"$from":"x"},}}`},
		{"cut off", `{"a":{"$from":"x"`, `the arguments: the JSON ends at byte 17 inside an object`},
		{"more after it", `{"$from":"x"} 1`, `the arguments: at byte 14: there is more after the end of the value, near {"$from":"x"} 1`},
		{"too deep", strings.Repeat("[", 64) + `{"$from":"x"}`, `the arguments: at byte 64 in /0/0/0`},
		{"mistakes within a literal are none", `{"a":{"$literal":{"$from":5}},"b":{"$arg":1}}`, `/b: $arg: expected a pointer, such as /flights/0/id, got number (1)`},
		{"what does not print", `{"a\n":{"$from":"\u0000"}}`, `/a\n: $from: id "\x00": character 1 is '\x00' (U+0000); use letters A-Z a-z, digits, _ and -`},
	} {
		tmpl, errs := ParseTemplate([]byte(c.args))
		if got := errors.Join(errs...); tmpl != nil || got == nil || !strings.HasPrefix(got.Error(), c.want) || len(got.Error()) > len(c.want) && c.name != "too deep" {
			t.Errorf("%s:\n got %v\nwant %s", c.name, got, c.want)
		}
	}
}

func TestTemplateBounds(t *testing.T) {
	of := func(n int) []byte {
		return []byte(`[` + strings.Repeat(`{"$from":"x"},`, n-1) + `{"$from":"x"}]`)
	}
	if tmpl, errs := ParseTemplate(of(MaxHoles)); errs != nil || len(tmpl.Holes()) != MaxHoles {
		t.Errorf("%d holes: %v", MaxHoles, errs)
	}
	for name, raw := range map[string][]byte{"holes": of(MaxHoles + 1), "mistakes": []byte(strings.ReplaceAll(string(of(MaxHoles+1)), `"x"`, "5"))} {
		_, errs := ParseTemplate(raw)
		if len(errs) == 0 || !strings.Contains(errs[len(errs)-1].Error(), "there are more than 1000 places to be filled") {
			t.Errorf("1001 %s: %d errors", name, len(errs))
		}
	}

	literal := fmt.Appendf(nil, `{"$literal":%s}`, of(MaxHoles+1))
	tmpl, errs := ParseTemplate(literal)
	if errs != nil || len(tmpl.Holes()) != 0 {
		t.Fatalf("1001 holes in a literal: %v", errs)
	}
	if got, f := tmpl.Fill(look); f != nil || string(got) != string(of(MaxHoles+1)) {
		t.Errorf("1001 holes in a literal: Fill = %.60s, %v, want them as they are", got, f)
	}

	tmpl, _ = ParseTemplate(of(9))
	large := []byte(`"` + strings.Repeat("x", MaxArgs/9) + `"`)
	if _, f := tmpl.Fill(func(Hole) ([]byte, bool, string) { return large, true, "" }); f == nil || f.Kind != fault.InvalidArguments || !strings.Contains(f.Message, "more than 67108864 bytes long once filled") {
		t.Errorf("Fill(too much) = %v", f)
	}
}

func TestTemplateNotFilled(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{`{"id":{"$from":"search","pointer":"/flights/7/id"}}`, "the arguments at /id take /flights/7/id of the result of search, which has no such value"},
		{`{"id":{"$from":"hotels","pointer":"/a"}}`, "the arguments at /id take /a of the result of hotels, which has no such value: it was skipped"},
		{`{"id":{"$from":"hotels"}}`, "the arguments at /id take the result of hotels, which is not there: it was skipped"},
		{`{"$from":"hotels"}`, "the arguments take the result of hotels, which is not there: it was skipped"},
		{`{"town":{"$arg":"/town"}}`, "the arguments at /town take /town of the call's own arguments, which has no such value"},
		{`{"x":{"$from":"plain"}}`, "the arguments at /x take the result of plain, which is not there: it is not JSON that can be passed on"},
	} {
		tmpl, errs := ParseTemplate([]byte(c.args))
		if errs != nil {
			t.Fatal(errs)
		}
		raw, f := tmpl.Fill(look)
		if raw != nil || f == nil || f.Message != c.want || f.Kind != fault.InvalidArguments || f.Run() != fault.NotStarted || len(f.Violations) != 1 {
			t.Errorf("%s: Fill = %s, %v\nwant %s", c.args, raw, f, c.want)
		}
	}

	tmpl, _ := ParseTemplate([]byte(`[` + strings.Repeat(`{"$from":"hotels"},`, 99) + `{"$from":"weather"}]`))
	_, f := tmpl.Fill(look)
	if len(f.Violations) != MaxViolations || f.Violations[1] != (fault.Violation{Pointer: "/1", Expected: "the result of hotels", Got: "missing: it was skipped"}) {
		t.Errorf("%d violations, the second %+v", len(f.Violations), f.Violations[1])
	}
}

// Whatever the arguments and whatever the values, what comes out is JSON, and what was not a hole is as it was.
func FuzzTemplate(f *testing.F) {
	f.Add([]byte(`{"id": {"$from": "search", "pointer": "/flights/0/id", "default": 1}}`), []byte(`{"flights":[{"id":"TB101"}]}`))
	f.Add([]byte(`[{"$arg":"/city"},{"$literal":{"$from":1}}]`), []byte(`1,2`))
	f.Add([]byte(`{"$literal":{"\u0024arg":""}}`), []byte(` "x" `))
	f.Add([]byte(`{"default":{"$from":"a"},"$from":"b"}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, args, value []byte) {
		tmpl, errs := ParseTemplate(args)
		if tmpl == nil {
			return
		}
		if errs != nil || !json.Valid(args) {
			t.Fatalf("ParseTemplate(%s) is a template, with errors %v", args, errs)
		}
		for _, found := range []bool{true, false} {
			out, f := tmpl.Fill(func(h Hole) ([]byte, bool, string) {
				if !found {
					return nil, false, "gone"
				}
				raw, ok := h.Pointer.Find(value)
				return raw, ok, ""
			})
			if f == nil && !json.Valid(out) {
				t.Errorf("Fill(%s, %s) = %s, which is not JSON", args, value, out)
			}
			if f != nil && len(tmpl.Holes()) == 0 {
				t.Errorf("Fill(%s): %v, and there is nothing to fill", args, f)
			}
		}
	})
}

func BenchmarkParseTemplate(b *testing.B) {
	for _, bm := range []struct{ name, args string }{
		{"without holes", `{"from":"FRA","to":"LIS","on":"2026-03-01","price":"$120"}`},
		{"with one", `{"flight":{"$from":"flights","pointer":"/flights/0/id"},"name":"Ada","seats":[1,2]}`},
	} {
		raw := []byte(bm.args)
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, errs := ParseTemplate(raw); errs != nil {
					b.Fatal(errs)
				}
			}
		})
	}
}

func BenchmarkTemplateFill(b *testing.B) {
	tmpl, _ := ParseTemplate([]byte(`{"flight":{"$from":"search","pointer":"/flights/0/id"},"name":"Ada","seats":[1,2]}`))
	b.ReportAllocs()
	for b.Loop() {
		if _, f := tmpl.Fill(look); f != nil {
			b.Fatal(f)
		}
	}
}

func TestTemplateAllocations(t *testing.T) {
	raw := []byte(`{"from":"FRA","to":"LIS","on":"2026-03-01","price":"$120"}`)
	if n := testing.AllocsPerRun(100, func() { ParseTemplate(raw) }); n != 0 {
		t.Errorf("ParseTemplate of arguments without holes: %v allocations, want 0", n)
	}
}
