//go:build unix

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A record of a log, safe to read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pool starts programs of a shell script; $id is that of the line that was read last.
func pool(t *testing.T, l Lines, script string, args ...string) *Pool {
	t.Helper()
	const prelude = `id() { id=${1#*\"id\":\"}; id=${id%%\"*}; }; `
	c := sh(prelude+script, args...)
	c.MaxOutput, c.Grace = l.MaxOutput, l.Grace
	l.Command = c
	p, err := l.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// ask gives a pool one call.
func ask(ctx context.Context, p *Pool, args string) (string, *fault.Fault) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	v, err := p.Handle(ctx, &worker.Call{Tool: "t", Args: json.RawMessage(args), Ref: wire.CallRef{Turn: "t1", Call: "c1", Attempt: 2}})
	if err != nil {
		return "", err.(*fault.Fault)
	}
	return string(v.(json.RawMessage)), nil
}

const counting = `n=0; while read -r line; do id "$line"; n=$((n+1)); echo "{\"id\":\"$id\",\"result\":$n}"; done`

func TestLinesAreAnsweredByOneProgram(t *testing.T) {
	p := pool(t, Lines{}, counting)
	for i := 1; i <= 3; i++ {
		if got, f := ask(t.Context(), p, "{}"); f != nil || got != fmt.Sprint(i) {
			t.Errorf("call %d = %s, %v, want %d from the same program", i, got, f, i)
		}
	}
}

func TestLineOfACall(t *testing.T) {
	p := pool(t, Lines{}, `while read -r line; do id "$line"; printf '{"id":"%s","result":%s}\n' "$id" "$line"; done`)
	got, f := ask(t.Context(), p, "{\n \"q\": \"a\\nb\"}")
	if f != nil {
		t.Fatal(f)
	}
	var r struct {
		ID, Tool, Call string
		Args           map[string]string
		Attempt        int
		TimeoutMs      int64 `json:"timeout_ms"`
	}
	if err := json.Unmarshal([]byte(got), &r); err != nil || r.Tool != "t" || r.Call != "t1/c1" || r.Attempt != 2 || r.Args["q"] != "a\nb" || r.TimeoutMs < 1 {
		t.Errorf("the line was %s, %v", got, err)
	}
}

func TestLinesThatAreFaults(t *testing.T) {
	for said, want := range map[string]string{
		`{\"kind\":\"rate_limited\",\"message\":\"slow down\",\"retry_after_ms\":70}`: "rate_limited: slow down",
		`\"no such city\"`: "failed: no such city",
		`{\"message\":\"odd\",\"kind\":\"none such\"}`:  "failed: odd",
		`{\"kind\":\"not_found\",\"message\":\"gone\"}`: "not_found: gone",
		`7`: "failed: the command reported an error without a message: 7",
	} {
		p := pool(t, Lines{}, `while read -r line; do id "$line"; echo "{\"id\":\"$id\",\"error\":`+said+`}"; done`)
		if _, f := ask(t.Context(), p, "{}"); f == nil || f.Error() != want {
			t.Errorf("%s: fault %v, want %s", said, f, want)
		}
	}
}

func TestGarbageLinesEndTheProgram(t *testing.T) {
	for said, want := range map[string]string{
		`hello`:              `a line that is no answer to standard output: "hello"`,
		`{}`:                 `a line that is no answer to standard output: "{}"`,
		`{\"id\":\"$id\"}`:   `a line without result, error or progress`,
		`[1]`:                `a line that is no answer`,
		"$(printf '%0600d')": `a line of more than 500 bytes`,
	} {
		// The second program is right: the first left a mark.
		dir := t.TempDir()
		p := pool(t, Lines{Command: Command{MaxOutput: 500}}, `if [ -e "$1/mark" ]; then `+counting+`; fi; : > "$1/mark"; read -r line; id "$line"; echo "`+said+`"; exec sleep 600`, dir)
		_, f := ask(t.Context(), p, "{}")
		if f == nil || f.Kind != fault.InvalidResult || f.Run() != fault.Unknown || !strings.Contains(f.Message, want) {
			t.Errorf("%s: fault %v, want invalid_result, unknown, with %s", said, f, want)
		}
		if got, f := ask(t.Context(), p, "{}"); f != nil || got != "1" {
			t.Errorf("after %s: %s, %v, want an answer of the next program", said, got, f)
		}
	}
}

func TestProgramThatDies(t *testing.T) {
	dir := t.TempDir()
	p := pool(t, Lines{}, `if [ -e "$1/mark" ]; then `+counting+`; fi; : > "$1/mark"; read -r line; echo "out of luck" >&2; exit 3`, dir)
	_, f := ask(t.Context(), p, "{}")
	if f == nil || f.Kind != fault.WorkerLost || f.Run() != fault.Unknown || !strings.Contains(f.Message, "exit code 3: out of luck") {
		t.Errorf("fault %v, want worker_lost, unknown, with the last word", f)
	}
	if got, f := ask(t.Context(), p, "{}"); f != nil || got != "1" {
		t.Errorf("then %s, %v, want an answer of the next program", got, f)
	}
}

func TestProgramThatNeverLives(t *testing.T) {
	p := pool(t, Lines{}, `echo "no licence" >&2; exit 1`)
	for {
		_, f := ask(t.Context(), p, "{}")
		if f == nil {
			t.Fatal("a program that does not live answered")
		}
		if f.Kind == fault.Unavailable && f.RetryAfterMs > 0 {
			if f.Run() != fault.NotStarted || !strings.Contains(f.Message, "no licence") && !strings.Contains(f.Message, "does not take calls") {
				t.Errorf("fault %v, want why, and that nothing ran", f)
			}
			return
		}
	}
}

