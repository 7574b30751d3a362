package tool

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is how deep objects and arrays may nest (design §4).
const MaxDepth = 64

// MaxValues is how many values one JSON text may hold. Decoded, each costs some 30 bytes, however short its text.
const MaxValues = 1_000_000

// Numbers are kept as text, but whoever compares them has to work them out. These bounds hold every float64 and keep
// 1e999999999 from costing a gigabyte.
const (
	maxDigits   = 400 // bytes of one number
	maxExponent = 400
)

// A flaw is where and why a text is not the JSON that we take.
type flaw struct {
	at      int    // byte offset
	problem string // "a comma is missing"
	cut     bool   // the text ends too early, and so far nothing was wrong
	path    []string
}

// readJSON reads exactly one JSON value. It is stricter than encoding/json and gives the same value where it takes the
// text: a key may occur once, bytes must be UTF-8, nesting and numbers are bounded. Numbers are json.Number.
//
// It is written by hand because it is on the way of every call: encoding/json takes three times as long, and a
// second pass would be needed to see a key that occurs twice.
func readJSON(raw []byte) (any, *flaw) {
	r := reader{s: string(raw)} // one copy; strings without escapes are parts of it
	r.space()
	v, err := r.value(1)
	if err != nil {
		return nil, err
	}
	r.space()
	if r.i < len(r.s) {
		return nil, r.flaw("there is more after the end of the value")
	}
	return v, nil
}

type reader struct {
	s      string
	i      int
	values int
}

func (r *reader) flaw(problem string) *flaw {
	return &flaw{at: r.i, problem: problem}
}

func (r *reader) ended(inside string) *flaw {
	return &flaw{at: len(r.s), problem: "the JSON ends inside " + inside, cut: true}
}

func (r *reader) space() {
	for r.i < len(r.s) {
		switch r.s[r.i] {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return
		}
	}
}

func (r *reader) value(depth int) (any, *flaw) {
	if r.i >= len(r.s) {
		return nil, r.ended("a value")
	}
	if r.values++; r.values > MaxValues {
		return nil, r.flaw(fmt.Sprintf("there are more than %d values", MaxValues))
	}
	switch c := r.s[r.i]; c {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		s, err := r.text()
		if err != nil {
			return nil, err
		}
		return s, nil
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			n, err := r.number()
			if err != nil {
				return nil, err
			}
			return n, nil
		}
		return nil, r.flaw("expected a value")
	}
}

func (r *reader) object(depth int) (any, *flaw) {
	if depth > MaxDepth {
		return nil, r.flaw(fmt.Sprintf("objects and arrays nest more than %d deep", MaxDepth))
	}
	r.i++
	object := map[string]any{}
	for first := true; ; first = false {
		done, err := r.next('}', "an object", first)
		if done || err != nil {
			return object, err
		}
		at := r.i
		key, err := r.key()
		if err != nil {
			return nil, err
		}
		if _, twice := object[key]; twice {
			r.i = at
			err := r.flaw("the key " + quote(key, maxShown) + " occurs twice")
			err.path = []string{key}
			return nil, err
		}
		if err := r.colon(key); err != nil {
			return nil, err
		}
		v, err := r.value(depth + 1)
		if err != nil {
			err.path = append(err.path, key)
			return nil, err
		}
		object[key] = v
	}
}

func (r *reader) key() (string, *flaw) {
	if r.s[r.i] != '"' {
		return "", r.flaw(`expected a key in double quotes`)
	}
	return r.text()
}

// colon goes from the end of a key to its value.
func (r *reader) colon(key string) *flaw {
	r.space()
	if r.i >= len(r.s) {
		return r.ended("an object")
	}
	if r.s[r.i] != ':' {
		return r.flaw("expected a colon after the key " + quote(key, maxShown))
	}
	r.i++
	r.space()
	if r.i >= len(r.s) {
		return r.ended("an object")
	}
	return nil
}

func (r *reader) array(depth int) (any, *flaw) {
	if depth > MaxDepth {
		return nil, r.flaw(fmt.Sprintf("objects and arrays nest more than %d deep", MaxDepth))
	}
	r.i++
	array := []any{}
	for first := true; ; first = false {
		done, err := r.next(']', "an array", first)
		if done || err != nil {
			return array, err
		}
		v, err := r.value(depth + 1)
		if err != nil {
			err.path = append(err.path, fmt.Sprint(len(array)))
			return nil, err
		}
		array = append(array, v)
	}
}

// next goes to the next member of an object or array, over the comma before any but the first. It is true at the end.
func (r *reader) next(end byte, inside string, first bool) (bool, *flaw) {
	r.space()
	if r.i >= len(r.s) {
		return false, r.ended(inside)
	}
	if r.s[r.i] == end {
		r.i++
		return true, nil
	}
	if first {
		return false, nil
	}
	if r.s[r.i] != ',' {
		return false, r.flaw(fmt.Sprintf("expected a comma or %c", end))
	}
	r.i++
	r.space()
	if r.i >= len(r.s) {
		return false, r.ended(inside)
	}
	if r.s[r.i] == end {
		return false, r.flaw(fmt.Sprintf("a comma before %c is too many", end))
	}
	return false, nil
}

