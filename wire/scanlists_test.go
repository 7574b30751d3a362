package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/tool"
)

func TestLongListsInJSON(t *testing.T) {
	calls := func(key, element string, n int) string {
		return `{"` + key + `" : [` + strings.Repeat(element+", ", n-1) + element + `]}`
	}
	plan := func(alternatives, n int) string {
		return calls("calls", `{"alternatives":[`+strings.TrimSuffix(strings.Repeat("{},", alternatives), ",")+`]}`, n)
	}
	for _, c := range []struct {
		name, text string
		want       Code
	}{
		{"10,000 calls", calls("calls", "{}", 10_000) + strings.Repeat(" ", smallJSON), ""},
		{"10,001 calls", calls("calls", "{      }", 10_001), CodeTooMany},
		{"in capitals", calls("CALLS", "{      }", 10_001), CodeTooMany},
		{"with an escape", calls(`c\u0061lls`, "{      }", 10_001), CodeTooMany},
		{"with a long s, which is an s to encoding/json", calls("callſ", "{      }", 10_001), CodeTooMany},
		{"after a brace in a text", `{"id":"}\"]","calls":[{"tool":"]"}` + strings.Repeat(",{      }", 10_001) + `]}`, CodeTooMany},
		{"nulls", calls("calls", "null   ", 10_001), CodeTooMany},
		{"300 lists of 999", plan(999, 300), ""},
		{"301 lists of 999", plan(999, 301), CodeTooMany},
		{"what nobody knows", calls("novel", "{      }", 20_000), ""},
		{"arguments", `{"calls":[{"args":{"list":[` + strings.Repeat("1,", 500_000) + `1]}}]}`, ""},
		{"a default", `{"calls":[{"default":[` + strings.Repeat("1,", 500_000) + `1]}]}`, ""},
		{"broken before", `{"id":"x" "calls":[` + strings.Repeat("{},", 100_000) + `{}]}`, CodeJSON},
		{"broken, and nested without end", strings.Repeat(`{"calls":[}]`, 100_000), CodeJSON},
		{"of another type", `{"calls":{"a":[` + strings.Repeat("{},", 100_000) + `{}]}}`, CodeType},
	} {
		if got := codeOf(Unmarshal(JSON, []byte(c.text), &TurnRequest{})); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	many := `{"worker":"w","manifests":[{"annotations":{` + strings.Repeat(`"a":"","b":"",`, 50_001) + `"c":""}}]}`
	if got := codeOf(Unmarshal(JSON, []byte(many), &DescribeRecord{})); got != CodeTooMany {
		t.Errorf("100,003 annotations: %q, want %q", got, CodeTooMany)
	}
}

// What the limits let through must not become much more in memory.
func TestFullListsAreCheap(t *testing.T) {
	array := func(element string, n int) string {
		return "\xdc" + string([]byte{byte(n >> 8), byte(n)}) + strings.Repeat(element, n)
	}
	for name, b := range map[string]string{
		"calls":        "\x81\xa5calls" + array("\x80", 10_000),
		"alternatives": "\x81\xa5calls" + array("\x81\xacalternatives"+array("\x80", 9_990), 29),
		"ids":          "\x81\xa5calls" + array("\x81\xa5after"+array("\xa0", 9_990), 29),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Unmarshal(MsgPack, []byte(b), &TurnRequest{})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%s: %d bytes of MessagePack make us allocate %d", name, len(b), n)
		}
	}
}

// A few megabytes of JSON must not become hundreds.
func TestJSONBombsAreCheap(t *testing.T) {
	for name, text := range map[string]string{
		"calls":        `{"calls":[` + strings.Repeat("{},", 1<<20) + `{}]}`,
		"alternatives": `{"calls":[{"alternatives":[` + strings.Repeat("{},", 1<<20) + `{}]}]}`,
		"ids":          `{"calls":[{"after":[` + strings.Repeat(`"",`, 1<<20) + `""]}]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_ = Unmarshal(JSON, []byte(text), &TurnRequest{})
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
			t.Errorf("%s: %d bytes of JSON make us allocate %d", name, len(text), n)
		}
	}
}

// What the lister says is what encoding/json would have decoded.
func FuzzLister(f *testing.F) {
	for _, r := range records {
		b, err := Marshal(JSON, r.value)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"callſ":[{"after":["a","b"],"After":[]},null,{"a\u0066ter":["c"]}]} `))
	f.Fuzz(func(t *testing.T, b []byte) {
		if scanJSON(b) != nil {
			return
		}
		const most = 3
		s := lister{b: b, left: 1 << 30, items: most}
		s.value(reflect.TypeOf(TurnRequest{}), MaxDepth)
		var r TurnRequest
		if json.Unmarshal(b, &r) != nil {
			return
		}
		if len(bytes.TrimSpace(b[min(s.i, len(b)):])) > 0 {
			t.Errorf("%q: it ended at %d", b, s.i)
		}
		long := len(r.Calls) > most
		for _, c := range r.Calls {
			long = long || len(c.After) > most || len(c.Alternatives) > most || len(c.FallbackOn) > most
		}
		if long && s.tooMany == 0 {
			t.Errorf("%q has a long list that was not seen", b)
		}
	})
}

func BenchmarkLister(b *testing.B) {
	r := TurnRequest{Calls: make([]tool.Call, MaxCalls)}
	for i := range r.Calls {
		r.Calls[i] = tool.Call{ID: "a", Tool: "search", Args: raw(`{"text":"` + strings.Repeat("x", 200) + `"}`)}
	}
	text, err := Marshal(JSON, &r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := limitsOf(&r).scanLists(text, reflect.TypeOf(&r)); err != nil {
			b.Fatal(err)
		}
	}
}
