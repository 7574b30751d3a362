//go:build unix

package procgroup

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
