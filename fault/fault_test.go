package fault

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"
)

func TestNewFillsInWhatTheKindSays(t *testing.T) {
	f := New(Timeout, "no answer after %s", 30*time.Second)
	if f.Message != "no answer after 30s" || f.Execution != Unknown || len(f.Suggestions) == 0 {
		t.Errorf("New = %+v, want message, execution unknown and suggestions", f)
	}
	if got, want := f.WithTool("search").Error(), "search: timeout: no answer after 30s"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if f.Tool != "" {
		t.Error("WithTool changed the original")
	}
}

func TestNewRemembersItsCause(t *testing.T) {
	f := New(Upstream, "read answer: %w", io.ErrUnexpectedEOF)
	if !errors.Is(f, io.ErrUnexpectedEOF) {
		t.Errorf("errors.Is(%v, io.ErrUnexpectedEOF) = false, want true", f)
	}
	if g := New(Upstream, "x").WithCause(io.EOF); !errors.Is(g, io.EOF) {
		t.Errorf("errors.Is(%v, io.EOF) = false, want true", g)
	}
}

func TestIsComparesKinds(t *testing.T) {
	err := fmt.Errorf("call search: %w", New(Timeout, "no answer"))
	if !errors.Is(err, &Fault{Kind: Timeout}) {
		t.Error("a wrapped timeout is no timeout")
	}
	if errors.Is(err, &Fault{Kind: Denied}) {
		t.Error("a timeout is denied")
	}
}

func TestRunIsTheKindsUnlessSaid(t *testing.T) {
	if got := (&Fault{Kind: Unavailable}).Run(); got != NotStarted {
		t.Errorf("Run() = %s, want %s", got, NotStarted)
	}
	if got := (&Fault{Kind: Unavailable, Execution: Unknown}).Run(); got != Unknown {
		t.Errorf("Run() = %s, want %s", got, Unknown)
	}
}
