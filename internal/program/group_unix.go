//go:build unix && !linux

package program

import (
	"os"
	"syscall"
)

// attributes makes the program lead a process group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(leader *os.Process) {
	_ = syscall.Kill(-leader.Pid, syscall.SIGKILL) // leave no process behind
}

// awaitExit can't wait for a process without releasing its id. So the group is killed after the
// program was waited for. Until then its id stays reserved if any process of the group is left. If
// none is, a signal could only reach a stranger if the id were reused within that moment.
func awaitExit(*os.Process) bool { return false }
