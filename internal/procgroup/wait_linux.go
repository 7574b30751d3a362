package procgroup

import (
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithUs has the kernel kill the program when the thread that starts it is gone.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitExit returns when the program has ended, and leaves it to be collected. It is false where it could not wait.
func awaitExit(cmd *exec.Cmd) bool {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}
