package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A matcher compares what came with a pattern. See README.md for the words that it knows.
type matcher struct {
	exact bool // objects have no other members
	vars  map[string]string
	diffs []string
}

// decode reads JSON without losing digits.
func decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more after the end")
	}
	return v, nil
}

func (m *matcher) say(at, format string, args ...any) {
	if at == "" {
		at = "the whole"
	}
	m.diffs = append(m.diffs, at+": "+fmt.Sprintf(format, args...))
}

// match notes every difference.
func (m *matcher) match(at string, want, got any) {
	switch w := want.(type) {
	case map[string]any:
		m.object(at, w, got)
	case []any:
		m.list(at, w, got)
	case string:
		m.text(at, w, got)
	case json.Number:
		g, ok := got.(json.Number)
		if !ok || !sameNumber(w, g) {
			m.say(at, "got %s, want %s", show(got), w)
		}
	default: // true, false, null
		if want != got {
			m.say(at, "got %s, want %s", show(got), show(want))
		}
	}
}

func (m *matcher) object(at string, want map[string]any, got any) {
	g, ok := got.(map[string]any)
	if !ok {
		m.say(at, "got %s, want an object", show(got))
		return
	}
	for name, w := range want {
		v, there := g[name]
		if !there {
			v = absent{}
		}
		m.match(at+"/"+name, w, v)
	}
	for name, v := range g {
		if _, ok := want[name]; !ok && m.exact {
			m.say(at+"/"+name, "got %s, want nothing", show(v))
		}
	}
}

// An absent is what is not there.
type absent struct{}

func (m *matcher) list(at string, want []any, got any) {
	g, ok := got.([]any)
	if !ok {
		m.say(at, "got %s, want a list", show(got))
		return
	}
	if len(want) > 0 && want[0] == "<contains>" {
		for _, w := range want[1:] {
			if !slices.ContainsFunc(g, func(v any) bool { return m.like(w, v) }) {
				m.say(at, "got %s, want %s in it", show(got), show(w))
			}
		}
		return
	}
	if len(g) != len(want) {
		m.say(at, "got %d items, want %d: %s", len(g), len(want), show(got))
		return
	}
	for i := range want {
		m.match(at+"/"+strconv.Itoa(i), want[i], g[i])
	}
}

// like is match with yes or no for an answer.
func (m *matcher) like(want, got any) bool {
	try := matcher{exact: m.exact, vars: m.vars}
	try.match("", want, got)
	return len(try.diffs) == 0
}

var word = regexp.MustCompile(`^<([a-z]+)(?: (.*))?>$`)

func (m *matcher) text(at, want string, got any) {
	parts := word.FindStringSubmatch(want)
	if parts == nil {
		if got != want {
			m.say(at, "got %s, want %s", show(got), show(want))
		}
		return
	}
	if why := m.word(parts[1], parts[2], got); why != "" {
		m.say(at, "got %s, want %s", show(got), why)
	}
}

// word says what was wanted, where got is not that.
func (m *matcher) word(name, arg string, got any) string {
	s, isText := got.(string)
	n, isNumber := got.(json.Number)
	_, missing := got.(absent)
	ok, wanted := false, "<"+strings.TrimSpace(name+" "+arg)+">"
	switch name {
	case "any":
		ok = !missing
	case "absent":
		ok = missing
	case "empty":
		list, isList := got.([]any)
		ok = missing || got == nil || isText && s == "" || isNumber && n.String() == "0" || got == false || isList && len(list) == 0
	case "text":
		ok = isText && s != ""
	case "len":
		ok = isText && strconv.Itoa(len(s)) == arg
	case "like":
		re, err := regexp.Compile(arg)
		ok = err == nil && isText && re.MatchString(s)
	case "number":
		ok = isNumber && within(n, arg)
	case "save":
		ok = !missing
		m.vars[arg] = show(got)
	default:
		return wanted + ", a word that nobody knows: the transcript is wrong"
	}
	if ok {
		return ""
	}
	return wanted
}

// within reads "1..5"; an empty range is any.
func within(n json.Number, bounds string) bool {
	v, err := n.Float64()
	if err != nil {
		return false
	}
	from, to, ok := strings.Cut(bounds, "..")
	if !ok {
		return bounds == ""
	}
	low, err1 := strconv.ParseFloat(from, 64)
	high, err2 := strconv.ParseFloat(to, 64)
	return err1 == nil && err2 == nil && low <= v && v <= high
}

func sameNumber(a, b json.Number) bool {
	if a == b {
		return true
	}
	x, err1 := a.Float64()
	y, err2 := b.Float64()
	return err1 == nil && err2 == nil && x == y
}

// show is a value for people, shortened.
func show(v any) string {
	if _, missing := v.(absent); missing {
		return "nothing"
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return short(strings.TrimSpace(b.String()))
}

func short(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
