package registry

import (
	"cmp"
	"strings"
)

// compareVersions orders the versions of manifests. Numbers with dots between them (a leading v is allowed) compare as
// numbers and are above everything else, so that 2.0.0-rc1 does not win over 1.9; the rest compares as text; none is
// lowest.
func compareVersions(a, b string) int {
	x, xok := numbers(a)
	y, yok := numbers(b)
	switch {
	case xok && yok:
		return compareNumbers(x, y)
	case xok:
		return 1
	case yok:
		return -1
	}
	return cmp.Compare(a, b)
}

// numbers splits 1.20.3 into its numbers, as text without leading zeros.
func numbers(v string) ([]string, bool) {
	parts := strings.Split(strings.TrimPrefix(v, "v"), ".")
	for i, p := range parts {
		if p == "" || strings.Trim(p, "0123456789") != "" {
			return nil, false
		}
		parts[i] = strings.TrimLeft(p, "0")
	}
	return parts, true
}

// compareNumbers compares them one by one; what is missing counts as 0. Of two numbers without leading zeros the longer
// one is greater, so nothing has to fit an int.
func compareNumbers(x, y []string) int {
	for i := range max(len(x), len(y)) {
		var a, b string
		if i < len(x) {
			a = x[i]
		}
		if i < len(y) {
			b = y[i]
		}
		if c := cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)); c != 0 {
			return c
		}
	}
	return 0
}
