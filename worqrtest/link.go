package worqrtest

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// A link has all connections of a peer.
type link struct {
	dial func() (*end, error)

	mu      sync.Mutex // protects the fields below
	conns   map[*conn]bool
	crashed bool
	paused  bool
	losing  bool // the reply to the next call that contains text
	text    []byte
}

var errCrashed = errors.New("worqrtest: the peer has crashed")

func (l *link) connect() (*conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.crashed {
		return nil, errCrashed
	}
	e, err := l.dial()
	if err != nil {
		return nil, err
	}
	c := &conn{end: e, link: l}
	c.hold(l.paused)
	l.conns[c] = true
	return c, nil
}

func (l *link) crash() {
	l.mu.Lock()
	l.crashed = true
	var all []*conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.hold(true) // drops what the server hasn't read
		_ = c.Close()
	}
}

func (l *link) setPaused(paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused == paused {
		return
	}
	l.paused = paused
	for c := range l.conns {
		c.hold(paused)
	}
}

func (l *link) lose(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.losing, l.text = true, []byte(text)
	for c := range l.conns {
		c.sent = nil
	}
}

// repair undoes everything except losses.
func (l *link) repair() {
	l.setPaused(false)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crashed, l.losing = false, false
}

// A conn is a connection of a link.
type conn struct {
	*end
	link   *link
	losing atomic.Bool // the next reply
	sent   []byte      // the end of it, which may begin with a part of link.text; protected by the mutex of link
}

// hold holds back what is sent and received, or releases it.
func (c *conn) hold(held bool) {
	c.in.hold(held)
	c.out.hold(held)
}

func (c *conn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.end.Close()
}

func (c *conn) Write(b []byte) (int, error) {
	c.link.mu.Lock()
	if c.link.losing {
		c.sent = append(c.sent, b...)
		if bytes.Contains(c.sent, c.link.text) {
			c.link.losing = false
			c.losing.Store(true)
		}
		c.sent = c.sent[max(0, len(c.sent)-len(c.link.text)):]
	}
	c.link.mu.Unlock()
	return c.end.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.end.Read(b)
	if n > 0 && c.losing.Load() {
		c.out.close(io.EOF) // the server carries out what it got, and then closes its end
		for err == nil {
			_, err = c.end.Read(b)
		}
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}
