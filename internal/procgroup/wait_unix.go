//go:build unix && !linux

package procgroup

import (
	"os/exec"
	"syscall"
)

// dieWithUs has nothing to do: only Linux offers it.
func dieWithUs(*syscall.SysProcAttr) {}

// awaitExit cannot look at the end of a program without collecting it here.
func awaitExit(*exec.Cmd) bool { return false }
