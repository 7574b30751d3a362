package tool

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
)

// flightSchema has six fields, as an agent's tool has.
const flightSchema = `{
	"type": "object",
	"additionalProperties": false,
	"required": ["from", "to", "date"],
	"properties": {
		"from": {"type": "string", "pattern": "^[A-Z]{3}$"},
		"to": {"type": "string", "pattern": "^[A-Z]{3}$"},
		"date": {"type": "string", "format": "date"},
		"cabin": {"enum": ["economy", "business", "first"]},
		"passengers": {"type": "integer", "minimum": 1, "maximum": 9},
		"filter": {"type": "object", "properties": {
			"max_price": {"type": "number", "exclusiveMinimum": 0},
			"airlines": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}
		}}
	}
}`

const tree = `{"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "required": ["v"], "properties": {
	"v": {"type": "number"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}}}`

func compileTest(t testing.TB, schema string) *Schema {
	t.Helper()
	s, err := CompileSchema(json.RawMessage(schema))
	if err != nil {
		t.Fatalf("CompileSchema(%.80s): %v", schema, err)
	}
	return s
}

func decode(t testing.TB, doc string) any {
	t.Helper()
	v, flaw := readJSON([]byte(doc))
	if flaw != nil {
		t.Fatalf("readJSON(%.80s): %s", doc, flaw.text([]byte(doc)))
	}
	return v
}

