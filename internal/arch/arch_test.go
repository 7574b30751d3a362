package arch

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/toolbus/toolbus"

// A rule is one box of the drawing.
type rule struct {
	imports []string // packages of ours; "*" is any
	core    bool     // told the time, returns what to do
	nats    bool     // may import NATS
	otel    bool     // may import OpenTelemetry
}

var cores = []string{"fault", "tool", "wire", "retry", "breaker", "recovery", "turn"}

// drawing is the table of who may import whom. A package that is not in it may not exist; cmd, examples and bench stand for
// all below them. docs/architecture.md shows it.
var drawing = map[string]rule{
	"fault":    {core: true},
	"tool":     {core: true, imports: []string{"fault"}},
	"wire":     {core: true, imports: []string{"tool", "fault"}},
	"retry":    {core: true, imports: []string{"tool"}},
	"breaker":  {core: true},
	"recovery": {core: true, imports: []string{"fault", "tool", "retry", "breaker"}},
	"turn":     {core: true, imports: []string{"recovery", "fault", "tool", "retry", "breaker", "wire"}},

	"bus":      {nats: true, imports: []string{"wire", "tool", "fault"}},
	"kvstate":  {nats: true, imports: []string{"bus"}},
	"registry": {nats: true, imports: []string{"bus", "kvstate", "wire", "tool", "fault"}},
	"journal":  {nats: true, imports: []string{"bus", "wire", "tool", "fault"}},
	"executor": {nats: true, imports: append([]string{"bus", "registry", "journal", "kvstate"}, cores...)},
	"worker":   {nats: true, imports: []string{"bus", "wire", "tool", "fault"}}, // what other languages write again
	"client":   {nats: true, imports: []string{"bus", "wire", "tool", "fault"}},
	"otel":     {nats: true, otel: true, imports: append([]string{"executor", "worker", "bus"}, cores...)},

	// Tests workers in any language, from outside: so it knows the wire, and no worker.
	"conformance":          {nats: true, imports: []string{"bus", "wire", "tool", "fault"}},
	"conformance/goworker": {nats: true, imports: []string{"bus", "worker", "wire", "tool", "fault"}}, // the worker in Go that it tests

	// Parts of the programs: only cmd may import them.
	"internal/admin":     {},
	"internal/cli":       {imports: []string{"bus"}},
	"internal/command":   {imports: []string{"internal/procgroup", "worker", "wire", "fault"}},
	"internal/demo":      {imports: []string{"worker", "tool", "fault"}},
	"internal/httptool":  {imports: []string{"worker", "wire", "tool", "fault"}},
	"internal/mcptool":   {imports: []string{"internal/procgroup", "worker", "wire", "tool", "fault"}},
	"internal/procgroup": {},
	"internal/waterfall": {imports: []string{"wire", "tool"}},

	"kvstate/kvstatetest": {imports: []string{"kvstate"}},         // for tests of whoever makes a store
	"internal/natstest":   {nats: true, imports: []string{"bus"}}, // for tests, so nobody's to import
	"internal/arch":       {},
	"internal/modelcheck": {}, // what it checks is in its tests
	"internal/e2e":        {}, // it has tests only
	"cmd":                 {nats: true, imports: []string{"*"}},
	"bench":               {nats: true, imports: []string{"*"}}, // a program that measures; nobody imports it

	// What users would write, so nothing that is internal.
	"examples": {nats: true, imports: []string{"bus", "client", "worker", "wire", "tool", "fault"}},
}

// impure is what no core may import: a path that ends with / is a prefix.
var impure = []string{"context", "log", "log/", "net", "net/", "os", "os/", "math/rand", "math/rand/", "github.com/nats-io/", "go.opentelemetry.io/"}

// clock is what no core may call: the time is an argument.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

func TestDrawing(t *testing.T) {
	root := os.DirFS("../..")
	if _, err := fs.Stat(root, "go.mod"); err != nil {
		t.Fatal("the module is not two directories up: ", err)
	}
	for _, problem := range inspect(root) {
		t.Error(problem)
	}
}

