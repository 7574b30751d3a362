package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolbus/toolbus/fault"
)

// Bounds of a schema. Schemas come from workers, so they are not trusted.
const (
	MaxSchemaBytes = 64 << 10
	MaxSchemaNodes = 10_000  // JSON values in it
	MaxSchemaRefs  = 1_000   // references in it
	MaxExpanded    = 100_000 // subschemas, each reference counted as large as what it refers to; a cycle counts once
	MaxViolations  = 50      // that Validate lists
)

// A Schema is a compiled JSON Schema: draft 2020-12, or what its $schema says of 4, 6, 7 and 2019-09. Formats are
// asserted, patterns are ECMA-262. It is only read once compiled; many goroutines may use it.
type Schema struct {
	lib     *jsonschema.Schema
	parts   map[string]*jsonschema.Schema // by Location, to look up what a violation speaks of
	trouble *trouble                      // nil unless a pattern of it backtracks
	quick   *quick                        // nil where it has keywords that are not everyday

	size      int  // subschemas, every reference followed
	recursive bool // size does not say what it costs
}

// A SchemaError is everything that is wrong with a schema: one line for each, with a JSON pointer into the schema.
type SchemaError struct {
	Problems []fault.Violation // Expected says what is wrong; Got what was there
}

// Error lists the problems, separated by semicolons.
func (e *SchemaError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = sentence(p, "the schema")
	}
	return strings.Join(lines, "; ")
}

const schemaURL = "toolbus://schema/" // where a schema seems to live, so that relative references resolve

// CompileSchema makes a Schema ready for use, or says all that is wrong with it: a *SchemaError. It opens no file and no
// connection, whatever the schema refers to. A schema that would take too long to validate with is refused: see the
// bounds above.
func CompileSchema(raw json.RawMessage) (*Schema, error) {
	if len(raw) > MaxSchemaBytes {
		return nil, wrong("", fmt.Sprintf("is %d bytes long, at most %d are allowed", len(raw), MaxSchemaBytes))
	}
	doc, flaw := readJSON(raw)
	if flaw != nil {
		return nil, wrong("", "is not JSON: "+flaw.text(raw))
	}
	if problems := inspect(doc); len(problems) > 0 {
		return nil, &SchemaError{problems}
	}

	s := &Schema{parts: map[string]*jsonschema.Schema{}}
	var backtracks atomic.Bool
	t := &trouble{slow: map[string]bool{}}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(closed{})
	c.UseRegexpEngine(engine(t, &backtracks))
	if err := c.AddResource(schemaURL, doc); err != nil {
		return nil, wrong("", err.Error())
	}
	lib, err := c.Compile(schemaURL)
	if err != nil {
		return nil, explain(err, doc)
	}
	s.lib = lib
	if backtracks.Load() {
		s.trouble = t
	}
	if err := s.measure(); err != nil {
		return nil, err
	}
	s.quick = quicken(lib)
	return s, nil
}

func wrong(pointer, problem string) *SchemaError {
	return &SchemaError{[]fault.Violation{{Pointer: pointer, Expected: problem}}}
}

// closed is the loader: there is nothing to load.
type closed struct{}

var errClosed = errors.New("a schema may refer only to itself")

func (closed) Load(string) (any, error) { return nil, errClosed }

// inspect looks for what must not even be compiled.
func inspect(doc any) []fault.Violation {
	var problems []fault.Violation
	say := func(path []string, problem string) {
		problems = append(problems, fault.Violation{Pointer: pointer(path), Expected: problem})
	}
	nodes, refs := 0, 0
	each(nil, doc, func(path []string, key string, v any) {
		nodes++
		switch v := v.(type) {
		case string:
			if key == "$ref" {
				refs++
			}
			if key == "pattern" {
				if err := checkPattern(v); err != nil {
					say(path, err.Error())
				}
			}
		case map[string]any:
			if key != "patternProperties" {
				return
			}
			for _, p := range sorted(v) {
				if err := checkPattern(p); err != nil {
					say(path, err.Error())
				}
			}
		}
	})
	if nodes > MaxSchemaNodes {
		say(nil, fmt.Sprintf("holds %d values, at most %d are allowed", nodes, MaxSchemaNodes))
	}
	if refs > MaxSchemaRefs {
		say(nil, fmt.Sprintf("holds %d references, at most %d are allowed", refs, MaxSchemaRefs))
	}
	return problems
}

