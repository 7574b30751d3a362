package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document that ReadDocument takes.
const (
	MaxDocumentBytes = 1 << 20
	MaxDocumentNodes = 200_000 // values, what aliases stand for included
)

// A size is what a file may hold, and what it is called.
type size struct {
	what, each   string // "manifest", "tool"
	bytes, nodes int
}

var manifestSize = size{"manifest", "tool", MaxManifestBytes, MaxManifestNodes}

// A Document is a file as JSON. It does not change.
type Document struct {
	// JSON is the whole, numbers with the digits that were written wherever JSON can hold them.
	JSON json.RawMessage

	lines map[string]int
}

// ReadDocument reads YAML or JSON as JSON: one document, within bounds, no key twice. what it is (plan) and file are only
// named in errors. The error is Problems, each with its line.
func ReadDocument(file, what string, data []byte) (*Document, error) {
	p := &parser{file: file, lines: map[string]int{}, size: size{what, what, MaxDocumentBytes, MaxDocumentNodes}}
	d := &Document{lines: p.lines}
	if root := p.document(data); root != nil {
		p.json(&d.JSON)("", root)
	}
	if len(p.problems) > 0 {
		return nil, p.problems
	}
	return d, nil
}

// Line is the line of the value at a JSON pointer, and false where there is none.
func (d *Document) Line(pointer string) (int, bool) {
	line, ok := d.lines[pointer]
	return line, ok
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
