//go:build unix && !linux

package program

import (
	"os"
	"syscall"
)

// attributes has the program lead a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func killGroup(leader *os.Process) {
	_ = syscall.Kill(-leader.Pid, syscall.SIGKILL) // nobody may be left
}

// awaitExit cannot wait for a process without giving its id away. So the group
// is killed after the program was waited for. Until then its id is reserved if
// anything of the group is left; if nothing is, the id would have to be used
// again within that moment for a signal to hit a stranger.
func awaitExit(*os.Process) bool { return false }
