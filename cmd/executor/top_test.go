package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/rivo/uniseg"

	"github.com/toolbus/toolbus/executor"
	"github.com/toolbus/toolbus/wire"
)

var updateTop = flag.Bool("update-top", false, "write the golden screens of top anew")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// The story of all tests: two executors and three workers, for five seconds. One tool does well, one fails and its breaker
// opens, one is slow, and one is away.
func story() *fleet {
	f := newFleet()
	tools := func(names ...string) (lines []wire.ToolLine) {
		for _, n := range names {
			lines = append(lines, wire.ToolLine{ID: n, Digest: "d"})
		}
		return lines
	}
	for s := range 6 {
		at, n := noon.Add(time.Duration(s)*time.Second), int64(s)
		f.presence(at, executor.Presence{Executor: "executor-a", InFlight: 14, Turns: 5, Breakers: executor.SharedBreakers, Tools: []executor.ToolTally{
			{Tool: "flight_search", InFlight: 12, Attempts: 1000 + 240*n, Errors: 10 + 12*n, TookMs: 4000 + 240*35*float64(n)},
			{Tool: "hotel_search", InFlight: 2, Attempts: 50 + n, TookMs: 2500 * float64(n)},
			{Tool: "weather", Attempts: 7, Errors: 7, Refused: 6 * n, TookMs: 70, Breaker: "open"},
		}})
		f.presence(at, executor.Presence{Executor: "executor-b", InFlight: 3, Turns: 1, Breakers: executor.LocalBreakers, MoreTools: 4, Tools: []executor.ToolTally{
			{Tool: "flight_search", InFlight: 3, Attempts: 60 * n, TookMs: 60 * 35 * float64(n)},
			{Tool: "weather", Breaker: "half_open"},
		}})
		f.beat(at, wire.Heartbeat{Worker: "worker-1", State: wire.Beat, Tools: tools("flight_search", "weather"), Running: 8, Capacity: 8, SDK: "toolbus-go/0.1.0", EveryMs: 1000, Seq: n + 1})
		f.beat(at, wire.Heartbeat{Worker: "worker-2", State: wire.Beat, Tools: tools("flight_search"), Running: 7, Capacity: 16, SDK: "toolbus-python/0.1.0", EveryMs: 1000, Seq: n + 1})
		f.beat(at, wire.Heartbeat{Worker: "worker-3", State: wire.Beat, Tools: tools("hotel_search"), Running: 2, Capacity: 4, Leaked: 1, SDK: "toolbus-typescript/0.1.0", EveryMs: 1000, Seq: n + 1})
	}
	f.changed(noon.Add(2*time.Second), wire.Event{Tool: "weather", BreakerState: "open", Because: "5 failures in a row", Executor: "executor-a"})
	return f
}

var then = noon.Add(5500 * time.Millisecond) // the story's end

func TestFleetFolds(t *testing.T) {
	v := story().look(then)
	want := []topTool{
		{Tool: "flight_search", Breaker: "closed", Workers: 2, InFlight: 15, Attempts: 2500, Rate: 300, Errors: 12, MeanMs: 35},
		{Tool: "hotel_search", Breaker: "closed", Workers: 1, InFlight: 2, Attempts: 55, Rate: 1, MeanMs: 2500},
		{Tool: "weather", Breaker: "open", Workers: 1, Attempts: 7, Refused: 6},
	}
	if !reflect.DeepEqual(v.Tools, want) {
		t.Errorf("tools\n%+v, want\n%+v", v.Tools, want)
	}
	if len(v.Executors) != 2 || v.Executors[0] != (topExecutor{"executor-a", 14, 5, "shared", 241}) || v.MoreTools != 4 {
		t.Errorf("executors %+v and %d more tools", v.Executors, v.MoreTools)
	}
}

