// Package docs_test holds the pages to what is there: tables, names, and code that stands in two places.
package docs_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/internal/command"
	"github.com/toolbus/toolbus/tool"
	"github.com/toolbus/toolbus/wire"
)

var update = flag.Bool("update", false, "write generated parts of the pages anew")

const root = ".."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// hold checks that a page is as it should be, or with -update makes it so.
func hold(t *testing.T, name, have, want string) {
	t.Helper()
	switch {
	case have == want:
	case *update:
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not as the code is; run go test ./docs -update, and look at the difference", name)
	}
}

// A block of code that begins with <!-- file: x --> is the file x.
func TestCodeInPagesIsTheFile(t *testing.T) {
	block := regexp.MustCompile("(?s)<!-- file: ([^ ]+) -->\n```go\n(.*?)```\n")
	page := read(t, "README.md")
	found := 0
	want := block.ReplaceAllStringFunc(page, func(s string) string {
		found++
		name := block.FindStringSubmatch(s)[1]
		return "<!-- file: " + name + " -->\n```go\n" + read(t, name) + "```\n"
	})
	if found != 3 {
		t.Errorf("README.md shows %d files, want 3", found)
	}
	hold(t, "README.md", page, want)
}

func TestTableOfKinds(t *testing.T) {
	var b strings.Builder
	b.WriteString("| Kind | Class | Run | Retry | Breaker | Fixed by | HTTP |\n|---|---|---|---|---|---|---|\n")
	for _, k := range fault.Kinds() {
		s := k.Spec()
		counts := "no"
		if s.CountsForBreaker {
			counts = "counts"
		}
		fixed := s.FixedBy
		if fixed == "" {
			fixed = "–"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %d |\n", k, s.Class, s.Execution, s.Retry, counts, fixed, s.HTTP)
	}
	page := read(t, "docs/errors.md")
	before, rest, ok := strings.Cut(page, "<!-- kinds -->\n")
	_, after, ok2 := strings.Cut(rest, "<!-- /kinds -->\n")
	if !ok || !ok2 {
		t.Fatal("docs/errors.md has no place for the table of kinds")
	}
	hold(t, "docs/errors.md", page, before+"<!-- kinds -->\n"+b.String()+"<!-- /kinds -->\n"+after)
}

// rows are the first three cells of the table below a heading; a table may have only two.
func rows(t *testing.T, page, heading string) [][3]string {
	t.Helper()
	_, rest, ok := strings.Cut(page, heading)
	if !ok {
		t.Fatalf("the page has no table %q", heading)
	}
	var out [][3]string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if cell := strings.Split(line, "|"); !strings.HasPrefix(line, "|---") {
			out = append(out, [3]string{strings.TrimSpace(cell[1]), strings.TrimSpace(cell[2]), strings.TrimSpace(cell[3])})
		}
	}
	return out
}

func TestHTTPAndExitCodes(t *testing.T) {
	page := read(t, "docs/errors.md")
	for _, r := range rows(t, page, "| HTTP status | Kind |\n") {
		for _, s := range strings.Split(strings.NewReplacer("other 4xx", "418", "other 5xx", "599").Replace(r[0]), ", ") {
			status, err := strconv.Atoi(s)
			if got := fault.FromHTTP(status); err != nil || "`"+string(got)+"`" != r[1] {
				t.Errorf("FromHTTP(%s) = %s, and the page says %s", s, got, r[1])
			}
		}
	}
	said := map[int]bool{}
	for _, r := range rows(t, page, "| Exit code | Kind |\n") {
		for _, s := range strings.Split(strings.Replace(r[0], "1 and others", "1, 3, 200", 1), ", ") {
			code, err := strconv.Atoi(s)
			said[code] = true
			if got := command.ExitKind(code); err != nil || "`"+string(got)+"`" != r[1] {
				t.Errorf("ExitKind(%s) = %s, and the page says %s", s, got, r[1])
			}
		}
	}
	for code := 1; code < 256; code++ {
		if k := command.ExitKind(code); k != fault.Failed && !said[code] {
			t.Errorf("ExitKind(%d) = %s, which the page does not say", code, k)
		}
	}
}

// Every field of a manifest has its row, and every row is a field.
func TestManifestFields(t *testing.T) {
	page := read(t, "docs/manifest.md")
	for heading, v := range map[string]any{
		"| Field | Type | Default | Example | Meaning |\n":                       tool.Manifest{},
		"## retry_policy\n\n| Field | Type | Default | Example | Meaning |\n":    tool.RetryPolicy{},
		"## circuit_breaker\n\n| Field | Type | Default | Example | Meaning |\n": tool.BreakerPolicy{},
		"## classification\n\n| Field | Type | Meaning |\n":                      tool.Classification{},
		"| Field of an override | Type | Default | Meaning |\n":                  tool.Override{},
	} {
		var want, got []string
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			want = append(want, "`"+name+"`")
		}
		for _, r := range rows(t, page, heading) {
			got = append(got, r[0])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%T: the page has %v, want %v", v, got, want)
		}
	}
}

