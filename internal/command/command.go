// Package command makes a tool of a program, in any language, without an SDK.
//
// The program is started once per call, from an argument vector that never changes: no shell, and nothing of the call
// in the arguments. What the call brings comes on standard input, as one JSON object.
//
//	stdin    the arguments of the call, JSON; need not be read
//	stdout   the result: JSON, or else text, which becomes a JSON string
//	stderr   for people; "::progress 3/10 reading" is progress, and the last line says what went wrong
//	exit     0, or a number that says what kind of fault it is: see ExitKind
//
// The environment is PATH, HOME, LANG and TZ, what the Command names, and about the call TOOLBUS_TOOL, TOOLBUS_CALL,
// TOOLBUS_ATTEMPT, TOOLBUS_TIMEOUT_MS, TOOLBUS_KEY, TRACEPARENT and TRACESTATE, where there is something to say.
//
// A program that knows more than a number ends its standard error with a fault record on a line of its own, and leaves
// with any number but 0:
//
//	{"kind":"rate_limited","message":"the quota is used up","retry_after_ms":1500}
//
// The program and all that it starts are one process group. When the program has ended, what is left of the group is
// killed; when the call is over before, by timeout or cancel, the group gets SIGTERM and after Grace SIGKILL. On Linux
// the program also dies with a worker that is killed. What leaves the group on purpose (setsid) outlives the call, but
// cannot hold it up. On other systems than Unix the program alone is killed.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toolbus/toolbus/fault"
	"github.com/toolbus/toolbus/wire"
	"github.com/toolbus/toolbus/worker"
)

// A Command is a program that answers the calls of one tool. It is a worker.Handler, for any number of calls at once.
// Only Path is required.
type Command struct {
	// Path is the program. Without a slash it is looked for in PATH; a relative one counts from Dir.
	Path string
	Args []string // after the program's name, the same for every call

	// Dir is where the program runs. Empty means where this process does.
	Dir string

	// Env is what the program sees beyond the environment that every program gets: NAME passes a variable of this
	// process through, NAME=value sets one. Values are never logged.
	Env []string

	// MaxOutput bounds standard output, in bytes. A program that writes more is killed. Zero means 8 MiB.
	MaxOutput int64

	// MaxStderr is how much of the end of standard error is kept, in bytes. Zero means 64 KiB.
	MaxStderr int

	// Grace is how long the program may go on after SIGTERM. Zero means 200 ms.
	Grace time.Duration

	// Strict refuses output that is not JSON, an empty one too. Otherwise text is a result, and nothing is null.
	Strict bool
}

// Check says why the program cannot be started, as far as can be known before a call, or nil.
func (c Command) Check() error {
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err != nil {
			return fmt.Errorf("directory of the command: %w", err)
		}
		if !info.IsDir() {
			return fmt.Errorf("directory of the command: %s is not a directory", c.Dir)
		}
	}
	path := c.Path
	if c.Dir != "" && filepath.Base(path) != path && !filepath.IsAbs(path) {
		path = filepath.Join(c.Dir, path)
	}
	if _, err := exec.LookPath(path); err != nil {
		return fmt.Errorf("command %s: %w", c.Path, notRunnable(err))
	}
	for _, v := range c.Env {
		if name, _, _ := strings.Cut(v, "="); name == "" || strings.ContainsRune(v, 0) {
			return fmt.Errorf("environment: %q is not a name", name)
		}
	}
	return nil
}

// Handle runs the program for one call. The result is a json.RawMessage; an error is always a *fault.Fault.
func (c Command) Handle(ctx context.Context, call *worker.Call) (any, error) {
	out, f := c.run(ctx, call.Args, callEnv(ctx, call), func(p wire.ProgressRecord) {
		call.Progress(p.Done, p.Total, p.Message)
	})
	if f != nil {
		return nil, f
	}
	return out, nil
}

// callEnv is what the program learns of its call besides the arguments.
func callEnv(ctx context.Context, call *worker.Call) []string {
	env := []string{"TOOLBUS_TOOL=" + call.Tool}
	add := func(name, value string) {
		if value != "" && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	if call.Ref.Call != "" {
		add("TOOLBUS_CALL", call.Ref.Turn+"/"+call.Ref.Call)
		add("TOOLBUS_ATTEMPT", strconv.Itoa(call.Ref.Attempt))
	}
	if end, ok := ctx.Deadline(); ok {
		add("TOOLBUS_TIMEOUT_MS", strconv.FormatInt(max(0, time.Until(end).Milliseconds()), 10))
	}
	add("TOOLBUS_KEY", call.Key)
	add("TRACEPARENT", header(call.Header, wire.HeaderTraceparent))
	add("TRACESTATE", header(call.Header, wire.HeaderTracestate))
	return env
}

func header(h wire.Header, name string) string {
	for key, values := range h {
		if strings.EqualFold(key, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

// base are the variables that every program gets.
var base = []string{"PATH", "HOME", "LANG", "TZ"}

// environ is the whole environment of the program. What comes later wins: nothing that is declared can hide the call.
func (c Command) environ(call []string) []string {
	var env []string
	for _, name := range append(base[:len(base):len(base)], c.Env...) {
		if strings.Contains(name, "=") {
			env = append(env, name)
		} else if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return append(env, call...)
}

// run starts the program, sees it to its end and says what that was.
func (c Command) run(ctx context.Context, args []byte, callEnv []string, progress func(wire.ProgressRecord)) (json.RawMessage, *fault.Fault) {
	if err := ctx.Err(); err != nil {
		f := ended(ctx, "before the command was started")
		f.Execution = fault.NotStarted
		return nil, f
	}
	p := newProcess(c, args, callEnv, progress)
	stop, err := p.run(ctx)
	switch {
	case errors.Is(err, errStart):
		return nil, startFault(c.Path, err)
	case stop == tooMuch:
		f := fault.New(fault.InvalidResult, "the command wrote more than %d bytes to standard output and was killed", p.stdout.max)
		f.Detail = p.stderr.detail()
		f.Execution = fault.Stopped
		return nil, f
	case stop == contextEnded:
		f := ended(ctx, "and the command was killed")
		f.Detail = p.stderr.detail()
		f.Execution = fault.Stopped
		return nil, f
	}
	if f := exitFault(p); f != nil {
		return nil, f
	}
	return c.result(p.stdout.kept.Bytes())
}

// ended is the fault of a call that was over before its program was.
func ended(ctx context.Context, then string) *fault.Fault {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "the time was up %s", then)
	}
	return fault.New(fault.Cancelled, "the call was cancelled %s", then)
}

// result is what standard output says.
func (c Command) result(out []byte) (json.RawMessage, *fault.Fault) {
	text := strings.ToValidUTF8(strings.TrimRight(string(out), "\r\n"), "\uFFFD")
	switch {
	case json.Valid([]byte(text)):
		return json.RawMessage(text), nil
	case c.Strict:
		f := fault.New(fault.InvalidResult, "the command must write JSON to standard output, and wrote %s", shown(text))
		return nil, f
	case strings.TrimSpace(text) == "":
		return json.RawMessage("null"), nil
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return nil, fault.New(fault.Internal, "quote the output of the command: %v", err)
	}
	return quoted, nil
}

func shown(text string) string {
	if text == "" {
		return "nothing"
	}
	return strconv.Quote(fault.Truncate(text, 80))
}