// each visits every value of a document, always in the same order.
func each(path []string, v any, visit func(path []string, key string, v any)) {
	key := ""
	if len(path) > 0 {
		key = path[len(path)-1]
	}
	visit(path, key, v)
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sorted(v) {
			each(append(path, k), v[k], visit)
		}
	case []any:
		for i, item := range v {
			each(append(path, fmt.Sprint(i)), item, visit)
		}
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// explain says with pointers into the schema why it did not compile.
func explain(err error, doc any) error {
	var (
		load    *jsonschema.LoadURLError
		invalid *jsonschema.SchemaValidationError
		noPart  *jsonschema.JSONPointerNotFoundError
		noName  *jsonschema.AnchorNotFoundError
		regex   *jsonschema.InvalidRegexError
	)
	switch {
	case errors.As(err, &load):
		return wrong(refers(doc, load.URL), fmt.Sprintf(
			"refers to %s, which is outside; a schema may refer only to itself, so copy it into $defs", quote(strings.TrimPrefix(load.URL, schemaURL), 80)))
	case errors.As(err, &noPart):
		_, to, _ := strings.Cut(noPart.URL, "#")
		return wrong(refers(doc, noPart.URL), fmt.Sprintf("refers to %s, which is not there", quote("#"+to, 80)))
	case errors.As(err, &noName):
		_, to, _ := strings.Cut(noName.Reference, "#")
		return wrong(refers(doc, noName.Reference), fmt.Sprintf("refers to %s, which is not there", quote("#"+to, 80)))
	case errors.As(err, &regex):
		_, at, _ := strings.Cut(regex.URL, "#")
		return wrong(at, fmt.Sprintf("pattern %s: %s", quote(regex.Regex, maxShown), plain(regex.Err.Error(), 160)))
	case errors.As(err, &invalid):
		var found *jsonschema.ValidationError
		if errors.As(invalid.Err, &found) {
			_, at, _ := strings.Cut(invalid.URL, "#")
			f := finder{doc: doc}
			f.find(found)
			return &SchemaError{f.all(at)}
		}
	}
	return wrong("", plain(strings.ReplaceAll(err.Error(), schemaURL, ""), 300))
}

// refers is the pointer of the first reference in doc that may have led to url.
func refers(doc any, url string) string {
	first := ""
	base, part, _ := strings.Cut(url, "#")
	each(nil, doc, func(path []string, key string, v any) {
		ref, ok := v.(string)
		if !ok || first != "" || key != "$ref" && key != "$schema" && key != "$dynamicRef" && key != "$recursiveRef" {
			return
		}
		b, p, _ := strings.Cut(ref, "#")
		fits := p == part && p != "" || part == "" && b != ""
		if fits && strings.HasSuffix(base, strings.TrimLeft(b, "./")) {
			first = pointer(path)
		}
	})
	return first
}

// Validate lists all the ways in which v, decoded as ParseArgs does, breaks the schema: sorted by pointer, the same ones
// every time, at most MaxViolations and then a line that says how many more. Nil means that v is fine.
//
// A value that would take too long is refused with one violation.
func (s *Schema) Validate(v any) []fault.Violation {
	return s.validate(v, count(v))
}

// quickly reports that raw is JSON that keeps to the schema. False means no more than that a closer look is needed.
func (s *Schema) quickly(raw []byte) bool {
	return s.quick != nil && !s.costly(len(raw)) && s.quick.accepts(string(raw))
}

// validate is Validate for a value that holds at most so many values.
func (s *Schema) validate(v any, values int) []fault.Violation {
	if s.costly(values) && !affordable(s.lib, v) {
		return []fault.Violation{{
			Expected: fmt.Sprintf("a value that the schema can check in %d steps", maxSteps),
			Got:      "one that takes more",
		}}
	}
	if s.trouble == nil {
		return s.list(v)
	}
	s.trouble.mu.Lock()
	defer s.trouble.mu.Unlock()
	s.trouble.timeouts = 0
	clear(s.trouble.slow)
	return s.list(v)
}

func (s *Schema) list(v any) []fault.Violation {
	err := s.lib.Validate(v)
	if err == nil {
		return nil
	}
	var found *jsonschema.ValidationError
	if !errors.As(err, &found) {
		return []fault.Violation{{Expected: "a value that can be checked", Got: plain(err.Error(), 160)}}
	}
	f := finder{schema: s, doc: v}
	f.find(found)
	return f.all("")
}
