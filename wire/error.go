package wire

import (
	"fmt"
	"strings"
)

// A Code says in one word why something from the bus was refused. The words are the same in every language; they are
// what testdata/hostile.json expects.
type Code string

// The codes of an Error.
const (
	CodeEmpty       Code = "empty"        // there is nothing
	CodeTruncated   Code = "truncated"    // it ends too early, or a length is more than what is left
	CodeTooDeep     Code = "too_deep"     // containers within containers
	CodeTooMany     Code = "too_many"     // values in one record
	CodeTooLarge    Code = "too_large"    // bytes
	CodeReserved    Code = "reserved"     // MessagePack's 0xc1
	CodeExtension   Code = "extension"    // a MessagePack extension type
	CodeKey         Code = "key"          // a map key that is not a string
	CodeText        Code = "utf8"         // a string that is not UTF-8
	CodeNumber      Code = "number"       // an integer beyond ±2^53, a NaN or an infinity
	CodeTrailing    Code = "trailing"     // more bytes after the end
	CodeJSON        Code = "json"         // not JSON
	CodeType        Code = "type"         // well formed, but not of the record's types
	CodeRecord      Code = "record"       // well typed, but it breaks the record's rules
	CodeVersion     Code = "version"      // of another protocol version
	CodeContentType Code = "content_type" // neither JSON nor MessagePack
	CodeHeader      Code = "header"
	CodeName        Code = "name" // of a prefix, tool, worker or call
	CodeCallRef     Code = "call_ref"
	CodeBlobRef     Code = "blob_ref"
	CodeArgument    Code = "argument" // our own side passed what cannot be encoded or decoded
)

// An Error is a refusal: what was wrong with something that came from the bus, or was about to go there. It quotes at
// most a few escaped bytes of it, so it may be logged.
type Error struct {
	Code    Code
	Message string // a sentence for people
	Offset  int    // the byte at which it went wrong; 0 also where that means nothing

	// Problems are, with CodeRecord, what is in Message one by one, the first twenty of them. Nil with other codes.
	Problems []Problem
}

// A Problem is one rule of a record that is broken.
type Problem struct {
	Field   string // where, as in calls[2].alternatives[0].tool
	Message string // what was expected and what was there
}

func (e *Error) Error() string {
	if e.Offset > 0 {
		return fmt.Sprintf("%s (%s at byte %d)", e.Message, e.Code, e.Offset)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Code)
}

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// quote is s as a Go string literal, cut to what a message may show.
func quote(s string) string {
	const shown = 60
	if len(s) > shown {
		return fmt.Sprintf("%+q and %d bytes more", s[:shown], len(s)-shown)
	}
	return fmt.Sprintf("%+q", s)
}

// problems collects what is wrong with a record, so that its sender hears all of it at once.
type problems struct {
	list []string
	more int
}

func (p *problems) add(format string, args ...any) {
	const told = 20
	if len(p.list) == told {
		p.more++
		return
	}
	p.list = append(p.list, fmt.Sprintf(format, args...))
}

// within puts a place before the problems that were added since there were n.
func (p *problems) within(n int, format string, args ...any) {
	for i := n; i < len(p.list); i++ {
		p.list[i] = fmt.Sprintf(format, args...) + p.list[i]
	}
}

func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	text := strings.Join(p.list, "; ")
	if p.more > 0 {
		text += fmt.Sprintf("; and %d problems more", p.more)
	}
	e := &Error{Code: CodeRecord, Message: text}
	for _, problem := range p.list {
		field, message, _ := strings.Cut(problem, ": ") // no field has a colon
		e.Problems = append(e.Problems, Problem{field, message})
	}
	return e
}
