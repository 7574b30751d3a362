package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

// MaxHoles is how many places of one call's arguments may be filled from elsewhere.
const MaxHoles = 1000

// A Template is arguments with places to be filled. It is only read, so many goroutines may share one.
//
//	{"$from": "search", "pointer": "/flights/0/id", "default": null}   a part of another call's result
//	{"$arg": "/city", "default": "Rome"}                               a part of the call's own arguments
//	{"$literal": X}                                                    X, and nothing in it is filled
//
// A pointer that is left out means the whole result. The default is used, as it stands, where there is no such value.
type Template struct {
	text  []byte // without the holes
	holes []Hole
	at    []int // where in text each hole is
}

// A Hole is one place to be filled.
type Hole struct {
	At      string          // where it is in the arguments: a pointer
	From    string          // the call whose result it takes; empty with Arg
	Arg     bool            // it takes of the call's own arguments
	Pointer Pointer         // which part; nil is the whole
	Default json.RawMessage // nil where there is none
}

// String is "/flights/0/id of the result of search".
func (h Hole) String() string {
	whole := "the result of " + h.From
	if h.Arg {
		whole = "the call's own arguments"
	}
	if len(h.Pointer) == 0 {
		return whole
	}
	return plain(h.Pointer.String(), 120) + " of " + whole
}

// ParseTemplate looks for places to be filled in the arguments of a call or an alternative. It is nil where there are
// none, which is nearly always, and then says nothing of the arguments. Otherwise it says everything that is wrong, each
// with where it stands. What it does not notice is a key that occurs twice: ParseArgs will, of the filled arguments.
func ParseTemplate(raw []byte) (*Template, []error) {
	if !marked(raw) {
		return nil, nil
	}
	if len(raw) > MaxArgs {
		return nil, []error{fmt.Errorf("the arguments are %d bytes long, at most %d are allowed", len(raw), MaxArgs)}
	}
	w := walker{reader: reader{s: string(raw)}}
	if err := w.document(); err != nil {
		slices.Reverse(w.path)
		err.path = w.path
		w.errs = append(w.errs, fmt.Errorf("the arguments: %s", err.text(raw)))
	}
	if len(w.errs) > 0 {
		return nil, w.errs
	}
	if w.copied == 0 {
		return nil, nil
	}
	t := w.t
	t.text = append(t.text, w.s[w.copied:]...)
	return &t, nil
}

// marked is false where there can be nothing to fill. The letters of a marker may be written as escapes.
func marked(raw []byte) bool {
	if bytes.IndexByte(raw, '\\') >= 0 && bytes.Contains(raw, []byte(`\u00`)) {
		return true
	}
	return bytes.IndexByte(raw, '$') >= 0 &&
		(bytes.Contains(raw, []byte(`"$from"`)) || bytes.Contains(raw, []byte(`"$arg"`)) || bytes.Contains(raw, []byte(`"$literal"`)))
}

// Holes are the places to be filled, from the first to the last. They are not to be changed.
func (t *Template) Holes() []Hole { return t.holes }

// Fill puts a value into each place. value gives the JSON that belongs there; where it says that there is none, why is
// the reason, or empty where the other call's value has no such part. Values are put in as they are, so numbers keep
// their digits.
//
// The fault is InvalidArguments, with a violation for every place that stays empty (MaxViolations at most). A value that
// is not JSON as ParseArgs takes it fills no place: nobody can smuggle further arguments in.
func (t *Template) Fill(value func(h Hole) (raw []byte, found bool, why string)) ([]byte, *fault.Fault) {
	var few [8][]byte
	values, size := few[:0], len(t.text)
	var bad *fault.Fault
	for _, h := range t.holes {
		raw, found, why := value(h)
		if size += len(raw); size > MaxArgs {
			return nil, overfilled()
		}
		if found && !anything.accepts(string(raw)) {
			found, why = false, "it is not JSON that can be passed on"
		}
		if !found && h.Default != nil {
			raw, found = h.Default, true
			size += len(raw)
		}
		if !found {
			bad = h.unfilled(bad, why)
		}
		values = append(values, raw)
	}
	switch {
	case bad != nil:
		return nil, bad
	case size > MaxArgs:
		return nil, overfilled()
	}

	out, from := make([]byte, 0, size), 0
	for i, v := range values {
		out = append(out, t.text[from:t.at[i]]...)
		out = append(out, v...)
		from = t.at[i]
	}
	return append(out, t.text[from:]...), nil
}

