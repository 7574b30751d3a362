package otel

import (
	"maps"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	maxTools  = 200     // that have series of their own
	otherTool = "other" // all the rest, and every value that is not one of ours
)

// tools are the tools that have series of their own. To look one up takes no lock and allocates nothing.
type tools struct {
	known func(tool string) bool
	named atomic.Pointer[map[string]*labels]
	full  atomic.Bool
	rest  labels // of otherTool
	mu    sync.Mutex
}

// get is the labels of a tool. It gets its own where there is such a tool and room.
func (t *tools) get(name string) *labels {
	if l := t.have(name); l != nil {
		return l
	}
	if name == "" || t.full.Load() || t.known != nil && !t.known(name) {
		return t.other()
	}
	return t.add(name)
}

// have is the labels of a tool that has its own, else nil.
func (t *tools) have(name string) *labels {
	if all := t.named.Load(); all != nil {
		return (*all)[name]
	}
	return nil
}

func (t *tools) other() *labels { return &t.rest }

func (t *tools) add(name string) *labels {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.have(name); l != nil {
		return l
	}
	all := map[string]*labels{}
	if now := t.named.Load(); now != nil {
		all = maps.Clone(*now)
	}
	if len(all) >= maxTools {
		t.full.Store(true)
		return t.other()
	}
	l := &labels{tool: name}
	all[name] = l
	t.named.Store(&all)
	return l
}

// labels are the sets of attributes of one tool, each made once.
type labels struct {
	tool string // empty: of no tool
	made atomic.Pointer[map[label]*series]
	mu   sync.Mutex
}

// A label is what a set has beside the tool.
type label struct {
	of   family
	a, b string
}

// A family is which keys a set has.
type family uint8

const (
	plain      family = iota
	withStatus        // a is the status
	withKind          // a is the kind of fault, b its class
	withTo            // a is the state of the breaker
	withWhat          // a is what was written, b the status
	genAI             // a is the kind of fault; empty for a value
)

// A series is a set of attributes as instruments want it, ready so that a call allocates none.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func (l *labels) get(of family, a, b string) *series {
	key := label{of, a, b}
	if all := l.made.Load(); all != nil {
		if s := (*all)[key]; s != nil {
			return s
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[label]*series{}
	if now := l.made.Load(); now != nil {
		if s := (*now)[key]; s != nil {
			return s
		}
		all = maps.Clone(*now)
	}
	set := metric.WithAttributeSet(attribute.NewSet(l.attributes(key)...))
	s := &series{[]metric.AddOption{set}, []metric.RecordOption{set}}
	all[key] = s
	l.made.Store(&all)
	return s
}

func (l *labels) attributes(k label) []attribute.KeyValue {
	var all []attribute.KeyValue
	put := func(key, value string) { all = append(all, attribute.String(key, value)) }
	if k.of == genAI {
		put("gen_ai.operation.name", "execute_tool")
		put("gen_ai.tool.name", l.tool)
		if k.a != "" {
			put("error.type", k.a)
		}
		return all
	}
	if l.tool != "" {
		put("tool", l.tool)
	}
	switch k.of {
	case withStatus:
		put("status", k.a)
	case withKind:
		put("kind", k.a)
		put("class", k.b)
	case withTo:
		put("to", k.a)
	case withWhat:
		put("what", k.a)
		put("status", k.b)
	}
	return all
}
