//go:build unix

package command

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalName is SIGSEGV, not "segmentation fault".
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}

// signalOf is the signal that ended the program, if one did.
func signalOf(cmd *exec.Cmd) (syscall.Signal, bool) {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return status.Signal(), true
}
