package simulation

import (
	"errors"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// A link is a connection between a process and the server: on the side of the
// process, a net.Conn. Requests travel up and replies down, each in order; what
// happens to them on the way is decided for each request. The mu of the world
// guards all of it.
type link struct {
	net.Conn // nil: the driver calls no other methods than those below

	w      *world
	of     *process
	number int
	up     way
	down   way

	partial  []byte // the beginning of a command
	in       []byte // has arrived, unread
	failed   error  // why nothing more will arrive
	closed   bool   // by the process
	deadline time.Time
	stir     chan struct{} // has an element when there is something new for a reader; holds one

	known bool            // to the server
	hears map[string]bool // subscribed channels
}

// A way is one direction of a link.
type way struct {
	held  bool // nothing arrives until it is released
	lost  bool // nothing arrives anymore
	slow  time.Duration
	last  time.Time // when the last message arrives
	stuck []func()  // messages held up
}

// errGone is the error of a connection that was reset.
var errGone = &net.OpError{Op: "read", Net: "sim", Err: syscall.ECONNRESET}

// send makes a message arrive at the other end, after those sent before.
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

// release delivers what was held up, before anything that is on its way.
func (l *link) release(on *way) {
	on.held = false
	stuck := on.stuck
	on.stuck = nil
	for _, arrives := range stuck {
		arrives()
	}
}

// lose drops everything from now on.
func (l *link) lose(on *way) { on.lost, on.stuck = true, nil }

// reset breaks the link; both ends notice.
func (l *link) reset() {
	l.lose(&l.up)
	l.lose(&l.down)
	l.fail(errGone)
	l.w.hangUp(l)
}

// fail makes the process receive nothing more.
func (l *link) fail(err error) {
	if l.failed == nil {
		l.failed = err
	}
	signal(l.stir)
}

// reply sends data from the server to the process.
func (l *link) reply(b []byte) { l.send(&l.down, func() { l.receive(b) }) }

// receive makes the process able to read data that has arrived.
func (l *link) receive(b []byte) {
	l.in = append(l.in, b...)
	signal(l.stir)
}

// Write is called by the driver. It sends a command once it is complete. It
// doesn't block, even while the process is paused: the writer may hold a lock,
// and time in a bubble doesn't advance while a goroutine waits for that. The
// command is then sent after the pause.
func (l *link) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.broken(); err != nil {
		return 0, err
	}
	l.partial = append(l.partial, b...)
	for {
		args, rest, err := readCommand(l.partial)
		if errors.Is(err, errShort) {
			l.partial = slices.Clone(rest)
			return len(b), nil
		}
		if err != nil {
			panic(err) // the driver has sent something that isn't a command
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

// Read is called by the driver. While the process is paused it doesn't return,
// not even at its deadline.
func (l *link) Read(b []byte) (int, error) {
	for {
		l.of.breathe()
		l.w.mu.Lock()
		late := !l.deadline.IsZero() && !time.Now().Before(l.deadline)
		// After a pause both may be true, and either may be noticed first.
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

// Close closes the connection at the server once everything sent has arrived.
func (l *link) Close() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	l.fail(net.ErrClosed)
	l.of.unlessPaused(func() { l.send(&l.up, func() { l.w.hangUp(l) }) })
	// The server notices lost connections by their silence.
	l.w.after(keepAlive, func() { l.w.hangUp(l) })
	return nil
}

// keepAlive is how long the server keeps a lost connection.
const keepAlive = time.Minute

func (l *link) SetReadDeadline(t time.Time) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.deadline = t
	signal(l.stir)
	return nil
}

func (l *link) SetWriteDeadline(time.Time) error { return nil } // writing takes no time
