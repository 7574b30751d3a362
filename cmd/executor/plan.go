package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/turn"
	"github.com/toolbus/toolbus/wire"
)

// readPlan reads the file of a turn: YAML or JSON, as docs/turns.md says. The error is tool.Problems: everything that is
// wrong, each with its line.
func readPlan(file string, data []byte) (*wire.TurnRequest, error) {
	req, _, err := readPlanAndLines(file, data)
	return req, err
}

// readPlanAndLines is readPlan. What it gives beside the request says in which line a field stands, or what it is part of.
func readPlanAndLines(file string, data []byte) (*wire.TurnRequest, func(field string) int, error) {
	doc, err := tool.ReadDocument(file, "plan", data)
	if err != nil {
		return nil, nil, err
	}
	p := planReader{file: file, doc: doc}
	req := p.read()
	p.check(req)
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b tool.Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, nil, p.problems
	}
	return req, func(field string) int { return p.line(pointerOf(field)) }, nil
}

// A planReader turns a document into a request. Where a value stands is a JSON pointer.
type planReader struct {
	file     string
	doc      *tool.Document
	problems tool.Problems
}

// A reader reads the value at a pointer.
type reader func(at string, raw json.RawMessage)

func (p *planReader) say(at, format string, args ...any) {
	p.problems = append(p.problems, tool.Problem{File: p.file, Line: p.line(at), Field: fieldOf(at), Message: fmt.Sprintf(format, args...)})
}

// line is where a value is, or else what it is part of. A time may stand there in words, without _ms.
func (p *planReader) line(at string) int {
	for {
		for _, at := range []string{at, strings.TrimSuffix(at, "_ms")} {
			if line, ok := p.doc.Line(at); ok {
				return line
			}
		}
		if at == "" {
			return 0
		}
		at = at[:strings.LastIndexByte(at, '/')]
	}
}

// check adds what is wrong with the plan as a whole, but not of what could not be read at all.
func (p *planReader) check(req *wire.TurnRequest) {
	var found []turn.PlanProblem
	var each *wire.Error
	if errors.As(req.Check(), &each) {
		found = problemsIn(each.Message)
	}
	p.add(found)
	var whole *turn.PlanError
	if errors.As(turn.Check(req), &whole) {
		p.add(whole.Problems)
	}
}

// add adds problems with fields of which nothing was said before.
func (p *planReader) add(found []turn.PlanProblem) {
	said := slices.Clone(p.problems)
	for _, f := range found {
		if !slices.ContainsFunc(said, func(s tool.Problem) bool { return within(f.Field, s.Field) }) {
			p.problems = append(p.problems, tool.Problem{File: p.file, Line: p.line(pointerOf(f.Field)), Field: f.Field, Message: f.Message})
		}
	}
}

var oneProblem = regexp.MustCompile(`(?:^|; )([a-z_]+(?:\[\d+\])?(?:\.[a-z_]+(?:\[\d+\])?)*): `)

// problemsIn takes the message of a wire.Error apart, which tells all problems in one line.
func problemsIn(message string) []turn.PlanProblem {
	var list []turn.PlanProblem
	starts := oneProblem.FindAllStringSubmatchIndex(message, -1)
	for i, at := range starts {
		end := len(message)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		list = append(list, turn.PlanProblem{Field: message[at[2]:at[3]], Message: message[at[1]:end]})
	}
	if len(list) == 0 {
		list = append(list, turn.PlanProblem{Message: message})
	}
	return list
}

// within says that a field is another one or a part of it, whichever way its time was written.
func within(field, of string) bool {
	if of == "" || field == of || strings.TrimSuffix(field, "_ms") == of {
		return true
	}
	rest, ok := strings.CutPrefix(field, of)
	return ok && strings.IndexByte(".[/", rest[0]) >= 0
}

var index = regexp.MustCompile(`\[(\d+)\]`)

// pointerOf is the JSON pointer of a field such as calls[2].after[0].
func pointerOf(field string) string {
	if field == "" {
		return ""
	}
	return "/" + strings.ReplaceAll(index.ReplaceAllString(field, "/$1"), ".", "/")
}

var step = regexp.MustCompile(`/(\d+)`)

// fieldOf is the way back from pointerOf, for the pointers that a planReader says something of.
func fieldOf(pointer string) string {
	return strings.TrimPrefix(strings.ReplaceAll(step.ReplaceAllString(pointer, "[$1]"), "/", "."), ".")
}

