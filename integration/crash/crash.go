// Package crash runs peers of tests in processes of their own, which can be killed and
// stopped. A test binary starts itself once more, with what is to be done in its environment;
// the two talk by lines: JSON from the process, words to it.
package crash

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redisserver"
)

// A Process is a running process, which reports R.
type Process[R any] struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	Reports chan R        // closed when it has ended
	Exited  chan struct{} // closed then, too
}

// starting bounds how many processes start at a time: that is what costs most, and
// those that have a short lease must not starve meanwhile.
var starting = make(chan struct{}, 3)

// Launch starts the test binary once more, with config in a variable of its environment.
// It is killed in the end.
func Launch[R any](t testing.TB, variable string, config any) *Process[R] {
	t.Helper()
	text, err := json.Marshal(config)
	peertest.Must(t, err)
	binary, err := os.Executable()
	peertest.Must(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), variable+"="+string(text), "GOMAXPROCS=2")
	cmd.SysProcAttr = redisserver.DieWithParent()
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	peertest.Must(t, err)
	out, err := cmd.StdoutPipe()
	peertest.Must(t, err)
	starting <- struct{}{}
	begun := sync.OnceFunc(func() { <-starting })
	if err := cmd.Start(); err != nil {
		begun()
		t.Fatal(err)
	}
	p := &Process[R]{t, cmd, in, make(chan R, 10_000), make(chan struct{})}
	go func() {
		defer close(p.Exited)
		defer begun()
		for d := json.NewDecoder(out); ; {
			var r R
			if d.Decode(&r) != nil {
				break
			}
			begun()
			p.Reports <- r
		}
		close(p.Reports)
		_ = cmd.Wait() // how it ended is seen by what it said
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("a process said:\n%s", said.String())
		}
	})
	return p
}

// Next takes the next report; it's one of nothing if the process has ended.
func (p *Process[R]) Next() (r R) {
	p.t.Helper()
	select {
	case r = <-p.Reports:
	case <-time.After(peertest.Patience):
		p.t.Fatal("the process reports nothing")
	}
	return r
}

// Tell says a line to the process.
func (p *Process[R]) Tell(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	peertest.Must(p.t, err)
}

// PID is its number.
func (p *Process[R]) PID() int { return p.cmd.Process.Pid }

// Stop stops the process, and returns once it stands still.
func (p *Process[R]) Stop() {
	p.t.Helper()
	peertest.Must(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	peertest.Eventually(p.t, "the process stands still", func() bool { return stopped(p.PID()) })
}

// Continue has it go on.
func (p *Process[R]) Continue() {
	p.t.Helper()
	peertest.Must(p.t, p.cmd.Process.Signal(syscall.SIGCONT))
}

// End asks it to end, and returns when it has.
func (p *Process[R]) End() {
	p.t.Helper()
	peertest.Must(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.Exited
}

// Kill kills it, and returns when it is dead.
func (p *Process[R]) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.Exited
}
