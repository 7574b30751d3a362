package tool

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/toolbus/toolbus/fault"
)

// What Got says where nothing was there, or something that should not be.
const (
	missing = "missing"
	unknown = "unknown property"
)

const maxWant = 200 // bytes of one Expected

// sentence is one violation for a person or a model. whole names the value itself, for a pointer to all of it.
func sentence(v fault.Violation, whole string) string {
	where := plain(v.Pointer, 120)
	if where == "" {
		where = whole
	}
	switch {
	case v.Got == missing:
		return where + ": missing"
	case v.Got == unknown:
		_, hint, _ := strings.Cut(v.Expected, ", ")
		return strings.TrimSuffix(where+": unknown property, "+hint, ", ")
	case v.Got == "":
		return where + ": " + v.Expected
	}
	return fmt.Sprintf("%s: expected %s, got %s", where, v.Expected, v.Got)
}

// sentences joins violations up to max bytes, and says how many it left out.
func sentences(all []fault.Violation, whole string, max int) string {
	var b strings.Builder
	for i, v := range all {
		s := sentence(v, whole)
		if i > 0 && b.Len()+len(s) > max {
			fmt.Fprintf(&b, "; and %d more", len(all)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(s)
	}
	return b.String()
}

// A finder turns what the library found into violations, flat and in a settled order: the library goes through maps.
type finder struct {
	schema *Schema // nil where the value is itself a schema
	doc    any     // what was validated
	found  []fault.Violation

	properties map[home][][]string // see homes
}

type home struct {
	depth int
	name  string
}

// all is what was found, sorted, each once, at most MaxViolations and a line about the rest. Pointers follow prefix.
func (f *finder) all(prefix string) []fault.Violation {
	slices.SortFunc(f.found, compare)
	all := slices.Compact(f.found)
	if more := len(all) - MaxViolations; more > 0 {
		all = append(slices.Clone(all[:MaxViolations]), fault.Violation{
			Expected: fmt.Sprintf("%d more to be corrected", more),
		})
	}
	if prefix != "" {
		for i := range all {
			all[i].Pointer = prefix + all[i].Pointer
		}
	}
	return all
}

func compare(a, b fault.Violation) int {
	return cmp.Or(
		strings.Compare(a.Pointer, b.Pointer),
		strings.Compare(a.Expected, b.Expected),
		strings.Compare(a.Got, b.Got),
	)
}

func (f *finder) say(at []string, expected, got string) {
	f.found = append(f.found, fault.Violation{Pointer: pointer(at), Expected: cut(expected, maxWant), Got: got})
}

func (f *finder) find(e *jsonschema.ValidationError) {
	at := e.InstanceLocation
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			f.say(join(at, name), f.wanted(e.SchemaURL, name), missing)
		}
	case *kind.Dependency:
		f.depends(at, k.Prop, k.Missing)
	case *kind.DependentRequired:
		f.depends(at, k.Prop, k.Missing)
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			f.say(join(at, name), f.known(e.SchemaURL, name), unknown)
		}
	case *kind.FalseSchema:
		if strings.HasSuffix(e.SchemaURL, "/unevaluatedProperties") && len(at) > 0 {
			f.say(at, "a known property", unknown)
			return
		}
		f.say(at, "nothing here", f.got(at))
	case *kind.PropertyNames:
		for _, at := range f.homes(len(at), k.Property) {
			f.say(at, "a property name that fits: "+f.within(e), quote(k.Property, maxShown))
		}
	case *kind.AnyOf:
		f.forms(e)
	case *kind.OneOf:
		if len(k.Subschemas) > 1 {
			f.say(at, "exactly one of the forms", fmt.Sprintf("a value that fits forms %d and %d", k.Subschemas[0]+1, k.Subschemas[1]+1))
			return
		}
		f.forms(e)
	case *kind.Contains, *kind.MinContains:
		expected, got := f.words(e)
		f.say(at, expected, got) // why each item is not the one is of no use
	default:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				f.find(cause)
			}
			return
		}
		expected, got := f.words(e)
		f.say(at, expected, got)
	}
}

