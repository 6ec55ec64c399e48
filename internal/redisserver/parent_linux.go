package redisserver

import "syscall"

// DieWithParent makes a child process end with this process, however that ends.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
