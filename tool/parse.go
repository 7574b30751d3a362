package tool

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a manifest file.
const (
	MaxManifestBytes = 256 << 10
	MaxManifestNodes = 20_000 // values, what aliases stand for included
	MaxAliases       = 100
)

// Parse reads a manifest from YAML or JSON, at the top level or under the one key tool as in seed 000. Schemas and the
// default may be written as YAML. file is only named in errors.
//
// The error is Problems: every mistake at once, each with its line. Unknown keys are mistakes.
func Parse(file string, data []byte) (*Manifest, error) {
	p := &parser{file: file, lines: map[string]int{}, size: manifestSize}
	m := p.parse(data)
	if m != nil {
		p.check(m)
	}
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b Problem) int { return a.Line - b.Line })
		return nil, p.problems
	}
	return m, nil
}

type parser struct {
	file     string
	size     size
	problems Problems
	lines    map[string]int // by field, and within schemas by field and pointer
}

func (p *parser) say(line int, field, format string, args ...any) {
	p.problems = append(p.problems, Problem{File: p.file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)})
}

// check adds what is wrong with the manifest as a whole, but not of fields that could not be read at all.
func (p *parser) check(m *Manifest) {
	unread := map[string]bool{}
	for _, problem := range p.problems {
		unread[problem.Field] = true
	}
	for _, problem := range Check(m) {
		if unread[problem.Field] {
			continue
		}
		problem.File = p.file
		problem.Line = p.line(problem.Field + problem.at)
		p.problems = append(p.problems, problem)
	}
}

// line is where a field is, or else what it is part of.
func (p *parser) line(field string) int {
	for field != "" {
		if line, ok := p.lines[field]; ok {
			return line
		}
		field = field[:max(0, strings.LastIndexAny(field, "./["))]
	}
	return p.lines[""]
}

func (p *parser) parse(data []byte) *Manifest {
	root := p.document(data)
	if root == nil {
		return nil
	}
	top := deref(root)
	if top.Kind == yaml.MappingNode && len(top.Content) == 2 && top.Content[0].Value == "tool" {
		top = top.Content[1]
	}
	if top = deref(top); top.Kind != yaml.MappingNode {
		p.say(top.Line, "", "expected a mapping with the fields of a manifest, got %s", seen(top))
		return nil
	}
	m := &Manifest{}
	p.object(top, "", map[string]setter{
		"id":               p.text(&m.ID),
		"version":          p.filled(&m.Version),
		"description":      p.text(&m.Description),
		"input_schema":     p.schema(&m.Input),
		"output_schema":    p.schema(&m.Output),
		"effect":           p.filled((*string)(&m.Effect)),
		"timeout_ms":       number(p, &m.TimeoutMs),
		"idle_timeout_ms":  number(p, &m.IdleTimeoutMs),
		"idempotency_keys": p.truth(&m.KeepsKeys),
		"fallback":         p.filled(&m.Fallback),
		"alternatives":     p.texts(&m.Alternatives),
		"fallback_on":      p.texts(&m.FallbackOn),
		"optional":         p.truth(&m.Optional),
		"default":          p.json(&m.Default),
		"tags":             p.texts(&m.Tags),
		"annotations":      p.annotations(&m.Annotations),
		"retry_policy":     p.retry(&m.Retry),
		"circuit_breaker":  p.breaker(&m.Breaker),
		"classification":   p.classification(&m.Classification),
	})
	return m
}

// document reads the one document that there may be, within bounds.
func (p *parser) document(data []byte) *yaml.Node {
	if len(data) > p.size.bytes {
		p.say(0, "", "the %s is %d bytes long, at most %d are allowed", p.size.what, len(data), p.size.bytes)
		return nil
	}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(fromJSON(data)))
	err := d.Decode(&doc)
	if err == io.EOF || err == nil && (len(doc.Content) == 0 || doc.Content[0].Tag == "!!null") {
		p.say(0, "", "the %s is empty", p.size.what)
		return nil
	}
	if err != nil {
		p.sayYAML(err)
		return nil
	}
	switch err := d.Decode(&second); {
	case err == nil:
		p.say(second.Line, "", "expected one document, got a second one; give each %s its own file", p.size.each)
		return nil
	case err != io.EOF:
		p.sayYAML(err)
		return nil
	}
	b := bounds{size: p.size, open: map[*yaml.Node]bool{}}
	if err := b.check(doc.Content[0], 1); err != nil {
		p.say(b.line, "", "%v", err)
		return nil
	}
	return doc.Content[0]
}

