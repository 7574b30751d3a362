package tool

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// What a quick accepts the library must accept. It need not be so the other way round, but the everyday must be there,
// or the quick is for nothing.
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
			v, flaw := readJSON([]byte(text))
			if flaw != nil {
				t.Fatalf("%s: %v", text, flaw)
			}
			valid := s.lib.Validate(v) == nil
			fast := s.quick.accepts(v)
			if fast && !valid {
				t.Fatalf("schema %s takes %s, want refused as the library does: %v", raw, text, s.lib.Validate(v))
			}
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
	args, _ := ParseArgs([]byte(`{"from":"VIE","to":"LIS","date":"2026-05-01","passengers":2,"cabin":"economy","flexible":true}`))
	if s.quick == nil || !s.quick.accepts(args) {
		t.Error("not accepted at once")
	}
	if n := testing.AllocsPerRun(100, func() { s.quick.accepts(args) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