func (p *planReader) read() *wire.TurnRequest {
	r := &wire.TurnRequest{}
	fields := map[string]reader{
		"id":             p.text(&r.ID),
		"session":        p.text(&r.Session),
		"deadline_mode":  p.text(&r.DeadlineMode),
		"parallel":       p.count(&r.Parallel),
		"tool_parallel":  p.count(&r.ToolParallel),
		"on_failure":     p.text(&r.OnFailure),
		"on_client_loss": p.text(&r.OnClientLoss),
		"calls": p.each(func(at string, raw json.RawMessage) {
			var c tool.Call
			p.call(at, raw, &c)
			r.Calls = append(r.Calls, c)
		}),
		"open": func(at string, _ json.RawMessage) {
			p.say(at, "a plan file is a whole turn; an open turn is driven from a program (docs/turns.md)")
		},
	}
	p.time(fields, "deadline", &r.DeadlineMs)
	p.object("", p.doc.JSON, "a mapping with calls", fields)
	return r
}

func (p *planReader) call(at string, raw json.RawMessage, c *tool.Call) {
	fields := map[string]reader{
		"id":           p.text(&c.ID),
		"tool":         p.text(&c.Tool),
		"args":         p.json(&c.Args),
		"key":          p.text(&c.Key),
		"breaker_key":  p.text(&c.BreakerKey),
		"retry":        p.retry(&c.Retry),
		"effect":       p.text((*string)(&c.Effect)),
		"after":        p.texts(&c.After),
		"join":         p.join(&c.Join),
		"optional":     p.truth(&c.Optional),
		"default":      p.json(&c.Default),
		"alternatives": p.alternatives(&c.Alternatives),
		"fallback_on":  p.texts(&c.FallbackOn),
	}
	p.time(fields, "timeout", &c.TimeoutMs)
	p.time(fields, "join_by", &c.JoinByMs)
	p.object(at, raw, "a call, which is a mapping with id and tool", fields)
}

func (p *planReader) alternatives(to *[]tool.Alternative) reader {
	return p.each(func(at string, raw json.RawMessage) {
		var a tool.Alternative
		if raw[0] == '"' {
			p.text(&a.Tool)(at, raw)
		} else {
			fields := map[string]reader{
				"tool":        p.text(&a.Tool),
				"args":        p.json(&a.Args),
				"breaker_key": p.text(&a.BreakerKey),
				"retry":       p.retry(&a.Retry),
			}
			p.time(fields, "timeout", &a.TimeoutMs)
			p.object(at, raw, "the name of a tool or a mapping with tool", fields)
		}
		*to = append(*to, a)
	})
}

func (p *planReader) retry(to **tool.RetryPolicy) reader {
	return func(at string, raw json.RawMessage) {
		r := &tool.RetryPolicy{}
		*to = r
		fields := map[string]reader{
			"strategy":       p.text(&r.Strategy),
			"multiplier":     p.number(&r.Multiplier),
			"jitter_percent": p.number(&r.JitterPercent),
			"max_attempts":   maybe(&r.MaxAttempts, p.count),
		}
		maybeTime := func(name string, to **int64) {
			both := map[string]reader{}
			var ms int64
			p.time(both, name, &ms)
			for key, read := range both {
				fields[key] = func(at string, raw json.RawMessage) { read(at, raw); *to = &ms }
			}
		}
		maybeTime("initial_delay", &r.InitialDelayMs)
		maybeTime("max_delay", &r.MaxDelayMs)
		maybeTime("max_total_time", &r.MaxTotalTimeMs)
		p.object(at, raw, "a mapping such as {max_attempts: 3}", fields)
	}
}

// object reads a mapping whose keys are known.
func (p *planReader) object(at string, raw json.RawMessage, want string, fields map[string]reader) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		p.say(at, "expected %s, got %s", want, shown(raw))
		return
	}
	known := slices.Sorted(maps.Keys(fields))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		inner := at + "/" + key
		read, ok := fields[key]
		if !ok {
			p.unknown(at, key, known)
			continue
		}
		if string(m[key]) == "null" && key != "default" {
			continue // a key that says nothing
		}
		read(inner, m[key])
	}
}

