package tool

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What a quick accepts the reader and the library must accept. It need not be so the other way round, but the everyday
// must be there, or the quick is for nothing. Half of the texts are damaged, so that most of those are no JSON.
func TestQuickAgreesWithTheLibrary(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("TEST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("TEST_SEED=%d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	quick, yes, both := 0, 0, 0
	for range 3000 {
		raw := randomSchema(dice, 0)
		s, err := CompileSchema(json.RawMessage(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if s.quick == nil {
			continue
		}
		quick++
		for range 20 {
			text := randomValue(dice, 0)
			if bad := damage(dice, text); s.quick.accepts(bad) {
				agree(t, s, raw, bad)
			}
			fast := s.quick.accepts(text)
			if fast {
				agree(t, s, raw, text)
			}
			v, flaw := readJSON([]byte(text))
			if flaw != nil {
				t.Fatalf("%s: %v", text, flaw)
			}
			valid := s.lib.Validate(v) == nil
			if valid {
				yes++
			}
			if fast {
				both++
			}
		}
	}
	t.Logf("%d schemas were quick; of %d values that fit, %d were accepted at once", quick, yes, both)
	if quick < 1000 || both*10 < yes*8 {
		t.Errorf("%d of 3000 schemas quick, %d of %d values; want most", quick, both, yes)
	}
}

// agree asks those who have the word about a text that the quick took.
func agree(t *testing.T, s *Schema, schema, text string) {
	t.Helper()
	v, flaw := readJSON([]byte(text))
	if flaw != nil {
		t.Fatalf("schema %s takes %q, want refused: %s", schema, text, flaw.text([]byte(text)))
	}
	if all := s.Validate(v); len(all) > 0 {
		t.Fatalf("schema %s takes %s, want refused as the library does: %v", schema, text, all)
	}
}

// damage is text with a byte changed, put in, left out or said twice.
func damage(dice *rand.Rand, text string) string {
	at := dice.IntN(len(text))
	some := []string{",", ":", "{", "}", "[", "]", `"`, `\`, "\\u00", "\\ud800", "\xff", "\x01", " ", "0", ".", "e9", "-", "null", `"a":1,`}[dice.IntN(19)]
	switch dice.IntN(4) {
	case 0:
		return text[:at] + some + text[at+1:]
	case 1:
		return text[:at] + some + text[at:]
	case 2:
		return text[:at] + text[at+1:]
	}
	to := at + dice.IntN(len(text)-at)
	return text[:to] + text[at:]
}

func one(dice *rand.Rand, of ...string) string { return of[dice.IntN(len(of))] }

func randomSchema(dice *rand.Rand, depth int) string {
	if depth == 3 {
		return one(dice, `true`, `{}`, `{"type":"string"}`, `{"type":["integer","null"]}`)
	}
	some := []string{
		`"type":"object"`, `"type":"string"`, `"type":["number","string"]`, `"type":"integer"`, `"type":"number"`, `"type":"array"`,
		`"minimum":0`, `"maximum":3`, `"exclusiveMinimum":0`, `"exclusiveMaximum":2`, `"minimum":0.5`, `"maximum":1e30`,
		`"minLength":1`, `"maxLength":2`, `"pattern":"^a"`, `"pattern":"^(?!a)"`, `"format":"date"`, `"format":"ipv4"`,
		`"enum":["a","b",1]`, `"enum":["ab"]`, `"const":"a"`, `"required":["a"]`, `"required":["a","b"]`,
		`"additionalProperties":false`, `"additionalProperties":true`, `"minItems":1`, `"maxItems":1`, `"uniqueItems":true`,
		`"title":"t"`, `"default":5`, `"multipleOf":2`, `"minProperties":1`, `"not":{"type":"string"}`,
		`"properties":{"a":` + randomSchema(dice, depth+1) + `,"b":` + randomSchema(dice, depth+1) + `}`,
		`"items":` + randomSchema(dice, depth+1),
		`"additionalProperties":` + randomSchema(dice, depth+1),
	}
	seen, parts := map[string]bool{}, []string{}
	for range dice.IntN(4) {
		part := some[dice.IntN(len(some))]
		if key, _, _ := strings.Cut(part, ":"); !seen[key] {
			seen[key] = true
			parts = append(parts, part)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func randomValue(dice *rand.Rand, depth int) string {
	if depth < 3 && dice.IntN(2) == 0 {
		if dice.IntN(3) == 0 {
			return fmt.Sprintf(`[%s,%s]`, randomValue(dice, depth+1), randomValue(dice, depth+1))
		}
		return fmt.Sprintf(`{%s:%s,"c":%s}`, one(dice, `"a"`, `"b"`), randomValue(dice, depth+1), randomValue(dice, depth+1))
	}
	return one(dice, `null`, `true`, `0`, `-0`, `1`, `2`, `3`, `-1`, `1.0`, `0.5`, `-0.5`, `1e0`, `1.5e1`, `12345678901234567890`,
		`1000000000000000000`, `""`, `"a"`, `"ab"`, `"b"`, `"ä"`, `"2026-05-01"`, `"2026-02-30"`, `"127.0.0.1"`, `[]`, `{}`)
}

// The schemas of real tools are everyday ones.
func TestQuickTakesAFlightSearch(t *testing.T) {
	s, err := CompileSchema([]byte(`{"type":"object","additionalProperties":false,"required":["from","to","date"],"properties":{
		"from":{"type":"string","pattern":"^[A-Z]{3}$"},"date":{"type":"string","format":"date"},"to":{"type":"string"},
		"passengers":{"type":"integer","minimum":1,"maximum":9},"cabin":{"enum":["economy","first"]},"flexible":{"type":"boolean"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	args := []byte(`{"from":"VIE","to":"LIS","date":"2026-05-01","passengers":2,"cabin":"economy","flexible":true}`)
	if !s.quickly(args) {
		t.Error("not accepted at once")
	}
	if n := testing.AllocsPerRun(100, func() { s.quickly(args) }); n > 1 {
		t.Errorf("%v allocations, want one: the text", n)
	}
}

// A quick counts keys, values and depth as the reader does.
func TestQuickKeepsTheBounds(t *testing.T) {
	many := func(n int, key func(int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = `"` + key(i) + `":0`
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	each := func(i int) string { return fmt.Sprint("k", i) }
	for _, tc := range []struct {
		name, text string
		want       bool
	}{
		{"many keys", many(40, each), true},
		{"one of many twice", many(40, func(i int) string { return each(i % 39) }), false},
		{"one of few twice", `{"a":1,"b":2,"a":3}`, false},
		{"one twice, once as an escape", `{"a":1,"\u0061":2}`, false},
		{"one twice, further down", `{"x":[{"a":1,"a":2}]}`, false},
		{"as deep as may be", strings.Repeat(`{"a":`, MaxDepth-1) + `[]` + strings.Repeat(`}`, MaxDepth-1), true},
		{"deeper", strings.Repeat(`{"a":`, MaxDepth) + `[]` + strings.Repeat(`}`, MaxDepth), false},
		{"as many values as may be", `{"a":[0` + strings.Repeat(`,0`, MaxValues-3) + `]}`, true},
		{"more", `{"a":[0` + strings.Repeat(`,0`, MaxValues-2) + `]}`, false},
		{"a number beyond bounds", `{"a":1e999}`, false},
		{"more after the end", `{} {}`, false},
		{"blanks around", " {\n} ", true},
		{"nothing", ``, false},
		{"no object", `[]`, false},
	} {
		if got := anyObject.accepts(tc.text); got != tc.want {
			t.Errorf("%s: accepts = %v, want %v", tc.name, got, tc.want)
		}
		if _, f := ParseArgs([]byte(tc.text)); tc.want != (f == nil) && tc.text != "" {
			t.Errorf("%s: ParseArgs says %v, want the same", tc.name, f)
		}
	}
}

// FuzzQuick is TestQuickAgreesWithTheLibrary with texts of the fuzzer's.
func FuzzQuick(f *testing.F) {
	f.Add(uint64(1), `{"a":1,"b":[true,null,"x\u00e4"],"c":{"a":-1.5e3}}`)
	f.Fuzz(func(t *testing.T, seed uint64, text string) {
		raw := randomSchema(rand.New(rand.NewPCG(seed, 1)), 0)
		s, err := CompileSchema(json.RawMessage(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if s.quickly([]byte(text)) {
			agree(t, s, raw, text)
		}
		if anyObject.accepts(text) {
			if _, f := ParseArgs([]byte(text)); f != nil {
				t.Fatalf("accepts %q, want refused: %s", text, f.Message)
			}
		}
	})
}

// A date that is taken at once is one that the library takes.
func TestEverydayDates(t *testing.T) {
	taken := 0
	for _, year := range []string{"0000", "1900", "2026", "9999"} {
		for month := range 100 {
			for day := range 100 {
				date := fmt.Sprintf("%s-%02d-%02d", year, month, day)
				_, err := time.Parse(time.DateOnly, date)
				if !everydayDate(date) {
					continue
				}
				if taken++; err != nil {
					t.Errorf("everydayDate(%q) = true, want false: %v", date, err)
				}
			}
		}
	}
	if want := 4 * 12 * 28; taken != want {
		t.Errorf("%d dates were taken, want %d", taken, want)
	}
	for _, date := range []string{"", "2026-05-1", "2026/05/01", "2026-05-011", "+026-05-01", "2026-0a-01", "2026-05- 1", "２026-05-01"} {
		if everydayDate(date) {
			t.Errorf("everydayDate(%q) = true, want false", date)
		}
	}
}
