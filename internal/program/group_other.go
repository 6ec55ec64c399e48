//go:build !unix

package program

import (
	"os"
	"syscall"
)

// There are no process groups: only the program itself is killed.

func attributes() *syscall.SysProcAttr { return nil }

func killGroup(leader *os.Process) {
	_ = leader.Kill() // it may have ended
}

func awaitExit(*os.Process) bool { return false }
