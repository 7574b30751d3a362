package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/tool"
)

// A section is one value of a file, and knows the line of everything in it.
type section struct {
	file string
	doc  *tool.Document
	at   string // pointer
	raw  json.RawMessage
}

// openSection reads a file of YAML or JSON, which is one mapping. What it is is only named in errors.
func openSection(file, what string) (section, error) {
	data, err := readFile(file, tool.MaxDocumentBytes)
	if err != nil {
		return section{}, err
	}
	doc, err := tool.ReadDocument(file, what, data)
	if err != nil {
		return section{}, err
	}
	return section{file: file, doc: doc, raw: doc.JSON}, nil
}

// readFile reads a file, but no more of it than makes it too long.
func readFile(file string, most int) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(most)+1))
}

// say is a problem of a field, whose name is dotted: its line is that of the field, or of what it is part of.
func (s section) say(field, format string, args ...any) tool.Problem {
	pointer := s.at
	for name := range strings.SplitSeq(strings.NewReplacer("[", ".", "]", "").Replace(field), ".") {
		if name == "" {
			continue
		}
		if _, ok := s.doc.Line(pointer + "/" + name); !ok {
			break
		}
		pointer += "/" + name
	}
	line, _ := s.doc.Line(pointer)
	return tool.Problem{File: s.file, Line: line, Field: field, Message: fmt.Sprintf(format, args...)}
}

// place adds file and line to problems that somebody found who knows neither.
func (s section) place(problems tool.Problems) tool.Problems {
	var placed tool.Problems
	for _, p := range problems {
		placed = append(placed, s.say(p.Field, "%s", p.Message))
	}
	return placed
}

// members are the values of a mapping.
func (s section) members() (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if s.doc == nil || json.Unmarshal(s.raw, &m) != nil || m == nil {
		if s.doc == nil {
			return nil, errors.New("nothing was read")
		}
		return nil, tool.Problems{s.say("", "expected a mapping, got %.40s", s.raw)}
	}
	return m, nil
}

// member is one of them.
func (s section) member(name string, raw json.RawMessage) section {
	escaped := strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	return section{file: s.file, doc: s.doc, at: s.at + "/" + escaped, raw: raw}
}

// into reads a mapping into a struct: a key that it does not have is a problem, and so is a value of another type.
func (s section) into(v any) error {
	members, err := s.members()
	if err != nil {
		return err
	}
	fields := map[string]reflect.Value{}
	fieldsOf(reflect.ValueOf(v).Elem(), fields)
	var problems tool.Problems
	for _, key := range sorted(members) {
		field, ok := fields[key]
		if !ok {
			known := sorted(fields)
			hint := "; known are " + strings.Join(known, ", ")
			if near := tool.Nearest(key, known, 1); len(near) > 0 {
				hint = "; did you mean " + near[0] + "?"
			}
			problems = append(problems, s.say(key, "unknown key%s", hint))
			continue
		}
		if string(members[key]) == "null" {
			continue // a key that says nothing
		}
		if err := json.Unmarshal(members[key], field.Addr().Interface()); err != nil {
			problems = append(problems, s.say(key, "%s", wrongType(err, members[key])))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	return nil
}

// fieldsOf are the fields of a struct by their names in JSON, those of embedded structs included.
func fieldsOf(v reflect.Value, to map[string]reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			fieldsOf(v.Field(i), to)
		case name != "" && name != "-":
			to[name] = v.Field(i)
		}
	}
}

func wrongType(err error, got json.RawMessage) string {
	var t *json.UnmarshalTypeError
	if !errors.As(err, &t) {
		return err.Error()
	}
	want := "text"
	switch t.Type.Kind() {
	case reflect.Bool:
		want = "true or false"
	case reflect.Int, reflect.Int64:
		want = "a whole number"
	case reflect.Slice:
		want = "a list"
	case reflect.Map, reflect.Struct:
		want = "a mapping"
	}
	hint := ""
	if want == "text" && (t.Value == "number" || t.Value == "bool") {
		hint = "; put it in quotes"
	}
	return fmt.Sprintf("expected %s, got %s in %.80s%s", want, t.Value, got, hint)
}

// manifest reads the mapping as a manifest, without the keys that are not part of one. The problems have the lines of the
// file.
func (s section) manifest(without ...string) (*tool.Manifest, error) {
	members, err := s.members()
	if err != nil {
		return nil, err
	}
	for _, key := range without {
		delete(members, key)
	}
	rest, err := json.Marshal(members)
	if err != nil {
		return nil, err
	}
	var lines bytes.Buffer // with a line for each value
	if err := json.Indent(&lines, rest, "", " "); err != nil {
		return nil, err
	}
	m, err := tool.Parse(s.file, lines.Bytes())
	var problems tool.Problems
	if errors.As(err, &problems) {
		return nil, s.relocate(problems, lines.Bytes())
	}
	return m, err
}

// relocate gives problems of the text that was made of this section the lines of the file.
func (s section) relocate(problems tool.Problems, text []byte) error {
	made, err := tool.ReadDocument(s.file, "manifest", text)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(made.JSON, &v); err != nil {
		return err
	}
	ours := map[int]int{}
	walk("", v, func(pointer string) {
		from, ok := made.Line(pointer)
		to, there := s.doc.Line(s.at + pointer)
		if _, known := ours[from]; ok && there && !known {
			ours[from] = to
		}
	})
	top, _ := s.doc.Line(s.at)
	placed := slices.Clone(problems)
	for i := range placed {
		line := placed[i].Line
		for ; line > 0 && ours[line] == 0; line-- { // a closing bracket, and the like
		}
		placed[i].Line = top
		if to, ok := ours[line]; ok {
			placed[i].Line = to
		}
	}
	return placed
}

// walk visits the pointers of a value, from the outside in.
func walk(at string, v any, visit func(pointer string)) {
	visit(at)
	switch v := v.(type) {
	case map[string]any:
		for _, key := range sorted(v) {
			walk(at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), v[key], visit)
		}
	case []any:
		for i, item := range v {
			walk(at+"/"+strconv.Itoa(i), item, visit)
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
