package turn

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolbus/toolbus/breaker"
	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/retry"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

var update = flag.Bool("update", false, "write testdata/*.txt anew, from what happens now")

// A transcript is a file of commands, each with what it led to below it. It is written so that it can be read:
//
//	# what this is about
//	turn {"deadline_ms": 10000}             the request without its calls
//	tool search {"effect": "read"}          a manifest; without one nothing is known of the tool
//	call a search {"q": 1} [more of tool.Call as JSON]
//	start
//	+4s ok a#1 {"x": 1}                     what happens, and when
//	  +4s settle a success {"x":1}          what it led to: written by -update
//	== another scene                        from here on it is another turn
//
// Events: accept, ok, pack (ok with MessagePack), fail KIND, stopped, piece, progress, limited (each with CALL#ATTEMPT),
// cancel [CALL], lost (its client), add CALL…, close, circuit TOOL STATE, budget spent, halt (nobody brings it anything), crash [N] (the turn is
// restored from its journal, of which the last N events are lost), and due, which happens by itself at every time that the
// turn asks for.
//
// Of every scene the journal is restored in the end, whole and cut off after each event.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			s := &script{t: t, out: &got}
			for n, line := range strings.Split(strings.TrimRight(string(want), "\n"), "\n") {
				if strings.HasPrefix(line, "  ") {
					continue // what a command led to
				}
				if strings.HasPrefix(line, "== ") {
					s.check()
					s = &script{t: t, out: &got}
					fmt.Fprintln(&got, line)
					continue
				}
				s.line(fmt.Sprintf("%s:%d", file, n+1), line)
			}
			s.check()
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got.String() != string(want) {
				t.Errorf("%s is not what happens (go test ./turn -run TestTranscripts -update writes it anew); got\n%s", file, got.String())
			}
		})
	}
}

// A script plays one transcript.
type script struct {
	t     *testing.T
	out   *bytes.Buffer
	req   wire.TurnRequest
	tools map[string]*Tool
	turn  *Turn
	at    time.Duration

	circuit map[string]breaker.State // what the shell would say of a tool's breaker
	broke   bool                     // the retry budgets are spent
	halted  bool
	journal []wire.Event
}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// check restores the turn from its journal, whole and in part.
func (s *script) check() {
	s.t.Helper()
	for n := 1; n <= len(s.journal); n++ {
		back, err := s.restore(n)
		if err != nil {
			s.t.Errorf("Restore of the first %d events of %d: %v", n, len(s.journal), err)
			return
		}
		if n < len(s.journal) || !s.turn.Ended() {
			continue
		}
		if got, want := encoded(s.t, back.Outcome()), encoded(s.t, s.turn.Outcome()); got != want {
			s.t.Errorf("the outcome of the journal is\n%s\nwant\n%s", got, want)
		}
		if s.turn.over && !back.over {
			s.t.Errorf("the turn is over, and not where it is restored")
		}
	}
}

func (s *script) restore(n int) (*Turn, error) {
	return Restore(Config{Grace: 250 * time.Millisecond, Recorded: true, KeepsLate: true, Tools: s.known}, start, s.journal[:n])
}

// encoded is a record as JSON, to compare it.
func encoded(t interface{ Fatalf(string, ...any) }, v any) string {
	b, err := wire.Marshal(wire.JSON, v)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return string(b)
}

func (s *script) line(where, line string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.HasPrefix(word, "+") {
		at, err := time.ParseDuration(word[1:])
		if err != nil {
			s.t.Fatalf("%s: %v", where, err)
		}
		s.dueUntil(at)
		s.at = max(s.at, at)
		fmt.Fprintln(s.out, line)
		s.event(where, rest)
		return
	}
	fmt.Fprintln(s.out, line)
	switch word {
	case "turn":
		s.decode(where, rest, &s.req)
	case "tool":
		s.tool(where, rest)
	case "call":
		s.req.Calls = append(s.req.Calls, s.call(where, rest))
	case "start":
		s.start()
	case "circuit", "budget":
		s.event(where, line)
	case "", "#":
	default:
		s.t.Fatalf("%s: %q is no command", where, word)
	}
}

