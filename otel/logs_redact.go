package otel

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
)

// gone stands where a secret stood.
const gone = "[redacted]"

// redacted takes secrets out of lines, by the names under which they stand and by what they look like. It is the last
// before the outlets, so that there is one place. It is a net, not a licence: arguments and results are not logged at all.
type redacted struct{ to outlets }

func (h redacted) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(redactAttr(a))
		return true
	})
	return h.to.Handle(ctx, clean)
}

func (h redacted) WithAttrs(attrs []slog.Attr) redacted {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = redactAttr(a)
	}
	return redacted{h.to.each(func(h slog.Handler) slog.Handler { return h.WithAttrs(clean) })}
}

func (h redacted) WithGroup(name string) redacted {
	return redacted{h.to.each(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })}
}

// secretNames are parts of names under which secrets stand. A number or a yes is none.
var secretNames = []string{"password", "passwd", "passphrase", "secret", "token", "apikey", "authorization", "credential", "cookie", "privatekey", "nkey", "seed", "jwt"}

func secretName(key string) bool {
	key = strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(key))
	for _, name := range secretNames {
		if strings.Contains(key, name) {
			return true
		}
	}
	return false
}

func redactAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindGroup:
		clean := make([]slog.Attr, len(v.Group()))
		for i, b := range v.Group() {
			if secretName(a.Key) && b.Value.Kind() == slog.KindString {
				b.Value = slog.StringValue(gone)
			}
			clean[i] = redactAttr(b)
		}
		a.Value = slog.GroupValue(clean...)
	case slog.KindString, slog.KindAny:
		if secretName(a.Key) {
			a.Value = slog.StringValue(gone)
			return a
		}
		a.Value = redactValue(v)
	default:
		a.Value = v
	}
	return a
}

// redactValue leaves a value as it is, where nothing in it looks like a secret. One that panics when it is asked for its
// words, as a nil pointer does that is an error, is named by its type alone: a line must not end who writes it.
func redactValue(v slog.Value) (clean slog.Value) {
	defer func() {
		if recover() != nil {
			clean = slog.StringValue(fmt.Sprintf("a %T that cannot be printed", v.Any()))
		}
	}()
	text := ""
	switch x := v.Any().(type) {
	case string:
		text = x
	case error:
		text = x.Error()
	case fmt.Stringer:
		text = x.String()
	case []byte:
		text = string(x)
	default:
		b, err := json.Marshal(x)
		if err != nil {
			text = fmt.Sprintf("%+v", x)
			break
		}
		text = string(b)
	}
	if clean := redact(text); clean != text {
		return slog.StringValue(clean)
	}
	return v
}

// looks are what secrets look like. What is in the first group stays.
var looks = []*regexp.Regexp{
	regexp.MustCompile(`(?i)("?\b[\w-]*(?:password|passwd|passphrase|secret|token|api[_-]?key|credentials?|private[_-]?key)"?\s*[=:]\s*[\["]*)[^\s"',;&)}\]]+`),
	regexp.MustCompile(`(?i)(\b(?:authorization|cookie)"?\s*[=:]\s*[\["]*)[^"\r\n]+`),
	regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+`),                  // JWTs
	regexp.MustCompile(`()\b(?:sk|pk|rk|ghp|gho|ghs|github_pat|xox[abp]|glpat)[-_][A-Za-z0-9_-]{16,}`), // keys of well-known services
	regexp.MustCompile(`()\bAKIA[0-9A-Z]{16}\b`),
	regexp.MustCompile(`(?s)()-----BEGIN [A-Z0-9 ]*(?:PRIVATE KEY|NKEY SEED|USER JWT)-----.*?(?:------?END [A-Z0-9 ]*-----|$)`),
}

// userinfo is a name and a password before the host of an address: up to the last @, for a password may have one.
var userinfo = regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/"]+@`)

// hints are what all that looks like a secret has one of: most lines have none, and cost no regular expression.
var hints = []string{"://", "ey", "pass", "secret", "token", "key", "cred", "auth", "cookie", "bearer", "basic", "begin", "akia", "sk", "pk", "rk", "gh", "xox", "glpat"}

// natsSeed is what the private half of a NATS key looks like: no word gives it away.
var natsSeed = regexp.MustCompile(`\bS[UANOCXP][A-Z2-7]{56}\b`)

const natsSeedLen = 58

// redact is s without what looks like a secret.
func redact(s string) string {
	if len(s) >= natsSeedLen {
		s = natsSeed.ReplaceAllString(s, gone)
	}
	if !suspicious(s) {
		return s
	}
	s = userinfo.ReplaceAllString(s, "${1}"+gone+"@")
	for _, look := range looks {
		s = look.ReplaceAllString(s, "${1}"+gone)
	}
	return s
}

func suspicious(s string) bool {
	low := strings.ToLower(s)
	return slices.ContainsFunc(hints, func(hint string) bool { return strings.Contains(low, hint) })
}
