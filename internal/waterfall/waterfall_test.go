package waterfall

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rivo/uniseg"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

var update = flag.Bool("update", false, "write testdata anew")

// A story is a journal in the making.
type story struct{ events []wire.Event }

func (s *story) at(ms float64, typ, call string, ev wire.Event) *story {
	ev.V, ev.Type, ev.Call, ev.AtMs, ev.Turn, ev.Seq = 1, typ, call, ms, "7XkQ2mVd9hB1", int64(len(s.events)+1)
	s.events = append(s.events, ev)
	return s
}

func (s *story) start(calls ...string) *story {
	req := &wire.TurnRequest{}
	for _, c := range calls {
		req.Calls = append(req.Calls, tool.Call{ID: c, Tool: c + "_tool"})
	}
	return s.at(0, wire.TurnStarted, "", wire.Event{Request: req})
}

func (s *story) ready(ms float64, call string) *story {
	return s.at(ms, wire.CallReady, call, wire.Event{})
}

func (s *story) try(ms float64, call string, n int, tool string) *story {
	return s.at(ms, wire.AttemptStarted, call, wire.Event{Attempt: n, Tool: tool, Worker: "w1"})
}

func (s *story) fails(ms float64, call string, n int, kind fault.Kind, message, decision, why string, delay float64) *story {
	class := "transient"
	if kind == fault.Failed {
		class = "permanent"
	}
	return s.at(ms, wire.ToolError, call, wire.Event{
		Attempt: n, Error: fault.New(kind, "%s", message), Classification: class, BreakerState: "closed", Decision: decision, Because: why, DelayMs: delay,
	})
}

func (s *story) settled(ms float64, call string, status tool.Status, sentence string) *story {
	return s.at(ms, wire.CallSettled, call, wire.Event{Result: &tool.Result{Call: call, Status: status, Sentence: sentence, FallbackTool: "flight_cache"}})
}

func (s *story) ended(ms float64, status, sentence string) *story {
	return s.at(ms, wire.TurnEnded, "", wire.Event{Outcome: &wire.Outcome{Status: status, Sentence: sentence}})
}

var stories = map[string]func() *story{
	"well": func() *story {
		return new(story).start("flights", "hotels", "booking").ready(0, "flights").ready(0, "hotels").
			try(0.2, "flights", 1, "flight_search").try(0.3, "hotels", 1, "hotel_search").
			settled(240, "flights", tool.Success, "flight_search answered").
			ready(240, "booking").try(240.4, "booking", 1, "book_trip").
			settled(310, "hotels", tool.Success, "hotel_search answered").
			settled(402, "booking", tool.Success, "book_trip answered").
			ended(402.1, wire.Completed, "Completed flight search, hotel search and booking")
	},
	"late": func() *story {
		return new(story).start("flights", "hotels", "never").ready(0, "flights").ready(0, "hotels").
			try(0.2, "flights", 1, "flight_search").try(0.3, "hotels", 1, "hotel_search").
			settled(310, "flights", tool.Success, "flight_search answered").
			at(2000, wire.TurnDeadline, "", wire.Event{}).
			settled(2000, "hotels", tool.TimedOut, "hotel search timed out").
			settled(2000, "never", tool.NeverStarted, "the deadline came before it began").
			ended(2000.2, wire.PartialTurn, "Completed flight search, but hotel search timed out").
			at(4010, wire.LateResult, "hotels", wire.Event{Result: &tool.Result{Status: tool.Success}})
	},
	"fallback": func() *story {
		s := new(story).start("flights", "booking").ready(0, "flights").try(0, "flights", 1, "flight_search")
		s.fails(80, "flights", 1, fault.Upstream, "no answer from the airline", "retry", "it is read: it may run twice", 110)
		s.at(80, wire.RetryScheduled, "flights", wire.Event{Attempt: 1, DelayMs: 110})
		s.try(190, "flights", 2, "flight_search")
		s.at(260, wire.BreakerChanged, "flights", wire.Event{Tool: "flight_search", BreakerState: "open", Decision: "Circuit breaker opened for flight_search", Because: "5 failures in a row"})
		s.fails(260, "flights", 2, fault.Upstream, "no answer from the airline", "alternative", "the circuit is open", 0)
		s.at(260, wire.AlternativeChosen, "flights", wire.Event{Tool: "flight_cache", Because: "flight_search has failed for good"})
		s.try(260.5, "flights", 3, "flight_cache")
		s.settled(290, "flights", tool.ViaFallback, "flight_cache answered in place of flight_search").ready(290, "booking").try(290.2, "booking", 1, "book_trip")
		return s.settled(420, "booking", tool.Success, "").ended(420, wire.Completed, "Completed flights by flight_cache, and booking")
	},
	"escalate": func() *story {
		s := new(story).start("flights", "booking").ready(0, "flights").try(0, "flights", 1, "flight_search")
		s.fails(40, "flights", 1, fault.Failed, "there are \x1b[31mno\x1b[0m flights\non <that> day", "escalate", "the call is required", 0)
		s.settled(40, "flights", tool.Failed, "flight_search failed")
		s.at(40, wire.CallSkipped, "booking", wire.Event{BecauseOf: "flights"})
		return s.settled(40, "booking", tool.Skipped, "not run, because flights failed").ended(40, wire.Escalated, "Flight search failed (there are no flights on that day), booking was skipped because of flights")
	},
	"running": func() *story {
		s := new(story).start("flights", "hotels").ready(0, "flights").try(0, "flights", 1, "flight_search")
		return s.at(900, wire.ProgressEvent, "flights", wire.Event{Attempt: 1, Progress: &wire.ProgressRecord{Done: 3, Total: 4, Message: "asking airlines"}})
	},
	"nothing": func() *story { return new(story) },
	"history": func() *story {
		return new(story).at(700, wire.TurnEnded, "", wire.Event{Outcome: &wire.Outcome{Status: wire.Escalated, Sentence: "search failed", Results: []tool.Result{{
			Call: "search", Tool: "search", Status: tool.Failed, Sentence: "search failed after 2 attempts",
			Attempts: []tool.Attempt{
				{N: 1, Tool: "search", Worker: "w1", Kind: fault.Timeout, Message: "no answer", StartMs: 0, DurationMs: 300, DelayMs: 100, Decision: "retry", Because: "it may run twice"},
				{N: 2, Tool: "search", Worker: "KJHAXIXGCYLZ24S4QDMWTVUHEA", Kind: fault.Upstream, Message: "it broke", StartMs: 400, DurationMs: 300, Decision: "fail", Because: "all 2 attempts are used up"},
			},
		}}}})
	},
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func TestStories(t *testing.T) {
	for name, make := range stories {
		var text, coloured, svg bytes.Buffer
		events := make().events
		if err := errors.Join(Text(&text, events, 100, false), Text(&coloured, events, 100, true), SVG(&svg, events)); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".txt", text.Bytes())
		golden(t, name+".svg", svg.Bytes())
		checkText(t, name, text.String(), 100)
		checkSVG(t, name, svg.Bytes())
		if got := strip(coloured.String()); trimmed(got) != trimmed(text.String()) {
			t.Errorf("%s: in colours it is\n%s\nwant\n%s", name, got, text.String())
		}
	}
}

