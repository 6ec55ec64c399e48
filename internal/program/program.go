// Package program runs a program in its own process group, and kills the whole group when the call
// ends.
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	maxOutput = 1 << 20 // bytes of a program's output that are kept, from its beginning
	maxErrors = 2 << 10 // bytes of a program's error output that are kept, from its end

	// linger is how long to read output after a program has ended, if another process holds it
	// open; lingerEnded is the same once the context has ended.
	linger      = time.Second
	lingerEnded = 100 * time.Millisecond
)

// A Program is what to run.
type Program struct {
	Name  string // looked up as exec.Command does
	Args  []string
	Env   []string // the whole environment; see Environment
	Input []byte   // it need not read all of it
}

// Run runs the program until it or ctx ends, and kills the rest of its group. It returns the first
// MiB of the output. The error text contains the last 2 KiB of the error output. The error matches
// context.Cause(ctx) if ctx ended first, and otherwise the error of exec.Cmd. If ctx has already
// ended, nothing is started.
func Run(ctx context.Context, p Program) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var output head
	var errs tail
	cmd := exec.Command(p.Name, p.Args...)
	cmd.Env = p.Env
	cmd.Stdin = bytes.NewReader(p.Input)
	cmd.Stdout = &output
	cmd.Stderr = &errs
	err := execute(ctx, cmd)
	if err == nil {
		return output.kept, nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if said := errs.String(); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return nil, err
}

// execute runs the command until it or ctx ends. Nothing of its group is left.
func execute(ctx context.Context, cmd *exec.Cmd) error {
	// Linux kills the program when the thread that forked it dies, even if the process lives on
	// (golang.org/issue/27505). A thread dies when a goroutine that is locked to it ends. While
	// this one is locked, no other can be.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return err
	}
	g := &group{leader: cmd.Process}
	defer context.AfterFunc(ctx, g.kill)()
	if awaitExit(cmd.Process) {
		g.end() // before Wait releases the id
	}
	cmd.WaitDelay = linger
	if ctx.Err() != nil {
		cmd.WaitDelay = lingerEnded
	}
	err := cmd.Wait()
	g.end()
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // it succeeded; an escaped process holds its output open
	}
	return err
}

// A group is a process group, named by the id of its leader. The id is reserved until the leader
// has been waited for; later signals might reach strangers.
type group struct {
	leader *os.Process

	mu   sync.Mutex // protects the field below
	over bool       // send no more signals
}

// kill kills the whole group.
func (g *group) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		killGroup(g.leader)
	}
}

// end kills the rest of the group, once, and disables kill.
func (g *group) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		killGroup(g.leader)
	}
	g.over = true
}

// A head keeps the beginning of what is written to it.
type head struct{ kept []byte }

func (h *head) Write(p []byte) (int, error) {
	h.kept = append(h.kept, p[:min(len(p), maxOutput-len(h.kept))]...)
	return len(p), nil
}

// A tail keeps the end of what is written to it.
type tail struct{ kept []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxErrors):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxErrors):]
	return len(p), nil
}

// String returns valid UTF-8: what is kept may begin within a character.
func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\uFFFD"))
}
