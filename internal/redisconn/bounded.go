package redisconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// Limits for the sizes that a reply announces. The driver allocates memory for a reply before it
// arrives, so a server that isn't Redis, or a corrupted link, could exhaust the memory or crash the
// program.
const (
	maxBulk  = 512 << 20 // bytes; Redis's own default
	maxArray = 1 << 17   // elements
	maxDepth = 8         // arrays that begin one after the other, each the first element of the one before
	maxLine  = 64 << 10  // bytes of a line that isn't a bulk string
)

var errUnsound = errors.New("this server doesn't speak the Redis protocol, or the link corrupts it; check the host, the port and TLS")

// slowestReply is the slowest rate of a reply, in bytes per second. It can be far below
// slowestLink, which extends timeouts for large payloads, because here progress is visible.
const slowestReply = 64 << 10

// A boundedConn fails when a reply announces more than the limits. The driver's deadlines apply to
// a whole reply or request; a boundedConn extends them as long as bytes keep flowing.
type boundedConn struct {
	net.Conn
	alive   *life         // of the line; nil if the connection belongs to none
	secure  bool          // with TLS
	heard   atomic.Bool   // something was received, or on an earlier connection of the line
	bounds  bounds        // this, timeout and due belong to the one who reads
	timeout time.Duration // that the driver has set for the reply
	due     time.Time     // the deadline; zero if there is none
	writes  time.Duration // for a write
}

// bounded returns dial with limits on replies. secure means that it makes connections with TLS.
func bounded(dial connect, secure bool) connect {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		b := &boundedConn{Conn: c, secure: secure, writes: DefaultTimeout} // not the dial's remaining time, since the connection outlives the dial
		if alive, ok := ctx.Value(lifeKey{}).(*life); ok {
			b.alive, b.writes = alive, alive.timeout
			b.heard.Store(alive.last.Load() != 0)
		}
		return b, nil
	}
}

type connect = func(ctx context.Context, network, address string) (net.Conn, error)

func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.heard.Load() {
		if err = suspects(p[:n], err, c.secure); err != nil {
			return 0, err
		}
	}
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	if bad := c.bounds.check(p[:n]); bad != nil {
		return 0, fmt.Errorf("%v: %w", c.RemoteAddr(), bad)
	}
	if n > 0 && c.alive != nil {
		c.alive.sign()
	}
	if n > 0 && err == nil {
		err = c.extend(n)
	}
	return n, err
}

// maxWrite is how many bytes are written with one deadline.
const maxWrite = 64 << 10

// Write gives each piece of a large request the time for a whole one.
func (c *boundedConn) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		if err = c.Conn.SetWriteDeadline(time.Now().Add(c.writes)); err != nil {
			break
		}
		var m int
		m, err = c.Conn.Write(p[:min(len(p), maxWrite)])
		if n, p = n+m, p[m:]; len(p) > 0 && m > 0 && c.alive != nil {
			c.alive.sign()
		}
	}
	if !c.heard.Load() {
		err = suspects(nil, err, c.secure)
	}
	return n, err
}

// SetReadDeadline is called by the driver before it reads a reply.
func (c *boundedConn) SetReadDeadline(t time.Time) error {
	c.due, c.timeout = t, time.Until(t)
	return c.Conn.SetReadDeadline(t)
}

// extend extends the deadline of a reply by the time that n received bytes may take, but never
// beyond the timeout from now. Silence is therefore noticed as quickly as before, however much has
// arrived, and a trickle times out.
func (c *boundedConn) extend(n int) error {
	if c.due.IsZero() {
		return nil
	}
	c.due = c.due.Add(time.Duration(n) * time.Second / slowestReply)
	if most := time.Now().Add(c.timeout); c.due.After(most) {
		c.due = most
	}
	return c.Conn.SetReadDeadline(c.due)
}

// bounds parses replies as they arrive, in pieces of any size. It reads only the first line of a
// bulk string.
type bounds struct {
	kind   byte // of the current line; 0 between lines
	line   int  // bytes of the current line
	size   int  // size or number of elements that it announces
	absent bool // the line announces a null
	skip   int  // remaining bytes of a bulk string and its end
	nested int  // arrays that have begun without an element
}

// check parses a piece.
func (b *bounds) check(p []byte) error {
	for len(p) > 0 {
		switch {
		case b.skip > 0:
			n := min(b.skip, len(p))
			b.skip, p = b.skip-n, p[n:]
		case b.kind == 0:
			if bytes.IndexByte([]byte("+-:$*"), p[0]) < 0 {
				return fmt.Errorf("%w: a reply has an unknown type", errUnsound)
			}
			b.kind, b.line, b.size, b.absent = p[0], 0, 0, false
			p = p[1:]
		default:
			end := bytes.IndexByte(p, '\n')
			part := p
			if end >= 0 {
				part, p = p[:end], p[end+1:]
			} else {
				p = nil
			}
			if err := b.read(part); err != nil {
				return err
			}
			if end >= 0 {
				if err := b.over(); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// read handles part of a line.
func (b *bounds) read(part []byte) error {
	if b.line += len(part); b.line > maxLine {
		return fmt.Errorf("%w: a line has more than %d bytes", errUnsound, maxLine)
	}
	if b.kind != '$' && b.kind != '*' {
		return nil
	}
	for _, c := range part {
		switch {
		case c == '-':
			b.absent = true
		case c >= '0' && c <= '9':
			if b.size = 10*b.size + int(c-'0'); b.size > maxBulk {
				return fmt.Errorf("%w: a reply announces more than %d bytes", errUnsound, maxBulk)
			}
		}
	}
	return nil
}

// over handles the end of a line.
func (b *bounds) over() error {
	begins := b.kind == '*' && !b.absent && b.size > 0
	b.nested++
	switch {
	case begins && b.size > maxArray:
		return fmt.Errorf("%w: a reply announces more than %d elements", errUnsound, maxArray)
	case begins && b.nested > maxDepth:
		return fmt.Errorf("%w: a reply is nested more than %d deep", errUnsound, maxDepth)
	case !begins:
		b.nested = 0
	}
	if b.kind == '$' && !b.absent {
		b.skip = b.size + len("\r\n")
	}
	b.kind = 0
	return nil
}

// A life records when Redis last gave a sign of life.
type life struct {
	last    atomic.Int64  // ns since epoch
	timeout time.Duration // of calls
}

var epoch = time.Now()

func (l *life) sign() { l.last.Store(int64(time.Since(epoch))) }

// since returns how long ago the last sign of life was, or the longest duration if there was none.
func (l *life) since() time.Duration {
	last := l.last.Load()
	if last == 0 {
		return 1<<63 - 1
	}
	return time.Since(epoch) - time.Duration(last)
}
