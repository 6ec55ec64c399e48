package redistest

import "syscall"

// dieWithParent has a server end with the test binary, however that ends.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