// inspect walks a source tree and says, as file:line: rule, what breaks the drawing.
func inspect(root fs.FS) []string {
	h := house{root: root, fset: token.NewFileSet(), commented: map[string]bool{}}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(name):
			return fs.SkipDir
		case d.IsDir() && name != ".":
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil {
				h.modules = append(h.modules, name+"/")
			}
		case d.Type().IsRegular():
			return h.file(name)
		}
		return nil
	})
	if err != nil {
		h.say("%v", err)
	}
	for pkg, ok := range h.commented {
		if !ok {
			h.say("%s: no file has a package comment; say what the package is", pkg)
		}
	}
	slices.Sort(h.problems)
	return h.problems
}

type house struct {
	root      fs.FS
	fset      *token.FileSet
	commented map[string]bool // by directory: whether a file has a package comment
	unknown   []string        // directories that are not in the drawing, each said once
	modules   []string        // directories that are modules of their own, such as comparisons with other libraries
	problems  []string
}

func (h *house) say(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

func skipped(dir string) bool {
	base := path.Base(dir)
	return base == ".git" || base == "testdata" || base == "node_modules" || base == "vendor" || base == ".venv" || base == "target" || base == "build" || base == "dist"
}

// abroad finds paths of the machine on which this was written. It is put together here so as not to find itself.
var abroad = regexp.MustCompile(`(^|[^A-Za-z0-9_.~/-])/(` + "wo" + `rk|ro` + `ot)/`)

func (h *house) file(name string) error {
	info, err := fs.Stat(h.root, name)
	if err != nil || info.Size() > 1<<20 {
		return err
	}
	src, err := fs.ReadFile(h.root, name)
	if err != nil {
		return err
	}
	if !bytes.ContainsRune(src, 0) {
		for i, line := range bytes.Split(src, []byte("\n")) {
			if abroad.Match(line) {
				h.say("%s:%d: %q is an absolute path of somebody's machine", name, i+1, abroad.Find(line))
			}
		}
	}
	if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || h.abroad(name) {
		return nil
	}

	f, err := parser.ParseFile(h.fset, name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	pkg := path.Dir(name)
	h.commented[pkg] = h.commented[pkg] || f.Doc != nil
	h.source(pkg, f)
	return nil
}

// abroad says that a file belongs to another module, which the drawing says nothing about.
func (h *house) abroad(name string) bool {
	return slices.ContainsFunc(h.modules, func(dir string) bool { return strings.HasPrefix(name, dir) })
}

// ruleOf is the box in which a directory stands, and the rule on it.
func ruleOf(pkg string) (box string, r rule, ok bool) {
	box = pkg
	if top, _, _ := strings.Cut(pkg, "/"); top == "cmd" || top == "examples" || top == "bench" {
		box = top
	}
	r, ok = drawing[box]
	return box, r, ok
}

// source checks one file that is no test.
func (h *house) source(pkg string, f *ast.File) {
	box, r, ok := ruleOf(pkg)
	if !ok && slices.Contains(h.unknown, pkg) {
		return
	}
	if !ok {
		h.unknown = append(h.unknown, pkg)
		h.say("%s: package %s is not in the drawing; decide who may import it and put it into internal/arch", h.at(f.Package), pkg)
		return
	}
	for _, spec := range f.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			h.say("%s: import %s: %v", h.at(spec.Pos()), spec.Path.Value, err)
			continue
		}
		if broken := r.forbids(box, to); broken != "" {
			h.say("%s: %s imports %s: %s", h.at(spec.Pos()), pkg, to, broken)
		}
	}
	if r.core {
		h.core(pkg, f)
	}
}

