package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// Every constant of type Kind in fault.go, read from the source, has a row; and the table has nothing else.
func TestEveryKindHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			s, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, Kind(s))
		}
		return true
	})
	if got := Kinds(); !slices.Equal(got, declared) {
		t.Errorf("Kinds() = %q, want the constants in their order: %q", got, declared)
	}
}

// The table of design §5, once more and by hand.
func TestTheTable(t *testing.T) {
	rows := []struct {
		kind    Kind
		class   Class
		run     Execution
		retry   RetryRule
		breaker bool
		fixedBy string
	}{
		{Timeout, Transient, Unknown, ByEffect, true, "time"},
		{Unavailable, Transient, NotStarted, Always, true, "time"},
		{WorkerLost, Transient, Unknown, ByEffect, true, "time"},
		{Overloaded, Transient, NotStarted, Elsewhere, false, "time"},
		{RateLimited, Transient, NotStarted, AfterHint, true, "time"},
		{Upstream, Transient, Unknown, ByEffect, true, "time"},
		{Partial, Transient, Unknown, ByEffect, true, "time"},
		{InvalidArguments, Permanent, NotStarted, Never, false, "model"},
		{TruncatedCall, Permanent, NotStarted, Never, false, "model"},
		{ToolNotFound, Permanent, NotStarted, Never, false, "model"},
		{Denied, Permanent, NotStarted, Never, false, "user"},
		{ApprovalRequired, Permanent, NotStarted, Never, false, "user"},
		{NotFound, Permanent, Done, Never, false, "model"},
		{Unsupported, Permanent, Done, Never, false, "model"},
		{Failed, Permanent, Done, Never, false, "model"},
		{InvalidResult, Permanent, Done, Never, false, "author"},
		{CircuitOpen, Transient, NotStarted, Never, false, "time"},
		{Cancelled, Neutral, Unknown, Never, false, ""},
		{Deadline, Neutral, Unknown, Never, false, ""},
		{LoopBlocked, Permanent, NotStarted, Never, false, "model"},
		{Internal, Transient, Unknown, ByEffect, true, "author"},
	}
	for _, want := range rows {
		s := want.kind.Spec()
		if s.Class != want.class || s.Execution != want.run || s.Retry != want.retry ||
			s.CountsForBreaker != want.breaker || s.FixedBy != want.fixedBy {
			t.Errorf("%s.Spec() = %+v, want %+v", want.kind, s, want)
		}
	}
	if len(rows) != len(Kinds()) {
		t.Errorf("%d rows here, %d kinds", len(rows), len(Kinds()))
	}
}

func TestUnknownKindIsTransientAndKeepsItsName(t *testing.T) {
	k := Kind("solar_flare")
	if k.Known() {
		t.Errorf("%s.Known() = true, want false", k)
	}
	if got := k.Spec().Class; got != Transient {
		t.Errorf("%s.Spec().Class = %s, want %s", k, got, Transient)
	}
	if got := New(k, "flared").Kind; got != k {
		t.Errorf("kind = %s, want %s", got, k)
	}
	if !Timeout.Known() {
		t.Error("timeout.Known() = false, want true")
	}
}

// What a plain client reads from the status must not be more hopeful than the truth.
func TestHTTPKeepsTheClass(t *testing.T) {
	for _, k := range Kinds() {
		s := k.Spec()
		back := FromHTTP(s.HTTP).Spec()
		if s.Class != Neutral && back.Class != s.Class {
			t.Errorf("%s: status %d reads back as %s, want %s", k, s.HTTP, back.Class, s.Class)
		}
		if back.Class == Transient && back.Execution == NotStarted && s.Execution != NotStarted {
			t.Errorf("%s: status %d reads back as not started, but its run is %s", k, s.HTTP, s.Execution)
		}
	}
}
