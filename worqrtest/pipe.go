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

// A pipe is one direction of a connection. Like a socket it has a buffer, since client and server both
// write before they read; unlike one, the buffer has no limit. A goroutine that waits for it is
// durably blocked in a bubble of testing/synctest.
type pipe struct {
	mu       sync.Mutex // protects the fields below
	changed  sync.Cond
	data     bytes.Buffer
	held     bool  // nothing arrives until it's released
	end      error // of reading, after the data; net.ErrClosed comes at once
	deadline time.Time
	alarm    *time.Timer // wakes the reader at the deadline
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

func (p *pipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case errors.Is(p.end, net.ErrClosed):
			return 0, p.end
		case !p.deadline.IsZero() && !time.Now().Before(p.deadline):
			return 0, os.ErrDeadlineExceeded
		case !p.held && p.data.Len() > 0:
			return p.data.Read(b)
		case !p.held && p.end != nil:
			return 0, p.end
		}
		p.changed.Wait()
	}
}

func (p *pipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end != nil {
		return 0, io.ErrClosedPipe
	}
	p.changed.Broadcast()
	return p.data.Write(b)
}

// close ends the pipe. What has been written can still be read, unless it's held, or the reader closes.
func (p *pipe) close(end error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held || errors.Is(end, net.ErrClosed) {
		p.data.Reset()
	}
	p.end, p.held = end, false
	p.setDeadlineLocked(time.Time{})
}

// hold holds back the data, or releases it.
func (p *pipe) hold(held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
	p.changed.Broadcast()
}

func (p *pipe) setDeadline(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.setDeadlineLocked(at)
	}
}

func (p *pipe) setDeadlineLocked(at time.Time) {
	p.deadline = at
	p.changed.Broadcast()
	switch {
	case at.IsZero():
		if p.alarm != nil {
			p.alarm.Stop()
		}
	case p.alarm == nil:
		p.alarm = time.AfterFunc(time.Until(at), func() {
			p.mu.Lock() // a reader may have looked at the deadline, and not wait yet
			defer p.mu.Unlock()
			p.changed.Broadcast()
		})
	default:
		p.alarm.Reset(time.Until(at))
	}
}

// An end is one end of a connection.
type end struct {
	in, out *pipe
	sends   func() // called before a Write; may be nil
}

// newPair returns the two ends of a connection.
func newPair() (client, server *end) {
	up, down := newPipe(), newPipe()
	return &end{in: down, out: up}, &end{in: up, out: down}
}

func (e *end) Read(b []byte) (int, error) { return e.in.read(b) }

func (e *end) Write(b []byte) (int, error) {
	if e.sends != nil {
		e.sends()
	}
	return e.out.write(b)
}

func (e *end) Close() error {
	e.in.close(net.ErrClosed)
	e.out.close(io.EOF)
	return nil
}

func (e *end) LocalAddr() net.Addr  { return &net.UnixAddr{Name: "worqrtest", Net: "pipe"} }
func (e *end) RemoteAddr() net.Addr { return e.LocalAddr() }

// Writing never waits, so only reading has a deadline.
func (e *end) SetDeadline(at time.Time) error     { return e.SetReadDeadline(at) }
func (e *end) SetWriteDeadline(time.Time) error   { return nil }
func (e *end) SetReadDeadline(at time.Time) error { e.in.setDeadline(at); return nil }