func (r *reader) word(word string) *flaw {
	rest := r.s[r.i:]
	if strings.HasPrefix(rest, word) {
		r.i += len(word)
		return nil
	}
	if strings.HasPrefix(word, rest) {
		return r.ended("the word " + word)
	}
	return r.flaw("expected a value")
}

func (r *reader) number() (json.Number, *flaw) {
	start := r.i
	if r.s[r.i] == '-' {
		r.i++
	}
	if r.i < len(r.s) && r.s[r.i] == '0' {
		r.i++
	} else if err := r.digits(); err != nil {
		return "", err
	}
	if r.i < len(r.s) && r.s[r.i] == '.' {
		r.i++
		if err := r.digits(); err != nil {
			return "", err
		}
	}
	exponent := 0
	if r.i < len(r.s) && r.s[r.i]|0x20 == 'e' {
		r.i++
		if r.i < len(r.s) && (r.s[r.i] == '+' || r.s[r.i] == '-') {
			r.i++
		}
		at := r.i
		if err := r.digits(); err != nil {
			return "", err
		}
		for _, c := range r.s[at:r.i] {
			exponent = min(exponent*10+int(c-'0'), maxExponent+1)
		}
	}
	if exponent > maxExponent || r.i-start > maxDigits {
		r.i = start
		return "", r.flaw(fmt.Sprintf("the number is beyond %d digits or an exponent of %d", maxDigits, maxExponent))
	}
	return json.Number(r.s[start:r.i]), nil
}

func (r *reader) digits() *flaw {
	start := r.i
	for r.i < len(r.s) && '0' <= r.s[r.i] && r.s[r.i] <= '9' {
		r.i++
	}
	if r.i > start {
		return nil
	}
	if r.i >= len(r.s) {
		return r.ended("a number")
	}
	return r.flaw("expected a digit")
}

// text reads a string. One without escapes, which is most, is a part of the input.
func (r *reader) text() (string, *flaw) {
	r.i++
	start, ascii := r.i, true
	for r.i < len(r.s) {
		switch c := r.s[r.i]; {
		case c == '"':
			s := r.s[start:r.i]
			if !ascii && !utf8.ValidString(s) {
				return "", r.notUTF8(start)
			}
			r.i++
			return s, nil
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			return "", r.flaw(fmt.Sprintf("the control character %U in a string must be written as an escape", c))
		case c >= utf8.RuneSelf:
			ascii = false
		}
		r.i++
	}
	return "", r.ended("a string")
}

func (r *reader) notUTF8(start int) *flaw {
	for r.i = start; r.i < len(r.s); {
		c, w := utf8.DecodeRuneInString(r.s[r.i:])
		if c == utf8.RuneError && w == 1 {
			break
		}
		r.i += w
	}
	return r.flaw("the bytes of the string are not UTF-8")
}

// escaped reads the string that begins at start once an escape was met.
func (r *reader) escaped(start int) (string, *flaw) {
	b := make([]byte, r.i-start, r.i-start+32)
	copy(b, r.s[start:r.i])
	if !utf8.Valid(b) {
		return "", r.notUTF8(start)
	}
	for r.i < len(r.s) {
		switch c := r.s[r.i]; {
		case c == '"':
			r.i++
			return string(b), nil
		case c == '\\':
			var err *flaw
			if b, err = r.escape(b); err != nil {
				return "", err
			}
		case c < ' ':
			return "", r.flaw(fmt.Sprintf("the control character %U in a string must be written as an escape", c))
		case c < utf8.RuneSelf:
			b = append(b, c)
			r.i++
		default:
			c, w := utf8.DecodeRuneInString(r.s[r.i:])
			if !utf8.FullRuneInString(r.s[r.i:]) {
				return "", r.ended("a string")
			}
			if c == utf8.RuneError && w == 1 {
				return "", r.notUTF8(r.i)
			}
			b = append(b, r.s[r.i:r.i+w]...)
			r.i += w
		}
	}
	return "", r.ended("a string")
}

func (r *reader) escape(b []byte) ([]byte, *flaw) {
	if r.i+1 >= len(r.s) {
		return nil, r.ended("a string")
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if k := strings.IndexByte(from, r.s[r.i+1]); k >= 0 {
		r.i += 2
		return append(b, to[k]), nil
	}
	if r.s[r.i+1] != 'u' {
		return nil, r.flaw(`unknown escape in a string; a backslash is written \\`)
	}
	c, err := r.unit()
	if err != nil {
		return nil, err
	}
	if !utf16.IsSurrogate(c) {
		return utf8.AppendRune(b, c), nil
	}
	// Half a pair alone becomes U+FFFD, as in encoding/json.
	if strings.HasPrefix(r.s[r.i:], `\u`) {
		at := r.i
		second, err := r.unit()
		if err != nil {
			return nil, err
		}
		if c = utf16.DecodeRune(c, second); c == utf8.RuneError {
			r.i = at
		}
	}
	return utf8.AppendRune(b, c), nil
}

// unit reads \uXXXX.
func (r *reader) unit() (rune, *flaw) {
	var c rune
	for k := r.i + 2; k < r.i+6; k++ {
		if k >= len(r.s) {
			return 0, r.ended("a string")
		}
		d := strings.IndexByte("0123456789abcdef", lower(r.s[k]))
		if d < 0 {
			return 0, r.flaw(`expected four hex digits after \u`)
		}
		c = c<<4 | rune(d)
	}
	r.i += 6
	return c, nil
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
