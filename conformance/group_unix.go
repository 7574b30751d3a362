//go:build unix

package conformance

import (
	"os/exec"
	"syscall"
)

// group gives the worker a process group of its own, so that a wrapper's children end with it.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(cmd *exec.Cmd) {
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Process.Kill()
}