func TestCancelLine(t *testing.T) {
	tr := newTrace(t)
	p := pool(t, Lines{Command: Command{Grace: 20 * time.Second}},
		`read -r line; id "$line"; exec 9>"$1"; echo started >&9; read -r line; case $line in *\"cancel\":true*) echo "{\"id\":\"$id\",\"error\":\"stopped\"}";; esac; `+counting, tr.path)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *fault.Fault, 1)
	go func() {
		_, f := ask(ctx, p, "{}")
		ended <- f
	}()
	await(t, tr.started, "the program")
	cancel()
	if f := await(t, ended, "the end of the call"); f == nil || f.Kind != fault.Cancelled || f.Run() != fault.Stopped {
		t.Errorf("fault %v, want cancelled, stopped", f)
	}
	if got, f := ask(t.Context(), p, "{}"); f != nil || got != "1" {
		t.Errorf("the next call = %s, %v, want the same program to answer", got, f)
	}
}

func TestProgramThatDoesNotStopIsKilledWithItsGroup(t *testing.T) {
	tr := newTrace(t)
	p := pool(t, Lines{Command: Command{Grace: 20 * time.Millisecond}}, stubborn, tr.path, "trap '' TERM; while :; do read -r x; done")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *fault.Fault, 1)
	go func() {
		_, f := ask(ctx, p, "{}")
		ended <- f
	}()
	await(t, tr.started, "the grandchild")
	cancel()
	if f := await(t, ended, "the end of the call"); f == nil || f.Kind != fault.Cancelled {
		t.Errorf("fault %v, want cancelled", f)
	}
	p.Close()
	await(t, tr.gone, "the death of the grandchildren")
}

func TestCloseEndsTheWholeGroup(t *testing.T) {
	tr := newTrace(t)
	p := pool(t, Lines{Command: Command{Grace: 20 * time.Millisecond}}, stubborn, tr.path, "wait")
	await(t, tr.started, "the grandchild")
	p.Close()
	await(t, tr.gone, "the death of the grandchild")
	if _, f := ask(t.Context(), p, "{}"); f == nil || f.Kind != fault.Unavailable {
		t.Errorf("after Close: %v, want unavailable", f)
	}
}

func TestProgramThatDoesNotRead(t *testing.T) {
	p := pool(t, Lines{Command: Command{Grace: 20 * time.Millisecond}}, `exec sleep 600`)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, f := ask(ctx, p, `{"big":"`+strings.Repeat("x", 1<<20)+`"}`)
	if f == nil || f.Kind != fault.Timeout {
		t.Errorf("fault %v, want timeout", f)
	}
}

func TestPoolRunsSeveralAtOnce(t *testing.T) {
	for _, l := range []Lines{{Pool: 3}, {Parallel: 3}} {
		// Nobody is answered before three calls are under way.
		dir := t.TempDir()
		p := pool(t, l, `while read -r line; do id "$line"; : > "$1/$id"; (while [ $(ls "$1" | wc -l) -lt 3 ]; do sleep 0.01; done; echo "{\"id\":\"$1\",\"progress\":{\"done\":1}}" >/dev/null; echo "{\"id\":\"$id\",\"result\":1}") & done`, dir)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, f := ask(t.Context(), p, "{}"); f != nil {
					t.Error(f)
				}
			})
		}
		wg.Wait()
	}
}

func TestCallsWaitForAPlace(t *testing.T) {
	p := pool(t, Lines{}, counting)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, f := ask(t.Context(), p, "{}"); f != nil {
				t.Error(f)
			}
		})
	}
	wg.Wait()
}

func TestStderrIsLoggedWithinBounds(t *testing.T) {
	out := &logged{}
	p := pool(t, Lines{Logger: slog.New(slog.NewTextHandler(out, nil))},
		`while read -r line; do id "$line"; i=0; while [ $i -lt 2000 ]; do echo "noise $i" >&2; i=$((i+1)); done; echo "{\"id\":\"$id\",\"result\":1}"; done`)
	if _, f := ask(t.Context(), p, "{}"); f != nil {
		t.Fatal(f)
	}
	p.Close()
	if n := strings.Count(out.String(), "noise"); n < 1 || n > 20*linesPerSecond {
		t.Errorf("%d lines were logged, want some and few", n)
	}
}

func TestLinesCheck(t *testing.T) {
	for want, l := range map[string]Lines{
		"pool: expected 1 to 64 programs, got 65":                        {Command: sh("true"), Pool: 65},
		"parallel: expected 1 to 1000 calls at once, got -1":             {Command: sh("true"), Parallel: -1},
		"command none-such: not found; give its path, or put it in PATH": {Command: Command{Path: "none-such"}},
	} {
		if _, err := l.Start(); err == nil || err.Error() != want {
			t.Errorf("Start() = %v, want %s", err, want)
		}
	}
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(path, []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Lines{Command: Command{Path: path}}.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for {
		_, f := ask(t.Context(), p, "{}")
		if f != nil && strings.Contains(f.Message, "does not take calls") {
			continue // it came between two starts
		}
		if f == nil || !strings.Contains(f.Message, "cannot be started: not found") {
			t.Errorf("fault %v, want one that says that it cannot be started, and why", f)
		}
		return
	}
}
