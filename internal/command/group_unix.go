//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// setUp makes the program the leader of a process group of its own.
func setUp(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithUs(cmd.SysProcAttr)
}

// killGroup signals all of the group. That there is nobody left is fine.
func killGroup(cmd *exec.Cmd, sig syscall.Signal) { _ = syscall.Kill(-cmd.Process.Pid, sig) }

// signalOf is the signal that ended the program, if one did.
func signalOf(cmd *exec.Cmd) (syscall.Signal, bool) {
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return 0, false
	}
	return status.Signal(), true
}
