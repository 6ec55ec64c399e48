//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// Pause stops a child process, which keeps all its resources. A signal takes effect some time after
// it is sent, so Pause waits until the child has stopped.
func Pause(p *os.Process) error {
	err := p.Signal(syscall.SIGSTOP)
	if err == nil {
		_, err = syscall.Wait4(p.Pid, nil, syscall.WUNTRACED, nil)
	}
	return err
}

// Resume continues a paused process.
func Resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
