package httptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

// An arguments is the arguments of a call by name, numbers as they were written.
type arguments map[string]any

func parseArguments(raw []byte) (arguments, error) {
	args := arguments{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if len(bytes.TrimSpace(raw)) == 0 {
		return args, nil
	}
	err := d.Decode(&args)
	return args, err
}

// A template is text with {name} where the argument of that name goes: level 1 of RFC 6570. "{{" and "}}" are braces.
type template []part

// A part is text, or an argument.
type part struct {
	text string
	arg  string // empty for text
}

// parseTemplate reads a template. An argument's name may hold anything but braces.
func parseTemplate(s string) (template, error) {
	var t template
	text := ""
	for s != "" {
		at := strings.IndexAny(s, "{}")
		if at < 0 {
			text += s
			break
		}
		text, s = text+s[:at], s[at:]
		if strings.HasPrefix(s, "{{") || strings.HasPrefix(s, "}}") {
			text, s = text+s[:1], s[2:]
			continue
		}
		end := strings.IndexByte(s, '}')
		switch {
		case s[0] == '}':
			return nil, errors.New(`a } stands alone; write }} for a brace`)
		case end < 0:
			return nil, errors.New(`a { is not closed; write {{ for a brace`)
		case end == 1:
			return nil, errors.New(`{} names no argument; write the name between the braces`)
		case strings.ContainsAny(s[1:2], "+#./;?&=,!@|"):
			return nil, fmt.Errorf("%s: operators are not supported; write {name}", s[:end+1])
		case strings.ContainsAny(s[1:end], "{\n"):
			return nil, fmt.Errorf("%.40q is not the name of an argument; write {{ for a brace", s[1:end])
		}
		if text != "" {
			t = append(t, part{text: text})
			text = ""
		}
		t = append(t, part{arg: s[1:end]})
		s = s[end+1:]
	}
	if text != "" {
		t = append(t, part{text: text})
	}
	return t, nil
}

// whole is the argument that is all of the template, and false where there is more or less.
func (t template) whole() (string, bool) {
	if len(t) == 1 && t[0].arg != "" {
		return t[0].arg, true
	}
	return "", false
}

// expand fills in the arguments, each through escape. It is false where one of them is not there, or null.
func (t template) expand(args arguments, escape func(any) (string, error)) (string, bool, error) {
	var b strings.Builder
	for _, p := range t {
		if p.arg == "" {
			b.WriteString(p.text)
			continue
		}
		v, ok := args[p.arg]
		if !ok || v == nil {
			return p.arg, false, nil
		}
		s, err := escape(v)
		if err != nil {
			return "", false, badArgument(p.arg, "%v", err)
		}
		b.WriteString(s)
	}
	return b.String(), true, nil
}

// text is a value as text: as it is, or as JSON. Of a list, the items with commas between them.
func text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	case bool:
		return strconv.FormatBool(v), nil
	case []any:
		items := make([]string, len(v))
		for i, item := range v {
			s, err := text(item)
			if err != nil {
				return "", err
			}
			items[i] = s
		}
		return strings.Join(items, ","), nil
	}
	b, err := marshal(v)
	return string(b), err
}

// segment is a value as a part of a path. What would lead out of it is refused in expandPath.
func segment(v any) (string, error) {
	list, ok := v.([]any)
	if !ok {
		s, err := text(v)
		return escape(s), err
	}
	items := make([]string, len(list))
	for i, item := range list {
		s, err := text(item)
		if err != nil {
			return "", err
		}
		items[i] = escape(s)
	}
	return strings.Join(items, ","), nil
}

// escape leaves the unreserved characters of RFC 3986, and nothing else.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// expandPath is the path with its arguments. A server that tidies up paths must not be led elsewhere by ".." or by
// nothing.
func expandPath(t template, args arguments) (string, *fault.Fault) {
	path, ok, err := t.expand(args, func(v any) (string, error) {
		s, err := segment(v)
		if err == nil && s == "" {
			return "", errors.New("expected something to put into the URL, got nothing")
		}
		return s, err
	})
	if err != nil {
		return "", asFault(err)
	}
	if !ok {
		return "", badArgument(path, "expected a value for the URL, got none")
	}
	names := t.args()
	for s := range strings.SplitSeq(path, "/") {
		if (s == "." || s == "..") && len(names) > 0 {
			return "", badArgument(names[0], "expected a name for the URL, got %q, which would lead elsewhere", s)
		}
	}
	return path, nil
}

// args are the names of the arguments, in order.
func (t template) args() []string {
	var names []string
	for _, p := range t {
		if p.arg != "" {
			names = append(names, p.arg)
		}
	}
	return names
}

// A shape is a JSON value whose texts are templates: a text that is one {name} becomes the argument with its type, and
// where that is absent the member or item is left out.
type shape struct {
	object map[string]*shape
	list   []*shape
	text   template // nil where value holds
	value  any
}

func parseShape(v any) (*shape, error) {
	switch v := v.(type) {
	case map[string]any:
		s := &shape{object: map[string]*shape{}}
		for name, inner := range v {
			child, err := parseShape(inner)
			if err != nil {
				return nil, fmt.Errorf("%.40s: %w", name, err)
			}
			s.object[name] = child
		}
		return s, nil
	case []any:
		s := &shape{list: []*shape{}}
		for i, inner := range v {
			child, err := parseShape(inner)
			if err != nil {
				return nil, fmt.Errorf("item %d: %w", i, err)
			}
			s.list = append(s.list, child)
		}
		return s, nil
	case string:
		t, err := parseTemplate(v)
		if err != nil {
			return nil, err
		}
		if len(t) > 0 {
			return &shape{text: t}, nil
		}
	}
	return &shape{value: v}, nil
}

// fill is the value, and false where it is to be left out.
func (s *shape) fill(args arguments) (any, bool) {
	switch {
	case s.object != nil:
		object := map[string]any{}
		for name, inner := range s.object {
			if v, ok := inner.fill(args); ok {
				object[name] = v
			}
		}
		return object, true
	case s.list != nil:
		list := []any{}
		for _, inner := range s.list {
			if v, ok := inner.fill(args); ok {
				list = append(list, v)
			}
		}
		return list, true
	case s.text == nil:
		return s.value, true
	}
	if name, ok := s.text.whole(); ok {
		v, there := args[name]
		return v, there
	}
	filled, ok, err := s.text.expand(args, text)
	return filled, ok && err == nil
}

func (s *shape) args() []string {
	names := s.text.args()
	for _, inner := range s.object {
		names = append(names, inner.args()...)
	}
	for _, inner := range s.list {
		names = append(names, inner.args()...)
	}
	return names
}

// marshal is JSON without the escapes that HTML would need.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// badArgument is the fault of one argument.
func badArgument(name, format string, a ...any) *fault.Fault {
	got := fmt.Sprintf(format, a...)
	f := fault.New(fault.InvalidArguments, "the argument %.64s: %s", name, got)
	f.Violations = []fault.Violation{{Pointer: "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name), Expected: got}}
	return f
}

func asFault(err error) *fault.Fault {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.New(fault.InvalidArguments, "%v", err)
}