func overfilled() *fault.Fault {
	f := badArgs(fault.InvalidArguments, fmt.Sprintf("the arguments are more than %d bytes long once filled", MaxArgs))
	f.Suggestions = []string{"take a smaller part of the result"}
	return f
}

// unfilled is the fault that says that h stays empty, or f with that added.
func (h Hole) unfilled(f *fault.Fault, why string) *fault.Fault {
	if why != "" {
		why = ": " + why
	}
	if f == nil {
		at, lacks := "", "has no such value"
		if h.At != "" {
			at = " at " + plain(h.At, 120)
		}
		if len(h.Pointer) == 0 {
			lacks = "is not there"
		}
		f = badArgs(fault.InvalidArguments, fmt.Sprintf("the arguments%s take %s, which %s%s", at, h, lacks, why))
		f.Suggestions = []string{"point to a value that is there, or give a default"}
	}
	if len(f.Violations) < MaxViolations {
		f.Violations = append(f.Violations, fault.Violation{Pointer: h.At, Expected: h.String(), Got: missing + why})
	}
	return f
}

// A walker reads JSON as readJSON does, and instead of values makes a template of it.
type walker struct {
	reader
	path    []string // where it is
	literal int      // so many literals it is in
	t       Template
	copied  int // so much of s is in t.text, or left out on purpose
	errs    []error
}

func (w *walker) document() *flaw {
	w.space()
	if err := w.one(1); err != nil {
		return err
	}
	w.space()
	if w.i < len(w.s) {
		return w.flaw("there is more after the end of the value")
	}
	return nil
}

// one goes over one value.
func (w *walker) one(depth int) *flaw {
	if w.i < len(w.s) && (w.s[w.i] == '{' || w.s[w.i] == '[') {
		if depth > MaxDepth {
			return w.flaw(fmt.Sprintf("objects and arrays nest more than %d deep", MaxDepth))
		}
		if w.values++; w.values > MaxValues {
			return w.flaw(fmt.Sprintf("there are more than %d values", MaxValues))
		}
		if w.s[w.i] == '{' {
			return w.members(depth)
		}
		return w.elements(depth)
	}
	_, err := w.value(depth) // neither an object nor an array
	return err
}

func (w *walker) elements(depth int) *flaw {
	w.i++
	for n := 0; ; n++ {
		done, err := w.next(']', "an array", n == 0)
		if done || err != nil {
			return err
		}
		w.path = append(w.path, strconv.Itoa(n))
		if err := w.one(depth + 1); err != nil {
			return err
		}
		w.path = w.path[:len(w.path)-1]
	}
}

func (w *walker) members(depth int) *flaw {
	start, before := w.i, w.mark()
	var c candidate
	w.i++
	for first := true; ; first = false {
		done, err := w.next('}', "an object", first)
		if err != nil {
			return err
		}
		if done {
			break
		}
		key, err := w.key()
		if err != nil {
			return err
		}
		if err := w.colon(key); err != nil {
			return err
		}
		w.path = append(w.path, key)
		at := w.i
		if key == "$literal" {
			w.literal++
		}
		if err := w.one(depth + 1); err != nil {
			return err
		}
		if key == "$literal" {
			w.literal--
		}
		w.path = w.path[:len(w.path)-1]
		c.add(key, w.s[at:w.i])
	}
	if w.literal > 0 || c.from == "" && c.arg == "" && c.literal == "" {
		return nil
	}

	w.rewind(before) // what stands inside of it is not filled
	w.t.text = append(w.t.text, w.s[w.copied:start]...)
	w.copied = w.i
	w.decide(&c)
	if len(w.t.holes)+len(w.errs) > MaxHoles {
		return w.flaw(fmt.Sprintf("there are more than %d places to be filled", MaxHoles))
	}
	return nil
}

