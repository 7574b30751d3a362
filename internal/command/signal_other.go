//go:build !unix

package command

import (
	"os/exec"
	"syscall"
)

func signalOf(*exec.Cmd) (syscall.Signal, bool) { return 0, false }

func signalName(sig syscall.Signal) string { return sig.String() }
