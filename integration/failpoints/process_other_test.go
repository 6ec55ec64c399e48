//go:build !linux

package failpoints_test

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped cannot be told here; whoever is to be given up for dead is waited for
// anyway.
func stopped(int) bool { return true }
