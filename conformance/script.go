package conformance

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/tools/txtar"
)

//go:embed *.txtar
var transcripts embed.FS

// A Level is how much of the protocol a worker speaks. Each has all of the one before.
type Level string

// The levels of docs/protocol.md.
const (
	Plain    Level = "plain"    // replies
	Standard Level = "standard" // errors, accept, cancel, heartbeat, nack
	Full     Level = "full"     // pieces, keys, claim checks, drain, discovery
)

var levels = []Level{Plain, Standard, Full}

// ParseLevel reads a level. The error names those that there are.
func ParseLevel(s string) (Level, error) {
	if l := Level(s); slices.Contains(levels, l) {
		return l, nil
	}
	return "", fmt.Errorf("level %.40q: expected plain, standard or full", s)
}

// includes says whether a worker of level l must pass a case of the other.
func (l Level) includes(other Level) bool {
	return slices.Index(levels, other) <= slices.Index(levels, l)
}

// A script is one case as it stands in a transcript.
type script struct {
	name  string
	file  string
	level Level
	fresh bool   // it needs a worker of its own
	root  string // first token of its subjects, where that is not tb
	each  string // the steps are played once for each of values, which $each names
	over  []string
	steps []step
}

// A step is one line.
type step struct {
	line int
	text string // as it stands there, for people
}

// loadScripts reads all transcripts, in the order of their names.
func loadScripts(from fs.FS) ([]*script, error) {
	files, err := fs.Glob(from, "*.txtar")
	if err != nil {
		return nil, err
	}
	var all []*script
	seen := map[string]string{}
	for _, file := range files {
		data, err := fs.ReadFile(from, file)
		if err != nil {
			return nil, err
		}
		archive := txtar.Parse(data)
		for _, f := range archive.Files {
			s, err := parseScript(file, f.Name, string(f.Data))
			if err != nil {
				return nil, err
			}
			if other := seen[s.name]; other != "" {
				return nil, fmt.Errorf("%s: case %s is also in %s", file, s.name, other)
			}
			seen[s.name] = file
			all = append(all, s)
		}
	}
	return all, nil
}

func parseScript(file, name, text string) (*script, error) {
	s := &script{name: name, file: file}
	for _, l := range logical(text) {
		if err := s.take(l); err != nil {
			return nil, fmt.Errorf("%s: %s:%d: %w", file, name, l.line, err)
		}
	}
	if s.level == "" {
		return nil, fmt.Errorf("%s: %s: it names no level", file, name)
	}
	if len(s.steps) == 0 {
		return nil, fmt.Errorf("%s: %s: it has no steps", file, name)
	}
	return s, nil
}

// logical is the lines of a case: without comments, and with those that begin with a blank added to the one before.
func logical(text string) []step {
	var lines []step
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case unicode.IsSpace(rune(line[0])) && len(lines) > 0:
			lines[len(lines)-1].text += " " + trimmed
		default:
			lines = append(lines, step{i + 1, trimmed})
		}
	}
	return lines
}

// take reads one line: something about the case, or a step.
func (s *script) take(l step) (err error) {
	words := strings.Fields(l.text)
	switch words[0] {
	case "level":
		s.level, err = ParseLevel(strings.Join(words[1:], " "))
	case "fresh":
		s.fresh = true
	case "prefix":
		if len(words) != 2 {
			return errors.New("prefix: expected a token")
		}
		s.fresh, s.root = true, words[1]
	case "each":
		if len(words) < 3 {
			return errors.New("each: expected a name and values")
		}
		s.each, s.over = words[1], words[2:]
	default:
		if verbs[words[0]] == nil {
			return fmt.Errorf("%q: there is no such step", words[0])
		}
		s.steps = append(s.steps, l)
	}
	return err
}

var variable = regexp.MustCompile(`\$[a-z]+(\(\w+\))?`)

// expand puts values in the place of $names. A name that nobody knows is an error.
func expand(text string, value func(name, arg string) (string, bool)) (string, error) {
	var unknown string
	out := variable.ReplaceAllStringFunc(text, func(v string) string {
		name, arg, _ := strings.Cut(strings.TrimSuffix(v[1:], ")"), "(")
		s, ok := value(name, arg)
		if !ok {
			unknown = v
		}
		return s
	})
	if unknown != "" {
		return "", fmt.Errorf("%s: there is no such variable", unknown)
	}
	return out, nil
}

// An order is a step that was taken apart.
type order struct {
	words   []string          // verb first
	options map[string]string // within=2s, attempt=2
	header  map[string]string // Tb-Key=…, Content-Type=…; and patterns of those in expect
	json    string            // the rest of the line, from the first word that begins with { [ or "
}

// take takes a step apart. A value in quotes is a Go string: Tb-Key="two words".
func take(text string) (order, error) {
	o := order{options: map[string]string{}, header: map[string]string{}}
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if strings.ContainsRune(`{["`, rune(text[0])) {
			o.json = text
			return o, nil
		}
		end := strings.IndexFunc(text, unicode.IsSpace)
		if end < 0 {
			end = len(text)
		}
		name, value, pair := strings.Cut(text[:end], "=")
		if !pair {
			o.words = append(o.words, name)
			text = text[end:]
			continue
		}
		rest := text[end:]
		if strings.HasPrefix(value, `"`) {
			quoted, err := strconv.QuotedPrefix(text[len(name)+1:])
			if err != nil {
				return o, fmt.Errorf("%s: a quote does not end", name)
			}
			rest = text[len(name)+1+len(quoted):]
			if value, err = strconv.Unquote(quoted); err != nil {
				return o, fmt.Errorf("%s: %w", name, err)
			}
		}
		if strings.ContainsRune(name, '-') || name == "traceparent" || name == "tracestate" || name == "baggage" {
			o.header[name] = value
		} else {
			o.options[name] = value
		}
		text = rest
	}
	return o, nil
}
