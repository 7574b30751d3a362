package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestReadPlan(t *testing.T) {
	got, err := readPlan("p.yaml", []byte(`
id: t1
session: s1
deadline: 1m30s
deadline_mode: hard
parallel: 4
tool_parallel: 2
on_failure: stop
on_client_loss: cancel
calls:
  - id: a
    tool: search
    args: {n: 12345678901234567890, when: 2026-01-02}
    timeout_ms: 1500
    key: k
    breaker_key: eu
    retry: {strategy: linear, max_attempts: 3, initial_delay: 50ms, max_total_time_ms: 900, multiplier: 1.5}
    effect: read
    default: null
    alternatives: [cache, {tool: slow, args: {x: {$arg: /n}}, timeout: 2s, retry: {max_attempts: 1}}]
    fallback_on: permanent
  - id: b
    tool: search
    after: a
    join: 1
  - id: c
    tool: search
    after: [a, b]
    join: available
    join_by: 500ms
    optional: true
`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"t1","session":"s1","deadline_ms":90000,"calls":[` +
		`{"id":"a","tool":"search","args":{"n":12345678901234567890,"when":"2026-01-02"},"timeout_ms":1500,"key":"k","breaker_key":"eu",` +
		`"retry":{"strategy":"linear","initial_delay_ms":50,"multiplier":1.5,"max_attempts":3,"max_total_time_ms":900},"effect":"read","default":null,` +
		`"alternatives":[{"tool":"cache"},{"tool":"slow","args":{"x":{"$arg":"/n"}},"timeout_ms":2000,"retry":{"max_attempts":1}}],"fallback_on":["permanent"]},` +
		`{"id":"b","tool":"search","after":["a"],"join":"1"},` +
		`{"id":"c","tool":"search","after":["a","b"],"join":"available","join_by_ms":500,"optional":true}],` +
		`"deadline_mode":"hard","parallel":4,"tool_parallel":2,"on_failure":"stop","on_client_loss":"cancel"}`
	b, err := json.Marshal(got)
	if err != nil || string(b) != want {
		t.Errorf("readPlan = %s, %v\nwant %s", b, err, want)
	}
}

// Every mistake of a plan comes at once, each with its line.
func TestPlanMistakes(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"nothing", "", []string{"p.yaml: the plan is empty"}},
		{"no mapping", "- a", []string{"p.yaml:1: expected a mapping with calls, got a list"}},
		{"unknown fields", "deadlin: 5s\ncalls:\n  - id: a\n    tool: x\n    timeot: 2s\n", []string{
			"p.yaml:1: deadlin: unknown field; did you mean deadline?", "p.yaml:5: calls[0].timeot: unknown field; did you mean timeout?"}},
		{"wrong types", "deadline: 5\nparallel: many\ncalls:\n  - id: 7\n    tool: [x]\n    optional: perhaps\n    after: {a: 1}\n    join: [all]\n    retry: 3\n", []string{
			"p.yaml:1: deadline: expected a time such as 2s, 500ms or 1m30s, got 5",
			`p.yaml:2: parallel: expected a whole number, got "many"`,
			"p.yaml:4: calls[0].id: expected text, got 7; put it in quotes",
			"p.yaml:5: calls[0].tool: expected text, got a list",
			`p.yaml:6: calls[0].optional: expected true or false, got "perhaps"`,
			"p.yaml:7: calls[0].after: expected a list, got a mapping",
			"p.yaml:8: calls[0].join: expected all, any, available or a number, got a list",
			"p.yaml:9: calls[0].retry: expected a mapping such as {max_attempts: 3}, got 3"}},
		{"a time twice", "calls:\n  - id: a\n    tool: x\n    timeout: 2s\n    timeout_ms: 2000\n", []string{
			"p.yaml:5: calls[0].timeout_ms: is also given as calls[0].timeout; leave one out"}},
		{"negative times", "deadline: -5s\ncalls:\n  - {id: a, tool: x, timeout_ms: -1}\n", []string{
			`p.yaml:1: deadline: expected a time such as 2s, 500ms or 1m30s, got "-5s"`,
			"p.yaml:3: calls[0].timeout_ms: expected milliseconds as a whole number, got -1"}},
		{"a call that is none", "calls:\n  - search\n  - null\n", []string{
			`p.yaml:2: calls[0]: expected a call, which is a mapping with id and tool, got "search"`,
			"p.yaml:3: calls[1]: expected a call, which is a mapping with id and tool, got nothing"}},
		{"the plan", "calls:\n  - id: a\n    tool: x\n    after:\n      - b\n      - nobody\n  - id: b\n    tool: x\n    args: {q: {$from: a}}\n  - id: b\n    tool: no.tool\n", []string{
			`p.yaml:6: calls[0].after[1]: there is no call "nobody"`, "p.yaml:10: calls[2].id: ", "p.yaml:11: calls[2].tool: "}},
		{"an open turn", "open: true\ncalls: []\n", []string{"p.yaml:1: open: a plan file is a whole turn"}},
		{"a key twice", "calls: []\ncalls: []\n", []string{`p.yaml:2: the key "calls" is there twice`}},
		{"a time in words", "calls:\n  - id: a\n    tool: x\n    join: all\n    join_by: 1s\n", []string{"p.yaml:5: calls[0].join_by_ms: only "}},
	} {
		_, err := readPlan("p.yaml", []byte(tc.in))
		if err == nil {
			t.Errorf("%s: no error, want %q", tc.name, tc.want)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for _, want := range tc.want {
			found := false
			for _, line := range lines {
				found = found || strings.HasPrefix(line, want)
			}
			if !found {
				t.Errorf("%s: it says\n%v\nwant %s", tc.name, err, want)
			}
		}
		if len(lines) > len(tc.want)+1 {
			t.Errorf("%s: it says\n%v\nwant %d lines", tc.name, err, len(tc.want))
		}
	}
}

// The example, and every plan in the page about plans, is one.
func TestPlansInPages(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("Glob = %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readPlan(filepath.Base(file), data); err != nil {
			t.Error(err)
		}
	}
	page, err := os.ReadFile("../../docs/turns.md")
	if err != nil {
		t.Fatal(err)
	}
	plans := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(plans) < 5 {
		t.Errorf("docs/turns.md has %d plans, want several", len(plans))
	}
	for _, m := range plans {
		if _, err := readPlan("turns.md", []byte(m[1])); err != nil {
			t.Errorf("%v\nin\n%s", err, m[1])
		}
	}
}

// Every field of a request, of a call and of what is in it can be written in a plan, and is in the page.
func TestPlanHasEveryField(t *testing.T) {
	page, err := os.ReadFile("../../docs/turns.md")
	if err != nil {
		t.Fatal(err)
	}
	long := map[string]bool{"open": true}
	for _, v := range []any{wire.TurnRequest{}, tool.Call{}, tool.Alternative{}, tool.RetryPolicy{}} {
		for _, name := range fieldNames(v) {
			if name = strings.TrimSuffix(name, "_ms"); !long[name] && !strings.Contains(string(page), "`"+name+"`") {
				t.Errorf("docs/turns.md does not say %s of %T", name, v)
			}
		}
	}
}

func FuzzReadPlan(f *testing.F) {
	f.Add([]byte("deadline: 5s\ncalls:\n  - {id: a, tool: x, args: {q: {$from: b, pointer: /a/0}}}\n"))
	f.Add([]byte(`{"calls":[{"id":"a","tool":"x","after":["a"],"join":2,"retry":{"max_attempts":1e9}}]}`))
	f.Add([]byte("calls: &c\n  - *c\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := readPlan("p", data)
		if err == nil && req.Check() != nil {
			t.Errorf("a plan that was taken is refused: %v", req.Check())
		}
	})
}

// fieldNames is the names of a record's fields, as JSON has them.
func fieldNames(v any) []string {
	var names []string
	typ := reflect.TypeOf(v)
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
