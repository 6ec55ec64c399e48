package redisserver

import "syscall"

// DieWithParent has what was started end with this process, however that ends.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