func TestWhoIsSilentIsGone(t *testing.T) {
	f := story()
	f.beat(then, wire.Heartbeat{Worker: "worker-2", State: wire.Bye, EveryMs: 1000, Seq: 9})
	f.beat(then, wire.Heartbeat{Worker: "worker-1", State: wire.Beat, EveryMs: 1000, Seq: 2, Running: 99}) // old
	if v := f.look(then); len(v.Workers) != 2 || v.Workers[0].Running != 8 {
		t.Errorf("after a bye: %+v, want worker-1 and worker-3", v.Workers)
	}
	v := f.look(noon.Add(time.Minute))
	if len(v.Executors)+len(v.Workers) != 0 {
		t.Errorf("after a minute: %+v %+v, want nobody", v.Executors, v.Workers)
	}
	if len(v.Tools) != 1 || v.Tools[0].Breaker != "open" {
		t.Errorf("after a minute: %+v, want the open breaker alone", v.Tools)
	}
}

// What executors say after a change is what holds, and the worst of it is shown.
func TestBreakerOfATool(t *testing.T) {
	f := newFleet()
	say := func(id string, second int, state string) {
		f.presence(noon.Add(time.Duration(second)*time.Second), executor.Presence{Executor: id, Tools: []executor.ToolTally{{Tool: "t", Breaker: state}}})
	}
	expect := func(second int, want string) {
		t.Helper()
		if got := f.look(noon.Add(time.Duration(second) * time.Second)).Tools[0].Breaker; got != want {
			t.Errorf("after %d s: %s, want %s", second, got, want)
		}
	}
	say("a", 0, "")
	expect(0, "closed")
	f.changed(noon.Add(time.Second), wire.Event{Tool: "t", BreakerState: "open"})
	expect(1, "open")
	say("a", 2, "")
	expect(2, "closed")
	say("b", 2, "forced_open")
	expect(2, "forced_open")
	say("b", 3, "half_open")
	expect(3, "half_open")
}

// Counts that begin anew, tools that come and go, and time that stands still make no rates that are none.
func TestRates(t *testing.T) {
	f := newFleet()
	say := func(ms int, more int, tools ...executor.ToolTally) []topTool {
		at := noon.Add(time.Duration(ms) * time.Millisecond)
		f.presence(at, executor.Presence{Executor: "a", MoreTools: more, Tools: tools})
		return f.look(at).Tools
	}
	for _, tc := range []struct {
		name string
		got  []topTool
		want float64
	}{
		{"the first word", say(0, 0, executor.ToolTally{Tool: "x", Attempts: 1e6}), 0},
		{"the same moment", say(0, 0, executor.ToolTally{Tool: "x", Attempts: 2e6}), 0},
		{"a count that shrank", say(1000, 1, executor.ToolTally{Tool: "x", Attempts: 5}), 0},
		{"not told of before", say(2000, 1, executor.ToolTally{Tool: "y", Attempts: 500}), 250}, // of all told at 0 s, y was none
	} {
		if tc.got[0].Rate != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, tc.got[0].Rate, tc.want)
		}
	}
}

func TestTheFleetIsBounded(t *testing.T) {
	f := newFleet()
	for i := range maxHeard + 10 {
		id := fmt.Sprint("x", i)
		f.presence(noon, executor.Presence{Executor: id})
		f.beat(noon, wire.Heartbeat{Worker: id, EveryMs: 1000})
		f.changed(noon, wire.Event{Tool: id, BreakerState: "closed"})
	}
	for range 2 * rateWindow {
		f.presence(noon, executor.Presence{Executor: "x0"})
	}
	if len(f.executors) != maxHeard || len(f.workers) != maxHeard || len(f.breakers) != maxHeard || len(f.changes) != maxChanges || len(f.executors["x0"].history) != rateWindow {
		t.Errorf("%d executors, %d workers, %d breakers, %d changes", len(f.executors), len(f.workers), len(f.breakers), len(f.changes))
	}
}

