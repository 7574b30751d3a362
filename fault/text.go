package fault

import "unicode/utf8"

// Truncate is s in at most max bytes, cut between runes and ended with "…" where something was cut. A max below the
// three bytes of "…" leaves no room for it.
func Truncate(s string, max int) string {
	const mark = "…"
	if len(s) <= max {
		return s
	}
	if max < len(mark) {
		return cut(s, max)
	}
	return cut(s, max-len(mark)) + mark
}

// cut is the longest prefix of s that has at most n bytes and splits no rune.
func cut(s string, n int) string {
	if n <= 0 {
		return ""
	}
	for i := n; i > 0 && n-i < utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // not UTF-8, or n is within the first rune
}
