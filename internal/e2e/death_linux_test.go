package e2e

import "syscall"

// ownGroup makes a process the leader of a group, which does not outlive the tests even where those are killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
