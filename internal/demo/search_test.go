package demo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
)

// tree writes files, by path and text, below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFileSearch(t *testing.T) {
	outside := tree(t, map[string]string{"secret.txt": "needle outside"})
	dir := tree(t, map[string]string{
		"a.txt":       "hay\nneedle one\r\nNeedle two",
		"sub/b.go":    "// needle three",
		"sub/c.txt":   strings.Repeat("x", 1000) + "needle" + strings.Repeat("y", 1000),
		".hidden":     "needle",
		".git/config": "needle",
		"binary":      "needle\x00needle",
	})
	for name, target := range map[string]string{"out": outside, "out.txt": filepath.Join(outside, "secret.txt"), "up": ".."} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ name, args, want string }{
		{"text", `{"query":"needle ","name":"*.txt"}`, `[{"path":"a.txt","line":2,"text":"needle one"}]`},
		{"ignoring case", `{"query":"NEEDLE T","ignore_case":true}`, `[{"path":"a.txt","line":3,"text":"Needle two"},{"path":"sub/b.go","line":1,"text":"// needle three"}]`},
		{"an expression", `{"query":"o[nx]e$|t.o$","regexp":true}`, `[{"path":"a.txt","line":3,"text":"Needle two"}]`},
		{"a folder", `{"query":"needle","path":"sub","name":"*.go"}`, `[{"path":"sub/b.go","line":1,"text":"// needle three"}]`},
		{"a dot is a dot", `{"query":"n.edle"}`, `[]`},
		{"nothing outside", `{"query":"outside"}`, `[]`},
		{"a link out of it", `{"query":"outside","path":"out"}`, ``},
	} {
		got, f := call(t, Config{Dir: dir}, "file_search", tc.args)
		if tc.want == "" {
			if f == nil {
				t.Errorf("%s: %s, want a fault", tc.name, got)
			}
			continue
		}
		if f != nil || !strings.HasPrefix(got, `{"matches":`+tc.want+`,`) {
			t.Errorf("%s: %s, %v, want %s", tc.name, got, f, tc.want)
		}
	}

	got, f := call(t, Config{Dir: dir}, "file_search", `{"query":"needle","path":"sub","name":"c.txt"}`)
	if f != nil || strings.Count(got, "x") > maxMatchLine || !strings.Contains(got, "needle") {
		t.Errorf("a long line = %s, %v, want the part around the match", got, f)
	}
	got, f = call(t, Config{Dir: dir}, "file_search", `{"query":"needle","limit":1}`)
	if f != nil || !strings.Contains(got, `"truncated":true`) || strings.Count(got, `"path"`) != 1 {
		t.Errorf("a limit of 1 = %s, %v, want one match and truncated", got, f)
	}
}

func TestFileSearchMistakes(t *testing.T) {
	dir := tree(t, map[string]string{"a": "x", ".git/config": "x"})
	for args, want := range map[string]struct {
		kind    fault.Kind
		message string
	}{
		`{"query":"(","regexp":true}`:      {fault.InvalidArguments, "query must be an RE2 regular expression"},
		`{"query":"x","path":"../"}`:       {fault.InvalidArguments, "without .."},
		`{"query":"x","path":"/etc"}`:      {fault.InvalidArguments, "below the one"},
		`{"query":"x","path":".git"}`:      {fault.InvalidArguments, "hidden"},
		`{"query":"x","path":"a/../.git"}`: {fault.InvalidArguments, "hidden"},
		`{"query":"x","path":"nope"}`:      {fault.NotFound, "there is no folder nope"},
		`{"query":"x","name":"["}`:         {fault.InvalidArguments, "a pattern such as"},
	} {
		_, f := call(t, Config{Dir: dir}, "file_search", args)
		wantFault(t, args, f, want.kind, want.message)
	}
}

func TestFileSearchEndsWithItsContext(t *testing.T) {
	files := map[string]string{}
	for i := range 50 {
		files[fmt.Sprintf("f%d", i)] = "x"
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, f := callCtx(ctx, t, Config{Dir: tree(t, files)}, "file_search", `{"query":"x"}`)
	wantFault(t, "a cancelled search", f, fault.Cancelled, "")
}
