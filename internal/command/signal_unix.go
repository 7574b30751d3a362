//go:build unix

package command

import (
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
