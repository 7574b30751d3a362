package tool

import (
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A quick is a schema of everyday keywords in a form that says yes while it reads the text, without making the values. It
// says yes only where readJSON takes the text and the library the value; where it does not, those two have the word, and
// say why. Most arguments are right and most schemas are plain, and the library makes some forty allocations for six
// fields.
type quick struct {
	types    kinds // 0 is any
	enum     []string
	format   *jsonschema.Format
	pattern  *matcher
	min, max *int64 // of numbers, both included

	minLength, maxLength *int
	minItems, maxItems   *int
	items                *quick

	required []string
	props    map[string]*quick
	others   *quick // the other properties; nil takes none
}

// anything and anyObject are what to keep to where no schema says.
var (
	anything  = &quick{}
	anyObject = &quick{types: anObject}
)

func init() {
	anything.items, anything.others, anyObject.items, anyObject.others = anything, anything, anything, anything
}

// kinds are the types of JSON that a schema allows.
type kinds uint8

const (
	aNull kinds = 1 << iota
	aBoolean
	aNumber
	anInteger
	aString
	anArray
	anObject
)

var kindNames = map[string]kinds{
	"null": aNull, "boolean": aBoolean, "number": aNumber, "integer": anInteger,
	"string": aString, "array": anArray, "object": anObject,
}

// everyday are the fields of a compiled schema that a quick stands for, or that assert nothing.
var everyday = []string{
	"Bool", "Types", "Enum", "Format", "Pattern", "MinLength", "MaxLength",
	"Minimum", "Maximum", "ExclusiveMinimum", "ExclusiveMaximum",
	"Required", "Properties", "AdditionalProperties", "Items2020", "MinItems", "MaxItems",
	"DraftVersion", "Location", "ID", "Anchor",
	"Title", "Description", "Default", "Comment", "ReadOnly", "WriteOnly", "Examples", "Deprecated",
}

// quicken makes a quick of a schema, or nil where it has a keyword that is not an everyday one.
func quicken(s *jsonschema.Schema) *quick {
	fields := reflect.ValueOf(s).Elem()
	for i := range fields.NumField() {
		f := fields.Type().Field(i)
		if f.IsExported() && !fields.Field(i).IsZero() && !slices.Contains(everyday, f.Name) {
			return nil
		}
	}
	if s.Bool != nil {
		if !*s.Bool {
			return nil
		}
		return anything
	}
	q := &quick{
		items: anything, others: anything,
		format: s.Format, required: s.Required,
		minLength: s.MinLength, maxLength: s.MaxLength, minItems: s.MinItems, maxItems: s.MaxItems,
	}
	return q.learn(s)
}

func (q *quick) learn(s *jsonschema.Schema) *quick {
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			q.types |= kindNames[name]
		}
	}
	if s.Enum != nil {
		q.enum = []string{}
		for _, v := range s.Enum.Values {
			if text, ok := v.(string); ok {
				q.enum = append(q.enum, text)
			}
		}
	}
	if s.Pattern != nil {
		m, ok := s.Pattern.(*matcher)
		if !ok || m.linear == nil {
			return nil
		}
		q.pattern = m
	}
	ok := atLeast(&q.min, s.Minimum, 0) && atLeast(&q.min, s.ExclusiveMinimum, 1) &&
		atMost(&q.max, s.Maximum, 0) && atMost(&q.max, s.ExclusiveMaximum, 1)
	if !ok {
		return nil
	}
	if s.Items2020 != nil {
		if q.items = quicken(s.Items2020); q.items == nil {
			return nil
		}
	}
	switch more := s.AdditionalProperties.(type) {
	case bool:
		if !more {
			q.others = nil
		}
	case *jsonschema.Schema:
		if q.others = quicken(more); q.others == nil {
			return nil
		}
	}
	q.props = make(map[string]*quick, len(s.Properties))
	for name, sub := range s.Properties {
		if q.props[name] = quicken(sub); q.props[name] == nil {
			return nil
		}
	}
	return q
}

// atLeast raises a bound to r, or to the next integer where r itself is not allowed. False: not a bound for integers.
func atLeast(bound **int64, r *big.Rat, more int64) bool {
	if r == nil {
		return true
	}
	n, ok := small(r)
	n += more
	if *bound == nil || n > **bound {
		*bound = &n
	}
	return ok
}

func atMost(bound **int64, r *big.Rat, less int64) bool {
	if r == nil {
		return true
	}
	n, ok := small(r)
	n -= less
	if *bound == nil || n < **bound {
		*bound = &n
	}
	return ok
}

// small is r where it is an integer of few enough digits to reckon with.
func small(r *big.Rat) (int64, bool) {
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, false
	}
	n := r.Num().Int64()
	return n, -1e18 < n && n < 1e18
}

