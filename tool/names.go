package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of names and ids, in bytes. A tool name is one NATS token and also what every model API allows (design §4).
const (
	MaxName = 64
	MaxID   = 128
)

// Reserved is the one name that no tool has: it stands where a tool's name would in the replies to a turn request.
const Reserved = "_turn"

// CheckName says what is wrong with a tool name, or nil. A name is 1 to 64 of A–Z, a–z, 0–9, _ and -. What it quotes is
// escaped and short, so the error may be logged whatever the name was.
func CheckName(name string) error {
	if name == Reserved {
		return errors.New("tool name " + Reserved + " is reserved; use another")
	}
	return checkToken("tool name", name, MaxName)
}

// CheckID says what is wrong with the id of a turn, call, worker or executor, or nil: the same characters as in a name,
// 1 to 128 of them.
func CheckID(id string) error { return checkToken("id", id, MaxID) }

func checkToken(what, s string, max int) error {
	if s == "" {
		return errors.New(what + " is empty")
	}
	if len(s) > max {
		return fmt.Errorf("%s %s is %d bytes long, at most %d are allowed", what, quote(s, 40), len(s), max)
	}
	if i := firstIllegal(s); i >= 0 {
		r, w := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && w == 1 {
			return fmt.Errorf("%s %s: byte %d (0x%02x) is not UTF-8; use letters A-Z a-z, digits, _ and -", what, quote(s, 60), i+1, s[i])
		}
		return fmt.Errorf("%s %s: character %d is %q (%U); use letters A-Z a-z, digits, _ and -",
			what, quote(s, 60), utf8.RuneCountInString(s[:i])+1, r, r)
	}
	return nil
}

func firstIllegal(s string) int {
	for i := range len(s) {
		if !legal(s[i]) {
			return i
		}
	}
	return -1
}

func legal(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// SafeName maps any foreign name to a legal one, always the same. A legal name maps to itself. In any other each run of
// illegal characters becomes one _, and eight hex digits of the name's SHA-256 follow, so that distinct foreign names
// stay distinct. Who needs the way back keeps a table.
func SafeName(foreign string) string {
	if CheckName(foreign) == nil {
		return foreign
	}
	const room = MaxName - 1 - 8
	safe := make([]byte, 0, MaxName)
	for i := 0; i < len(foreign) && len(safe) < room; i++ {
		switch c := foreign[i]; {
		case legal(c):
			safe = append(safe, c)
		case len(safe) == 0 || safe[len(safe)-1] != '_':
			safe = append(safe, '_')
		}
	}
	sum := sha256.Sum256([]byte(foreign))
	safe = append(safe, '_')
	return string(hex.AppendEncode(safe, sum[:4]))
}

// Nearest gives up to max of the known names that somebody who wrote name may have meant, the nearest first, equally
// near ones by name. It knows slips of the finger (case, a letter more, less, other or swapped), beginnings, parts, and
// shared words. What is beyond hope is left out.
func Nearest(name string, known []string, max int) []string {
	type near struct {
		name     string
		distance int
	}
	name = fold(name[:min(len(name), MaxName)])
	var found []near
	for _, k := range known {
		if len(k) > MaxName {
			continue
		}
		if d, ok := distance(name, fold(k)); ok {
			found = append(found, near{k, d})
		}
	}
	slices.SortFunc(found, func(a, b near) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	var names []string
	for _, f := range found {
		if len(names) >= max {
			break
		}
		names = append(names, f.name)
	}
	return names
}

// fold is s with its letters A to Z small, and of the same length whatever else it holds.
func fold(s string) string {
	b := []byte(s)
	for i, c := range b {
		b[i] = lower(c)
	}
	return string(b)
}

// distance counts the slips between two lower-case names. A beginning or a part counts as two slips, a shared word as
// three. It is false where two names have nothing in common.
func distance(a, b string) (int, bool) {
	best := slips(a, b)
	allowed := max(1, min(len(a), len(b))/3)
	hope := best <= allowed

	short, long := a, b
	if len(short) > len(long) {
		short, long = long, short
	}
	switch {
	case len(short) >= 3 && strings.Contains(long, short):
		best, hope = min(best, 2), true
	case sharesWord(a, b):
		best, hope = min(best, 3), true
	}
	return best, hope
}

func sharesWord(a, b string) bool {
	split := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == '_' || r == '-' || r == '.' || r == ' ' })
	}
	words := split(b)
	for _, w := range split(a) {
		if len(w) >= 3 && slices.Contains(words, w) {
			return true
		}
	}
	return false
}

// slips is the optimal string alignment distance of two strings of at most MaxName bytes: Levenshtein's, with two
// swapped neighbours as one slip. Far apart in length, it is not worked out: the difference is enough to know.
func slips(a, b string) int {
	if d := max(len(a), len(b)) - min(len(a), len(b)); d > MaxName/3 {
		return d
	}
	var rows [3][MaxName + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
