package journal_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/toolbus/toolbus/bus"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/natstest"
	"github.com/toolbus/toolbus/journal"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

func TestMain(m *testing.M) { natstest.Main(m) }

// begin makes a journal with its streams, and closes it with the test.
func begin(t testing.TB, cfg journal.Config) *journal.Journal {
	t.Helper()
	j := journal.New(cfg)
	t.Cleanup(func() { finish(t, j) })
	if err := j.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

func finish(t testing.TB, j *journal.Journal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := j.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// each runs f against one server and against a cluster of three.
func each(t *testing.T, f func(t *testing.T, c *bus.Conn)) {
	t.Run("R1", func(t *testing.T) { f(t, natstest.Connect(t, natstest.InProcess(t))) })
	t.Run("R3", func(t *testing.T) { f(t, natstest.Dial(t, bus.Config{URL: natstest.Cluster(t, 3).URLs()})) })
}

func event(turn, kind string, seq int64) *wire.Event {
	return &wire.Event{V: wire.Version, Type: kind, Turn: turn, Seq: seq}
}

// trace is the journal of a turn as text, its pages between bars.
func trace(t testing.TB, j *journal.Journal, turn string) string {
	t.Helper()
	var b strings.Builder
	f := j.Trace(t.Context(), turn, func(p *wire.Page) error {
		b.WriteString("|")
		for _, ev := range p.Events {
			fmt.Fprintf(&b, " %s#%d", ev.Type, ev.Seq)
		}
		return nil
	})
	if f != nil {
		t.Fatalf("Trace(%s): %v", turn, f)
	}
	return b.String()
}

// events is the journal of a turn once it has as many.
func events(t testing.TB, j *journal.Journal, turn string, want int) []wire.Event {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		var all []wire.Event
		f := j.Trace(t.Context(), turn, func(p *wire.Page) error {
			all = append(all, p.Events...)
			return nil
		})
		if f == nil && len(all) == want {
			return all
		}
		if time.Now().After(end) {
			t.Fatalf("Trace(%s) = %d events, %v, want %d", turn, len(all), f, want)
		}
	}
}

func TestOrderOverPages(t *testing.T) {
	each(t, func(t *testing.T, c *bus.Conn) {
		j := begin(t, journal.Config{Bus: c, FlushEvery: time.Millisecond})
		const n, turns = 2000, 8
		var all sync.WaitGroup
		for i := range turns {
			all.Go(func() {
				for seq := range int64(n) {
					kind := wire.ProgressEvent
					if seq%100 == 99 {
						kind = wire.LateResult // a page of its own
					}
					j.Write(event(fmt.Sprintf("t%d", i), kind, seq+1))
				}
			})
		}
		all.Wait()
		for i := range turns {
			for k, ev := range events(t, j, fmt.Sprintf("t%d", i), n) {
				if ev.Seq != int64(k+1) {
					t.Fatalf("event %d of turn t%d = #%d, want #%d", k, i, ev.Seq, k+1)
				}
			}
		}
		if d := j.Dropped(); d != 0 {
			t.Errorf("Dropped = %d, want 0", d)
		}
	})
}

// What is written while the journal is being closed is either in it or counted.
func TestCloseAmidWrites(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	const n = 2000
	var all sync.WaitGroup
	half := make(chan struct{})
	all.Go(func() {
		for seq := range int64(n) {
			if seq == n/2 {
				close(half)
			}
			j.Write(event("t", wire.ProgressEvent, seq+1))
		}
	})
	<-half
	finish(t, j)
	all.Wait()
	events(t, j, "t", n-int(j.Dropped()))
}

// More messages than one question brings, and more bytes.
func TestManyPages(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c, Content: true})
	const n = 600
	for seq := range int64(n) {
		ev := event("t", wire.PartialEvent, seq+1)
		ev.Piece = bytes.Repeat([]byte(" "), 300<<10*int(seq%2)/10)
		j.Write(ev)
		j.Write(event("t", wire.LateResult, seq+1))
	}
	for k, ev := range events(t, j, "t", 2*n) {
		if ev.Seq != int64(k/2+1) {
			t.Fatalf("event %d = #%d, want #%d", k, ev.Seq, k/2+1)
		}
	}
}

