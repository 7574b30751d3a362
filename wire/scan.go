package wire

import (
	"encoding/binary"
	"math"
	"unicode/utf8"
)

// What Scan allows unless told otherwise.
const (
	ScanDepth  = 32
	ScanValues = 10_000
)

// maxInt is the largest integer that every language reads exactly.
const maxInt = 1 << 53

// ScanLimits are the bounds of a scan. Zero fields mean the defaults.
type ScanLimits struct {
	Depth  int // of containers; zero means ScanDepth, and more than MaxDepth means MaxDepth
	Values int // of everything, containers and keys included; zero means ScanValues
	Items  int // of one array; zero means as many as Values

	// AnyNumber takes also integers beyond ±2^53, NaN and infinities: for payloads, which are the tool's own business.
	AnyNumber bool
}

// Scan says whether b is one MessagePack value that is safe to hand to a decoder: ScanLimits{}.Scan(b).
func Scan(b []byte) error { return ScanLimits{}.Scan(b) }

// Scan reads b without building anything and refuses, with an *Error, what could exhaust or mislead whoever decodes it:
//
//   - nesting deeper, or more values, than the limits allow
//   - a length that is more than what is left, so five bytes cannot ask for gigabytes
//   - map keys that are not strings, strings that are not UTF-8
//   - the reserved code 0xc1, extension types (timestamps among them)
//   - numbers that not every language can hold: see AnyNumber
//   - nothing at all, or something after the end
//
// It does not see a key that occurs twice in a map: in a record the last one holds. It allocates nothing unless it
// refuses, and takes time linear in len(b).
func (l ScanLimits) Scan(b []byte) error {
	if err := l.scan(b); err != nil {
		return err
	}
	return nil
}

func (l ScanLimits) scan(b []byte) *Error {
	depth, values := l.Depth, l.Values
	if depth <= 0 {
		depth = ScanDepth
	}
	depth = min(depth, MaxDepth)
	if values <= 0 {
		values = ScanValues
	}
	items := uint64(values)
	if l.Items > 0 {
		items = uint64(l.Items)
	}
	if len(b) == 0 {
		return &Error{Code: CodeEmpty, Message: "expected a MessagePack value, got nothing", Offset: 0}
	}

	// open are the containers that we are in; left counts what they still lack, a key and its value as two.
	type container struct {
		left  uint64
		isMap bool
	}
	var open [MaxDepth]container
	in := 0

	for i := 0; ; {
		if values--; values < 0 {
			return &Error{Code: CodeTooMany, Message: "too many values in one MessagePack record", Offset: i}
		}
		t, err := readItem(b, i)
		if err != nil {
			return err
		}
		if in > 0 {
			c := &open[in-1]
			if c.isMap && c.left%2 == 0 && t.kind != str {
				return &Error{Code: CodeKey, Message: "a map key is not a string", Offset: i}
			}
			c.left--
		}

		if t.kind == array && t.n > items {
			return &Error{Code: CodeTooMany, Message: "too many values in one MessagePack array", Offset: i}
		}

		if t.kind >= array {
			if in == depth {
				return &Error{Code: CodeTooDeep, Message: "containers are nested too deep", Offset: i}
			}
			open[in] = container{t.n, t.kind == dict}
			in++
			i = t.body
		} else {
			body := b[t.body : t.body+int(t.n)]
			switch {
			case t.kind == str && !utf8.Valid(body):
				return &Error{Code: CodeText, Message: "a string is not UTF-8", Offset: i}
			case t.kind == number && !l.AnyNumber && !common(b[i], body):
				return &Error{Code: CodeNumber, Message: "a number is beyond ±2^53, not a number or infinite", Offset: i}
			}
			i = t.body + int(t.n)
		}

		for in > 0 && open[in-1].left == 0 {
			in--
		}
		if in == 0 && i < len(b) {
			return &Error{Code: CodeTrailing, Message: "there are more bytes after the end of the value", Offset: i}
		}
		if in == 0 {
			return nil
		}
	}
}

// A kind is a family of MessagePack codes.
type kind uint8

const (
	unused kind = iota // 0xc1
	ext
	scalar // n bytes to skip, nothing to look at
	number // 8-byte integers and floats: n bytes to look at
	bin
	str
	array // n values follow
	dict  // n values follow, keys included
)

// An item is one code with what belongs to it. For a container that is its head.
type item struct {
	kind kind
	body int    // where the body begins
	n    uint64 // bytes of the body, or values in the container
}

// readItem reads the code at b[i] and its length, and checks that as much is left.
func readItem(b []byte, i int) (item, *Error) {
	if i >= len(b) {
		return item{}, &Error{Code: CodeTruncated, Message: "the value ends too early", Offset: i}
	}
	c := &codes[b[i]]
	t := item{kind: c.kind, body: i + 1 + int(c.length), n: uint64(c.n)}
	if t.body > len(b) {
		return item{}, &Error{Code: CodeTruncated, Message: "the value ends within a length", Offset: i}
	}
	switch c.length {
	case 1:
		t.n = uint64(b[i+1])
	case 2:
		t.n = uint64(binary.BigEndian.Uint16(b[i+1:]))
	case 4:
		t.n = uint64(binary.BigEndian.Uint32(b[i+1:]))
	}

	switch t.kind {
	case unused:
		return item{}, &Error{Code: CodeReserved, Message: "0xc1 is not MessagePack", Offset: i}
	case ext:
		return item{}, &Error{Code: CodeExtension, Message: "extension types are not taken; send times as RFC 3339 strings and durations in milliseconds", Offset: i}
	case dict:
		t.n *= 2
	}
	if t.n > uint64(len(b)-t.body) { // a value in a container takes at least one byte
		return item{}, &Error{Code: CodeTruncated, Message: "a length is more than what is left", Offset: i}
	}
	return t, nil
}

