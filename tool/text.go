package tool

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// quote is s as a Go string literal of about max bytes: what does not print is escaped, the rest is cut off.
func quote(s string, max int) string {
	return `"` + printable(s, max, `"\`) + `"`
}

// plain is s in about max bytes, with what does not print escaped.
func plain(s string, max int) string { return printable(s, max, "") }

// printable escapes what does not print, and the characters of special.
func printable(s string, max int, special string) string {
	b := make([]byte, 0, min(len(s), max)+8)
	for i, w := 0, 0; i < len(s); i += w {
		var r rune
		r, w = utf8.DecodeRuneInString(s[i:])
		piece := s[i : i+w]
		switch {
		case r == utf8.RuneError && w == 1:
			piece = fmt.Sprintf(`\x%02x`, s[i])
		case strings.ContainsRune(special, r):
			piece = `\` + piece
		case !strconv.IsPrint(r):
			lit := strconv.QuoteRune(r)
			piece = lit[1 : len(lit)-1]
		}
		if len(b)+len(piece) > max {
			return string(b) + "…"
		}
		b = append(b, piece...)
	}
	return string(b)
}

// cut is s, or its beginning and an ellipsis where it is longer than max bytes.
func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	for max > 0 && !utf8.RuneStart(s[max]) {
		max--
	}
	return s[:max] + "…"
}

// list joins what it is given with commas up to max bytes, and says how many it left out.
func list(items []string, max int) string {
	var b strings.Builder
	for i, item := range items {
		if i > 0 && b.Len()+len(item) > max {
			return fmt.Sprintf("%s, … (%d in all)", b.String(), len(items))
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(item)
	}
	return b.String()
}

// plural is "1 item" or "3 items".
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

const maxShown = 40 // bytes of a value that a message may quote

// show is a JSON value in a few words: its type, and a short one itself.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return fmt.Sprintf("boolean (%t)", v)
	case json.Number:
		return "number (" + cut(v.String(), maxShown) + ")"
	case string:
		return "string (" + quote(v, maxShown) + ")"
	case []any:
		return "array (" + plural(len(v), "item") + ")"
	case map[string]any:
		return "object (" + plural(len(v), "property") + ")"
	}
	return fmt.Sprintf("%T", v)
}

// typeName is the JSON type of v.
func typeName(v any) string {
	word, _, _ := strings.Cut(show(v), " ")
	return word
}

// literal is a JSON value as one would write it, cut to what may be quoted.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return cut(v.String(), maxShown)
	case string:
		return quote(v, maxShown)
	}
	return show(v)
}

// escape makes a token of a JSON pointer (RFC 6901).
func escape(token string) string {
	if !strings.ContainsAny(token, "~/") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}

// unescape is the other way round.
func unescape(token string) string {
	if !strings.Contains(token, "~") {
		return token
	}
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// pointer makes a JSON pointer of unescaped tokens.
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(escape(t))
	}
	return b.String()
}
