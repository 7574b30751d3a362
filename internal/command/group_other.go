//go:build !unix

package command

import (
	"os/exec"
	"syscall"
)

// setUp has nothing to do: there are no process groups here.
func setUp(*exec.Cmd) {}

// killGroup kills the program alone, and at once whatever the signal.
func killGroup(cmd *exec.Cmd, _ syscall.Signal) { _ = cmd.Process.Kill() }

func signalOf(*exec.Cmd) (syscall.Signal, bool) { return 0, false }

func signalName(sig syscall.Signal) string { return sig.String() }

func awaitExit(*exec.Cmd) bool { return false }
