package worqrtest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A link has all connections of a peer.
type link struct {
	dial func() (net.Conn, error)

	mu      sync.Mutex // protects the fields below
	conns   map[*conn]bool
	crashed bool
	paused  bool
	resumed chan struct{} // closed unless it's paused
	losing  bool          // the reply to the next call that contains text
	text    []byte
}

var errCrashed = errors.New("worqrtest: the peer has crashed")

func (l *link) connect() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed {
		return nil, errCrashed
	}
	inner, err := l.dial()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, link: l, closed: make(chan struct{})}
	l.conns[c] = true
	return c, nil
}

func (l *link) crash() {
	l.mu.Lock()
	l.crashed = true
	var all []*conn
	for c := range l.conns {
		c.held = nil
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

func (l *link) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.paused {
		l.paused, l.resumed = true, make(chan struct{})
	}
}

func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.paused {
		return
	}
	for c := range l.conns {
		if len(c.held) > 0 {
			c.deliverLocked()
		}
	}
	l.paused = false
	close(l.resumed)
}

func (l *link) lose(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing, l.text = true, []byte(text)
}

// repair undoes everything except losses.
func (l *link) repair() {
	l.resume()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed, l.losing = false, false
}

// A conn is a connection of a link.
type conn struct {
	net.Conn
	link   *link
	closed chan struct{}
	once   sync.Once

	// Protected by link.mu.
	held      []byte        // sent during a pause
	delivered chan struct{} // closed when what was held before has been sent; nil if nothing was
	losing    bool          // the next reply
	until     time.Time     // the deadline of reading

	// Owned by the reader.
	arrived []byte
	gone    error
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.link.mu.Lock()
		delete(c.link.conns, c)
		c.link.mu.Unlock()
		close(c.closed)
	})
	return c.Conn.Close()
}

func (c *conn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	if c.link.losing && bytes.Contains(b, c.link.text) {
		c.link.losing, c.losing = false, true
	}
	if c.link.paused { // as if a socket's buffer took it
		c.held = append(c.held, b...)
		c.link.mu.Unlock()
		return len(b), nil
	}
	before := c.delivered
	c.link.mu.Unlock()
	if before != nil {
		<-before
	}
	return c.Conn.Write(b)
}

// deliverLocked sends the held data, in the background: the server may be busy. Later data waits for it.
func (c *conn) deliverLocked() {
	held, before, done := c.held, c.delivered, make(chan struct{})
	c.held, c.delivered = nil, done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		_, _ = c.Conn.Write(held) // if it fails, the reader gets an error
	}()
}

func (c *conn) Read(b []byte) (int, error) {
	if len(c.arrived) == 0 && c.gone == nil {
		n, err := c.Conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		c.arrived, c.gone = append(c.arrived, b[:n]...), err
	}
	if err := c.await(); err != nil {
		return 0, err
	}
	c.link.mu.Lock()
	losing := c.losing
	c.link.mu.Unlock()
	if losing {
		_ = c.Close()
		return 0, io.EOF
	}
	n := copy(b, c.arrived)
	if c.arrived = c.arrived[n:]; n == 0 {
		return 0, c.gone
	}
	return n, nil
}

// await waits until the pause has ended, or for the deadline.
func (c *conn) await() error {
	c.link.mu.Lock()
	resumed, until := c.link.resumed, c.until
	c.link.mu.Unlock()
	var late <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-resumed:
		return nil
	default:
	}
	select {
	case <-resumed:
		return nil
	case <-c.closed:
		return net.ErrClosed
	case <-late:
		return os.ErrDeadlineExceeded
	}
}

func (c *conn) SetDeadline(at time.Time) error {
	return errors.Join(c.SetReadDeadline(at), c.SetWriteDeadline(at))
}

func (c *conn) SetReadDeadline(at time.Time) error {
	c.link.mu.Lock()
	c.until = at
	c.link.mu.Unlock()
	return c.Conn.SetReadDeadline(at)
}
