package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// A child is a peer of the demo as its parent sees it: this program, started
// once more.
type child struct {
	number int
	worker string // its id
	cmd    *exec.Cmd
	in     io.Closer    // closed to make it leave
	said   bytes.Buffer // its standard error; read it only after exited
	exited chan struct{}
	ending atomic.Bool // it is expected to end
}

// spawn starts a child. It passes the child's reports to hear, from one
// goroutine, and calls failed if the child ends unexpectedly.
func spawn(number int, url string, lease time.Duration, hear func(*child, report), failed func(error)) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a peer: %w", err)
	}
	c := &child{number: number, exited: make(chan struct{})}
	c.cmd = exec.Command(program, "peer", url, c.name(), lease.String())
	c.cmd.Stderr = &c.said
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a peer: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a peer: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a peer: %w", err)
	}
	go func() {
		defer close(c.exited)
		err := c.listen(out, hear)
		if c.ending.Load() {
			return
		}
		failed(fmt.Errorf("%s ended unexpectedly: %w\n%s", c.name(), err, strings.TrimSpace(c.said.String())))
	}()
	return c, nil
}

func (c *child) name() string { return fmt.Sprintf("peer %d", c.number) }

// listen reads the child's reports, and waits for its end.
func (c *child) listen(out io.Reader, hear func(*child, report)) error {
	var err error
	for d := json.NewDecoder(out); err == nil; {
		var r report
		if err = d.Decode(&r); err == nil {
			hear(c, r)
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // a kill may cut off a line
		err = nil
	}
	return errors.Join(err, c.cmd.Wait())
}

// kill kills the process: it can't report anything more, not even to Redis. It
// returns once all of the child's reports have been read.
func (c *child) kill() {
	c.ending.Store(true)
	_ = c.cmd.Process.Kill() // or it has ended already
	<-c.exited
}

// leave makes the child drain and leave, and waits for that.
func (c *child) leave() error {
	if c.ending.Swap(true) {
		<-c.exited
		return nil
	}
	_ = c.in.Close() // or it has ended already
	select {
	case <-c.exited:
	case <-time.After(patience):
		c.kill()
		return fmt.Errorf("%s did not leave within %v", c.name(), patience)
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s could not leave: %v\n%s", c.name(), c.cmd.ProcessState, strings.TrimSpace(c.said.String()))
	}
	return nil
}
