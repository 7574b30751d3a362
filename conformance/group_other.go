//go:build !unix

package conformance

import "os/exec"

// group does nothing: there are no process groups here.
func group(*exec.Cmd) {}

func killGroup(cmd *exec.Cmd) { cmd.Process.Kill() }