func (p *planReader) unknown(at, key string, known []string) {
	hint := "; known are " + strings.Join(known, ", ")
	if near := tool.Nearest(key, known, 1); len(near) > 0 {
		hint = "; did you mean " + near[0] + "?"
	}
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	p.problems = append(p.problems, tool.Problem{
		File: p.file, Line: p.line(at + "/" + escaped), Field: strings.TrimPrefix(fieldOf(at)+"."+cut(key, 40), "."), Message: "unknown field" + hint,
	})
}

func (p *planReader) each(visit reader) reader {
	return func(at string, raw json.RawMessage) {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil {
			p.say(at, "expected a list, got %s", shown(raw))
			return
		}
		for i, item := range list {
			visit(at+"/"+strconv.Itoa(i), item)
		}
	}
}

func (p *planReader) text(to *string) reader {
	return func(at string, raw json.RawMessage) {
		switch {
		case json.Unmarshal(raw, to) != nil:
			hint := ""
			if raw[0] != '{' && raw[0] != '[' {
				hint = "; put it in quotes"
			}
			p.say(at, "expected text, got %s%s", shown(raw), hint)
		case *to == "":
			p.say(at, "is empty; fill it in or leave it out")
		}
	}
}

// texts reads a list of texts, or one of them alone.
func (p *planReader) texts(to *[]string) reader {
	return func(at string, raw json.RawMessage) {
		if raw[0] == '"' {
			*to = make([]string, 1)
			p.text(&(*to)[0])(at, raw)
			return
		}
		*to = []string{}
		p.each(func(at string, raw json.RawMessage) {
			var s string
			p.text(&s)(at, raw)
			*to = append(*to, s)
		})(at, raw)
	}
}

func (p *planReader) truth(to *bool) reader {
	return func(at string, raw json.RawMessage) {
		if json.Unmarshal(raw, to) != nil {
			p.say(at, "expected true or false, got %s", shown(raw))
		}
	}
}

func (p *planReader) json(to *json.RawMessage) reader {
	return func(_ string, raw json.RawMessage) { *to = raw }
}

func (p *planReader) join(to *tool.Join) reader {
	return func(at string, raw json.RawMessage) {
		if json.Unmarshal(raw, to) != nil {
			p.say(at, "expected all, any, available or a number, got %s", shown(raw))
		}
	}
}

func (p *planReader) count(to *int) reader {
	return func(at string, raw json.RawMessage) {
		n, err := strconv.ParseInt(string(raw), 10, 32)
		if err != nil {
			p.say(at, "expected a whole number, got %s", shown(raw))
		}
		*to = int(n)
	}
}

func (p *planReader) number(to **float64) reader {
	return func(at string, raw json.RawMessage) {
		var v float64
		if json.Unmarshal(raw, &v) != nil {
			p.say(at, "expected a number, got %s", shown(raw))
			return
		}
		*to = &v
	}
}

// maybe reads a value that is nil where nothing is said.
func maybe[T any](to **T, read func(*T) reader) reader {
	return func(at string, raw json.RawMessage) {
		*to = new(T)
		read(*to)(at, raw)
	}
}

// time adds the two ways to write a time: deadline: 5s, and deadline_ms: 5000.
func (p *planReader) time(fields map[string]reader, name string, to *int64) {
	said := ""
	once := func(at string) bool {
		if said != "" {
			p.say(at, "is also given as %s; leave one out", said)
			return false
		}
		said = fieldOf(at)
		return true
	}
	fields[name] = func(at string, raw json.RawMessage) {
		if !once(at) {
			return
		}
		var s string
		_ = json.Unmarshal(raw, &s)
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			p.say(at, "expected a time such as 2s, 500ms or 1m30s, got %s", shown(raw))
			return
		}
		*to = millis(d)
	}
	fields[name+"_ms"] = func(at string, raw json.RawMessage) {
		if !once(at) {
			return
		}
		ms, err := strconv.ParseInt(string(raw), 10, 64)
		if err != nil || ms < 0 || ms > math.MaxInt64/int64(time.Millisecond) {
			p.say(at, "expected milliseconds as a whole number, got %s", shown(raw))
			return
		}
		*to = ms
	}
}

// shown is a value in a few words, for an error.
func shown(raw json.RawMessage) string {
	switch raw = bytes.TrimSpace(raw); {
	case len(raw) == 0 || string(raw) == "null":
		return "nothing"
	case raw[0] == '{':
		return "a mapping"
	case raw[0] == '[':
		return "a list"
	}
	return cut(string(raw), 40)
}
