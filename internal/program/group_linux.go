package program

import (
	"os"
	"syscall"
)

// attributes has the program lead a group, and die with the thread that
// starts it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func killGroup(leader *os.Process) {
	_ = syscall.Kill(-leader.Pid, syscall.SIGKILL) // nobody may be left
}

// awaitExit blocks until the process has ended, and leaves it to be waited
// for, so that its id is not used again. It reports whether it could.
func awaitExit(p *os.Process) bool {
	const byPid = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPid, uintptr(p.Pid), 0, syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return errno == 0
		}
	}
}