func (p *parser) sayYAML(err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 0
	if n, _ := fmt.Sscanf(text, "line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	p.say(line, "", "not YAML: %s", plain(text, 200))
}

// fromJSON spells JSON for the YAML parser: tabs outside of strings, which is where JSON allows them, become blanks, and
// the two kinds of escapes that YAML does not know, slashes and pairs of surrogates, become what they stand for.
func fromJSON(data []byte) []byte {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || !json.Valid(data) {
		return data
	}
	data = bytes.ReplaceAll(data, []byte("\t"), []byte(" "))
	out := make([]byte, 0, len(data))
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			out = append(out, data[i])
			continue
		}
		escape := data[i:min(len(data), i+len(`\ud83d\ude00`))]
		if escape[1] != '/' && (escape[1] != 'u' || lower(escape[2]) != 'd') {
			out = append(out, escape[:2]...)
			i++
			continue
		}
		r := reader{s: string(escape)}
		c, _ := r.escape(nil) // valid, as data is
		out = append(out, c...)
		i += r.i - 1
	}
	return out
}

// A bounds counts what a document holds, following aliases, so that whoever walks it later needs no care.
type bounds struct {
	size                 size
	nodes, aliases, line int
	open                 map[*yaml.Node]bool
}

func (b *bounds) check(n *yaml.Node, depth int) error {
	b.nodes++
	b.line = n.Line
	switch {
	case b.nodes > b.size.nodes:
		return fmt.Errorf("the %s holds more than %d values", b.size.what, b.size.nodes)
	case depth > MaxDepth:
		return fmt.Errorf("values nest more than %d deep", MaxDepth)
	case n.Kind == yaml.AliasNode:
		b.aliases++
		if b.aliases > MaxAliases {
			return fmt.Errorf("the %s holds more than %d aliases", b.size.what, MaxAliases)
		}
		if b.open[n.Alias] {
			return fmt.Errorf("the alias *%s stands inside what it stands for", plain(n.Value, maxShown))
		}
		return b.check(n.Alias, depth+1)
	}
	b.open[n] = true
	defer delete(b.open, n)
	for _, inner := range n.Content {
		if err := b.check(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// seen is what stands there, for an error.
func seen(n *yaml.Node) string {
	switch n = deref(n); n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!str":
		return quote(n.Value, maxShown)
	case "!!null":
		return "nothing"
	}
	return plain(n.Value, maxShown)
}

// A setter reads the value of one field.
type setter func(field string, n *yaml.Node)

// object reads a mapping whose keys are known.
func (p *parser) object(n *yaml.Node, field string, fields map[string]setter) {
	p.each(n, field, func(inner, key string, k, v *yaml.Node) {
		set, ok := fields[key]
		if !ok {
			known := sorted(fields)
			p.say(k.Line, inner, "unknown key%s", cmp.Or(meant(key, known), "; known are "+list(known, 400)))
			return
		}
		if isNull(v) && key != "default" {
			return // a key that says nothing
		}
		set(inner, v)
	})
}

// each goes through a mapping. A key is the text that is written.
func (p *parser) each(n *yaml.Node, field string, visit func(inner, key string, k, v *yaml.Node)) {
	if _, ok := p.lines[field]; !ok {
		p.lines[field] = n.Line
	}
	m := deref(n)
	if m.Kind != yaml.MappingNode {
		p.say(n.Line, field, "expected a mapping, got %s", seen(n))
		return
	}
	there := map[string]bool{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		k, v := deref(m.Content[i]), m.Content[i+1]
		inner := plain(k.Value, maxShown)
		if field != "" {
			inner = field + "." + inner
		}
		line := m.Content[i].Line
		p.lines[inner] = line
		switch {
		case k.Kind != yaml.ScalarNode:
			p.say(line, field, "expected a word as key, got %s", seen(k))
		case k.ShortTag() == "!!merge":
			p.say(line, field, "merge keys (<<) are not supported; write the keys out")
		case there[k.Value]:
			p.say(line, inner, "is there twice")
		default:
			there[k.Value] = true
			visit(inner, k.Value, m.Content[i], deref(v))
		}
	}
}

func (p *parser) text(to *string) setter {
	return func(field string, n *yaml.Node) {
		if n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp") {
			*to = n.Value
			return
		}
		hint := ""
		if n.Kind == yaml.ScalarNode {
			hint = "; put it in quotes"
		}
		p.say(n.Line, field, "expected text, got %s%s", seen(n), hint)
	}
}

// filled reads text that, if it is there, must say something.
func (p *parser) filled(to *string) setter {
	return func(field string, n *yaml.Node) {
		p.text(to)(field, n)
		if n.Kind == yaml.ScalarNode && n.Value == "" {
			p.say(n.Line, field, "is empty; fill it in or leave it out")
		}
	}
}

func (p *parser) truth(to *bool) setter {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(to) != nil {
			p.say(n.Line, field, "expected true or false, got %s", seen(n))
		}
	}
}

