package simulation

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/worqr/worqr/integration/spec"
)

// A link is a connection of a process with the server: on the side of the process
// a net.Conn. Requests travel up and replies down, each way in order; what happens
// to them on the way is decided request by request. All of it is guarded by the
// mu of the world.
type link struct {
	net.Conn // nil: the driver calls no other methods than those below

	w      *world
	of     *process
	number int
	up     way
	down   way

	partial  []byte // of a command, not sent yet
	in       []byte // has arrived
	failed   error  // why nothing more will
	closed   bool   // by the process
	deadline time.Time
	stir     chan struct{} // has an element when there is something new to a reader; holds one

	known bool            // to the server
	hears map[string]bool // channels
}

// A way is one direction of a link.
type way struct {
	held  bool // nothing arrives until it is released
	lost  bool // nothing arrives any more
	slow  time.Duration
	last  time.Time // when the last of what was sent arrives
	stuck []func()  // has been held up
}

// errGone is what a process hears of a connection that was reset.
var errGone = &net.OpError{Op: "read", Net: "sim", Err: syscall.ECONNRESET}

// send has something arrive at the other end, behind what was sent before.
func (l *link) send(on *way, arrives func()) {
	if on.lost {
		return
	}
	delay := max(time.Until(on.last), l.w.latency()+on.slow)
	on.last = time.Now().Add(delay)
	l.w.after(delay, func() {
		switch {
		case on.lost:
		case on.held || len(on.stuck) > 0:
			on.stuck = append(on.stuck, arrives)
		default:
			arrives()
		}
	})
}

// release lets what was held up arrive.
func (l *link) release(on *way) {
	on.held = false
	stuck := on.stuck
	on.stuck = nil
	for _, arrives := range stuck {
		l.send(on, arrives)
	}
}

// lose has nothing arrive any more.
func (l *link) lose(on *way) { on.lost, on.stuck = true, nil }

// reset breaks the link, and both ends notice.
func (l *link) reset() {
	l.lose(&l.up)
	l.lose(&l.down)
	l.fail(errGone)
	l.w.hangUp(l)
}

// fail has the process hear nothing more.
func (l *link) fail(err error) {
	if l.failed == nil {
		l.failed = err
	}
	signal(l.stir)
}

// reply has the server say something to the process.
func (l *link) reply(b []byte) {
	l.send(&l.down, func() {
		l.in = append(l.in, b...)
		signal(l.stir)
	})
}

// Write is called by the driver. A command is on its way once it is complete. It
// does not block, also while the process is paused, since who writes may hold a
// lock, on which nobody may wait while time is to go on in a bubble: then the
// command is on its way after the pause.
func (l *link) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.broken(); err != nil {
		return 0, err
	}
	l.partial = append(l.partial, b...)
	for {
		args, rest, err := spec.ReadCommand(l.partial)
		if errors.Is(err, spec.ErrShort) {
			l.partial = slices.Clone(rest)
			return len(b), nil
		}
		if err != nil {
			panic(err) // the driver has sent what is no command
		}
		l.partial = rest
		l.of.unlessPaused(func() { l.w.sent(l, args) })
	}
}

func (l *link) broken() error {
	if l.closed {
		return net.ErrClosed
	}
	return l.failed
}

// Read is called by the driver. While the process is paused it does not return,
// whatever its deadline.
func (l *link) Read(b []byte) (int, error) {
	for {
		l.of.breathe()
		l.w.mu.Lock()
		late := !l.deadline.IsZero() && !time.Now().Before(l.deadline)
		// After a pause both may be so, and either may be noticed first.
		if len(l.in) > 0 && !l.closed && (!late || l.w.dice.IntN(2) == 0) {
			n := copy(b, l.in)
			l.in = l.in[n:]
			l.w.mu.Unlock()
			return n, nil
		}
		err, deadline := l.broken(), l.deadline
		l.w.mu.Unlock()
		switch {
		case err != nil:
			return 0, err
		case late:
			return 0, os.ErrDeadlineExceeded
		case deadline.IsZero():
			<-l.stir
		default:
			timer := time.NewTimer(time.Until(deadline))
			select {
			case <-l.stir:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// Close has the server know once all that was sent has arrived.
func (l *link) Close() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	l.fail(net.ErrClosed)
	l.of.unlessPaused(func() { l.send(&l.up, func() { l.w.hangUp(l) }) })
	// The server finds connections that are gone by their silence.
	l.w.after(keepAlive, func() { l.w.hangUp(l) })
	return nil
}

// keepAlive is how long the server believes in a connection that is gone.
const keepAlive = time.Minute

func (l *link) SetReadDeadline(t time.Time) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.deadline = t
	signal(l.stir)
	return nil
}

func (l *link) SetWriteDeadline(time.Time) error { return nil } // writing takes no time