// strip takes the colours away.
func strip(s string) string {
	for _, code := range []string{"32", "36", "33", "31", "0"} {
		s = strings.ReplaceAll(s, "\x1b["+code+"m", "")
	}
	return s
}

func trimmed(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return b.String()
}

func checkText(t *testing.T, name, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if w := uniseg.StringWidth(line); w > width {
			t.Errorf("%s: %q is %d columns wide, want at most %d", name, line, w, width)
		}
		if clean(line) != line {
			t.Errorf("%s: %q holds what a terminal acts on", name, line)
		}
	}
}

func checkSVG(t *testing.T, name string, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatalf("%s: the picture is not XML: %v", name, err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch start.Name.Local {
		case "svg", "title", "style", "rect", "line", "text":
		default:
			t.Errorf("%s: an element %s in the picture", name, start.Name.Local)
		}
		for _, a := range start.Attr {
			if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
				t.Errorf("%s: the attribute %s=%q in the picture", name, a.Name.Local, a.Value)
			}
		}
	}
}

// Events that come twice or out of order draw the same.
func TestOrderDoesNotMatter(t *testing.T) {
	events := stories["fallback"]().events
	var want, got bytes.Buffer
	_ = Text(&want, events, 80, false)
	shuffled := append([]wire.Event{}, events[7:]...)
	shuffled = append(shuffled, events...)
	_ = Text(&got, shuffled, 80, false)
	if got.String() != want.String() {
		t.Errorf("out of order it is\n%s\nwant\n%s", &got, &want)
	}
}

// A hundred thousand events of a hostile executor are drawn at once, and not at full length.
// Of turns that had the same id one after the other the last is drawn.
func TestSameIDAgain(t *testing.T) {
	var first, second story
	first.start("a", "b").ready(0, "a").try(1, "a", 1, "a_tool").ready(0, "b").try(900, "b", 1, "b_tool")
	second.start("a").ready(0, "a").try(5, "a", 1, "a_tool")
	var got, want bytes.Buffer
	if err := errors.Join(Text(&got, append(first.events, second.events...), 80, false), Text(&want, second.events, 80, false)); err != nil {
		t.Fatal(err)
	}
	if got.String() != want.String() {
		t.Errorf("drawn\n%s\nwant the second alone\n%s", got.String(), want.String())
	}
}

