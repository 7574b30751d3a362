package tool

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "flight_search", "A-1_b", strings.Repeat("x", MaxName)} {
		if err := CheckName(name); err != nil {
			t.Errorf("CheckName(%q) = %v, want nil", name, err)
		}
	}
	const use = "; use letters A-Z a-z, digits, _ and -"
	for _, c := range []struct{ name, want string }{
		{"", "tool name is empty"},
		{"a b", `tool name "a b": character 2 is ' ' (U+0020)` + use},
		{"a\r\nPUB x 1", `tool name "a\r\nPUB x 1": character 2 is '\r' (U+000D)` + use},
		{"*", `tool name "*": character 1 is '*' (U+002A)` + use},
		{">", `tool name ">": character 1 is '>' (U+003E)` + use},
		{"a..b", `tool name "a..b": character 2 is '.' (U+002E)` + use},
		{".a", `tool name ".a": character 1 is '.' (U+002E)` + use},
		{"a.", `tool name "a.": character 2 is '.' (U+002E)` + use},
		{"$JS.API.STREAM.PURGE.X", `tool name "$JS.API.STREAM.PURGE.X": character 1 is '$' (U+0024)` + use},
		{"_INBOX.x", `tool name "_INBOX.x": character 7 is '.' (U+002E)` + use},
		{"\x00", `tool name "\x00": character 1 is '\x00' (U+0000)` + use},
		{"a\u202e", `tool name "a\u202e": character 2 is '\u202e' (U+202E)` + use},
		{"ｗeather", `tool name "ｗeather": character 1 is 'ｗ' (U+FF57)` + use},
		{"a\xff", `tool name "a\xff": byte 2 (0xff) is not UTF-8` + use},
		{strings.Repeat("x", 5000), `tool name "` + strings.Repeat("x", 40) + `…" is 5000 bytes long, at most 64 are allowed`},
	} {
		err := CheckName(c.name)
		if err == nil || err.Error() != c.want {
			t.Errorf("CheckName(%.40q) = %v\nwant %s", c.name, err, c.want)
		}
	}
	if err := CheckID(strings.Repeat("x", MaxID)); err != nil {
		t.Errorf("CheckID(128 letters) = %v, want nil", err)
	}
	if err := CheckID(strings.Repeat("x", MaxID+1)); err == nil {
		t.Error("CheckID(129 letters) = nil, want an error")
	}
}

func TestSafeName(t *testing.T) {
	for _, c := range []struct{ foreign, want string }{
		{"flight_search", "flight_search"},
		{"a.b c", "a_b_c_8640d2e2"},
		{"a.b.c", "a_b_c_845e3044"},
		{"", "_e3b0c442"},
	} {
		if got := SafeName(c.foreign); c.want != "" && got != c.want {
			t.Errorf("SafeName(%q) = %s, want %s", c.foreign, got, c.want)
		}
	}
	seen := map[string]string{}
	for _, foreign := range []string{"", ".", "..", "é", "è", strings.Repeat("é", 300), strings.Repeat("é", 301), strings.Repeat("x", 65), "a/b", "a.b"} {
		got := SafeName(foreign)
		if err := CheckName(got); err != nil {
			t.Errorf("SafeName(%.20q) = %s: %v", foreign, got, err)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("SafeName(%.20q) = SafeName(%.20q) = %s", foreign, other, got)
		}
		seen[got] = foreign
	}
}

func TestNearest(t *testing.T) {
	known := []string{"flight_search", "flight_book", "hotel_search", "weather", "web_fetch", strings.Repeat("x", 65)}
	for _, c := range []struct {
		name string
		max  int
		want []string
	}{
		{"flight_serach", 3, []string{"flight_search", "flight_book"}},
		{"FLIGHT_SEARCH", 1, []string{"flight_search"}},
		{"search", 3, []string{"flight_search", "hotel_search"}},
		{"wether", 3, []string{"weather"}},
		{"weather_now", 3, []string{"weather"}},
		{"fetch", 3, []string{"web_fetch"}},
		{"delete_everything", 3, nil},
		{"", 3, nil},
		{"weather", 0, nil},
		{strings.Repeat("weather", 1000), 3, []string{"weather"}},
	} {
		if got := Nearest(c.name, known, c.max); !slices.Equal(got, c.want) {
			t.Errorf("Nearest(%.20q, %d) = %q, want %q", c.name, c.max, got, c.want)
		}
	}
}

func TestSlips(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abc", "ab", 1}, {"abc", "xbc", 1}, {"kitten", "sitting", 3}, {"", "abc", 3},
	} {
		if got := slips(c.a, c.b); got != c.want {
			t.Errorf("slips(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a.b", "a_b")
	f.Add("\xff\u202e", "x")
	f.Fuzz(func(t *testing.T, name, known string) {
		if err := CheckName(name); err != nil {
			if s := err.Error(); len(s) > 240 || !utf8.ValidString(s) || strings.ContainsAny(s, "\r\n\x00") {
				t.Errorf("CheckName(%q) = %q, want a short line", name, s)
			}
		}
		if safe := SafeName(name); CheckName(safe) != nil {
			t.Errorf("SafeName(%q) = %q, which is not legal", name, safe)
		}
		Nearest(name, []string{known}, 1)
	})
}

// Small letters of what is not UTF-8 are longer than the letters were, if one asks package strings.
func TestNearestOfBytes(t *testing.T) {
	odd := strings.Repeat("\x89", MaxName)
	if got := Nearest(odd, []string{odd, "a"}, 2); !slices.Equal(got, []string{odd}) {
		t.Errorf("Nearest(64 stray bytes) = %q", got)
	}
}
