//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// Pause stops a child, which keeps all that it has. A signal takes effect some time after it is
// sent, so Pause waits until the child does nothing any more.
func Pause(p *os.Process) error {
	err := p.Signal(syscall.SIGSTOP)
	if err == nil {
		_, err = syscall.Wait4(p.Pid, nil, syscall.WUNTRACED, nil)
	}
	return err
}

// Resume lets a process go on that was paused.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
