package tool

import (
	"encoding/json"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A quick is a schema of everyday keywords in a form that says yes without allocating anything. It says yes only where
// the library would; where it does not, the library has the word, and says why. Most arguments are right and most schemas
// are plain, and the library makes some forty allocations for six fields.
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
	closed   bool   // no other properties
	others   *quick // nil takes any
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
		return &quick{}
	}
	q := &quick{
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
		q.closed = !more
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

// accepts reports that v fits the schema. False means that the library must look.
func (q *quick) accepts(v any) bool {
	if q.format != nil && q.format.Validate(v) != nil {
		return false
	}
	if q.enum != nil {
		text, ok := v.(string)
		if !ok || !slices.Contains(q.enum, text) {
			return false
		}
	}
	switch v := v.(type) {
	case nil:
		return q.takes(aNull)
	case bool:
		return q.takes(aBoolean)
	case json.Number:
		return q.number(string(v))
	case string:
		return q.takes(aString) && q.text(v)
	case []any:
		return q.takes(anArray) && q.array(v)
	case map[string]any:
		return q.takes(anObject) && q.object(v)
	}
	return false
}

func (q *quick) takes(k kinds) bool { return q.types == 0 || q.types&k != 0 }

// number takes what is written with a few digits and without an exponent. One with a fraction is between two integers, and
// so must the bounds be.
func (q *quick) number(s string) bool {
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
	if q.minLength != nil || q.maxLength != nil {
		n := utf8.RuneCountInString(s)
		if q.minLength != nil && n < *q.minLength || q.maxLength != nil && n > *q.maxLength {
			return false
		}
	}
	return q.pattern == nil || q.pattern.MatchString(s)
}

func (q *quick) array(items []any) bool {
	if q.minItems != nil && len(items) < *q.minItems || q.maxItems != nil && len(items) > *q.maxItems {
		return false
	}
	if q.items == nil {
		return true
	}
	for _, item := range items {
		if !q.items.accepts(item) {
			return false
		}
	}
	return true
}

func (q *quick) object(members map[string]any) bool {
	for _, name := range q.required {
		if _, ok := members[name]; !ok {
			return false
		}
	}
	for name, v := range members {
		sub, ok := q.props[name]
		if !ok {
			if q.closed {
				return false
			}
			sub = q.others
		}
		if sub != nil && !sub.accepts(v) {
			return false
		}
	}
	return true
}
