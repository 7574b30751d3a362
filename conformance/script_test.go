package conformance

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTranscriptsThatAreWrong(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"-- a --\ncall a x\n", "names no level"},
		{"-- a --\nlevel plain\n", "has no steps"},
		{"-- a --\nlevel most\n", "expected plain, standard or full"},
		{"-- a --\nlevel plain\njump a\n", `a:2: "jump": there is no such step`},
		{"-- a --\nlevel plain\neach x\n", "expected a name and values"},
		{"-- a --\nlevel plain\ncall a x\n-- a --\nlevel plain\ncall a x\n", "is also in"},
	} {
		_, err := loadScripts(fstest.MapFS{"x.txtar": {Data: []byte(test.text)}})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q = %v, want %q", test.text, err, test.want)
		}
	}
}

func TestTake(t *testing.T) {
	o, err := take(`call a conf_echo own within=2s Tb-Key="two words" Tb-Seq= traceparent=00 {"a": "b c"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(o.words, " "); got != "call a conf_echo own" || o.options["within"] != "2s" || o.json != `{"a": "b c"}` {
		t.Errorf("words %q, options %v, json %s", got, o.options, o.json)
	}
	if v, there := o.header["Tb-Seq"]; o.header["Tb-Key"] != "two words" || o.header["traceparent"] != "00" || !there || v != "" {
		t.Errorf("header = %v", o.header)
	}
	for _, bad := range []string{`call a x body="no end`, `call a x Tb-Key="\q"`} {
		if _, err := take(bad); err == nil {
			t.Errorf("take(%s) = nil, want an error", bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		want, got string
		exact     bool
		diffs     string
	}{
		{`{"a":1}`, `{"a":1.0}`, true, ""},
		{`{"a":1}`, `{"a":1,"b":2}`, true, "/b: got 2, want nothing"},
		{`{"a":1}`, `{"a":1,"b":2}`, false, ""},
		{`{"a":1}`, `{}`, false, "/a: got nothing, want 1"},
		{`{"a":1}`, `{"a":"1"}`, false, `/a: got "1", want 1`},
		{`{"a":"<absent>"}`, `{"a":null}`, false, "/a: got null, want <absent>"},
		{`{"a":"<empty>","b":"<empty>"}`, `{"a":0}`, false, ""},
		{`{"a":"<number 1..5>"}`, `{"a":6}`, false, "/a: got 6, want <number 1..5>"},
		{`{"a":"<len 3>"}`, `{"a":"é!"}`, false, ""},
		{`{"a":"<like ^x>"}`, `{"a":"yx"}`, false, `/a: got "yx", want <like ^x>`},
		{`{"a":"<odd>"}`, `{"a":1}`, false, "a word that nobody knows"},
		{`["<contains>",{"id":2}]`, `[{"id":1},{"id":2,"x":3}]`, false, ""},
		{`["<contains>",3]`, `[1,2]`, false, "the whole: got [1,2], want 3 in it"},
		{`[1,2]`, `[2,1]`, false, "/0: got 2, want 1"},
		{`[1]`, `[1,2]`, false, "the whole: got 2 items, want 1"},
		{`null`, `false`, false, "the whole: got false, want null"},
	} {
		want, err1 := decode([]byte(test.want))
		got, err2 := decode([]byte(test.got))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		m := &matcher{exact: test.exact, vars: map[string]string{}}
		m.match("", want, got)
		diffs := strings.Join(m.diffs, "; ")
		if test.diffs == "" && diffs != "" || !strings.Contains(diffs, test.diffs) {
			t.Errorf("match(%s, %s) = %q, want %q", test.want, test.got, diffs, test.diffs)
		}
	}
}

func TestJUnit(t *testing.T) {
	r := Report{Level: Full, Cases: []*Case{
		{Name: "a", Level: Plain, Status: Passed, DurationMs: 1500},
		{Name: "b", Level: Full, Status: Failed, Why: "first\nsecond <&>", Stderr: "\x00bad"},
		{Name: "c", Level: Full, Status: Skipped, Why: "why"},
	}}
	var b bytes.Buffer
	if err := r.JUnit(&b); err != nil {
		t.Fatal(err)
	}
	var back suite
	if err := xml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if back.Tests != 3 || back.Failures != 1 || back.Skipped != 1 || back.Cases[0].Time != "1.500" ||
		back.Cases[1].Failure == nil || back.Cases[1].Failure.Message != "first" || back.Cases[2].Skipped == nil {
		t.Errorf("JUnit = %s", b.String())
	}
}
