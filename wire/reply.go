package wire

import "strings"

// A ReplyRule says where a worker may answer. The caller chooses the reply subject of a request, and a worker that
// answers anywhere is somebody else's hand: an echo worker that was asked with the reply $JS.API.STREAM.PURGE.X purged
// the stream. Permissions on the server should say the same, without allow_responses.
//
// It allows the replies and durable results of the tool that was called, inboxes (_INBOX and custom prefixes that begin
// with _INBOX_), and _R_, which the server puts in the place of a reply that crosses accounts. It never allows a subject
// that begins with $, has a wildcard, an empty token, a blank, a control or non-ASCII character, or more than MaxSubject
// bytes. Make it with NewReplyRule; the zero value allows inboxes only. It is safe for many goroutines.
type ReplyRule struct {
	reply, res string
	extra      []string
}

// NewReplyRule allows also subjects below the extra prefixes, each one or more whole tokens: "acme.inbox" is for
// acme.inbox.x, not for acme.inboxes.x. An extra one that is empty or begins with $ is ignored.
func NewReplyRule(s Subjects, extra ...string) ReplyRule {
	r := ReplyRule{reply: s.root + "reply.", res: s.root + "res."}
	for _, prefix := range extra {
		prefix = strings.TrimSuffix(prefix, ".")
		if plain(prefix) {
			r.extra = append(r.extra, prefix+".")
		}
	}
	return r
}

// Allows reports whether a worker that was called as tool may publish to reply. It allocates nothing.
func (r ReplyRule) Allows(reply, tool string) bool {
	if !plain(reply) {
		return false
	}
	first, _, more := strings.Cut(reply, ".")
	if !more {
		return false
	}
	if first == "_INBOX" || first == "_R_" || strings.HasPrefix(first, "_INBOX_") {
		return true
	}
	if below(reply, r.reply, tool) || below(reply, r.res, tool) {
		return true
	}
	for _, prefix := range r.extra {
		if strings.HasPrefix(reply, prefix) {
			return true
		}
	}
	return false
}

// below reports whether subject is root, then tool, then a dot and more.
func below(subject, root, tool string) bool {
	rest, ok := strings.CutPrefix(subject, root)
	if !ok || root == "" || !isName(tool) {
		return false
	}
	rest, ok = strings.CutPrefix(rest, tool)
	return ok && strings.HasPrefix(rest, ".")
}

// plain reports whether s is a subject to publish to that is not the server's own.
func plain(s string) bool {
	if s == "" || len(s) > MaxSubject || s[0] == '$' || s[len(s)-1] == '.' {
		return false
	}
	last := byte('.')
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || c == '*' || c == '>' || c == '.' && last == '.' {
			return false
		}
		last = c
	}
	return true
}