// words is what one leaf of the library's findings expected and got.
func (f *finder) words(e *jsonschema.ValidationError) (expected, got string) {
	got = f.got(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return strings.Join(k.Want, " or "), got
	case *kind.Enum:
		return oneOf(k.Want), got
	case *kind.Const:
		return literal(k.Want), got
	case *kind.Format:
		return "format " + cut(k.Want, maxShown), got
	case *kind.Pattern:
		if f.schema != nil && f.schema.trouble != nil && f.schema.trouble.slow[k.Want] {
			return "text matching " + plain(k.Want, 100), "text for which the pattern took too long"
		}
		return "text matching " + plain(k.Want, 100), got
	case *kind.Minimum:
		return "at least " + decimal(k.Want), got
	case *kind.Maximum:
		return "at most " + decimal(k.Want), got
	case *kind.ExclusiveMinimum:
		return "more than " + decimal(k.Want), got
	case *kind.ExclusiveMaximum:
		return "less than " + decimal(k.Want), got
	case *kind.MultipleOf:
		return "a multiple of " + decimal(k.Want), got
	case *kind.MinLength:
		return "at least " + plural(k.Want, "character"), plural(k.Got, "character")
	case *kind.MaxLength:
		return "at most " + plural(k.Want, "character"), plural(k.Got, "character")
	case *kind.MinItems:
		return "at least " + plural(k.Want, "item"), plural(k.Got, "item")
	case *kind.MaxItems:
		return "at most " + plural(k.Want, "item"), plural(k.Got, "item")
	case *kind.AdditionalItems:
		return plural(k.Count, "item") + " fewer", got
	case *kind.MinProperties:
		return "at least " + plural(k.Want, "property"), plural(k.Got, "property")
	case *kind.MaxProperties:
		return "at most " + plural(k.Want, "property"), plural(k.Got, "property")
	case *kind.UniqueItems:
		return "items that differ", fmt.Sprintf("items %d and %d alike", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		return "an item of the kind that must be among them", got
	case *kind.MinContains:
		return "at least " + plural(k.Want, "item") + " of the kind that must be among them", plural(len(k.Got), "item") + " of it"
	case *kind.MaxContains:
		return "at most " + plural(k.Want, "item") + " of the kind that may be among them", plural(len(k.Got), "item") + " of it"
	case *kind.Not:
		return "something that the schema does not exclude", got
	}
	return "a value that fits " + keyword(e), got
}

func keyword(e *jsonschema.ValidationError) string {
	if path := e.ErrorKind.KeywordPath(); len(path) > 0 {
		return path[0]
	}
	return "the schema"
}

func (f *finder) depends(at []string, because string, names []string) {
	for _, name := range names {
		f.say(join(at, name), "a value, as "+quote(because, maxShown)+" is there", missing)
	}
}

// forms says in one line what would have been right where no form fits, or more exactly where only one form can have
// been meant: the one that is of the right type and has the right constants.
func (f *finder) forms(e *jsonschema.ValidationError) {
	at := e.InstanceLocation
	forms := e.Causes
	for _, unlike := range []func(*jsonschema.ValidationError, int) bool{otherType, otherConstant} {
		left := slices.DeleteFunc(slices.Clone(forms), func(form *jsonschema.ValidationError) bool {
			return anyLeaf(form, func(leaf *jsonschema.ValidationError) bool { return unlike(leaf, len(at)) })
		})
		if len(left) == 1 {
			f.find(left[0])
			return
		}
		if len(left) > 0 {
			forms = left
		}
	}

	var wants []string
	for _, form := range forms {
		part := finder{schema: f.schema, doc: f.doc}
		part.find(form)
		wants = append(wants, gist(part.all(""), pointer(at)))
	}
	slices.Sort(wants)
	wants = slices.Compact(wants)
	f.say(at, either(wants), f.got(at))
}

// gist is what one form would have wanted, in a few words.
func gist(all []fault.Violation, at string) string {
	if len(all) == 1 && all[0].Pointer == at && all[0].Got != missing && all[0].Got != unknown {
		return all[0].Expected
	}
	for i := range all {
		all[i].Pointer = strings.TrimPrefix(all[i].Pointer, at)
	}
	return "(" + sentences(all, "the value", 60) + ")"
}

func either(wants []string) string {
	const most = 4
	if len(wants) > most {
		return fmt.Sprintf("%s or one of %d other forms", strings.Join(wants[:most], " or "), len(wants)-most)
	}
	return strings.Join(wants, " or ")
}

func otherType(leaf *jsonschema.ValidationError, depth int) bool {
	_, ok := leaf.ErrorKind.(*kind.Type)
	return ok && len(leaf.InstanceLocation) == depth
}

func otherConstant(leaf *jsonschema.ValidationError, depth int) bool {
	switch leaf.ErrorKind.(type) {
	case *kind.Const, *kind.Enum:
		return len(leaf.InstanceLocation) == depth+1
	}
	return false
}

func anyLeaf(e *jsonschema.ValidationError, is func(*jsonschema.ValidationError) bool) bool {
	return is(e) || slices.ContainsFunc(e.Causes, func(c *jsonschema.ValidationError) bool { return anyLeaf(c, is) })
}

// within is what the causes of e expected.
func (f *finder) within(e *jsonschema.ValidationError) string {
	var wants []string
	for _, cause := range e.Causes {
		anyLeaf(cause, func(leaf *jsonschema.ValidationError) bool {
			if len(leaf.Causes) == 0 {
				want, _ := f.words(leaf)
				wants = append(wants, want)
			}
			return false
		})
	}
	slices.Sort(wants)
	return list(slices.Compact(wants), maxWant)
}

// wanted is what the schema wants of a property that is missing.
func (f *finder) wanted(location, name string) string {
	s := f.part(location)
	for depth := 0; s != nil && depth < MaxDepth; depth++ {
		if depth == 0 {
			s = s.Properties[name]
		} else {
			s = s.Ref
		}
		switch {
		case s == nil:
		case s.Types != nil && !s.Types.IsEmpty():
			return strings.Join(s.Types.ToStrings(), " or ")
		case s.Enum != nil:
			return oneOf(s.Enum.Values)
		case s.Const != nil:
			return literal(*s.Const)
		}
	}
	return "a value"
}

// known is what to say of a property that the schema does not know: the nearest one that it does.
func (f *finder) known(location, name string) string {
	s := f.part(location)
	if s == nil {
		return "a known property"
	}
	near := Nearest(name, sorted(s.Properties), 1)
	if len(near) == 0 {
		return "a known property"
	}
	return "a known property, perhaps " + quote(near[0], maxShown)
}

func (f *finder) part(location string) *jsonschema.Schema {
	if f.schema == nil {
		return nil
	}
	return f.schema.parts[location]
}

// got is what stands at a place of the document.
func (f *finder) got(at []string) string {
	v := f.doc
	for _, token := range at {
		switch in := v.(type) {
		case map[string]any:
			v = in[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(in) {
				return missing
			}
			v = in[i]
		}
	}
	return show(v)
}

// homes is where properties of that name are, at that depth. The library's own word on where a bad property name stands
// is overwritten before we see it (v6.0.3 keeps a slice that it goes on using); only its length is right.
func (f *finder) homes(depth int, name string) [][]string {
	if f.properties == nil {
		f.properties = map[home][][]string{}
		each(nil, f.doc, func(path []string, key string, _ any) {
			if len(path) > 0 {
				h := home{len(path) - 1, key}
				f.properties[h] = append(f.properties[h], slices.Clone(path))
			}
		})
	}
	return f.properties[home{depth, name}]
}

func oneOf(values []any) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = literal(v)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + list(words, maxWant-40)
}

func decimal(r *big.Rat) string {
	if r.IsInt() {
		return cut(r.Num().String(), maxShown)
	}
	f, _ := r.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func join(at []string, name string) []string {
	return append(slices.Clone(at), name)
}