func TestManyEvents(t *testing.T) {
	var events []wire.Event
	long := strings.Repeat("🏴‍☠️\x1b[2J", 1000)
	for i := range 100_000 {
		ev := wire.Event{Type: []string{wire.AttemptStarted, wire.ToolError, wire.CallReady, wire.LateResult, wire.BreakerChanged}[i%5],
			Seq: int64(100_000 - i), AtMs: math.Inf(1 - i%3), Call: fmt.Sprint("c", i%3000), Tool: long, Worker: long, Attempt: i, Because: long}
		if i%7 == 0 {
			ev.Error, ev.DelayMs = fault.New(fault.Kind(long), "%s", long), math.NaN()
		}
		events = append(events, ev)
	}
	began := time.Now()
	var text, svg bytes.Buffer
	if err := errors.Join(Text(&text, events, 120, false), SVG(&svg, events)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v, want seconds", took)
	}
	if text.Len() > 30<<20 || svg.Len() > 60<<20 {
		t.Errorf("the text is %d bytes long and the picture %d, want them bounded", text.Len(), svg.Len())
	}
	checkText(t, "many", text.String(), 120)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestBrokenWriter(t *testing.T) {
	events := stories["well"]().events
	if err := Text(broken{}, events, 80, false); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Text = %v, want the writer's error", err)
	}
	if err := SVG(broken{}, events); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("SVG = %v, want the writer's error", err)
	}
}

// A cancel that nobody asked for says why it came.
func TestCancelSaysWhy(t *testing.T) {
	for why, want := range map[string]string{"": "cancel was asked for", "the turn's client is gone": "cancelled, because the turn's client is gone"} {
		s := new(story).start("a").ready(0, "a").try(0, "a", 1, "x").at(50, wire.CancelRequested, "", wire.Event{Because: why}).ended(60, wire.CancelledTurn, "Cancelled")
		var b bytes.Buffer
		if err := Text(&b, s.events, 100, false); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("Text wrote\n%s, %v\nwant …%s…", &b, err, want)
		}
	}
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		in    string
		width int
		want  string
	}{
		{"short", 10, "short"},
		{"exactly", 7, "exactly"},
		{"too long for it", 8, "too lon…"},
		{"東京タワー", 6, "東京…"},
		{"red \x1b[31m\nline", 20, "red ·[31m line"},
		{"a  b", 10, "a  b"},
		{"anything", 0, ""},
		{"\xff\xfe", 5, "\uFFFD\uFFFD"},
	} {
		if got := Fit(tc.in, tc.width); got != tc.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", tc.in, tc.width, got, tc.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, tc := range []struct {
		in, want string
	}{
		{"short", "short"},
		{"a few words that go on", "a few|words that|go on"},
		{"", ""},
		{"averyverylongword", "averyveryl|ongword"},
		{"ten letter and…", "ten letter|and…"},
		{"one two three four five six seven eight nine ten", "one two|three four|five six|seven eig…"},
		{"東京タワー東京タワー", "東京タワー|東京タワー"},
	} {
		if got := strings.Join(wrap(tc.in, 10), "|"); got != tc.want {
			t.Errorf("wrap(%q, 10) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		end  float64
		n    int
		want string
	}{
		{2030, 5, "0 s 0.5 1 1.5 2"},
		{402, 8, "0 ms 100 200 300 400"},
		{0.001, 4, "0 ms 0.0005 0.001"},
		{300_000, 6, "0 min 1 2 3 4 5"},
		{maxMs, 4, "0 h 10000 20000"},
	} {
		var got []string
		for _, k := range ticks(tc.end, tc.n) {
			got = append(got, k.label)
		}
		if s := strings.Join(got, " "); s != tc.want {
			t.Errorf("ticks(%g, %d) = %s, want %s", tc.end, tc.n, s, tc.want)
		}
	}
}

// Whatever stands in a journal, it is drawn within its columns, and the picture is one.
func FuzzDraw(f *testing.F) {
	for _, make := range stories {
		b, err := wire.Marshal(wire.MsgPack, &wire.Page{V: 1, Turn: "t", Events: make().events})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 80)
	}
	f.Add([]byte(`{"v":1,"turn":"t","events":[{"type":"AttemptStarted","call":"a","at_ms":1e300,"attempt":-4},{"type":"ToolError","call":"a","attempt":-4,"delay_ms":-1e308}]}`), -1)
	f.Fuzz(func(t *testing.T, data []byte, width int) {
		var page wire.Page
		if wire.Decode(data, &page) != nil {
			return
		}
		var text, svg bytes.Buffer
		if err := errors.Join(Text(&text, page.Events, width, false), SVG(&svg, page.Events)); err != nil {
			t.Fatal(err)
		}
		checkText(t, "fuzz", text.String(), min(max(width, minWidth), maxWidth))
		checkSVG(t, "fuzz", svg.Bytes())
	})
}
