package tool

import (
	"fmt"
	"strings"
)

// A Problem is one mistake in a manifest.
type Problem struct {
	File    string // empty where there is no file
	Line    int    // from 1; 0 where there is none to name
	Field   string // "retry_policy.max_attempts"; empty where the whole is meant
	Message string // what was expected and what was got

	at string // pointer into the field, for a schema or default
}

// String is "flight.yaml:12: retry_policy.max_attempts: expected a whole number of at least 1, got "three"".
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File + ":")
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:", p.Line)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	return b.String() + p.Message
}

// Problems is every mistake of a manifest at once, in the order of the file where there is one.
type Problems []Problem

// Error has one line for each problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}
