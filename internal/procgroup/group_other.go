//go:build !unix

package procgroup

import (
	"os/exec"
	"syscall"
)

// setUp has nothing to do: there are no process groups here.
func setUp(*exec.Cmd) {}

// killGroup kills the program alone, and at once whatever the signal.
func killGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }

func awaitExit(*exec.Cmd) bool { return false }