func TestGathering(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		c := natstest.Connect(t, natstest.InProcess(t))
		j := begin(t, journal.Config{Bus: c})

		j.Write(event("a", wire.TurnStarted, 1))
		j.Write(event("b", wire.TurnStarted, 1))
		j.Write(event("a", wire.CallReady, 2))
		j.Write(event("a", wire.Alive, 0))
		time.Sleep(19 * time.Millisecond)
		synctest.Wait()
		if f := j.Trace(t.Context(), "a", func(*wire.Page) error { return nil }); f == nil || f.Kind != fault.NotFound {
			t.Errorf("Trace(a) after 19 ms: %v, want not_found", f)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		j.Write(event("a", wire.CallSettled, 3))
		j.Write(event("a", wire.TurnEnded, 4)) // at once, with what is there
		synctest.Wait()
		j.Write(event("a", wire.LateResult, 5))
		synctest.Wait()
		if got, want := trace(t, j, "a"), "| TurnStarted#1 CallReady#2| CallSettled#3 TurnEnded#4| LateResult#5"; got != want {
			t.Errorf("Trace(a) = %s, want %s", got, want)
		}
		if got, want := trace(t, j, "b"), "| TurnStarted#1"; got != want {
			t.Errorf("Trace(b) = %s, want %s", got, want)
		}

		j.Write(event("b", wire.CallReady, 2))
		if err := j.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the server has it; the stream takes it a moment later
		if got, want := trace(t, j, "b"), "| TurnStarted#1| CallReady#2"; got != want {
			t.Errorf("Trace(b) after Close = %s, want %s", got, want)
		}
		j.Write(event("b", wire.CallReady, 3))
		if d := j.Dropped(); d != 1 {
			t.Errorf("Dropped after Close = %d, want 1", d)
		}
	})
}

func TestDropWhenFull(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		var log strings.Builder
		c := natstest.Connect(t, natstest.InProcess(t))
		j := begin(t, journal.Config{Bus: c, Content: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		piece := bytes.Repeat([]byte(" "), 128<<10)
		for i := range 200 { // nothing is sent meanwhile, for no time passes
			ev := event(fmt.Sprintf("t%d", i), wire.PartialEvent, 1)
			ev.Piece = piece
			j.Write(ev)
		}
		lost := j.Dropped()
		if lost < 72 || lost > 76 {
			t.Errorf("Dropped = %d of 200 events of 128 KiB, want about 73: 16 MiB may wait", lost)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if want := fmt.Sprintf("events=%d ", lost); !strings.Contains(log.String(), want) {
			t.Errorf("log = %q, want %s", log.String(), want)
		}
		if got := trace(t, j, "t0"); got != "| Partial#1" {
			t.Errorf("Trace(t0) = %s, want | Partial#1", got)
		}
		j.Write(event("t199", wire.PartialEvent, 2)) // there is room again
		time.Sleep(time.Second)
		if got := trace(t, j, "t199"); got != "| Partial#2" {
			t.Errorf("Trace(t199) = %s, want | Partial#2", got)
		}
	})
}

const secret = `"hunter2-9f"`

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// full is every event that has content in it.
func full() []*wire.Event {
	result := tool.Result{Call: "c", Tool: "x", Status: tool.Success, Value: raw(secret), Attempts: []tool.Attempt{{N: 1, Tool: "x"}}}
	request := wire.TurnRequest{Calls: []tool.Call{{ID: "c", Tool: "x", Args: raw(`{"a":` + secret + `}`), Default: raw(secret),
		Alternatives: []tool.Alternative{{Tool: "y", Args: raw(`{"b":` + secret + `}`)}}}}}
	started, added := event("t", wire.TurnStarted, 1), event("t", wire.CallsAdded, 2)
	started.Request, added.Request = &request, &request
	piece := event("t", wire.PartialEvent, 3)
	piece.Piece, piece.PieceSeq = raw(secret), 1
	settled, late := event("t", wire.CallSettled, 4), event("t", wire.LateResult, 6)
	settled.Result, late.Result = &result, &result
	ended := event("t", wire.TurnEnded, 5)
	ended.Outcome = &wire.Outcome{Turn: "t", Status: wire.Completed, Results: []tool.Result{result}}
	return []*wire.Event{started, added, piece, settled, ended, late, refused()}
}

// refused is an attempt whose arguments did not fit: its fault quotes them.
func refused() *wire.Event {
	ev := event("t", wire.ToolError, 7)
	ev.Error = fault.New(fault.InvalidArguments, "arguments of x are invalid: /a: expected a number, got string (%s)", secret)
	ev.Error.Violations = []fault.Violation{{Pointer: "/a", Expected: "a number", Got: secret}}
	return ev
}

func TestContent(t *testing.T) {
	for _, content := range []bool{false, true} {
		c := natstest.Connect(t, natstest.InProcess(t))
		var mu sync.Mutex
		var seen []byte
		if _, err := c.Subscribe(c.Subjects().Logs(), "", func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, m.Data...)
		}); err != nil {
			t.Fatal(err)
		}
		j := begin(t, journal.Config{Bus: c, Content: content})
		written := full()
		for _, ev := range written {
			j.Write(ev)
		}
		got := events(t, j, "t", len(written))
		if err := c.NATS().Flush(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		planted := bytes.Count(seen, []byte("hunter2"))
		mu.Unlock()
		if content && planted != 12 || !content && planted != 0 {
			t.Errorf("content %v: the secret is %d times in the journal", content, planted)
		}
		if !reflect.DeepEqual(written, full()) {
			t.Errorf("content %v: Write changed what its events point to", content)
		}
		if n := len(got[3].Result.Attempts); n != 1 {
			t.Errorf("content %v: CallSettled has %d attempts, want 1", content, n)
		}
		if r := got[4].Outcome.Results; len(r) != 1 || r[0].Status != tool.Success {
			t.Errorf("content %v: TurnEnded has results %v, want one: success", content, r)
		}
		if calls := got[0].Request.Calls; len(calls) != 1 || calls[0].Alternatives[0].Tool != "y" {
			t.Errorf("content %v: TurnStarted has calls %v, want one with an alternative y", content, calls)
		}
	}
}