func (p *parser) maybe(to **bool) setter {
	return func(field string, n *yaml.Node) {
		*to = new(bool)
		p.truth(*to)(field, n)
	}
}

// number reads a number into a field that spans knows.
func number[T int | int64 | float64](p *parser, to *T) setter {
	return func(field string, n *yaml.Node) {
		s := spans[field]
		tag := n.ShortTag()
		var v float64
		if n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || n.Decode(&v) != nil ||
			!s.holds(v) || s.whole && v != math.Trunc(v) {
			p.say(n.Line, field, "expected %s, got %s", s.want(), seen(n))
			return
		}
		*to = T(v)
	}
}

func optional[T int | int64 | float64](p *parser, to **T) setter {
	return func(field string, n *yaml.Node) {
		var v T
		before := len(p.problems)
		number(p, &v)(field, n)
		if len(p.problems) == before {
			*to = &v
		}
	}
}

func (p *parser) texts(to *[]string) setter {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.SequenceNode {
			p.say(n.Line, field, "expected a list, got %s", seen(n))
			return
		}
		for i, item := range n.Content {
			var s string
			inner := fmt.Sprintf("%s[%d]", field, i)
			p.lines[inner] = item.Line
			p.text(&s)(inner, deref(item))
			*to = append(*to, s)
		}
	}
}

func (p *parser) annotations(to *map[string]string) setter {
	return func(field string, n *yaml.Node) {
		*to = map[string]string{}
		p.each(n, field, func(inner, key string, _, v *yaml.Node) {
			var s string
			p.text(&s)(inner, v)
			(*to)[key] = s
		})
	}
}

func (p *parser) retry(to **RetryPolicy) setter {
	return func(field string, n *yaml.Node) {
		r := &RetryPolicy{}
		*to = r
		p.object(n, field, map[string]setter{
			"strategy":          p.filled(&r.Strategy),
			"initial_delay_ms":  optional(p, &r.InitialDelayMs),
			"max_delay_ms":      optional(p, &r.MaxDelayMs),
			"multiplier":        optional(p, &r.Multiplier),
			"jitter_percent":    optional(p, &r.JitterPercent),
			"max_attempts":      optional(p, &r.MaxAttempts),
			"max_total_time_ms": optional(p, &r.MaxTotalTimeMs),
		})
	}
}

func (p *parser) breaker(to **BreakerPolicy) setter {
	return func(field string, n *yaml.Node) {
		b := &BreakerPolicy{}
		*to = b
		p.object(n, field, map[string]setter{
			"failure_threshold": optional(p, &b.FailureThreshold),
			"success_threshold": optional(p, &b.SuccessThreshold),
			"timeout_ms":        optional(p, &b.TimeoutMs),
			"mode":              p.filled(&b.Mode),
			"window_ms":         optional(p, &b.WindowMs),
			"min_calls":         optional(p, &b.MinCalls),
			"rate":              optional(p, &b.Rate),
			"slow_ms":           optional(p, &b.SlowMs),
			"timeout_growth":    optional(p, &b.TimeoutGrowth),
			"max_timeout_ms":    optional(p, &b.MaxTimeoutMs),
			"probes":            optional(p, &b.Probes),
			"min_reporters":     optional(p, &b.MinReporters),
			"distinct_calls":    p.truth(&b.DistinctCalls),
			"ramp_up":           p.truth(&b.RampUp),
		})
	}
}