func TestValidate(t *testing.T) {
	a50 := strings.Repeat("a", 50)
	for _, c := range []struct{ schema, doc, want string }{
		{flightSchema, `{"from":"FRA","to":"JFK","date":"2026-03-01","passengers":2}`, ""},
		{flightSchema, `{"from":5,"to":"FRANKFURT","cabin":"eco","passengers":12,"filter":{"max_price":0,"airlines":["a","b","a"]},"dat":1}`,
			`/cabin: expected one of "economy", "business", "first", got string ("eco"); /dat: unknown property, perhaps "date"; /date: missing; ` +
				`/filter/airlines: expected items that differ, got items 0 and 2 alike; /filter/max_price: expected more than 0, got number (0); ` +
				`/from: expected string, got number (5); /passengers: expected at most 9, got number (12); /to: expected text matching ^[A-Z]{3}$, got string ("FRANKFURT")`},
		{flightSchema, `[]`, `the value: expected object, got array (0 items)`},
		{`{"type":["string","null"]}`, `5`, `the value: expected null or string, got number (5)`},
		{`{"const":"x"}`, `"` + a50 + `"`, `the value: expected "x", got string ("` + a50[:40] + `…")`},
		{`{"enum":[1,null,{"a":1},true]}`, `2`, `the value: expected one of 1, null, object (1 property), true, got number (2)`},
		{`{"minLength":3,"maxLength":1}`, `"éé"`, `the value: expected at least 3 characters, got 2 characters; the value: expected at most 1 character, got 2 characters`},
		{`{"minItems":2}`, `[1]`, `the value: expected at least 2 items, got 1 item`},
		{`{"minProperties":2}`, `{"a":1}`, `the value: expected at least 2 properties, got 1 property`},
		{`{"multipleOf":0.1,"exclusiveMaximum":1e3}`, `1000.05`, `the value: expected a multiple of 0.1, got number (1000.05); the value: expected less than 1000, got number (1000.05)`},
		{`{"format":"email"}`, `"nobody"`, `the value: expected format email, got string ("nobody")`},
		{`{"format":"regex"}`, `"((a{100}){100}){100}"`, `the value: expected format regex, got string ("((a{100}){100}){100}")`},
		{`{"not":{"type":"string"}}`, `"x"`, `the value: expected something that the schema does not exclude, got string ("x")`},
		{`{"contains":{"type":"string"}}`, `[1]`, `the value: expected an item of the kind that must be among them, got array (1 item)`},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `/b: missing`},
		{`{"unevaluatedProperties":false,"properties":{"a":true}}`, `{"b":1}`, `/b: unknown property`},
		{`{"properties":{"a":false}}`, `{"a":1}`, `/a: expected nothing here, got number (1)`},
		{`{"additionalProperties":{"propertyNames":{"pattern":"^a"}}}`, `{"q":{"b":1,"a":2},"r":{"c":1},"s":{"a":3}}`,
			`/q/b: expected a property name that fits: text matching ^a, got "b"; /r/c: expected a property name that fits: text matching ^a, got "c"`},
		{`{"properties":{"a/b":{"properties":{"~\u0007":{"type":"string"}}}}}`, `{"a/b":{"~\u0007":1}}`, `/a~1b/~0\a: expected string, got number (1)`},

		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `5`, `the value: expected null or string, got number (5)`},
		{`{"anyOf":[{"type":"object","properties":{"x":{"type":"string"}}},{"type":"null"}]}`, `{"x":1}`, `/x: expected string, got number (1)`},
		{`{"oneOf":[{"properties":{"kind":{"const":"a"},"x":{}},"required":["kind","x"]},{"properties":{"kind":{"const":"b"},"y":{"type":"string"}},"required":["kind","y"]}]}`,
			`{"kind":"b"}`, `/y: missing`},
		{`{"properties":{"p":{"oneOf":[{"required":["a"]},{"required":["b"]}]}}}`, `{"p":{}}`, `/p: expected (/a: missing) or (/b: missing), got object (0 properties)`},
		{`{"oneOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1,"b":2}`, `the value: expected exactly one of the forms, got a value that fits forms 1 and 2`},

		{tree, `{"v":1,"kids":[{"v":"x"},{"kids":[{"v":null}]}]}`, `/kids/0/v: expected number, got string ("x"); /kids/1/kids/0/v: expected number, got null; /kids/1/v: missing`},
		{`{"$defs":{"i":{"$id":"item","type":"string"}},"$ref":"item"}`, `1`, `the value: expected string, got number (1)`},

		{`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":5,"exclusiveMinimum":true}`, `5`, `the value: expected more than 5, got number (5)`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, `[1,2,3]`,
			`the value: expected 2 items fewer, got array (3 items); /0: expected string, got number (1)`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","dependentSchemas":{"a":{"required":["b"]}}}`, `{"a":1}`, `/b: missing`},
		{`{"$ref":"http://json-schema.org/draft-07/schema#"}`, `{"type":5}`,
			`/type: expected one of "array", "boolean", "integer", "null", "number", "object", "string", got number (5)`},
	} {
		all := compileTest(t, c.schema).Validate(decode(t, c.doc))
		if got := sentences(all, "the value", 2000); got != c.want {
			t.Errorf("Validate(%.60s, %s)\n got %s\nwant %s", c.schema, c.doc, got, c.want)
		}
	}
}

func TestMissingSaysWhatItShouldBe(t *testing.T) {
	s := compileTest(t, `{"required":["a","b","c","d","e"],"properties":{"a":{"type":"string"},"b":{"$ref":"#/$defs/b"},"c":{"enum":[1,2]},"d":{}},"$defs":{"b":{"type":["integer","null"]}}}`)
	var got []string
	for _, v := range s.Validate(map[string]any{}) {
		got = append(got, v.Pointer+" "+v.Expected+" "+v.Got)
	}
	want := []string{"/a string missing", "/b null or integer missing", "/c one of 1, 2 missing", "/d a value missing", "/e a value missing"}
	if !slices.Equal(got, want) {
		t.Errorf("Validate({}) = %q, want %q", got, want)
	}
}

func TestViolationsAreBounded(t *testing.T) {
	s := compileTest(t, `{"items":{"type":"string"}}`)
	all := s.Validate(decode(t, `[`+strings.Repeat("1,", 199)+`1]`))
	if len(all) != MaxViolations+1 {
		t.Fatalf("%d violations, want %d", len(all), MaxViolations+1)
	}
	if got, want := all[MaxViolations], (fault.Violation{Expected: "150 more to be corrected"}); got != want {
		t.Errorf("last line = %+v, want %+v", got, want)
	}
}