// codes is the MessagePack table: what each first byte means, how many bytes of length follow it, and where none do, the
// length itself.
var codes = func() (table [256]struct {
	kind      kind
	length, n uint8
}) {
	set := func(from, to int, k kind, length, n uint8) {
		for c := from; c <= to; c++ {
			table[c].kind, table[c].length, table[c].n = k, length, n
		}
	}
	set(0x00, 0x7f, scalar, 0, 0) // positive fixint
	for n := range 32 {
		set(0xa0+n, 0xa0+n, str, 0, uint8(n))
	}
	for n := range 16 {
		set(0x80+n, 0x80+n, dict, 0, uint8(n))
		set(0x90+n, 0x90+n, array, 0, uint8(n))
	}
	set(0xc0, 0xc0, scalar, 0, 0) // nil
	set(0xc2, 0xc3, scalar, 0, 0) // false, true
	for j, length := range []uint8{1, 2, 4} {
		set(0xc4+j, 0xc4+j, bin, length, 0)
		set(0xd9+j, 0xd9+j, str, length, 0)
	}
	set(0xc7, 0xc9, ext, 0, 0)
	set(0xca, 0xca, number, 0, 4) // float 32
	set(0xcb, 0xcb, number, 0, 8) // float 64
	for j, n := range []uint8{1, 2, 4} {
		set(0xcc+j, 0xcc+j, scalar, 0, n) // uint 8, 16, 32
		set(0xd0+j, 0xd0+j, scalar, 0, n) // int 8, 16, 32
	}
	set(0xcf, 0xcf, number, 0, 8) // uint 64
	set(0xd3, 0xd3, number, 0, 8) // int 64
	set(0xd4, 0xd8, ext, 0, 0)    // fixext
	set(0xdc, 0xdc, array, 2, 0)
	set(0xdd, 0xdd, array, 4, 0)
	set(0xde, 0xde, dict, 2, 0)
	set(0xdf, 0xdf, dict, 4, 0)
	set(0xe0, 0xff, scalar, 0, 0) // negative fixint
	return table
}()

// common reports whether every language can hold a number exactly.
func common(code byte, body []byte) bool {
	switch code {
	case 0xcf:
		return binary.BigEndian.Uint64(body) <= maxInt
	case 0xd3:
		n := int64(binary.BigEndian.Uint64(body))
		return -maxInt <= n && n <= maxInt
	}
	f := float(body)
	return !math.IsNaN(f) && !math.IsInf(f, 0)
}

func float(body []byte) float64 {
	if len(body) == 4 {
		return float64(math.Float32frombits(binary.BigEndian.Uint32(body)))
	}
	return math.Float64frombits(binary.BigEndian.Uint64(body))
}

// integral is b, which a scan has taken, with every float that is a whole number as an integer, so that it may go into
// an integer field: some languages write every number as a float, and the decoder takes integers for floats but not the
// other way round. The two forms are equally long. It is b itself where there is no such float. A float 32 beyond
// ±2^31 stays as it is.
func integral(b []byte) []byte {
	mine := false
	for i := 0; i < len(b); {
		t, err := readItem(b, i)
		if err != nil {
			return b
		}
		next := t.body
		if t.kind < array {
			next += int(t.n)
		}
		if code := b[i]; code == 0xca || code == 0xcb {
			f := float(b[t.body:next])
			whole, limit := f == math.Trunc(f), float64(maxInt)
			if code == 0xca {
				limit = math.MaxInt32
			}
			if whole && math.Abs(f) <= limit {
				if !mine {
					b, mine = append([]byte(nil), b...), true
				}
				putInt(b[i:next], int64(f))
			}
		}
		i = next
	}
	return b
}

// putInt writes n over a float: code and body.
func putInt(b []byte, n int64) {
	if len(b) == 5 {
		b[0] = 0xd2
		binary.BigEndian.PutUint32(b[1:], uint32(int32(n)))
		return
	}
	b[0] = 0xd3
	binary.BigEndian.PutUint64(b[1:], uint64(n))
}

// mend replaces in place every byte that is not UTF-8 in the strings of b by a question mark.
func mend(b []byte) {
	for i := 0; i < len(b); {
		t, err := readItem(b, i)
		if err != nil {
			return
		}
		i = t.body
		if t.kind >= array {
			continue
		}
		if t.kind == str {
			mendText(b[i : i+int(t.n)])
		}
		i += int(t.n)
	}
}

func mendText(s []byte) {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		if r == utf8.RuneError && n == 1 {
			s[0] = '?'
		}
		s = s[n:]
	}
}
