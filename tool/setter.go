package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"

	"go.yaml.in/yaml/v3"
)

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
