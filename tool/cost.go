package tool

import (
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema of two hundred lines can cost a validator hours: $defs that refer to one another twice each double the work at
// every level, and a recursive one may do so at every level of the value. So what it expands to is counted when it is
// compiled, and where it is recursive or large, what a value would cost is counted before the value is validated. Both
// counts remember what they have counted, so they are cheap where validation is not.
const (
	maxSteps = 1_000_000   // of one validation, where steps are counted
	maxBlind = 200_000_000 // below this product of both sizes nothing is counted
	maxPlain = 2_000       // a schema that expands to less, and is not recursive, is not counted for small values
)

// costly says whether a value that holds so many values must be counted first.
func (s *Schema) costly(values int) bool {
	return s.recursive || s.size > maxPlain || s.size*values > maxBlind
}

// count is how many values v holds, itself included.
func count(v any) int {
	n := 1
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += count(member)
		}
	case []any:
		for _, item := range v {
			n += count(item)
		}
	}
	return n
}

// here is every subschema that s applies to the same value as itself.
func here(s *jsonschema.Schema) []*jsonschema.Schema {
	var all []*jsonschema.Schema
	for _, sub := range []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else} {
		if sub != nil {
			all = append(all, sub)
		}
	}
	all = append(all, s.AllOf...)
	all = append(all, s.AnyOf...)
	all = append(all, s.OneOf...)
	for _, name := range sorted(s.DependentSchemas) {
		all = append(all, s.DependentSchemas[name])
	}
	for _, name := range sorted(s.Dependencies) {
		if sub, ok := s.Dependencies[name].(*jsonschema.Schema); ok {
			all = append(all, sub)
		}
	}
	return all
}

// A reach says to which members of a value a subschema is applied: all of them, one property, or one item.
type reach struct {
	all  bool
	name string
	item int // -1 for a property
}

// below calls visit for every subschema that s applies to members of its value.
func below(s *jsonschema.Schema, visit func(reach, *jsonschema.Schema)) {
	for _, name := range sorted(s.Properties) {
		visit(reach{name: name, item: -1}, s.Properties[name])
	}
	for _, sub := range s.PatternProperties {
		visit(reach{all: true}, sub)
	}
	for i, sub := range s.PrefixItems {
		visit(reach{item: i}, sub)
	}
	if tuple, ok := s.Items.([]*jsonschema.Schema); ok {
		for i, sub := range tuple {
			visit(reach{item: i}, sub)
		}
	}
	for _, sub := range []any{s.AdditionalProperties, s.UnevaluatedProperties, s.PropertyNames,
		s.Items, s.Items2020, s.AdditionalItems, s.UnevaluatedItems, s.Contains} {
		if sub, ok := sub.(*jsonschema.Schema); ok && sub != nil {
			visit(reach{all: true}, sub)
		}
	}
}

// measure counts what the schema expands to, finds references that never end, and fills in parts, size and recursive.
func (s *Schema) measure() error {
	m := measure{schema: s, size: map[*jsonschema.Schema]int{}, open: map[*jsonschema.Schema]bool{}}
	size := m.expand(s.lib)
	if m.err != nil {
		return m.err
	}
	if size > MaxExpanded {
		return wrong("", fmt.Sprintf("expands to more than %d subschemas once every reference is followed", MaxExpanded))
	}
	if loop := endless(s.parts); loop != nil {
		return wrong(at(loop), "refers to itself for one and the same value, so it would never end")
	}
	s.size, s.recursive = size, m.recursive
	return nil
}

type measure struct {
	schema    *Schema
	size      map[*jsonschema.Schema]int
	open      map[*jsonschema.Schema]bool // being counted further up
	recursive bool
	err       error
}

func (m *measure) expand(s *jsonschema.Schema) int {
	if n, ok := m.size[s]; ok {
		return n
	}
	if m.open[s] {
		m.recursive = true
		return 1
	}
	if s.DynamicRef != nil || s.RecursiveRef != nil {
		m.err = wrong(at(s), "uses $dynamicRef or $recursiveRef, which are not supported; use $ref")
		return 1
	}
	m.open[s] = true
	m.schema.parts[s.Location] = s
	n := 1
	for _, sub := range here(s) {
		n = min(n+m.expand(sub), MaxExpanded+1)
	}
	below(s, func(_ reach, sub *jsonschema.Schema) {
		n = min(n+m.expand(sub), MaxExpanded+1)
	})
	delete(m.open, s)
	m.size[s] = n
	return n
}

// endless finds a schema that applies itself to the value that it is applied to.
func endless(parts map[string]*jsonschema.Schema) *jsonschema.Schema {
	open, done := map[*jsonschema.Schema]bool{}, map[*jsonschema.Schema]bool{}
	for _, location := range sorted(parts) {
		if loop := loopFrom(parts[location], open, done); loop != nil {
			return loop
		}
	}
	return nil
}

func loopFrom(s *jsonschema.Schema, open, done map[*jsonschema.Schema]bool) *jsonschema.Schema {
	if done[s] {
		return nil
	}
	if open[s] {
		return s
	}
	open[s] = true
	for _, sub := range here(s) {
		if loop := loopFrom(sub, open, done); loop != nil {
			return loop
		}
	}
	delete(open, s)
	done[s] = true
	return nil
}

// at is the pointer of a compiled subschema.
func at(s *jsonschema.Schema) string {
	_, pointer, _ := strings.Cut(s.Location, "#")
	return pointer
}

// affordable says whether v can be validated in maxSteps, counting every alternative as tried.
func affordable(s *jsonschema.Schema, v any) bool {
	g := gauge{left: maxSteps}
	return g.cost(s, &place{value: v}) <= maxSteps && g.left >= 0
}

type gauge struct{ left int }

// A place is one value inside another, with what each subschema costs there.
type place struct {
	value   any
	cost    map[*jsonschema.Schema]int
	members map[string]*place
	items   []*place
}

func (g *gauge) cost(s *jsonschema.Schema, p *place) int {
	if n, ok := p.cost[s]; ok {
		return n
	}
	g.left--
	if g.left < 0 {
		return maxSteps + 1
	}
	n := 1
	add := func(sub *jsonschema.Schema, p *place) { n = min(n+g.cost(sub, p), maxSteps+1) }
	for _, sub := range here(s) {
		add(sub, p)
	}
	below(s, func(r reach, sub *jsonschema.Schema) {
		switch v := p.value.(type) {
		case map[string]any:
			if r.all {
				for name := range v {
					if g.left < 0 {
						return
					}
					add(sub, p.member(name, v[name]))
				}
			} else if member, ok := v[r.name]; ok && r.item < 0 {
				add(sub, p.member(r.name, member))
			}
		case []any:
			if r.all {
				for i := range v {
					if g.left < 0 {
						return
					}
					add(sub, p.item(i, v))
				}
			} else if 0 <= r.item && r.item < len(v) {
				add(sub, p.item(r.item, v))
			}
		}
	})
	if p.cost == nil {
		p.cost = map[*jsonschema.Schema]int{}
	}
	p.cost[s] = n
	return n
}

func (p *place) member(name string, v any) *place {
	m := p.members[name]
	if m == nil {
		m = &place{value: v}
		if p.members == nil {
			p.members = map[string]*place{}
		}
		p.members[name] = m
	}
	return m
}

func (p *place) item(i int, v []any) *place {
	if p.items == nil {
		p.items = make([]*place, len(v))
	}
	if p.items[i] == nil {
		p.items[i] = &place{value: v[i]}
	}
	return p.items[i]
}
