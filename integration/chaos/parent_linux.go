package main

import "syscall"

// dieWithParent has what was started end with this process, however that ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
