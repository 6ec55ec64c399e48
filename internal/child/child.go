// Package child starts this program again, in a process that tests, campaigns and measurements can
// kill. The process reads its configuration from its environment, reports in JSON on standard
// output, and reads lines from standard input.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/worqr/worqr/internal/redisserver"
)

// A Process is a running process that sends reports of type R.
type Process[R any] struct {
	Reports chan R        // closed when it has ended
	Exited  chan struct{} // closed after Reports
	Err     error         // how it ended; valid once Exited is closed

	cmd  *exec.Cmd
	in   io.Writer
	said bytes.Buffer // error output
}

// Options say how to start a process.
type Options struct {
	Config any      // the process gets it from Given
	Env    []string // added to its environment
	Begun  func()   // called when it has sent a report, or has ended; may be nil
}

// variable is the environment variable that has the Config.
const variable = "WORQR_CHILD"

// Start starts a process. It ends with ctx and with this process at the latest.
func Start[R any](ctx context.Context, o Options) (*Process[R], error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	config, err := json.Marshal(o.Config)
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	p := &Process[R]{cmd: exec.CommandContext(ctx, self), Reports: make(chan R, 10_000), Exited: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), variable+"="+string(config)), o.Env...)
	p.cmd.Stderr = &p.said
	p.cmd.SysProcAttr = redisserver.DieWithParent()
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	go p.hear(out, o.Begun)
	return p, nil
}

func (p *Process[R]) hear(out io.Reader, begun func()) {
	if begun == nil {
		begun = func() {}
	}
	begun = sync.OnceFunc(begun)
	for d := json.NewDecoder(out); ; begun() {
		var r R
		if d.Decode(&r) != nil { // a kill may truncate a line
			break
		}
		p.Reports <- r
	}
	begun()
	p.Err = p.cmd.Wait()
	close(p.Reports)
	close(p.Exited)
}

// Given returns the Config with which this process was started, if it was started by Start.
func Given[C any]() (config C, given bool) {
	text := os.Getenv(variable)
	if text == "" {
		return config, false
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		panic(err) // Start wrote it
	}
	return config, true
}

// Said returns the error output. It may be called once the process has ended.
func (p *Process[R]) Said() string { return strings.TrimSpace(p.said.String()) }

// PID returns the process id.
func (p *Process[R]) PID() int { return p.cmd.Process.Pid }

// Tell sends a line to the process.
func (p *Process[R]) Tell(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// Signal sends a signal to the process.
func (p *Process[R]) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process, and returns when it has ended.
func (p *Process[R]) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.Exited
}
