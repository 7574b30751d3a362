package main

import (
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
)

func progress(atMs, done float64) *wire.Event {
	return &wire.Event{Type: wire.ProgressEvent, AtMs: atMs, Progress: &wire.ProgressRecord{Done: done, Total: 10, Message: "on\nits way"}}
}

// Elsewhere than on a terminal, progress is a line a second, and the first of each attempt.
func TestProgressIsALineASecond(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b)
	s.show(&wire.Event{Type: wire.AttemptStarted, Attempt: 1})
	for i := range 11 {
		s.show(progress(float64(200*(i+1)), float64(i)))
	}
	s.show(&wire.Event{Type: wire.AttemptStarted, Attempt: 2, AtMs: 2250})
	s.show(progress(2300, 1))
	s.show(&wire.Event{Type: wire.TurnEnded, AtMs: 2400})
	want := `   0.0 ms  attempt 1
 200.0 ms  progress 0 % on its way
   1.20 s  progress 50 % on its way
   2.20 s  progress 100 % on its way
   2.25 s  attempt 2
   2.30 s  progress 10 % on its way
`
	if b.String() != want {
		t.Errorf("the screen shows\n%s\nwant\n%s", b.String(), want)
	}
}

// On a terminal it is one line, written over, and gone when there is more to say.
func TestProgressIsWrittenOver(t *testing.T) {
	var b strings.Builder
	s := newScreen(&b)
	s.terminal = true
	s.show(progress(200, 1))
	s.show(progress(400, 2))
	s.show(&wire.Event{Type: wire.TurnEnded, AtMs: 500})
	want := erase + " 200.0 ms  progress 10 % on its way" + erase + " 400.0 ms  progress 20 % on its way" + erase
	if b.String() != want {
		t.Errorf("the screen got %q, want %q", b.String(), want)
	}
}

func TestFailureSaysWhatIsNext(t *testing.T) {
	f := &fault.Fault{Kind: fault.Upstream, Message: "it is \x1b[31mred"}
	for _, tc := range []struct {
		ev   wire.Event
		want string
	}{
		{wire.Event{Attempt: 1, Error: f, Classification: "transient", Decision: "retry", DelayMs: 99.2, Because: "it may run twice"},
			"   0.0 ms  upstream (transient): it is ·[31mred → retry in 99.2 ms, because it may run twice\n"},
		{wire.Event{Attempt: 5, Error: f, Classification: "transient", Decision: "fail", Because: "all 5 attempts are used up"},
			"   0.0 ms  upstream (transient) → fail, because all 5 attempts are used up\n"},
		{wire.Event{Error: f, Decision: "fail", Because: "it was not sent"}, ""},
	} {
		var b strings.Builder
		tc.ev.Type = wire.ToolError
		newScreen(&b).show(&tc.ev)
		if b.String() != tc.want {
			t.Errorf("the screen shows %q, want %q", b.String(), tc.want)
		}
	}
}
