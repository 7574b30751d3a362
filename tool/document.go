package tool

import "encoding/json"

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
