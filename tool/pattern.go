package tool

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Bounds of a pattern in a schema.
const (
	MaxPattern = 1024   // bytes
	maxRepeat  = 10_000 // how often counted repetitions, multiplied as they nest, may repeat something

	matchTimeout = 50 * time.Millisecond // of one match that backtracks
	maxTimeouts  = 4                     // after so many in one validation no backtracking pattern is tried any more
)

// A matcher is a pattern of a schema: ECMA-262, as JSON Schema asks.
//
// Most patterns mean the same to Go's regexp once a few escapes are spelt out. Those run there, in time linear in the
// text whatever it is. Look-around, back-references and other rarities backtrack in regexp2, each match under a timeout
// and all of one validation under trouble's count.
type matcher struct {
	source  string
	linear  *regexp.Regexp
	slow    *regexp2.Regexp
	trouble *trouble
}

// A trouble counts what took too long within one validation. Schemas that backtrack are validated one at a time, under
// its lock; few schemas do, and it is the only way to bound the time of a validation as a whole.
type trouble struct {
	mu       sync.Mutex
	timeouts int
	slow     map[string]bool // patterns that took too long
}

func (m *matcher) String() string { return m.source }

// MatchString is false for what takes too long; trouble remembers that it was.
func (m *matcher) MatchString(s string) bool {
	if m.linear != nil {
		return m.linear.MatchString(s)
	}
	if m.trouble.timeouts < maxTimeouts {
		ok, err := m.slow.MatchString(s)
		if err == nil {
			return ok
		}
	}
	m.trouble.timeouts++
	m.trouble.slow[m.source] = true
	return false
}

// engine compiles patterns for one schema. backtracks becomes true when one of them needs regexp2.
func engine(t *trouble, backtracks *atomic.Bool) jsonschema.RegexpEngine {
	return func(source string) (jsonschema.Regexp, error) {
		if err := checkPattern(source); err != nil {
			return nil, err
		}
		if source, ok := toLinear(source); ok {
			if re, err := regexp.Compile(source); err == nil {
				return &matcher{source: source, linear: re}, nil
			}
		}
		re, err := compileSlow(source)
		if err != nil {
			return nil, err
		}
		backtracks.Store(true)
		return &matcher{source: source, slow: re, trouble: t}, nil
	}
}

// The clock behind regexp2's timeouts ticks every 100 ms unless told otherwise.
var tick = sync.OnceFunc(func() { regexp2.SetTimeoutCheckPeriod(10 * time.Millisecond) })

func compileSlow(source string) (*regexp2.Regexp, error) {
	tick()
	re, err := regexp2.Compile(source, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, errors.New("not a regular expression of ECMA-262: " + plain(err.Error(), 160))
	}
	re.MatchTimeout = matchTimeout
	return re, nil
}

// checkPattern refuses patterns that are too long, or that repeat too often to be compiled or matched with care.
func checkPattern(source string) error {
	if len(source) > MaxPattern {
		return fmt.Errorf("pattern %s is %d bytes long, at most %d are allowed", quote(source, maxShown), len(source), MaxPattern)
	}
	if repeats(source) > maxRepeat {
		return fmt.Errorf("pattern %s repeats something more than %d times", quote(source, maxShown), maxRepeat)
	}
	return nil
}

// repeats is the largest product of nested counted repetitions: 6 for (a{2}b){3}.
func repeats(source string) int {
	inner := []int{1} // for each open group, the largest product inside
	atom := 1         // of what stands before a quantifier
	flush := func() {
		top := len(inner) - 1
		inner[top] = max(inner[top], atom)
		atom = 1
	}
	for i := 0; i < len(source); i++ {
		switch source[i] {
		case '\\':
			flush()
			i++
		case '[':
			flush()
			i = classEnd(source, i)
		case '(':
			flush()
			inner = append(inner, 1)
		case ')':
			flush()
			if top := len(inner) - 1; top > 0 {
				atom = inner[top]
				inner = inner[:top]
			}
		case '{':
			n, end := braces(source, i)
			atom = min(atom*n, maxRepeat+1)
			i = end
		case '?', '*', '+':
		default:
			flush()
		}
	}
	for len(inner) > 0 {
		flush()
		atom = inner[len(inner)-1]
		inner = inner[:len(inner)-1]
	}
	return atom
}

// braces reads {n}, {n,} or {n,m} at i: the larger number and where the brace closes. Another brace is a letter.
func braces(source string, i int) (int, int) {
	most, n := 1, 0
	for j := i + 1; j < len(source); j++ {
		switch c := source[j]; {
		case '0' <= c && c <= '9':
			n = min(n*10+int(c-'0'), maxRepeat+1)
			most = max(most, n)
		case c == ',':
			n = 0
		case c == '}':
			return most, j
		default:
			return 1, i
		}
	}
	return 1, i
}

// classEnd is where the class that begins at i ends.
func classEnd(source string, i int) int {
	for j := i + 1; j < len(source); j++ {
		switch source[j] {
		case '\\':
			j++
		case ']':
			return j
		}
	}
	return len(source)
}

const (
	ecmaSpace = `\t\n\v\f\r \x{a0}\x{feff}\x{2028}\x{2029}\p{Zs}`
	ecmaDot   = `[^\n\r\x{2028}\x{2029}]`
)

// toLinear spells an ECMA-262 pattern for Go's regexp. It is false where the two may disagree.
func toLinear(source string) (string, bool) {
	if !utf8.ValidString(source) {
		return "", false
	}
	var b strings.Builder
	class := false
	for i := 0; i < len(source); i++ {
		c := source[i]
		rest := source[i+1:]
		switch {
		case c == '\\':
			spelt, n, ok := toLinearEscape(rest, class)
			if !ok {
				return "", false
			}
			b.WriteString(spelt)
			i += n
			continue
		case class:
			if c == '[' {
				return "", false // [[:alpha:]] is a class of letters here and a set with a bracket there
			}
			class = c != ']'
		case c == '[':
			if strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "^]") {
				return "", false // the empty class, and its opposite
			}
			class = true
		case c == '(':
			if strings.HasPrefix(rest, "?") && !strings.HasPrefix(rest, "?:") {
				return "", false
			}
		case c == '.':
			b.WriteString(ecmaDot)
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// toLinearEscape spells what follows a backslash, and says how many bytes that was.
func toLinearEscape(rest string, class bool) (string, int, bool) {
	if rest == "" {
		return "", 0, false
	}
	switch c := rest[0]; {
	case c == 's' && class:
		return ecmaSpace, 1, true
	case c == 's':
		return "[" + ecmaSpace + "]", 1, true
	case c == 'S' && !class:
		return "[^" + ecmaSpace + "]", 1, true
	case strings.IndexByte("dDwWnrtfv", c) >= 0, (c == 'b' || c == 'B') && !class:
		return `\` + rest[:1], 1, true
	case c == 'p' || c == 'P':
		return `\` + rest[:1], 1, true // what Go does not know it refuses
	case c == 'u' && len(rest) >= 5 && isHex(rest[1:5]) && rest[1]|0x20 != 'd':
		return `\x{` + rest[1:5] + `}`, 5, true
	case ' ' < c && c < 0x7f && (!legal(c) || c == '_' || c == '-'):
		return `\` + rest[:1], 1, true
	}
	return "", 0, false
}

func isHex(s string) bool {
	for i := range len(s) {
		if strings.IndexByte("0123456789abcdef", lower(s[i])) < 0 {
			return false
		}
	}
	return true
}
