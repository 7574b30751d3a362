package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/toolbus/toolbus/fault"
)

// Bounds of what a fault says, in bytes.
const (
	maxMessage = 300
	maxDetail  = 4 << 10
	maxCode    = 64
	maxHints   = 8
)

// ExitKind is the kind of fault that an exit code stands for, after sysexits.h and the shells. It is empty for 0.
//
//	  0                                  no fault
//	  2, 64 EX_USAGE, 65 EX_DATAERR      invalid_arguments
//	 66 EX_NOINPUT                       not_found
//	 69 EX_UNAVAILABLE                   unavailable
//	 70 EX_SOFTWARE                      internal
//	 73 EX_CANTCREAT, 74 EX_IOERR        upstream
//	 75 EX_TEMPFAIL                      upstream
//	 77 EX_NOPERM                        denied
//	 78 EX_CONFIG                        unsupported
//	124 (of timeout)                     timeout
//	126, 127 (of shells)                 unsupported: cannot be executed, not found
//	any other                            failed
//
// A program that a signal ended is upstream. The execution of a fault of this table is done, whatever the kind, so that
// a write is not sent again on a number alone; a fault record can say more.
func ExitKind(code int) fault.Kind {
	switch code {
	case 0:
		return ""
	case 2, 64, 65:
		return fault.InvalidArguments
	case 66:
		return fault.NotFound
	case 69:
		return fault.Unavailable
	case 70:
		return fault.Internal
	case 73, 74, 75:
		return fault.Upstream
	case 77:
		return fault.Denied
	case 78, 126, 127:
		return fault.Unsupported
	case 124:
		return fault.Timeout
	}
	return fault.Failed
}

// exitFault is what the end of the program says, or nil.
func exitFault(p *process) *fault.Fault {
	if sig, ok := signalOf(p.cmd); ok {
		return signalFault(p, sig)
	}
	code := p.cmd.ProcessState.ExitCode()
	if code == 0 {
		return nil
	}
	if f, rest, ok := record(p.stderr.tail); ok {
		f.Detail = last(rest, maxDetail)
		return f
	}
	f := fault.New(ExitKind(code), "%s", message(p, code))
	f.Code = strconv.Itoa(code)
	f.Detail = p.stderr.detail()
	f.Execution = fault.Done
	return f
}

func signalFault(p *process, sig syscall.Signal) *fault.Fault {
	name := signalName(sig)
	said := ""
	if sig == syscall.SIGKILL {
		said = ", perhaps because memory ran out"
	}
	f := fault.New(fault.Upstream, "the command was killed by %s%s", name, said)
	f.Code = name
	f.Detail = p.stderr.detail()
	f.Execution = fault.Unknown
	return f
}

// message is the program's own last word, or else what the number means.
func message(p *process, code int) string {
	for _, said := range [][]byte{p.stderr.tail, p.stdout.kept.Bytes()} {
		if line, _ := lastLine(said); line != "" {
			return fault.Truncate(line, maxMessage)
		}
	}
	switch code {
	case 126:
		return "the command cannot be executed (exit code 126)"
	case 127:
		return "the command was not found (exit code 127)"
	}
	return fmt.Sprintf("the command ended with exit code %d and said nothing", code)
}

// record reads the fault record in the last line of standard error, if that is one, and gives what came before it.
func record(said []byte) (f *fault.Fault, rest []byte, ok bool) {
	line, rest := lastLine(said)
	if !strings.HasPrefix(line, "{") {
		return nil, nil, false
	}
	var r fault.Fault
	if json.Unmarshal([]byte(line), &r) != nil || !r.Kind.Known() {
		return nil, nil, false
	}
	f = fault.New(r.Kind, "%s", fault.Truncate(r.Message, maxDetail))
	f.Code = fault.Truncate(r.Code, maxCode)
	f.RetryAfterMs = max(0, r.RetryAfterMs)
	f.Violations = r.Violations[:min(len(r.Violations), maxHints)]
	if len(r.Suggestions) > 0 {
		f.Suggestions = r.Suggestions[:min(len(r.Suggestions), maxHints)]
	}
	f.Execution = fault.Done
	switch r.Execution {
	case fault.NotStarted, fault.Unknown, fault.Stopped:
		f.Execution = r.Execution
	}
	return f, rest, true
}

// lastLine is the last line with something on it, and what came before it.
func lastLine(said []byte) (line string, rest []byte) {
	said = bytes.TrimSpace(said)
	at := bytes.LastIndexByte(said, '\n') + 1
	return strings.ToValidUTF8(string(said[at:]), "\uFFFD"), said[:at]
}

// last is the end of what was said, in at most max bytes of whole runes.
func last(said []byte, max int) string {
	if len(said) > max {
		said = said[len(said)-max:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(string(said), ""))
}

// startFault is why the program never ran.
func startFault(path string, err error) *fault.Fault {
	var f *fault.Fault
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
		f = fault.New(fault.Overloaded, "the worker has no room to start the command: %v", err)
	case errors.Is(err, syscall.ETXTBSY):
		f = fault.New(fault.Unavailable, "the command is being replaced: %v", err)
	default:
		f = fault.New(fault.Unsupported, "the worker cannot start the command %s: %v", path, notRunnable(err))
	}
	f.Execution = fault.NotStarted
	return f
}

// notRunnable says in few words why a program cannot be run.
func notRunnable(err error) error {
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return errors.New("not found; give its path, or put it in PATH")
	case errors.Is(err, fs.ErrPermission):
		return errors.New("not executable; chmod +x may help")
	}
	return err
}
