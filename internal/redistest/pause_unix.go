//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// Pause stops a process, which keeps all that it has.
func Pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Resume lets a process go on that was paused.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
