package load

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/peertest"
)

// A Process is a running peer.
type Process struct {
	*child.Process[Event]
	Name  string
	Calm  chan struct{} // closed when it has stopped enqueueing
	Heard chan struct{} // closed when all its reports have been read
}

// Start starts a peer: this program again, which calls Main.
func Start(c Config, hear func(Event)) (*Process, error) {
	started, err := child.Start[Event](context.Background(), child.Options{Config: c, Env: []string{"GOMAXPROCS=2"}})
	if err != nil {
		return nil, err
	}
	p := &Process{started, c.Name, make(chan struct{}), make(chan struct{})}
	go func() {
		defer close(p.Heard)
		for e := range p.Reports {
			if e.Op == OpCalm {
				close(p.Calm)
			}
			hear(e)
		}
	}()
	return p, nil
}

// End asks the peer to end, and returns when it has ended and all its reports have been read.
func (p *Process) End() {
	_ = p.Signal(syscall.SIGTERM) // it may have ended
	<-p.Exited
	<-p.Heard
}

// Quiet makes all peers stop enqueueing.
func Quiet(t testing.TB, all []*Process, most time.Duration) {
	t.Helper()
	late := time.After(most)
	for _, p := range all {
		peertest.Must(t, p.Tell("be calm"))
		select {
		case <-p.Calm:
		case <-p.Exited:
			t.Fatalf("%s has ended: %v\n%s", p.Name, p.Err, p.Said())
		case <-late:
			t.Fatalf("%s keeps adding tasks", p.Name)
		}
	}
}

// Complaints returns the lines of the error output that aren't log lines, or are logged as errors,
// except for those about tasks that fail on purpose.
func (p *Process) Complaints() (all []string) {
	for line := range strings.Lines(p.Said()) {
		isError := strings.Contains(line, "level=ERROR") && !strings.Contains(line, errWrong.Error())
		if !strings.HasPrefix(line, "time=") || isError {
			all = append(all, fmt.Sprintf("%s says: %s", p.Name, strings.TrimSpace(line)))
		}
	}
	return all
}