func TestReadPresence(t *testing.T) {
	good := `{"executor": "a", "in_flight": 1, "turns": 1, "breakers": "shared", "tools": [{"tool": "t", "attempts": 1, "took_ms": 1, "breaker": "open"}]}`
	for name, tc := range map[string]struct {
		data string
		ok   bool
	}{
		"ours":               {good, true},
		"one of before":      {`{"executor": "a", "in_flight": 1, "breakers": "shared"}`, true},
		"a field of later":   {strings.Replace(good, `"turns"`, `"x": 1, "turns"`, 1), true},
		"no JSON":            {good[1:], false},
		"a strange name":     {strings.Replace(good, `"a"`, `"a\u001b[2J"`, 1), false},
		"a strange tool":     {strings.Replace(good, `"t"`, `"t\u001b[2J"`, 1), false},
		"a strange state":    {strings.Replace(good, `"open"`, `"ajar"`, 1), false},
		"a negative count":   {strings.Replace(good, `"attempts": 1`, `"attempts": -1`, 1), false},
		"an absurd count":    {strings.Replace(good, `"attempts": 1`, `"attempts": 9223372036854775807`, 1), false},
		"an absurd time":     {strings.Replace(good, `"took_ms": 1`, `"took_ms": 1e300`, 1), false},
		"no number":          {strings.Replace(good, `"took_ms": 1`, `"took_ms": NaN`, 1), false},
		"more than is read":  {good + strings.Repeat(" ", executor.MaxPresence), false},
		"nothing whatsoever": {"", false},
	} {
		if _, ok := readPresence([]byte(tc.data)); ok != tc.ok {
			t.Errorf("%s: %v, want %v", name, ok, tc.ok)
		}
	}
}

// An ear hears only who speaks for himself.
func TestTheEarIsCareful(t *testing.T) {
	e := &ear{fleet: newFleet()}
	beat, err := json.Marshal(wire.Heartbeat{Worker: "w", State: wire.Beat, EveryMs: 1000, Seq: 1})
	if err != nil {
		t.Fatal(err)
	}
	e.beat(noon, "another", beat)
	e.presence(noon, "another", []byte(`{"executor": "a"}`))
	e.changed(noon, "", []byte(`{"type": "BreakerChanged", "tool_id": "t\u001b[2J", "circuit_breaker_state": "open"}`))
	e.changed(noon, "", []byte(`{"type": "BreakerChanged", "tool_id": "t", "circuit_breaker_state": "ajar"}`))
	e.changed(noon, "", []byte(`{"type": "TurnEnded", "tool_id": "t", "circuit_breaker_state": "open"}`))
	if f := e.fleet; len(f.workers)+len(f.executors)+len(f.breakers) != 0 {
		t.Errorf("heard %+v", f)
	}
	e.beat(noon, "w", beat)
	e.presence(noon, "a", []byte(`{"executor": "a"}`))
	e.changed(noon, "", []byte(`{"type": "BreakerChanged", "tool_id": "t.00ff", "circuit_breaker_state": "open", "because": "5 failures"}`))
	if f := e.fleet; len(f.workers) != 1 || len(f.executors) != 1 || len(f.breakers) != 1 {
		t.Errorf("heard %+v, want one of each", f)
	}
}

func press(m tea.Model, keys ...string) tea.Model {
	for _, k := range keys {
		msg := tea.KeyPressMsg{Text: k, Code: []rune(k)[0]}
		switch k {
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		case "up":
			msg = tea.KeyPressMsg{Code: tea.KeyUp}
		case "end":
			msg = tea.KeyPressMsg{Code: tea.KeyEnd}
		case "pgup":
			msg = tea.KeyPressMsg{Code: tea.KeyPgUp}
		}
		m, _ = m.Update(msg)
	}
	return m
}

func model(width, height int) tea.Model {
	f := story()
	m := topModel{look: f.look}
	next, _ := m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	next, _ = next.Update(topTick(then))
	return next
}

