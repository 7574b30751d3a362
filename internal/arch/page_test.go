package arch

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// docs/architecture.md has a row for every box, with what it may import.
func TestThePageShowsTheTable(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(line, "|")
		if len(cells) == 5 && strings.HasPrefix(line, "| `") {
			name := strings.Trim(cells[1], " `")
			if _, twice := shown[name]; !twice { // later tables are about other things
				shown[name] = strings.TrimSpace(cells[3])
			}
		}
	}
	for box, r := range drawing {
		want := "all"
		if !slices.Contains(r.imports, "*") {
			names := make([]string, len(r.imports))
			for i, name := range r.imports {
				names[i] = "`" + name + "`"
			}
			want = strings.Join(names, ", ")
		}
		if got, ok := shown[box]; !ok || got != want {
			t.Errorf("docs/architecture.md: the row of %s says %q, want %q", box, got, want)
		}
		if !strings.Contains(string(page), box) {
			t.Errorf("docs/architecture.md does not draw %s", box)
		}
	}
	for name := range shown {
		if _, ok := drawing[name]; !ok && !strings.Contains(name, ".") {
			t.Errorf("docs/architecture.md has a row for %s, which is not in the drawing", name)
		}
	}
}
