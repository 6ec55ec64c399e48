//go:build !linux

package redisserver

import "syscall"

// DieWithParent does nothing where a process cannot be bound to its parent.
func DieWithParent() *syscall.SysProcAttr { return nil }
