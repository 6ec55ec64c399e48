package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/worqr/worqr/internal/peertest"
)

// A screenful is what a program has drawn on its terminal.
type screenful struct {
	*testing.T
	f    *os.File
	mu   sync.Mutex // protects text
	text bytes.Buffer
}

// terminal starts the command on a terminal of its own.
func (s *shell) terminal(args ...string) *screenful {
	s.Helper()
	return s.attached(s.program(append(args, "--prefix", s.args[3])...))
}

func (s *shell) attached(c *exec.Cmd) *screenful {
	s.Helper()
	c.Env = append(c.Env, "TERM=xterm-256color")
	f, err := pty.StartWithSize(c, &pty.Winsize{Rows: 30, Cols: 140})
	if err != nil {
		s.Fatal(err)
	}
	v := &screenful{T: s.T, f: f}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for part := make([]byte, 4096); ; {
			n, err := f.Read(part)
			v.mu.Lock()
			v.text.Write(part[:n])
			v.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	s.Cleanup(func() {
		if s.Failed() {
			_ = c.Process.Kill() // it may be waiting for a key
		}
		err := c.Wait()
		<-read
		_ = f.Close()
		if err != nil {
			s.Errorf("%v:\n%q", err, v.drawn())
		}
	})
	return v
}

func (v *screenful) drawn() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.text.String()
}

// press types keys.
func (v *screenful) press(keys string) {
	v.Helper()
	if _, err := v.f.WriteString(keys); err != nil {
		v.Fatal(err)
	}
}

// awaits waits until a text is drawn.
func (v *screenful) awaits(text string) {
	v.Helper()
	peertest.Eventually(v, fmt.Sprintf("%q is drawn", text), func() bool { return strings.Contains(v.drawn(), text) })
}

// The keys act on the selected queue, and q restores the terminal.
func TestTop(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "emails", "a", "b")
	v := s.terminal("top", "--every", "100ms")
	v.awaits("emails")
	v.awaits("no worker")
	v.press("p")
	v.awaits("paused emails")
	s.is.True(peertest.Stats(t, s.peer.Queue("emails")).Paused)
	v.press("q")
	v.awaits("\x1b[?1049l")
}

// A mistyped name does nothing.
func TestConfirm(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "emails", "a", "b")
	v := s.terminal("delete", "emails")
	v.awaits("This will delete 2 waiting tasks of the queue")
	v.press("emails\n")
	v.awaits("2 waiting tasks deleted")
	s.is.True(strings.Contains(s.run(exitUnwell, "tasks", "emails"), `no queue "emails" exists`)) // it was deleted
}

func TestTopWithoutTerminal(t *testing.T) {
	s := newShell(t)
	s.is.True(strings.Contains(s.run(exitFailed, "top"), "needs a terminal"))
	s.run(exitFailed, "top", "--every", "1ms")
}