func (s *script) decode(where, text string, v any) {
	s.t.Helper()
	if text == "" {
		return
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
}

// tool is a tool without jitter, so that transcripts can be read.
func (s *script) tool(where, text string) {
	s.t.Helper()
	name, text, _ := strings.Cut(text, " ")
	m := tool.Manifest{ID: name}
	s.decode(where, text, &m)
	if s.tools == nil {
		s.tools = map[string]*Tool{}
	}
	s.tools[name] = &Tool{
		Name: name, Timeout: m.Timeout(), Idle: time.Duration(m.IdleTimeoutMs) * time.Millisecond, Policy: calm(m.Retry),
		Effect: m.Effect, KeepsKeys: m.KeepsKeys, Alternatives: m.Alternatives, FallbackOn: m.FallbackOn,
		Optional: m.Optional, Default: m.Default,
	}
}

func calm(over *tool.RetryPolicy) retry.Policy {
	p := retry.Merge(retry.Default(), over)
	p.JitterPercent = 0
	return p
}

func (s *script) call(where, text string) tool.Call {
	s.t.Helper()
	id, text, _ := strings.Cut(text, " ")
	name, text, _ := strings.Cut(text, " ")
	c := tool.Call{ID: id, Tool: name}
	s.decode(where, text, &c)
	return c
}

func (s *script) start() {
	s.req.ID = "t"
	turn, err := New(Config{Request: &s.req, Grace: 250 * time.Millisecond, Recorded: true, KeepsLate: true, Tools: s.known})
	if err != nil {
		for _, l := range strings.Split(err.Error(), "\n") {
			fmt.Fprintln(s.out, "  refused", l)
		}
		return
	}
	s.turn = turn
	s.carry(s.turn.Start(nil, start))
}

func (s *script) known(name string) *Tool {
	if tl := s.tools[name]; tl != nil {
		return tl
	}
	tl := Unknown(name)
	tl.Policy = calm(nil)
	return tl
}

// dueUntil brings the Due events that are asked for before at, and at at itself.
func (s *script) dueUntil(at time.Duration) {
	for s.turn != nil && !s.halted {
		wake := s.turn.Wake()
		if wake.IsZero() || wake.Sub(start) > at {
			return
		}
		s.at = max(s.at, wake.Sub(start))
		fmt.Fprintf(s.out, "  +%v due\n", s.at)
		s.step(Event{Kind: Due})
	}
}

func (s *script) step(ev Event) { s.carry(s.turn.Step(nil, start.Add(s.at), ev)) }

// carry writes the effects down, and answers what the shell would answer.
func (s *script) carry(effects []Effect) {
	for i := 0; i < len(effects); i++ {
		do := effects[i]
		if text := s.text(do); text != "" {
			fmt.Fprintf(s.out, "  +%v %s\n", s.at, text)
		}
		if do.Kind == Record {
			s.journal = append(s.journal, *do.Record)
		}
		if do.Kind == Ended && do.Verdict != nil {
			name := s.turn.calls[do.Call].tool().Name
			effects = s.turn.Step(effects, start.Add(s.at), Event{Kind: Judged, Call: do.Call, Budget: !s.broke, Circuit: s.circuit[name]})
		}
	}
}

func (s *script) event(where, text string) {
	s.t.Helper()
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "due":
		s.step(Event{Kind: Due})
		return
	case "lost":
		s.step(Event{Kind: ClientLost})
		return
	case "cancel":
		if rest == "" {
			s.step(Event{Kind: CancelTurn})
			return
		}
		i, _ := s.turn.Find(rest)
		s.step(Event{Kind: CancelCall, Call: i})
		return
	case "close":
		s.step(Event{Kind: Close})
		return
	case "add":
		out, err := s.turn.Add(nil, start.Add(s.at), []tool.Call{s.call(where, rest)})
		if err != nil {
			fmt.Fprintln(s.out, "  refused", strings.ReplaceAll(err.Error(), "\n", "\n  refused "))
		}
		s.carry(out)
		return
	case "halt":
		s.halted = true
		return
	case "crash":
		n, _ := strconv.Atoi(rest)
		s.journal = s.journal[:len(s.journal)-n]
		turn, err := s.restore(len(s.journal))
		if err != nil {
			s.t.Fatalf("%s: %v", where, err)
		}
		s.turn, s.halted = turn, false
		s.dueUntil(s.at)
		return
	case "circuit":
		name, state, _ := strings.Cut(strings.TrimPrefix(text, "circuit "), " ")
		if s.circuit == nil {
			s.circuit = map[string]breaker.State{}
		}
		s.circuit[name] = map[string]breaker.State{"open": breaker.Open, "half-open": breaker.HalfOpen}[state]
		return
	case "budget":
		s.broke = rest == "spent"
		return
	}
	kind := ""
	if word == "fail" {
		kind, rest, _ = strings.Cut(rest, " ")
	}
	ref, value, _ := strings.Cut(rest, " ")
	id, n, _ := strings.Cut(ref, "#")
	i, ok := s.turn.Find(id)
	attempt, err := strconv.Atoi(n)
	if !ok || err != nil {
		s.t.Fatalf("%s: %q names no attempt of a call", where, ref)
	}
	ev := Event{Call: i, Attempt: attempt, Value: []byte(value)}
	switch word {
	case "accept":
		ev.Kind, ev.Worker = Accepted, value
	case "ok":
		ev.Kind = Succeeded
	case "pack":
		ev.Kind, ev.Type = Succeeded, wire.MsgPack
	case "piece":
		ev.Kind = Pieced
	case "progress":
		ev.Kind, ev.Progress = Progressed, &wire.ProgressRecord{Message: value}
	case "limited":
		ev.Kind = Limited
		if ev.Timeout, err = time.ParseDuration(value); err != nil {
			s.t.Fatalf("%s: %v", where, err)
		}
	case "fail":
		ev.Kind, ev.Fault = Failed, fault.New(fault.Kind(kind), "it broke")
		s.decode(where, value, ev.Fault)
	case "stopped":
		ev.Kind, ev.Fault = Failed, fault.New(fault.Cancelled, "stopped")
		ev.Fault.Execution = fault.Stopped
	default:
		s.t.Fatalf("%s: %q is no event", where, word)
	}
	s.step(ev)
}

