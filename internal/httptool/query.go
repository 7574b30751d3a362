package httptool

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/toolbus/toolbus/fault"
)

// A param is one parameter of the query.
type param struct {
	name  string
	value template
	style style
}

// A style is how a list or object is written, as OpenAPI names it.
type style int

const (
	repeated   style = iota // a=1&a=2; an object is JSON
	commas                  // a=1,2
	spaces                  // a=1 2
	pipes                   // a=1|2
	deepObject              // a[k]=1
	spread                  // k=1, of the object's members
	asJSON                  // a=[1,2]
)

func (e *endpoint) queryOf(args arguments) (string, *fault.Fault) {
	var pairs []string
	add := func(name, value string) { pairs = append(pairs, escape(name)+"="+escape(value)) }
	for _, p := range e.query {
		name, ok := p.value.whole()
		if !ok {
			value, there, err := p.value.expand(args, text)
			if err != nil {
				return "", asFault(err)
			}
			if there {
				add(p.name, value)
			}
			continue
		}
		v, there := args[name]
		if !there || v == nil {
			continue
		}
		if err := p.write(v, add); err != nil {
			return "", badArgument(name, "%v", err)
		}
	}
	return strings.Join(pairs, "&"), nil
}

// write adds the pairs of one value.
func (p param) write(v any, add func(name, value string)) error {
	put := func(name string, v any) error {
		s, err := text(v)
		if err == nil {
			add(name, s)
		}
		return err
	}
	if p.style == asJSON {
		b, err := marshal(v)
		add(p.name, string(b))
		return err
	}
	switch v := v.(type) {
	case []any:
		if sep, ok := map[style]string{commas: ",", spaces: " ", pipes: "|"}[p.style]; ok {
			s, err := text(v)
			if sep != "," {
				s, err = join(v, sep)
			}
			add(p.name, s)
			return err
		}
		for _, item := range v {
			if err := put(p.name, item); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for _, name := range sortedKeys(v) {
			switch p.style {
			case deepObject:
				if err := put(p.name+"["+name+"]", v[name]); err != nil {
					return err
				}
			case spread:
				if err := put(name, v[name]); err != nil {
					return err
				}
			default:
				return put(p.name, v)
			}
		}
		return nil
	}
	return put(p.name, v)
}

func join(list []any, sep string) (string, error) {
	items := make([]string, len(list))
	for i, item := range list {
		s, err := text(item)
		if err != nil {
			return "", err
		}
		items[i] = s
	}
	return strings.Join(items, sep), nil
}

// encode is the body as JSON or as a form.
func (e *endpoint) encode(v any) ([]byte, *fault.Fault) {
	if !e.form {
		b, err := marshal(v)
		if err != nil {
			return nil, fault.New(fault.Internal, "encode the body: %v", err)
		}
		return b, nil
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, asFault(errors.New("a form is made of an object, and the body is none"))
	}
	form := url.Values{}
	for name, v := range object {
		if v == nil {
			continue
		}
		if err := (param{name: name}).write(v, form.Add); err != nil {
			return nil, badArgument(name, "%v", err)
		}
	}
	return []byte(form.Encode()), nil
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