// forbids is the reason why a package in box may not import to, or "".
func (r rule) forbids(box, to string) string {
	if ours, ok := strings.CutPrefix(to, module+"/"); ok {
		switch {
		case slices.Contains(r.imports, "*"):
			return ""
		case ours == "otel":
			return "only cmd imports otel"
		case !slices.Contains(r.imports, ours):
			return fmt.Sprintf("the drawing lets %s import %s", box, list(r.imports))
		}
		return ""
	}
	for _, bad := range impure {
		if r.core && matches(to, bad) {
			return "a core decides and does nothing: no context, log, net, os, dice, NATS or OpenTelemetry"
		}
	}
	switch {
	case matches(to, "go.opentelemetry.io/") && !r.otel:
		return "only otel imports OpenTelemetry; offer a hook"
	case matches(to, "github.com/nats-io/") && !r.nats:
		return "NATS stops at the shells"
	}
	return ""
}

func matches(to, pattern string) bool {
	if strings.HasSuffix(pattern, "/") {
		return strings.HasPrefix(to, pattern)
	}
	return to == pattern
}

func list(pkgs []string) string {
	if len(pkgs) == 0 {
		return "nothing of ours"
	}
	return "only " + strings.Join(pkgs, ", ")
}

// core checks that a file of a core starts nothing and does not ask the time.
func (h *house) core(pkg string, f *ast.File) {
	name := "time"
	for _, spec := range f.Imports {
		if spec.Path.Value == `"time"` && spec.Name != nil {
			name = spec.Name.Name
		}
	}
	if name == "." {
		h.say("%s: a core imports time by its name, so that this test can see what it calls", h.at(f.Package))
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			h.say("%s: %s starts a goroutine: a core decides and does nothing", h.at(n.Pos()), pkg)
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == name && slices.Contains(clock, n.Sel.Name) {
				h.say("%s: %s uses time.%s: a core is told the time", h.at(n.Pos()), pkg, n.Sel.Name)
			}
		}
		return true
	})
}

