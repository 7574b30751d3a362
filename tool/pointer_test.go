package tool

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestParsePointer(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{"", nil, ""},
		{"/", []string{""}, ""},
		{"/flights/0/id", []string{"flights", "0", "id"}, ""},
		{"/a~1b/m~0n/~01", []string{"a/b", "m~n", "~1"}, ""},
		{"//a", []string{"", "a"}, ""},
		{"/ü x", []string{"ü x"}, ""},
		{"a", nil, `pointer "a": expected a / first, such as /flights/0/id, or nothing for the whole value`},
		{"#/a", nil, `expected a / first`},
		{"/a~", nil, `pointer "/a~": expected 0 or 1 after the ~ at byte 3`},
		{"/~2", nil, `expected 0 or 1 after the ~ at byte 2`},
		{strings.Repeat("/a", 64), slices.Repeat([]string{"a"}, 64), ""},
		{strings.Repeat("/a", 65), nil, "expected at most 64 tokens, got 65"},
	} {
		p, err := ParsePointer(c.text)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("ParsePointer(%q) = %v, want %s", c.text, err, c.err)
			}
		case err != nil || !slices.Equal(p, c.want) || p.String() != c.text:
			t.Errorf("ParsePointer(%q) = %q (%s), %v, want %q", c.text, []string(p), p, err, c.want)
		}
	}
}

func TestPointerFind(t *testing.T) {
	const doc = ` {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6, " ": 7, "m~n": 8,
		"n": 1.10e3 , "deep": {"x": [[], {"y": [1, {"z": "]}\"\\"}]}]}, "twice": 1, "twice": {"b": 2}, "null": null, "\u00fc": 9} `
	for _, c := range []struct{ at, want string }{ // RFC 6901 §5, and more
		{"/foo", `["bar", "baz"]`},
		{"/foo/0", `"bar"`},
		{"/foo/1", `"baz"`},
		{"/foo/2", ""},
		{"/foo/00", ""},
		{"/foo/01", ""},
		{"/foo/-", ""},
		{"/foo/-1", ""},
		{"/foo/+1", ""},
		{"/foo/1.0", ""},
		{"/foo/99999999999999999999", ""},
		{"/foo/0/0", ""},
		{"/", "0"},
		{"/a~1b", "1"},
		{"/c%d", "2"},
		{"/e^f", "3"},
		{"/g|h", "4"},
		{`/i\j`, "5"},
		{`/k"l`, "6"},
		{"/ ", "7"},
		{"/m~0n", "8"},
		{"/n", "1.10e3"},
		{"/n/0", ""},
		{"/deep/x/0", "[]"},
		{"/deep/x/0/0", ""},
		{"/deep/x/1/y/1/z", `"]}\"\\"`},
		{"/twice", `{"b": 2}`},
		{"/twice/b", "2"},
		{"/null", "null"},
		{"/null/a", ""},
		{"/ü", "9"},
		{"/missing", ""},
		{"", strings.TrimSpace(doc)},
	} {
		p, err := ParsePointer(c.at)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := p.Find([]byte(doc)); string(got) != c.want || ok != (c.want != "") {
			t.Errorf("%q: Find = %s, %t, want %s", c.at, got, ok, c.want)
		}
	}
}

func TestPointerFindInRubbish(t *testing.T) {
	p := Pointer{"a"}
	for _, raw := range []string{"", " ", "{", `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":}`, `{"a":"`, `{"a":[`, `{"a":"\`, `{a:1}`, `[`, "}", `{"b":1 "a":2}`, `{"b" 1}`} {
		if got, ok := p.Find([]byte(raw)); ok {
			t.Errorf("Find(%s) = %s, want nothing", raw, got)
		}
	}
	if got, ok := p.Find([]byte(strings.Repeat(`{"a":`, 1_000_000))); ok {
		t.Errorf("Find(a million deep) = %s, want nothing", got)
	}
}

// Find agrees with encoding/json wherever the text is JSON.
func FuzzPointerFind(f *testing.F) {
	f.Add([]byte(`{"a": [1, {"b": "x\"]"}]}`), "/a/1/b")
	f.Add([]byte(`{"\u0061": 1, "a": 2.50}`), "/a")
	f.Add([]byte(`[[[]]]`), "/0/0")
	f.Fuzz(func(t *testing.T, raw []byte, at string) {
		p, err := ParsePointer(at)
		if err != nil {
			return
		}
		if p.String() != at {
			t.Fatalf("ParsePointer(%q).String() = %q", at, p.String())
		}
		got, ok := p.Find(raw)
		if !json.Valid(raw) {
			return
		}
		want, there := find(raw, p)
		if ok != there || !bytes.Equal(got, want) {
			t.Errorf("%q in %s: Find = %s, %t, want %s, %t", at, raw, got, ok, want, there)
		}
	})
}

func find(raw json.RawMessage, p Pointer) (json.RawMessage, bool) {
	raw = bytes.Trim(raw, " \t\r\n")
	if len(p) == 0 {
		return raw, true
	}
	if raw[0] == '{' {
		// A map, so that the last of two equal keys counts.
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) != nil || object[p[0]] == nil {
			return nil, false
		}
		return find(object[p[0]], p[1:])
	}
	var array []json.RawMessage
	n, ok := index(p[0])
	if raw[0] != '[' || !ok || json.Unmarshal(raw, &array) != nil || n >= len(array) {
		return nil, false
	}
	return find(array[n], p[1:])
}

func BenchmarkPointerFind(b *testing.B) {
	raw := []byte(`{"flights":[` + strings.Repeat(`{"id":"TB100","from":"FRA","to":"LIS","price":123.40},`, 99) + `{"id":"TB101"}]}`)
	p := Pointer{"flights", "99", "id"}
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if got, ok := p.Find(raw); !ok || string(got) != `"TB101"` {
			b.Fatal(string(got))
		}
	}
}