func (p *parser) classification(to **Classification) setter {
	return func(field string, n *yaml.Node) {
		c := &Classification{}
		*to = c
		p.object(n, field, map[string]setter{
			"kinds": p.overrides(&c.Kinds),
			"codes": p.overrides(&c.Codes),
		})
	}
}

func (p *parser) overrides(to *map[string]Override) setter {
	return func(field string, n *yaml.Node) {
		*to = map[string]Override{}
		p.each(n, field, func(inner, key string, _, v *yaml.Node) {
			var o Override
			if v.Kind == yaml.ScalarNode {
				p.text(&o.Class)(inner, v)
			} else {
				p.object(v, inner, map[string]setter{
					"class":   p.filled(&o.Class),
					"retry":   p.maybe(&o.Retry),
					"breaker": p.maybe(&o.Breaker),
				})
			}
			(*to)[key] = o
		})
	}
}

func (p *parser) schema(to *json.RawMessage) setter {
	return func(field string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode && n.ShortTag() != "!!bool" {
			p.say(n.Line, field, "expected a JSON Schema, which is a mapping, got %s", seen(n))
			return
		}
		p.json(to)(field, n)
	}
}

// json reads any value that JSON can hold too.
func (p *parser) json(to *json.RawMessage) setter {
	return func(field string, n *yaml.Node) {
		before := len(p.problems)
		v := p.value(field, field, n)
		if len(p.problems) == before {
			*to = encode(v)
		}
	}
}

// value is n as readJSON would give it. where is the field and the pointer within it.
func (p *parser) value(field, where string, n *yaml.Node) any {
	if _, ok := p.lines[where]; !ok {
		p.lines[where] = n.Line
	}
	switch n = deref(n); n.Kind {
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			k := deref(n.Content[i])
			if k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
				p.say(n.Content[i].Line, field, "expected a word as key, got %s", seen(k))
				continue
			}
			if _, twice := object[k.Value]; twice {
				p.say(n.Content[i].Line, field, "the key %s is there twice", quote(k.Value, maxShown))
				continue
			}
			inner := stepDown(where, k.Value)
			p.lines[inner] = n.Content[i].Line
			object[k.Value] = p.value(field, inner, n.Content[i+1])
		}
		return object
	case yaml.SequenceNode:
		array := make([]any, len(n.Content))
		for i, item := range n.Content {
			array[i] = p.value(field, stepDown(where, strconv.Itoa(i)), item)
		}
		return array
	}
	v, err := scalar(n)
	if err != nil {
		p.say(n.Line, field, "%v", err)
	}
	return v
}

// stepDown is a pointer one step down. Where it would be very long it ends in … and stands for all below it, or a long key
// with many values in it would cost gigabytes.
func stepDown(where, token string) string {
	if strings.HasSuffix(where, "/…") {
		return where
	}
	if len(where)+len(token) > maxPointer {
		return where + "/…"
	}
	return where + "/" + escape(token)
}

const maxPointer = 1024 // bytes

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp":
		return n.Value, nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return b, err
	case "!!int", "!!float":
		if v, flaw := readJSON([]byte(n.Value)); flaw == nil {
			if number, ok := v.(json.Number); ok {
				return number, nil
			}
		}
		var i int64
		if n.Decode(&i) == nil {
			return json.Number(fmt.Sprint(i)), nil
		}
		var f float64
		if n.Decode(&f) != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return nil, fmt.Errorf("expected a number that JSON can hold, got %s", plain(n.Value, maxShown))
		}
		return json.Number(fmt.Sprint(f)), nil
	}
	return nil, errors.New("the tag " + plain(n.Tag, maxShown) + " is not supported")
}