// accepts reports that raw is JSON as readJSON takes it and fits the schema. False means that those who can say why must
// look.
func (q *quick) accepts(raw string) bool {
	r := reader{s: raw}
	r.space()
	if !q.value(&r, 1) {
		return false
	}
	r.space()
	return r.i == len(r.s)
}

func (q *quick) value(r *reader, depth int) bool {
	if r.values++; r.i >= len(r.s) || r.values > MaxValues {
		return false
	}
	c := r.s[r.i]
	if c == '"' {
		s, err := r.text()
		return err == nil && q.takes(aString) && q.text(s)
	}
	if q.enum != nil || q.format != nil {
		return false // for the library: they are of strings, nearly always
	}
	switch c {
	case '{':
		return q.takes(anObject) && q.object(r, depth)
	case '[':
		return q.takes(anArray) && q.array(r, depth)
	case 't':
		return q.takes(aBoolean) && r.word("true") == nil
	case 'f':
		return q.takes(aBoolean) && r.word("false") == nil
	case 'n':
		return q.takes(aNull) && r.word("null") == nil
	}
	if c != '-' && (c < '0' || c > '9') {
		return false
	}
	n, err := r.number()
	return err == nil && q.number(string(n))
}

func (q *quick) takes(k kinds) bool { return q.types == 0 || q.types&k != 0 }

// number takes any that need only be a number, and others that are written with a few digits and without an exponent. One
// with a fraction is between two integers, and so must the bounds be.
func (q *quick) number(s string) bool {
	if q.takes(aNumber) && q.min == nil && q.max == nil {
		return true
	}
	s, fraction, broken := strings.Cut(s, ".")
	n, ok := whole(s)
	if !ok {
		return false
	}
	low, high, kind := n, n, aNumber|anInteger
	if broken {
		if _, ok := whole(fraction); !ok || fraction[0] == '-' {
			return false
		}
		kind = aNumber
		if s[0] == '-' {
			low--
		} else {
			high++
		}
	}
	return q.takes(kind) && (q.min == nil || low >= *q.min) && (q.max == nil || high <= *q.max)
}

// whole is a number of few digits, perhaps after a minus.
func whole(s string) (int64, bool) {
	if len(s) > 18 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && s[0] != '+'
}

func (q *quick) text(s string) bool {
	if q.enum != nil && !slices.Contains(q.enum, s) {
		return false
	}
	if q.minLength != nil || q.maxLength != nil {
		n := utf8.RuneCountInString(s)
		if q.minLength != nil && n < *q.minLength || q.maxLength != nil && n > *q.maxLength {
			return false
		}
	}
	return (q.pattern == nil || q.pattern.MatchString(s)) && (q.format == nil || q.formatted(s))
}

func (q *quick) formatted(s string) bool {
	return q.format.Name == "date" && everydayDate(s) || q.format.Validate(s) == nil
}

// everydayDate is true of dates, but for the last days of months: those are for the library.
func everydayDate(s string) bool {
	if len(s) != len("2006-01-02") || s[4] != '-' || s[7] != '-' {
		return false
	}
	for i := range len(s) {
		if i != 4 && i != 7 && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	month, day := s[5:7], s[8:]
	return "01" <= month && month <= "12" && "01" <= day && day <= "28"
}

func (q *quick) array(r *reader, depth int) bool {
	if depth > MaxDepth {
		return false
	}
	r.i++
	for n := 0; ; n++ {
		done, err := r.next(']', "an array", n == 0)
		if err != nil {
			return false
		}
		if done {
			return (q.minItems == nil || n >= *q.minItems) && (q.maxItems == nil || n <= *q.maxItems)
		}
		if !q.items.value(r, depth+1) {
			return false
		}
	}
}

func (q *quick) object(r *reader, depth int) bool {
	if depth > MaxDepth {
		return false
	}
	r.i++
	var seen keys
	for first := true; ; first = false {
		done, err := r.next('}', "an object", first)
		if err != nil {
			return false
		}
		if done {
			break
		}
		name, err := r.key()
		if err != nil || !seen.add(name) || r.colon(name) != nil {
			return false
		}
		sub, ok := q.props[name]
		if !ok {
			sub = q.others
		}
		if sub == nil || !sub.value(r, depth+1) {
			return false
		}
	}
	for _, name := range q.required {
		if !seen.has(name) {
			return false
		}
	}
	return true
}

// keys are those of one object. The usual few are looked through, which is faster than hashing them.
type keys struct {
	few  [12]string
	n    int // of few
	many map[string]bool
}

// add is false where the key was there already.
func (k *keys) add(name string) bool {
	if k.has(name) {
		return false
	}
	if k.n < len(k.few) {
		k.few[k.n] = name
		k.n++
		return true
	}
	if k.many == nil {
		k.many = map[string]bool{}
	}
	k.many[name] = true
	return true
}

func (k *keys) has(name string) bool { return slices.Contains(k.few[:k.n], name) || k.many[name] }