func (h *house) at(pos token.Pos) string {
	p := h.fset.Position(pos)
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// The drawing itself must be one: no box that is not there, and no way round in a circle.
func TestTableHasNoCircle(t *testing.T) {
	state := map[string]int{} // 1 on the way, 2 done
	var visit func(box string, way []string)
	visit = func(box string, way []string) {
		if state[box] == 1 {
			t.Errorf("the drawing goes in a circle: %s", strings.Join(append(way, box), " → "))
			return
		}
		if state[box] == 2 {
			return
		}
		state[box] = 1
		for _, to := range drawing[box].imports {
			if _, ok := drawing[to]; !ok && to != "*" {
				t.Errorf("%s may import %s, which is not in the drawing", box, to)
			}
			visit(to, append(way, box))
		}
		state[box] = 2
	}
	for box := range drawing {
		visit(box, nil)
	}
	for _, core := range cores {
		for _, to := range drawing[core].imports {
			if !drawing[to].core {
				t.Errorf("%s is a core and may import %s, which is none", core, to)
			}
		}
	}
}

// Each of these trees breaks one rule; the test must say where and which.
func TestEveryRuleBites(t *testing.T) {
	file := func(lines ...string) string { return "// Package p is here.\n" + strings.Join(lines, "\n") }
	for _, c := range []struct {
		name, file, src string
		want            string // the beginning of the only problem; "" where there is none
	}{
		{"allowed", "tool/a.go", file(`package tool`, `import ("time"; "`+module+`/fault")`, `var D = time.Second`), ""},
		{"the wrong way", "fault/a.go", file(`package fault`, `import "`+module+`/tool"`), "fault/a.go:3: fault imports " + module + "/tool: the drawing lets fault import nothing of ours"},
		{"past a box", "worker/a.go", file(`package worker`, `import "`+module+`/turn"`), "worker/a.go:3: worker imports " + module + "/turn: the drawing lets worker import only bus, wire"},
		{"otel in a shell", "executor/a.go", file(`package executor`, `import "`+module+`/otel"`), "executor/a.go:3: executor imports " + module + "/otel: only cmd imports otel"},
		{"otel in cmd", "cmd/executor/a.go", file(`package main`, `import "`+module+`/otel"`), ""},
		{"OpenTelemetry in a shell", "bus/a.go", file(`package bus`, `import "go.opentelemetry.io/otel"`), "bus/a.go:3: bus imports go.opentelemetry.io/otel: only otel imports OpenTelemetry"},
		{"OpenTelemetry in cmd", "cmd/executor/a.go", file(`package main`, `import "go.opentelemetry.io/otel"`), "cmd/executor/a.go:3: cmd/executor imports go.opentelemetry.io/otel: only otel"},
		{"OpenTelemetry in otel", "otel/a.go", file(`package otel`, `import "go.opentelemetry.io/otel/sdk/trace"`), ""},
		{"context in a core", "turn/a.go", file(`package turn`, `import "context"`), "turn/a.go:3: turn imports context: a core decides"},
		{"slog in a core", "turn/a.go", file(`package turn`, `import "log/slog"`), "turn/a.go:3: turn imports log/slog: a core decides"},
		{"net/http in a core", "tool/a.go", file(`package tool`, `import "net/http"`), "tool/a.go:3: tool imports net/http: a core decides"},
		{"dice in a core", "retry/a.go", file(`package retry`, `import "math/rand/v2"`), "retry/a.go:3: retry imports math/rand/v2: a core decides"},
		{"NATS in a core", "wire/a.go", file(`package wire`, `import "github.com/nats-io/nats.go"`), "wire/a.go:3: wire imports github.com/nats-io/nats.go: a core decides"},
		{"NATS in a shell", "bus/a.go", file(`package bus`, `import "github.com/nats-io/nats.go"`), ""},
		{"a goroutine in a core", "turn/a.go", file(`package turn`, `func f() {`, `go f()`, `}`), "turn/a.go:4: turn starts a goroutine"},
		{"a goroutine in a shell", "bus/a.go", file(`package bus`, `func f() {`, `go f()`, `}`), ""},
		{"the time in a core", "breaker/a.go", file(`package breaker`, `import "time"`, `var now = time.Now`), "breaker/a.go:4: breaker uses time.Now"},
		{"the time under another name", "breaker/a.go", file(`package breaker`, `import t "time"`, `func f() { t.Sleep(1) }`), "breaker/a.go:4: breaker uses time.Sleep"},
		{"the time without a name", "breaker/a.go", file(`package breaker`, `import . "time"`), "breaker/a.go:2: a core imports time by its name"},
		{"a package that nobody drew", "util/a.go", file(`package util`), "util/a.go:2: package util is not in the drawing"},
		{"a package within a package", "bus/deep/a.go", file(`package deep`), "bus/deep/a.go:2: package bus/deep is not in the drawing"},
		{"a module of its own", "bench/x/deep/a.go", "package deep\nimport \"os\"\n", ""},
		{"a path of ours in another module", "bench/x/a.go", "package x // /wo" + "rk/x\n", "bench/x/a.go:1: "},
		{"no package comment", "fault/a.go", "package fault\n", "fault: no file has a package comment"},
		{"a test may import what it needs", "fault/a_test.go", "package fault\nimport \"os\"\n", ""},
		{"a path of ours in a test", "fault/a_test.go", "package fault\n// see /wo" + "rk/x\n", "fault/a_test.go:2: "},
		{"a path of ours in a page", "docs/a.md", "one\n`/ro" + "ot/x`\n", "docs/a.md:2: "},
		{"a path that looks like ours", "docs/a.md", "see docs/wo" + "rk/x and https://a.example/wo" + "rk/\n", ""},
	} {
		got := inspect(fstest.MapFS{c.file: {Data: []byte(c.src)}, "bench/x/go.mod": {Data: []byte("module x")}})
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s: %q, want no problem", c.name, got)
		case c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)):
			t.Errorf("%s: %q, want one that begins with %q", c.name, got, c.want)
		}
	}
}
