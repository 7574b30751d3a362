package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// A Pointer names a part of a JSON value (RFC 6901), token by token and unescaped. The nil Pointer is the whole value. It
// is only read, so many goroutines may share one.
type Pointer []string

// ParsePointer reads /flights/0/id; "" is the whole value. A ~ within a token is written ~0, a / is written ~1. No value
// is deeper than MaxDepth, so no pointer is longer.
func ParsePointer(s string) (Pointer, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("pointer %s: expected a / first, such as /flights/0/id, or nothing for the whole value", quote(s, 2*maxShown))
	}
	for i := range len(s) {
		if s[i] == '~' && (i+1 == len(s) || s[i+1] != '0' && s[i+1] != '1') {
			return nil, fmt.Errorf("pointer %s: expected 0 or 1 after the ~ at byte %d; ~0 stands for ~ and ~1 for /", quote(s, 2*maxShown), i+1)
		}
	}
	if n := strings.Count(s, "/"); n > MaxDepth {
		return nil, fmt.Errorf("pointer %s: expected at most %d tokens, got %d", quote(s, 2*maxShown), MaxDepth, n)
	}
	p := strings.Split(s[1:], "/")
	for i := range p {
		p[i] = unescape(p[i])
	}
	return p, nil
}

// String is the pointer as ParsePointer reads it.
func (p Pointer) String() string { return pointer(p) }

// Find is the part of raw that p names, byte for byte, and false where there is none. It shares its memory with raw. An
// array has an element 0 but none that is called 00 or -; of a key that occurs twice the last one counts.
//
// raw is skimmed and not decoded, and what is skipped is not checked: where raw is no JSON there is an answer all the
// same, which need not be JSON either.
func (p Pointer) Find(raw []byte) (json.RawMessage, bool) {
	s := skimmer{b: raw}
	for _, token := range p {
		s.space()
		if !s.enter(token) {
			return nil, false
		}
	}
	return s.value()
}

// A skimmer goes over JSON that is taken to be right. Whatever it is, a skimmer only goes forward.
type skimmer struct {
	b []byte
	i int
}

func (s *skimmer) space() {
	for s.i < len(s.b) && blank(s.b[s.i]) {
		s.i++
	}
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// is goes over c, if it is next.
func (s *skimmer) is(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// enter goes from the beginning of an object or array to that of the member that is called token, and nowhere but it.
func (s *skimmer) enter(token string) bool {
	switch {
	case s.is('{'):
		return s.member(token)
	case s.is('['):
		return s.element(token)
	}
	return false
}

func (s *skimmer) member(name string) bool {
	var found []byte
	for {
		s.space()
		start := s.i
		if !s.text() {
			break
		}
		key := s.b[start:s.i]
		s.space()
		if !s.is(':') {
			break
		}
		value, ok := s.value()
		if !ok {
			break
		}
		if called(key, name) {
			found = value
		}
		s.space()
		if !s.is(',') {
			break
		}
	}
	s.b, s.i = found, 0
	return found != nil
}

// called says that the key, quotes and all, is that name.
func called(key []byte, name string) bool {
	inner := key[1 : len(key)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	r := reader{s: string(key)}
	got, flaw := r.text()
	return flaw == nil && got == name
}

func (s *skimmer) element(token string) bool {
	n, ok := index(token)
	for ; ok && n > 0; n-- {
		if _, ok = s.value(); ok {
			s.space()
			ok = s.is(',')
		}
	}
	return ok
}

// index is the number of an element: digits, no leading zeros.
func index(token string) (int, bool) {
	if token == "" || len(token) > 9 || token[0] < '0' || token[0] == '0' && len(token) > 1 {
		return 0, false
	}
	n, err := strconv.Atoi(token)
	return n, err == nil
}

// value goes over one value and the space before it.
func (s *skimmer) value() ([]byte, bool) {
	s.space()
	start := s.i
	if s.i == len(s.b) || !s.skip() || s.i == start {
		return nil, false
	}
	return s.b[start:s.i], true
}

func (s *skimmer) skip() bool {
	switch s.b[s.i] {
	case '"':
		return s.text()
	case '{', '[':
		return s.nested()
	}
	for s.i < len(s.b) && !blank(s.b[s.i]) && strings.IndexByte(`,:]}"[{`, s.b[s.i]) < 0 {
		s.i++
	}
	return true
}

// nested goes over an object or array and counts brackets, so that no depth costs any stack.
func (s *skimmer) nested() bool {
	for open := 0; s.i < len(s.b); {
		switch s.b[s.i] {
		case '"':
			if !s.text() {
				return false
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		s.i++
		if open == 0 {
			return true
		}
	}
	return false
}

// text goes over a string: to the next quote that does not follow an odd number of backslashes.
func (s *skimmer) text() bool {
	if !s.is('"') {
		return false
	}
	for start := s.i; ; {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			return false
		}
		end := s.i + n
		s.i = end + 1
		slashes := 0
		for end > start && s.b[end-1] == '\\' {
			slashes++
			end--
		}
		if slashes%2 == 0 {
			return true
		}
	}
}