// A mark is how far a template was made.
type mark struct{ text, copied, holes, errs int }

func (w *walker) mark() mark {
	return mark{len(w.t.text), w.copied, len(w.t.holes), len(w.errs)}
}

func (w *walker) rewind(to mark) {
	w.t.text, w.copied = w.t.text[:to.text], to.copied
	w.t.holes, w.t.at = w.t.holes[:to.holes], w.t.at[:to.holes]
	w.errs = w.errs[:to.errs]
}

// A candidate is an object that may be a place to be filled: the text of the members that matter, empty where they are not
// there.
type candidate struct {
	from, arg, literal, pointer, otherwise string

	other string // a key that is none of them
	more  bool   // there is one
	twice string // a key that occurs twice
}

func (c *candidate) add(key, text string) {
	var slot *string
	switch key {
	case "$from":
		slot = &c.from
	case "$arg":
		slot = &c.arg
	case "$literal":
		slot = &c.literal
	case "pointer":
		slot = &c.pointer
	case "default":
		slot = &c.otherwise
	default:
		c.other, c.more = key, true
		return
	}
	if *slot != "" {
		c.twice = key
	}
	*slot = text
}

const plainly = `; to pass the object itself on, write {"$literal": …} around it`

// decide puts into the template what c stands for.
func (w *walker) decide(c *candidate) {
	switch {
	case c.twice != "":
		w.wrong("the key %s occurs twice", c.twice)
	case c.literal != "" && (c.from != "" || c.arg != "" || c.pointer != "" || c.otherwise != "" || c.more):
		w.wrong(`$literal: expected no other key beside it` + plainly)
	case c.literal != "":
		w.t.text = append(w.t.text, c.literal...)
	case c.from != "" && c.arg != "":
		w.wrong("expected $from or $arg, got both" + plainly)
	case c.from != "":
		w.from(c)
	default:
		w.arg(c)
	}
}

func (w *walker) from(c *candidate) {
	id, ok := text(c.from)
	err := CheckID(id)
	switch {
	case c.more:
		w.wrong("expected $from with pointer and default, got the key %s"+plainly, quote(c.other, maxShown))
	case !ok:
		w.wrong("$from: expected the id of a call, got %s"+plainly, seenIn(c.from))
	case err != nil:
		w.wrong("$from: %v", err)
	default:
		w.hole(c, Hole{From: id}, "pointer", c.pointer)
	}
}

func (w *walker) arg(c *candidate) {
	switch {
	case c.more:
		w.wrong("expected $arg with default, got the key %s"+plainly, quote(c.other, maxShown))
	case c.pointer != "":
		w.wrong("expected $arg with default, got the key pointer; $arg is the pointer" + plainly)
	default:
		w.hole(c, Hole{Arg: true}, "$arg", c.arg)
	}
}

// hole adds h, of which the pointer is still text. Without text it is the whole value.
func (w *walker) hole(c *candidate, h Hole, key, pointed string) {
	if pointed != "" {
		s, ok := text(pointed)
		if !ok {
			w.wrong("%s: expected a pointer, such as /flights/0/id, got %s", key, seenIn(pointed))
			return
		}
		p, err := ParsePointer(s)
		if err != nil {
			w.wrong("%s: %v", key, err)
			return
		}
		h.Pointer = p
	}
	if c.otherwise != "" {
		h.Default = json.RawMessage(c.otherwise)
	}
	h.At = pointer(w.path)
	w.t.holes = append(w.t.holes, h)
	w.t.at = append(w.t.at, len(w.t.text))
}

func (w *walker) wrong(format string, args ...any) {
	where := "the arguments"
	if len(w.path) > 0 {
		where = plain(pointer(w.path), 120)
	}
	w.errs = append(w.errs, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...)))
}

// text is the string that a JSON text is, and false where it is something else.
func text(raw string) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	r := reader{s: strings.Clone(raw)} // so as not to hold on to all the arguments
	s, err := r.text()
	return s, err == nil
}

// seenIn is show of a JSON text.
func seenIn(raw string) string {
	v, err := readJSON([]byte(raw))
	if err != nil {
		return plain(raw, maxShown)
	}
	return show(v)
}