func TestTopScreens(t *testing.T) {
	for name, text := range map[string]string{
		"wide":     model(120, 24).View().Content,
		"narrow":   model(60, 12).View().Content,
		"sorted":   press(model(100, 24), "s", "s").View().Content,
		"breakers": press(model(100, 24), "b").View().Content,
		"scrolled": press(model(80, 5), "down").View().Content,
		"once":     strings.Join((&topScreen{width: 100}).draw(story().look(then)), "\n"),
		"nobody":   strings.Join((&topScreen{width: 100, height: 8}).draw(newFleet().look(then)), "\n"),
	} {
		file := filepath.Join("testdata", "top", name+".txt")
		if *updateTop {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if text+"\n" != string(want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, text, want)
		}
	}
}

// A screen is never larger than its terminal, however small that is and whatever it is told.
func TestTinyTerminalsAndHostileWords(t *testing.T) {
	evil := "\x1b[2J\x1b]0;owned\a\u202e漢字👩‍👩‍👧‍👦" + strings.Repeat("x", 300) + "\xff\n\r\t"
	f := story()
	f.beat(noon.Add(5*time.Second), wire.Heartbeat{Worker: "worker-9", State: wire.Beat, SDK: evil, EveryMs: 1000})
	f.presence(noon.Add(5*time.Second), executor.Presence{Executor: "executor-9", Breakers: evil})
	f.changed(then, wire.Event{Tool: "t", BreakerState: "open", Because: evil, Executor: evil})
	v := f.look(then)
	for height := range 30 {
		for width := 1; width < 140; width += 1 + width/10 {
			for _, breakers := range []bool{false, true} {
				s := topScreen{width: width, height: height, breakers: breakers, from: 3}
				lines := s.draw(v)
				if height > 0 && len(lines) != height {
					t.Fatalf("%d × %d: %d lines", width, height, len(lines))
				}
				for _, l := range lines {
					if n := uniseg.StringWidth(l); n > width {
						t.Fatalf("%d × %d: %q has %d columns", width, height, l, n)
					}
					if strings.ContainsAny(l, "\x1b\a\n\r\t\u202e") {
						t.Fatalf("%d × %d: %q would be acted upon", width, height, l)
					}
				}
			}
		}
	}
}

func TestTopKeys(t *testing.T) {
	from := func(m tea.Model) int { return m.(topModel).screen.from }
	m := model(80, 5) // two rows of three are seen
	if got := from(press(m, "down", "down", "down")); got != 1 {
		t.Errorf("scrolled to %d, want 1: the last row is at the bottom then", got)
	}
	if got := from(press(m, "end", "pgup", "up", "up")); got != 0 {
		t.Errorf("scrolled back to %d, want 0", got)
	}
	for range topSorts {
		m = press(m, "s")
	}
	if got := m.(topModel).screen.sort; got != 0 {
		t.Errorf("all sorts later it is sort %d, want the first", got)
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

// The program as a whole: it draws, and q ends it.
func TestTopRunsInATerminal(t *testing.T) {
	in, keys := io.Pipe()
	defer keys.Close()
	var out bytes.Buffer
	f := story()
	drawn := make(chan struct{}, 100)
	look := func(time.Time) topView {
		select {
		case drawn <- struct{}{}:
		default:
		}
		return f.look(then)
	}
	go func() {
		<-drawn // at the first tick: the program runs
		fmt.Fprint(keys, "q")
	}()
	m := topModel{look: look, view: f.look(then), screen: topScreen{paint: paint, width: 80, height: 24}}
	err := runTop(t.Context(), m, tea.WithInput(in), tea.WithOutput(&out), tea.WithWindowSize(80, 24))
	if err != nil || !strings.Contains(out.String(), "flight_search") {
		t.Errorf("%v, and it drew %q", err, out.String())
	}
}
