//go:build unix

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/toolbus/toolbus/internal/cli"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

// edited is the example, with the lines edited that its comments name.
func edited(t *testing.T, edits ...string) string {
	t.Helper()
	data, err := os.ReadFile("../../examples/trip.yaml")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for _, edit := range edits {
		found := false
		for i, line := range lines {
			code, note, ok := strings.Cut(line, " # ("+edit+") ")
			if !ok {
				continue
			}
			found = true
			if note == "take this line away" {
				lines[i] = ""
				continue
			}
			name, _, _ := strings.Cut(note, ":")
			lines[i] = regexp.MustCompile(name+`: ("")?[^,}]*`).ReplaceAllLiteralString(code, note)
		}
		if !found {
			t.Fatalf("examples/trip.yaml has no line (%s)", edit)
		}
	}
	file := filepath.Join(t.TempDir(), "trip.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The example as it stands and as its comments say that it may be edited, and the trace of each.
func TestTrip(t *testing.T) {
	_, url := dev(t)
	for _, tc := range []struct {
		name     string
		edits    []string
		code     int
		status   string
		statuses []tool.Status // of flights, hotels, weather, booking
		trace    []string
	}{
		{"well", nil, cli.ExitOK, wire.Completed,
			[]tool.Status{tool.Success, tool.Success, tool.Success, tool.Success}, []string{"✓ success", "#1 book_trip on "}},
		{"fallback", []string{"b1"}, cli.ExitOK, wire.Completed,
			[]tool.Status{tool.ViaFallback, tool.Success, tool.Success, tool.Success}, []string{"via flight_cache", "failed (permanent): it fails for good", "→ alternative"}},
		{"default", []string{"b1", "b2"}, cli.ExitOK, wire.Completed,
			[]tool.Status{tool.Defaulted, tool.Success, tool.Success, tool.Success}, []string{"○ defaulted", "→ use_default"}},
		{"escalation", []string{"b1", "b2", "b3"}, cli.ExitFailed, wire.Escalated,
			[]tool.Status{tool.Failed, tool.Success, tool.Success, tool.Skipped}, []string{"✗ failed", "skipped because of flights"}},
		{"late", []string{"a"}, cli.ExitFailed, wire.PartialTurn,
			[]tool.Status{tool.Success, tool.TimedOut, tool.Success, tool.Success}, []string{"… timed_out", "│"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := run(t, url, "turn", "run", "--json", "--turn", tc.name, edited(t, tc.edits...))
			var end wire.Event
			lines := strings.Split(strings.TrimSpace(r.out), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil || end.Outcome == nil {
				t.Fatalf("turn run wrote\n%s\n%s\nwant events, the last with an outcome", r.out, r.err)
			}
			if r.code != tc.code || end.Outcome.Status != tc.status {
				t.Errorf("turn run ended with %d, %s: %s; want %d, %s", r.code, end.Outcome.Status, end.Outcome.Sentence, tc.code, tc.status)
			}
			for i, want := range tc.statuses {
				if got := end.Outcome.Results[i]; got.Status != want {
					t.Errorf("%s is %s (%s), want %s", got.Call, got.Status, got.Sentence, want)
				}
			}

			var trace ran
			until(t, "the journal", patience, func() bool {
				trace = run(t, url, "trace", tc.name)
				return trace.code == cli.ExitOK && strings.Contains(trace.out, "turn "+tc.name+" · "+tc.status)
			})
			for _, want := range tc.trace {
				if !strings.Contains(trace.out, want) {
					t.Errorf("trace wrote\n%s\nwant %s in it", trace.out, want)
				}
			}
			if svg := run(t, url, "trace", tc.name, "--svg", "-"); svg.code != cli.ExitOK || !strings.HasPrefix(svg.out, "<svg ") {
				t.Errorf("trace --svg ended with %d and wrote %.60q", svg.code, svg.out)
			}
		})
	}

	// The hotels of the turn that was out of time.
	late := run(t, url, "late", "hotels", "--wait", "30s")
	if late.code != cli.ExitOK || !strings.Contains(late.out, `"Hotel Station"`) {
		t.Errorf("late ended with %d and wrote\n%s\n%s\nwant the hotels", late.code, late.out, late.err)
	}
	if trace := run(t, url, "trace", "late"); !strings.Contains(trace.out, "late: success") {
		t.Errorf("trace wrote\n%s\nwant the late result", trace.out)
	}
}

// A client that is killed in mid-turn takes nothing along: the turn goes on to its end, once, and its journal says so.
func TestKilledClientLeavesItsTurn(t *testing.T) {
	_, url := dev(t)
	c := newCaller(t, url)
	spied := newSpy(t, c.conn)
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	text := "calls:\n  - {id: first, tool: weather, args: {city: Rome, delay_ms: 1500}}\n" +
		"  - {id: second, tool: weather, args: {city: Oslo}, after: first}\n"
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := begin(t, nil, url, "turn", "run", "--turn", "orphan", plan)
	p.says("first: attempt 1")
	p.kill()

	until(t, "the end of the turn in its journal", patience, func() bool {
		return strings.Contains(run(t, url, "trace", "orphan").out, "turn orphan · completed")
	})
	if n := spied.ended("orphan"); n != 1 {
		t.Errorf("the turn ended %d times, want once", n)
	}
	var list []struct {
		InFlight int `json:"in_flight"`
	}
	until(t, "an executor with nothing in flight", patience, func() bool {
		r := run(t, url, "executors", "--json")
		return json.Unmarshal([]byte(r.out), &list) == nil && len(list) == 1 && list[0].InFlight == 0
	})
}

// Ctrl-C during a turn cancels it, and what there is is printed.
func TestInterruptCancelsTurn(t *testing.T) {
	_, url := dev(t)
	p := begin(t, strings.NewReader("calls:\n  - {id: quick, tool: weather, args: {city: Rome}}\n  - {id: nap, tool: weather, args: {city: Oslo, delay_ms: 60000}}\n"),
		url, "turn", "run", "-", "--values")
	p.says("nap: progress")
	began := time.Now()
	p.stop(syscall.SIGINT, cli.ExitFailed)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v to stop, want less than 5 s", took)
	}
	for _, want := range []string{"quick  success", "nap    cancelled", `"city": "Rome"`, "cancelled: "} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("standard output is\n%s\nwant %q in it", &p.out, want)
		}
	}
}
