package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// smallJSON is below what size JSON is not looked at for its lists: a list in it can take no more than some megabytes.
const smallJSON = 64 << 10

// scanLists refuses JSON for a record of type t that has more in its lists than the limits allow: three bytes make one
// more element, which takes some hundred when it is decoded. Raw fields are not looked into. What is wrong with b
// otherwise is for encoding/json, which decodes nothing of JSON that is broken.
func (l ScanLimits) scanLists(b []byte, t reflect.Type) error {
	if len(b) <= smallJSON {
		return nil
	}
	values := l.Values
	if values <= 0 {
		values = ScanValues
	}
	s := lister{b: b, left: values, items: values}
	if l.Items > 0 {
		s.items = l.Items
	}
	s.value(t, MaxDepth)
	if s.tooMany > 0 {
		return &Error{Code: CodeTooMany, Message: "too many values in the lists of one record", Offset: s.tooMany}
	}
	return nil
}

// A lister goes through JSON until its end, or until it is broken.
type lister struct {
	b       []byte
	i       int
	left    int // elements of all lists together
	items   int // of one
	tooMany int // where there were more
}

func (s *lister) stop() { s.i = len(s.b) }

// next skips blanks, and gives the byte that it stands at; 0 at the end.
func (s *lister) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value goes past one value that will be decoded into a t. A nil t is one that is not looked into.
func (s *lister) value(t reflect.Type, depth int) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch c := s.next(); {
	case depth == 0:
		s.stop()
	case c == '{':
		s.members(t, '}', depth-1)
	case c == '[':
		s.members(t, ']', depth-1)
	case c == '"':
		s.text()
	default:
		for s.i < len(s.b) && strings.IndexByte(",]} \t\r\n", s.b[s.i]) < 0 {
			s.i++
		}
	}
}

// members goes past an object or an array.
func (s *lister) members(t reflect.Type, end byte, depth int) {
	counts := t != nil && (end == '}' && t.Kind() == reflect.Map || end == ']' && isList(t))
	s.i++
	for n := 1; s.next() != end; n++ {
		if counts {
			s.left--
		}
		if s.left < 0 || counts && n > s.items {
			s.tooMany = s.i
			s.stop()
			return
		}
		var inner reflect.Type
		switch {
		case end == '}':
			inner = fieldOf(t, s.key())
		case counts:
			inner = t.Elem()
		}
		s.value(inner, depth)
		switch s.next() {
		case ',':
			s.i++
		case end:
		default:
			s.stop()
			return
		}
	}
	s.i++
}

// isList says whether t is a slice that is not raw bytes.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

// key goes past a key and its colon.
func (s *lister) key() string {
	if s.next() != '"' {
		s.stop()
		return ""
	}
	raw := s.text()
	if s.next() == ':' {
		s.i++
	}
	if !bytes.ContainsRune(raw, '\\') && len(raw) >= 2 {
		return string(raw[1 : len(raw)-1])
	}
	var key string
	_ = json.Unmarshal(raw, &key) // broken ones are encoding/json's
	return key
}

// text goes past a string.
func (s *lister) text() []byte {
	from := s.i
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return s.b[from:s.i]
		}
	}
	s.stop()
	return s.b[from:]
}

// fieldOf is the type of what stands under a key, matched as encoding/json does, and nil where nothing is decoded.
func fieldOf(t reflect.Type, key string) reflect.Type {
	if t == nil {
		return nil
	}
	switch t.Kind() {
	case reflect.Map:
		return t.Elem()
	case reflect.Struct:
		for i := range t.NumField() {
			name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			if t.Field(i).IsExported() && strings.EqualFold(name, key) {
				return t.Field(i).Type
			}
		}
	}
	return nil
}
