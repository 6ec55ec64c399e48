//go:build !linux

package redisserver

import "syscall"

// DieWithParent does nothing on systems that can't bind a process to its parent.
func DieWithParent() *syscall.SysProcAttr { return nil }
