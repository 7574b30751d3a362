//go:build unix

package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/toolbus/toolbus/fault"
)

func TestExitCodes(t *testing.T) {
	kinds := map[int]fault.Kind{
		1: fault.Failed, 2: fault.InvalidArguments, 3: fault.Failed,
		64: fault.InvalidArguments, 65: fault.InvalidArguments, 66: fault.NotFound, 67: fault.Failed, 69: fault.Unavailable,
		70: fault.Internal, 73: fault.Upstream, 74: fault.Upstream, 75: fault.Upstream, 77: fault.Denied, 78: fault.Unsupported,
		124: fault.Timeout, 126: fault.Unsupported, 127: fault.Unsupported, 139: fault.Failed, 255: fault.Failed,
	}
	for code, kind := range kinds {
		_, f := run(t, sh(fmt.Sprintf("echo first >&2; echo 'last words' >&2; echo >&2; exit %d", code)), "{}")
		if f == nil || f.Kind != kind || f.Message != "last words" || f.Code != fmt.Sprint(code) || f.Execution != fault.Done {
			t.Errorf("exit %d = %+v, want %s", code, f, kind)
			continue
		}
		if f.Detail != "first\nlast words" {
			t.Errorf("exit %d: detail %q, want both lines", code, f.Detail)
		}
	}
	if got := ExitKind(0); got != "" {
		t.Errorf("ExitKind(0) = %q, want no kind", got)
	}
}

func TestLastWords(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		kind         fault.Kind
		want         string
	}{
		{"of stdout where stderr is silent", `echo no such city; exit 1`, fault.Failed, "no such city"},
		{"none", `exit 9`, fault.Failed, "the command ended with exit code 9 and said nothing"},
		{"none, a shell's 127", `exit 127`, fault.Unsupported, "the command was not found (exit code 127)"},
		{"a signal", `echo x >&2; kill -SEGV $$`, fault.Upstream, "the command was killed by SIGSEGV"},
		{"killed", `kill -KILL $$`, fault.Upstream, "the command was killed by SIGKILL, perhaps because memory ran out"},
		{"too long", `printf '%0400d' 7 >&2; exit 1`, fault.Failed, strings.Repeat("0", 297) + "…"},
	} {
		if _, f := run(t, sh(tc.script), "{}"); f == nil || f.Kind != tc.kind || f.Message != tc.want {
			t.Errorf("%s: fault %v, want %s: %s", tc.name, f, tc.kind, tc.want)
		}
	}
}

func TestFaultRecord(t *testing.T) {
	_, f := run(t, sh(`echo reading >&2; echo '{"kind":"rate_limited","message":"slow down","code":"Q1","retry_after_ms":1500,"execution":"not_started"}' >&2; exit 1`), "{}")
	if f == nil || f.Kind != fault.RateLimited || f.Message != "slow down" || f.Code != "Q1" || f.RetryAfterMs != 1500 || f.Execution != fault.NotStarted {
		t.Errorf("fault %#v, want the record", f)
	}
	if f.Detail != "reading" {
		t.Errorf("detail %q, want what came before the record", f.Detail)
	}

	for _, line := range []string{`{"kind":"no_such_kind","message":"m"}`, `{"message":"m"}`, `{"kind":"denied"`, `{"kind":7}`, `["denied"]`} {
		if _, f := run(t, sh(`printf '%s\n' "$1" >&2; exit 1`, line), "{}"); f == nil || f.Kind != fault.Failed || f.Message != line {
			t.Errorf("%s: fault %v, want failed with the line as it is", line, f)
		}
	}
	if got, f := run(t, sh(`echo '{"kind":"denied","message":"m"}' >&2; echo 1`), "{}"); f != nil || got != "1" {
		t.Errorf("a record beside exit 0 = %s, %v, want the result", got, f)
	}
}

func TestNotStarted(t *testing.T) {
	_, f := run(t, Command{Path: "no-such-program"}, "{}")
	want := "the worker cannot start the command no-such-program: not found; give its path, or put it in PATH"
	if f == nil || f.Kind != fault.Unsupported || f.Execution != fault.NotStarted || f.Message != want {
		t.Errorf("fault %#v, want %s", f, want)
	}
}

func FuzzStderr(f *testing.F) {
	f.Add([]byte("::progress 1/2 x\nlast\n"), 3)
	f.Add([]byte("::progress \n::"), 1)
	f.Add([]byte("{\"kind\":\"denied\"}"), 5)
	f.Fuzz(func(t *testing.T, said []byte, chunk int) {
		kept := feed(said, len(said))
		if split := feed(said, 1+abs(chunk)%64); split != kept {
			t.Errorf("in pieces it kept %q, at once %q", split, kept)
		}
		if _, _, ok := record([]byte(kept)); ok && !strings.Contains(kept, "kind") {
			t.Errorf("%q is no record", kept)
		}
	})
}