func TestViolationsAreTheSameEveryTime(t *testing.T) {
	s := compileTest(t, strings.Replace(flightSchema, `"enum": ["economy", "business", "first"]`, `"anyOf": [{"type": "null"}, {"enum": ["economy"]}, {"type": "object", "required": ["z", "y"]}]`, 1))
	v := decode(t, `{"from":5,"to":6,"cabin":"eco","passengers":1.5,"filter":{"max_price":"0","airlines":[1,2,1]},"x":1,"y":2,"z":3}`)
	want := s.Validate(v)
	if len(want) < 10 {
		t.Fatalf("only %d violations: %s", len(want), sentences(want, "it", 2000))
	}
	for i := range 200 {
		if got := s.Validate(v); !slices.Equal(got, want) {
			t.Fatalf("run %d:\n got %v\nwant %v", i, got, want)
		}
	}
}

func TestValidateIsSharedByMany(t *testing.T) {
	for _, schema := range []string{flightSchema, `{"properties":{"from":{"pattern":"^(?!X)[A-Z]+$"}}}`, tree} {
		s := compileTest(t, schema)
		v := decode(t, `{"from":"XYZ"}`)
		want := s.Validate(v)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					if got := s.Validate(v); !slices.Equal(got, want) {
						t.Errorf("Validate = %v, want %v", got, want)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// doubling is a schema of n levels each of which refers twice to the next.
func doubling(n int) string {
	defs := []string{`"a0":{"type":"string"}`}
	for i := 1; i <= n; i++ {
		defs = append(defs, fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]}`, i, i-1, i-1))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/a%d","$defs":{%s}}`, n, strings.Join(defs, ","))
}

func TestCompileSchemaRefuses(t *testing.T) {
	const outside = `, which is outside; a schema may refer only to itself, so copy it into $defs`
	for _, c := range []struct{ name, schema, want string }{
		{"http", `{"properties":{"x":{"$ref":"http://169.254.169.254/"}}}`, `/properties/x/$ref: refers to "http://169.254.169.254/"` + outside},
		{"file", `{"properties":{"x":{"$ref":"file:///etc/passwd"}}}`, `/properties/x/$ref: refers to "file:///etc/passwd"` + outside},
		{"relative", `{"items":{"$ref":"other.json#/a"}}`, `/items/$ref: refers to "other.json"` + outside},
		{"id", `{"$id":"http://169.254.169.254/x","$ref":"y"}`, `/$ref: refers to "http://169.254.169.254/y"` + outside},
		{"metaschema", `{"$schema":"http://example.com/s"}`, `/$schema: refers to "http://example.com/s"` + outside},
		{"no such part", `{"properties":{"x":{"$ref":"#/$defs/y"}}}`, `/properties/x/$ref: refers to "#/$defs/y", which is not there`},
		{"no such anchor", `{"properties":{"x":{"$ref":"#y"}}}`, `/properties/x/$ref: refers to "#y", which is not there`},
		{"itself", `{"$ref":"#"}`, `the schema: refers to itself for one and the same value, so it would never end`},
		{"in a circle", `{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"anyOf":[{"type":"string"},{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`,
			`/$defs/a: refers to itself for one and the same value, so it would never end`},
		{"dynamic", `{"$dynamicRef":"#x","$defs":{"x":{"$dynamicAnchor":"x"}}}`, `the schema: uses $dynamicRef or $recursiveRef, which are not supported; use $ref`},
		{"doubling", doubling(26), `the schema: expands to more than 100000 subschemas once every reference is followed`},
		{"repetition", `{"properties":{"x":{"pattern":"((a{100}){100}){100}"}}}`, `/properties/x/pattern: pattern "((a{100}){100}){100}" repeats something more than 10000 times`},
		{"repetition in a key", `{"patternProperties":{"(a{1000}){1000}":{}}}`, `/patternProperties: pattern "(a{1000}){1000}" repeats something more than 10000 times`},
		{"long pattern", `{"pattern":"` + strings.Repeat("a", 1025) + `"}`, `/pattern: pattern "` + strings.Repeat("a", 40) + `…" is 1025 bytes long, at most 1024 are allowed`},
		{"bad pattern", `{"properties":{"x":{"pattern":"("}}}`, `/properties/x/pattern: expected format regex, got string ("(")`},
		{"all at once", `{"type":"strin","minimum":"5","properties":{"x":{"minLength":-1}}}`, `/minimum: expected number, got string ("5"); ` +
			`/properties/x/minLength: expected at least 0, got number (-1); ` +
			`/type: expected one of "array", "boolean", "integer", "null", "number", "object", "string", got string ("strin")`},
		{"not a schema", `[]`, `the schema: expected boolean or object, got array (0 items)`},
		{"not JSON", `{"type":}`, `the schema: is not JSON: at byte 8 in /type: expected a value, near {"type":}`},
		{"nothing", ``, `the schema: is not JSON: the JSON ends at byte 0 inside a value`},
		{"a key twice", `{"type":"object","type":"string"}`, `the schema: is not JSON: at byte 17 in /type: the key "type" occurs twice, near {"type":"object","type":"string"}`},
		{"deep", nested(65), `the schema: is not JSON: at byte 320 in ` + strings.Repeat("/a", 40) + `…: objects and arrays nest more than 64 deep, near ` + strings.Repeat(`{"a":`, 4) + `{}` + strings.Repeat("}", 18)},
		{"10 MB", `{"title":"` + strings.Repeat("x", 10<<20) + `"}`, `the schema: is 10485772 bytes long, at most 65536 are allowed`},
		{"many values", `{"enum":[` + strings.Repeat("1,", 20_000) + `1]}`, `the schema: holds 20003 values, at most 10000 are allowed`},
		{"many references", `{"allOf":[` + strings.Repeat(`{"$ref":"#/$defs/a"},`, 1001) + `{}],"$defs":{"a":{}}}`, `the schema: holds 1001 references, at most 1000 are allowed`},
		{"huge number", `{"minimum":1e999999999}`, `the schema: is not JSON: at byte 11 in /minimum: the number is beyond 400 digits or an exponent of 400, near {"minimum":1e999999999}`},
	} {
		s, err := CompileSchema(json.RawMessage(c.schema))
		if err == nil || s != nil {
			t.Errorf("%s: taken", c.name)
			continue
		}
		if err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
	}
}

// A recursive schema that tries every level three times would take 3^60 steps.
func TestValidateRefusesWhatWouldNeverEnd(t *testing.T) {
	s := compileTest(t, `{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[
		{"properties":{"a":{"$ref":"#/$defs/n"},"z":false}},
		{"properties":{"a":{"$ref":"#/$defs/n"},"z":false}},
		{"required":["q"],"properties":{"a":{"$ref":"#/$defs/n"}}}]}}}`)
	deep := func(n int) any {
		return decode(t, strings.Repeat(`{"a":`, n)+`{"z":1}`+strings.Repeat(`}`, n))
	}
	if got := s.Validate(deep(60)); len(got) != 1 || got[0].Expected != "a value that the schema can check in 1000000 steps" {
		t.Errorf("Validate(60 deep) = %v", got)
	}
	if got := s.Validate(deep(3)); len(got) != 1 || len(got[0].Expected) > 2*maxWant {
		t.Errorf("Validate(3 deep) = %v", got)
	}
}

func TestPatternThatTakesTooLong(t *testing.T) {
	evil := `"` + strings.Repeat("a", 60) + `!"`
	s := compileTest(t, `{"items":{"pattern":"^(?!b)(a|aa)+$"}}`)
	start := time.Now()
	all := s.Validate(decode(t, `[`+strings.Repeat(evil+",", 30)+evil+`]`))
	if len(all) != 31 || all[0].Got != "text for which the pattern took too long" {
		t.Errorf("%d violations, the first %+v", len(all), all[0])
	}
	t.Logf("31 matches without an end: %v", time.Since(start))

	// The next value is judged afresh.
	if all := s.Validate(decode(t, `["aaaa"]`)); all != nil {
		t.Errorf(`Validate(["aaaa"]) = %v, want nil`, all)
	}
	if all := s.Validate(decode(t, `["x"]`)); len(all) != 1 || all[0].Got != `string ("x")` {
		t.Errorf(`Validate(["x"]) = %v`, all)
	}
}

func TestPatternsAreECMA(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want, linear  bool
	}{
		{`^(a+)+$`, strings.Repeat("a", 5000) + "!", false, true},
		{`^[A-Z]{3}$`, "FRA", true, true},
		{`^[A-Z]{3}$`, "FRA\n", false, true},
		{`^\d+$`, "٣", false, true},
		{`^\s$`, "\u00a0", true, true},
		{`^\S$`, "\ufeff", false, true},
		{`^[\s\-x]+$`, " -x", true, true},
		{`^[\s\-x]+$`, "1", false, true},
		{`^.$`, "\u2028", false, true},
		{`^.$`, "😀", true, true},
		{`^\u00e9$`, "é", true, true},
		{`^\/\.\-$`, "/.-", true, true},
		{`^\p{L}+$`, "é", true, true},
		{`a{2`, "a{2", true, true},
		{`^(?!X)`, "X", false, false},
		{`^(?=X)`, "X", true, false},
		{`^(a)\1$`, "aa", true, false},
		{`^[^]$`, "x", true, false},
		{`^\S[^\S]$`, "a ", true, false},
		{`^\d{1,2000}$`, "12", true, false},
	} {
		s := compileTest(t, string(encode(map[string]any{"pattern": c.pattern})))
		if got := s.trouble == nil; got != c.linear {
			t.Errorf("pattern %s: linear = %t, want %t", c.pattern, got, c.linear)
		}
		if got := s.Validate(c.text) == nil; got != c.want {
			t.Errorf("pattern %s matches %.20q = %t, want %t", c.pattern, c.text, got, c.want)
		}
	}
}

func TestRepeats(t *testing.T) {
	for pattern, want := range map[string]int{
		``: 1, `a{2}b{3}`: 3, `(a{2}b){3}`: 6, `(a{2}|b{3}){4,}`: 12, `((a{2}){2})+`: 4, `[{]{5}\{{6}`: 6, `a{,5}`: 5, `a{2,7}`: 7,
		`((a{100}){100}){100}`: maxRepeat + 1, `a{99999999999999999999}`: maxRepeat + 1, `(((`: 1, `)))a{3}`: 3, `a{x}`: 1,
	} {
		if got := repeats(pattern); got != want {
			t.Errorf("repeats(%s) = %d, want %d", pattern, got, want)
		}
	}
}

func FuzzCompileSchema(f *testing.F) {
	f.Add([]byte(flightSchema), []byte(`{"from":1}`))
	f.Add([]byte(tree), []byte(`{"v":1,"kids":[{}]}`))
	f.Add([]byte(`{"anyOf":[{"pattern":"(?=a)"},{"propertyNames":{"format":"regex"}}],"not":false}`), []byte(`{"(":1}`))
	f.Fuzz(func(t *testing.T, schema, doc []byte) {
		s, err := CompileSchema(schema)
		if err != nil {
			return
		}
		v, flaw := readJSON(doc)
		if flaw != nil {
			return
		}
		if a, b := s.Validate(v), s.Validate(v); !slices.Equal(a, b) && s.trouble == nil {
			t.Errorf("Validate(%s, %s) = %v, then %v", schema, doc, a, b)
		}
	})
}
