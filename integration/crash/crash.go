// Package crash runs test peers in separate processes that can be killed and paused. It wraps
// package child: if a process goes wrong, the test fails.
package crash

import (
	"context"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A Process is a running process that sends reports of type R.
type Process[R any] struct {
	*child.Process[R]
	t testing.TB
}

// starting limits how many processes start at a time. Starting is expensive, and running processes
// with a short lease must not starve.
var starting = make(chan struct{}, 3)

// Launch starts the test binary again, with a config. The process is killed when the test ends.
func Launch[R any](t testing.TB, config any) *Process[R] {
	t.Helper()
	starting <- struct{}{}
	begun := sync.OnceFunc(func() { <-starting })
	c, err := child.Start[R](context.Background(), child.Options{Config: config, Env: []string{"GOMAXPROCS=2"}, Begun: begun})
	if err != nil {
		begun()
		t.Fatal(err)
	}
	p := &Process[R]{c, t}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("a process said:\n%s", p.Said())
		}
	})
	return p
}

// Next returns the next report, or the zero value if the process has ended.
func (p *Process[R]) Next() (r R) {
	p.t.Helper()
	select {
	case r = <-p.Reports:
	case <-time.After(peertest.Patience):
		p.t.Fatal("the process reports nothing")
	}
	return r
}

// Tell sends a line to the process.
func (p *Process[R]) Tell(line string) {
	p.t.Helper()
	peertest.Must(p.t, p.Process.Tell(line))
}

// Stop stops the process (SIGSTOP), and returns when it has stopped.
func (p *Process[R]) Stop() {
	p.t.Helper()
	peertest.Must(p.t, redistest.Pause(redistest.Sure(os.FindProcess(p.PID()))(p.t)))
}

// Continue continues the process.
func (p *Process[R]) Continue() {
	p.t.Helper()
	peertest.Must(p.t, p.Signal(syscall.SIGCONT))
}

// End asks the process to end, and returns when it has ended.
func (p *Process[R]) End() {
	p.t.Helper()
	peertest.Must(p.t, p.Signal(syscall.SIGTERM))
	<-p.Exited
}