func TestManifestExampleIsOne(t *testing.T) {
	found := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(read(t, "docs/manifest.md"), -1) {
		found++
		parsed, err := tool.Parse("manifest.md", []byte(m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := tool.Compile(*parsed); err != nil {
			t.Error(err)
		}
	}
	if found != 1 {
		t.Errorf("docs/manifest.md has %d manifests, want 1", found)
	}
}

// Every header, frame and type of event of the wire is on its page, and so is every subject that somebody listens to.
func TestProtocolIsWhole(t *testing.T) {
	page := read(t, "docs/protocol.md")
	say := func(what, name string) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/protocol.md does not say %s %s", what, name)
		}
	}
	for file, types := range map[string][]string{"headers.go": {"", "Frame"}, "turn.go": {"Frame"}, "records.go": {""}} {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "wire", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			typ := ""
			if id, ok := spec.Type.(*ast.Ident); ok {
				typ = id.Name
			}
			lit, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING || !slices.Contains(types, typ) {
				return true
			}
			name, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			say(spec.Names[0].Name, name)
			return true
		})
	}
	s, err := wire.NewSubjects("")
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		s.Call("<tool>"), s.To("<worker>"), s.Cancel("<tool>"), s.Reply("<tool>", "<executor>", "<n>"), s.Heartbeat("<worker>"),
		s.Rollcall(), s.TurnRun(), s.TurnCtl("<turn>"), strings.Replace(s.Blob("<id>", 0), ".0", ".<n>", 1), wire.QueueGroup, wire.ExecutorQueue,
		s.Log("<turn>"), s.Logs(), s.Late("<turn>", "<call>"), s.Lates(), s.TurnLate(), s.TurnTrace(),
	} {
		say("subject", subject)
	}
}

// Every field of a record has its place in the record's row.
func TestRecordsAreWhole(t *testing.T) {
	row := map[string]string{}
	for _, r := range rows(t, read(t, "docs/protocol.md"), "| Record | Fields |\n") {
		row[r[0]] = r[1]
	}
	for _, r := range rows(t, read(t, "docs/protocol.md"), "| Type | When | Fields beside `v`, `type`, `seq`, `at_ms`, `timestamp`, `turn` |\n") {
		row["event"] += r[2]
	}
	for name, v := range map[string]any{
		"fault": fault.Fault{}, "heartbeat": wire.Heartbeat{}, "turn request": wire.TurnRequest{}, "call": tool.Call{}, "turn control": wire.TurnControl{},
		"turn reply": wire.TurnReply{}, "event": wire.Event{}, "page": wire.Page{}, "outcome": wire.Outcome{}, "result": tool.Result{},
		"late query": wire.LateQuery{}, "late record": wire.LateRecord{}, "trace query": wire.TraceQuery{},
	} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			field, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if !typ.Field(i).IsExported() || field == "-" {
				continue
			}
			if !strings.Contains(row[name], "`"+field+"`") && !strings.Contains(row[name], "`"+field+"[]`") {
				t.Errorf("docs/protocol.md: %s has no field %s", name, field)
			}
		}
	}
}

// Every name such as executor.run.send in the pages about the code is one that is there.
func TestNamesInPagesAreThere(t *testing.T) {
	there := declared(t)
	name := regexp.MustCompile("`([a-z]+)((?:\\.[A-Za-z]+)+)`")
	for _, page := range []string{"docs/architecture.md", "README.md", "CONTRIBUTING.md"} {
		found := 0
		for _, m := range name.FindAllStringSubmatch(read(t, page), -1) {
			if !there[m[1]] { // a file, or somebody else's
				continue
			}
			found++
			if !there[m[1]+m[2]] {
				t.Errorf("%s names %s%s, which is not there", page, m[1], m[2])
			}
		}
		if page == "docs/architecture.md" && found < 30 {
			t.Errorf("%s names %d things, want the walks to name their functions", page, found)
		}
	}
}

// declared is every package, and everything that is declared in one: turn, turn.Turn and turn.Turn.Step.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "cmd" || d.Name() == "examples") {
			if err == nil {
				err = fs.SkipDir
			}
			return err
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, 0)
		if err != nil {
			return err
		}
		pkg := f.Name.Name
		there[pkg] = true
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				there[pkg+"."+receiver(d)+d.Name.Name] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						there[pkg+"."+s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							there[pkg+"."+n.Name] = true
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// receiver is "Turn." of a method of *Turn.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if g, ok := typ.(*ast.IndexExpr); ok {
		typ = g.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "."
	}
	return ""
}

// Links from page to page lead somewhere.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[a-z0-9_-]+)?\)`)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "CHANGELOG.md")) {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(b, -1) {
			to := filepath.Join(filepath.Dir(page), string(m[1]))
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which is not there", filepath.Base(page), m[1])
			} else if len(m[2]) > 0 {
				target, err := os.ReadFile(to)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Contains(target, append([]byte("# "), m[2][1:]...)) {
					t.Errorf("%s links to %s%s, and there is no such heading", filepath.Base(page), m[1], m[2])
				}
			}
		}
	}
}