func TestWhatDoesNotFit(t *testing.T) {
	c := natstest.Connect(t, natstest.Start(t, bus.ServerConfig{DontListen: true, Lazy: true, MaxPayload: 128 << 10}))
	j := begin(t, journal.Config{Bus: c, Content: true})
	big := raw(`"` + strings.Repeat("x", 70<<10) + `"`)
	huge := raw(`"` + strings.Repeat("x", 20<<20) + `"`)

	one := event("t", wire.CallSettled, 1)
	one.Result = &tool.Result{Call: "c", Tool: "x", Status: tool.Success, Value: big, Sentence: "well"}
	two := event("t", wire.PartialEvent, 2)
	two.Piece, two.Because = huge, "so"
	three := event("t", wire.TurnEnded, 3)
	three.Outcome = &wire.Outcome{Status: wire.Completed, Sentence: "all well"}
	for range 1000 {
		three.Outcome.Results = append(three.Outcome.Results, tool.Result{Call: "c", Tool: "x", Sentence: strings.Repeat("y", 200)})
	}
	four := event("t", wire.ToolError, 4)
	four.Error = fault.New(fault.Upstream, "%s", strings.Repeat("z", 50<<10))
	four.Error.Detail = string(big)
	nan := event("t", wire.ProgressEvent, 5)
	nan.AtMs = math.NaN()
	for _, ev := range []*wire.Event{one, two, three, four, nan, event("t", wire.LateResult, 6)} {
		j.Write(ev)
	}
	got := events(t, j, "t", 5)

	const note = "arguments and values are left out, as they did not fit into a message"
	if r := got[0].Result; r == nil || r.Value != nil || r.Sentence != "well" || got[0].Because != note {
		t.Errorf("a large value: result %v, because %q, want it without the value and %q", r, got[0].Because, note)
	}
	if got[1].Piece != nil || got[1].Because != "so; "+note {
		t.Errorf("a large piece: %d bytes, because %q, want 0, %q", len(got[1].Piece), got[1].Because, "so; "+note)
	}
	if o := got[2].Outcome; o == nil || len(o.Results) != 0 || o.Sentence != "all well" || got[2].Because != "lists and details are left out, as they did not fit into a message" {
		t.Errorf("a large outcome: %v, because %q, want it without results", o, got[2].Because)
	}
	if e := got[3].Error; e == nil || e.Kind != fault.Upstream || len(e.Message) > 1000 || e.Detail != "" {
		t.Errorf("a large fault: %v, want a short one of kind upstream", e)
	}
	if got[4].Seq != 6 || j.Dropped() != 1 {
		t.Errorf("after an event that cannot be encoded: #%d, Dropped = %d, want #6, 1", got[4].Seq, j.Dropped())
	}
	if one.Because != "" || len(three.Outcome.Results) != 1000 || four.Error.Detail == "" {
		t.Error("Write changed what it was given")
	}
}