// text is an effect as transcripts have it. What Record repeats of another effect is left out.
func (s *script) text(e Effect) string {
	ref := func() string { return fmt.Sprintf("%s#%d", s.turn.Call(e.Call).ID, e.Attempt) }
	switch e.Kind {
	case Send:
		text := fmt.Sprintf("send %s to %s %s", ref(), e.Tool.Name, e.Args)
		if e.Timeout != 30*time.Second {
			text += fmt.Sprintf(" timeout=%v", e.Timeout)
		}
		if e.BreakerKey != "" {
			text += " breaker=" + e.BreakerKey
		}
		if e.Key != "" {
			text += " key=" + e.Key
		}
		return text
	case Stop:
		return "stop " + ref()
	case KeepLate:
		return fmt.Sprintf("late %s %s", s.turn.Call(e.Call).ID, resultText(e.Result))
	case Finish:
		o := e.Outcome
		text := fmt.Sprintf("finish %s: %s", o.Status, o.Sentence)
		if len(o.Running) > 0 {
			text += fmt.Sprintf(" (still running: %s)", strings.Join(o.Running, " "))
		}
		return text
	case Over:
		return "over"
	case Record:
		return recordText(e.Record)
	}
	return ""
}

func recordText(ev *wire.Event) string {
	switch ev.Type {
	case wire.CallReady:
		return "ready " + ev.Call
	case wire.ToolError:
		text := fmt.Sprintf("error %s#%d %s (%s, circuit %s): %s", ev.Call, ev.Attempt, ev.Error.Kind, ev.Classification, ev.BreakerState, ev.Decision)
		if ev.DelayMs > 0 {
			text += fmt.Sprintf(" after %vms", ev.DelayMs)
		}
		return text + ", because " + ev.Because
	case wire.CallSkipped:
		return fmt.Sprintf("skip %s because of %s", ev.Call, ev.BecauseOf)
	case wire.AlternativeChosen:
		return fmt.Sprintf("alternative %s: %s", ev.Call, ev.Tool)
	case wire.CallSettled:
		return fmt.Sprintf("settle %s %s", ev.Call, resultText(ev.Result))
	case wire.TurnDeadline, wire.TurnClosed:
		return ev.Type
	case wire.CallsAdded:
		var ids []string
		for _, c := range ev.Request.Calls {
			ids = append(ids, c.ID)
		}
		return "added " + strings.Join(ids, " ")
	}
	return ""
}

func resultText(r *tool.Result) string {
	text := string(r.Status)
	if r.FallbackTool != "" {
		text += " by " + r.FallbackTool
	}
	if r.BecauseOf != "" {
		text += " because of " + r.BecauseOf
	}
	if len(r.Value) > 0 {
		text += " " + string(r.Value)
	}
	if r.Fault != nil {
		text += fmt.Sprintf(" [%s, %s]", r.Fault.Kind, r.Fault.Run())
	}
	return text
}
