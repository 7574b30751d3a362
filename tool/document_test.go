package tool

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadDocument(t *testing.T) {
	d, err := ReadDocument("p.yaml", "plan", []byte("a: &x 1\nb:\n  - {c: *x}\n  - 12345678901234567890\n\"d/e\": 0x10\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(d.JSON), `{"a":1,"b":[{"c":1},12345678901234567890],"d/e":16}`; got != want {
		t.Errorf("ReadDocument = %s, want %s", got, want)
	}
	for pointer, want := range map[string]int{"/a": 1, "/b": 2, "/b/0/c": 3, "/b/1": 4, "/d~1e": 5, "/b/2": 0} {
		if got, ok := d.Line(pointer); got != want || ok != (want > 0) {
			t.Errorf("Line(%s) = %d, %t, want %d", pointer, got, ok, want)
		}
	}
}

func TestReadDocumentRefuses(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	many := "a: &a [" + strings.Repeat("1,", 10_000) + "]\nb: [" + strings.Repeat("*a,", 20) + "]"
	for name, tc := range map[string]struct{ in, want string }{
		"empty":       {"# nothing", "p.yaml: the plan is empty"},
		"two":         {"a: 1\n---\nb: 2\n", "p.yaml:2: expected one document, got a second one; give each plan its own file"},
		"not YAML":    {"a: [", "p.yaml:1: not YAML: "},
		"large":       {strings.Repeat(" ", MaxDocumentBytes+1), "p.yaml: the plan is 1048577 bytes long, at most 1048576 are allowed"},
		"deep":        {deep, "p.yaml:1: values nest more than 64 deep"},
		"many":        {many, "the plan holds more than 200000 values"},
		"a tag":       {"a: !!binary aGk=", "p.yaml:1: the tag !!binary is not supported"},
		"no number":   {"a: .nan", "p.yaml:1: expected a number that JSON can hold, got .nan"},
		"a key twice": {"a:\n  b: 1\n  b: 2\n", `p.yaml:3: the key "b" is there twice`},
	} {
		if _, err := ReadDocument("p.yaml", "plan", []byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %s", name, err, tc.want)
		}
	}
}

// A long key with many values below it costs as much as it is long, and not times as many.
func TestLongKeysAreCheap(t *testing.T) {
	text := fmt.Sprintf("? %q\n: [%s 1]", strings.Repeat("k", 400<<10), strings.Repeat("1,", 90_000))
	d, err := ReadDocument("", "plan", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(d.lines); n > 3 {
		t.Errorf("%d lines are known, want few", n)
	}
}