func TestIllegalTurn(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T) {
		j := begin(t, journal.Config{Bus: natstest.Connect(t, natstest.InProcess(t))})
		for _, turn := range []string{"", "a.b", "*", ">", "a b"} {
			j.Write(event(turn, wire.TurnEnded, 1))
			f := j.Trace(t.Context(), turn, func(*wire.Page) error { return nil })
			if f == nil || f.Kind != fault.InvalidArguments {
				t.Errorf("Trace(%q): %v, want invalid_arguments", turn, f)
			}
		}
		synctest.Wait()
		if d := j.Dropped(); d != 5 {
			t.Errorf("Dropped = %d events of illegal turns, want 5", d)
		}
	})
}

func TestTraceStops(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	for seq := range int64(3) {
		j.Write(event("t", wire.LateResult, seq))
	}
	events(t, j, "t", 3)
	n := 0
	f := j.Trace(t.Context(), "t", func(*wire.Page) error {
		n++
		return fault.New(fault.Denied, "enough")
	})
	if f == nil || f.Message != "enough" || n != 1 {
		t.Errorf("Trace with an each that fails: %v after %d pages, want its fault after 1", f, n)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f := j.Trace(ctx, "t", func(*wire.Page) error { return nil }); f == nil || f.Kind != fault.Cancelled {
		t.Errorf("Trace when cancelled: %v, want cancelled", f)
	}
}

// A page that is no page hides no other.
func TestForeignPages(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	for _, body := range []string{"", "{", `{"v":1,"turn":"other"}`, `{"v":2,"turn":"t"}`, "\xdd\xff\xff\xff\xff", `{"v":1,"turn":"t","events":[{"v":1,"type":"X","seq":7,"turn":"t"}]}`} {
		if _, err := c.JetStream().Publish(t.Context(), c.Subjects().Log("t"), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	f := j.Trace(t.Context(), "t", func(p *wire.Page) error {
		got = append(got, p.Events[0].Type)
		return nil
	})
	if f == nil || f.Kind != fault.Internal || !strings.HasPrefix(f.Message, "5 pages") || fmt.Sprint(got) != "[X]" {
		t.Errorf("Trace = %v, %v, want [X] and internal: 5 pages cannot be read", got, f)
	}
}

func TestTraceTooLong(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	j := begin(t, journal.Config{Bus: c})
	p := wire.Page{V: wire.Version, Turn: "t", Events: slices.Repeat([]wire.Event{*event("t", wire.CallReady, 1)}, 1000)}
	data, err := wire.Marshal(wire.MsgPack, p)
	if err != nil {
		t.Fatal(err)
	}
	for range 101 {
		if _, err := c.JetStream().Publish(t.Context(), c.Subjects().Log("t"), data); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	f := j.Trace(t.Context(), "t", func(p *wire.Page) error {
		n += len(p.Events)
		return nil
	})
	if f == nil || f.Kind != fault.Unsupported || n != 100_000 {
		t.Errorf("Trace = %d events, %v, want 100000 and unsupported", n, f)
	}
}

// What was written is there after everybody was started anew.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	life := func(f func(j *journal.Journal)) {
		s, err := bus.StartServer(bus.ServerConfig{DontListen: true, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
		c, err := bus.Connect(t.Context(), bus.Config{Server: s})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		j := journal.New(journal.Config{Bus: c})
		defer finish(t, j)
		if err := j.Ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		f(j)
	}
	life(func(j *journal.Journal) {
		j.Write(event("t", wire.TurnStarted, 1))
		j.Write(event("t", wire.TurnEnded, 2))
		events(t, j, "t", 2)
		if err := j.Keep(t.Context(), record("t", "c", "1")); err != nil {
			t.Fatal(err)
		}
	})
	life(func(j *journal.Journal) {
		if got, want := trace(t, j, "t"), "| TurnStarted#1 TurnEnded#2"; got != want {
			t.Errorf("Trace after a restart = %s, want %s", got, want)
		}
		if r, f := j.Late(t.Context(), wire.LateQuery{Turn: "t", Call: "c"}); f != nil || string(r.Result.Value) != "1" {
			t.Errorf("Late after a restart = %v, %v, want 1", r, f)
		}
	})
}

// Without JetStream writing goes on and reading says why it cannot.
func TestAway(t *testing.T) {
	none := natstest.Start(t, bus.ServerConfig{ConfigFile: file(t, `listen: "127.0.0.1:-1"`)})
	for name, s := range map[string]*bus.Server{"no JetStream": none, "no streams": natstest.InProcess(t)} {
		j := journal.New(journal.Config{Bus: natstest.Connect(t, s)})
		t.Cleanup(func() { finish(t, j) })
		j.Write(event("t", wire.TurnEnded, 1))
		f := j.Trace(t.Context(), "t", func(*wire.Page) error { return nil })
		if f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, "enable JetStream") {
			t.Errorf("%s: Trace: %v, want unavailable, with advice", name, f)
		}
		_, f = j.Late(t.Context(), wire.LateQuery{Call: "c"})
		if f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, "TB_LATE") {
			t.Errorf("%s: Late: %v, want unavailable, with the name of the stream", name, f)
		}
	}
	j := journal.New(journal.Config{Bus: natstest.Connect(t, none)})
	t.Cleanup(func() { finish(t, j) })
	if err := j.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "TB_LOG") || !strings.Contains(err.Error(), "enable it there") {
		t.Errorf("Ensure without JetStream: %v, want one with the name of the stream, and advice", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := j.Keep(ctx, record("t", "c", "1")); err == nil {
		t.Error("Keep without JetStream: no error, want one")
	}
}

func TestNoConnection(t *testing.T) {
	s := natstest.Server(t)
	c := natstest.Dial(t, bus.Config{URL: s.ClientURL()})
	j := journal.New(journal.Config{Bus: c})
	down := make(chan struct{})
	defer c.OnDisconnect(func() { close(down) })()
	s.Shutdown()
	<-down
	j.Write(event("t", wire.TurnEnded, 1))
	if err := j.Close(t.Context()); !errors.Is(err, nats.ErrDisconnected) {
		t.Errorf("Close without a connection: %v, want one that says so", err)
	}
	if d := j.Dropped(); d != 1 {
		t.Errorf("Dropped = %d, want 1", d)
	}
	if f := j.Trace(t.Context(), "t", func(*wire.Page) error { return nil }); f == nil || f.Spec().Class != fault.Transient {
		t.Errorf("Trace without a connection: %v, want a transient fault", f)
	}
}

func file(t testing.TB, conf string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Whoever wants figures is told of each page and each late result, of those that are lost too.
func TestAppendedIsTold(t *testing.T) {
	c := natstest.Connect(t, natstest.InProcess(t))
	told := make(chan string, 10)
	j := begin(t, journal.Config{Bus: c, Appended: func(what journal.What, took time.Duration, err error) {
		if took <= 0 {
			t.Errorf("%s took %v", what, took)
		}
		told <- fmt.Sprintf("%s %t", what, err == nil)
	}})
	want := func(want string) {
		t.Helper()
		if got := <-told; got != want {
			t.Errorf("told of %s, want %s", got, want)
		}
	}
	j.Write(event("t1", wire.TurnStarted, 1))
	j.Write(event("t1", wire.TurnEnded, 2))
	want("events true")
	j.Write(event("no turn", wire.TurnEnded, 1)) // nobody could read it, so it is not written
	want("events false")
	if err := j.Keep(t.Context(), record("t1", "a", `"late"`)); err != nil {
		t.Fatal(err)
	}
	want("late_result true")
	if err := j.Keep(t.Context(), &wire.LateRecord{}); err == nil {
		t.Error("Keep of nothing = nil, want an error")
	}
	want("late_result false")
}
