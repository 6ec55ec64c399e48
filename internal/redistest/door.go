package redistest

import (
	"io"
	"iter"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Door is an address at which a test serves connections itself.
type Door struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	conns map[net.Conn]bool
	shut  bool
}

// Listen returns a door that passes each connection to serve, in a new goroutine. A connection is
// closed when serve returns; all are closed when the test ends.
func Listen(t testing.TB, serve func(c net.Conn)) *Door {
	t.Helper()
	d := newDoor(t, Sure(net.Listen("tcp", "127.0.0.1:0"))(t))
	d.open(serve)
	return d
}

// Nowhere returns an address that refuses connections until the test ends. It belongs to the client
// of a connection, so that no other process gets it.
func Nowhere(t testing.TB) string {
	t.Helper()
	d := Listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	c := Sure(net.Dial("tcp", d.Addr()))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

func newDoor(t testing.TB, l net.Listener) *Door {
	d := &Door{listener: l, conns: map[net.Conn]bool{}}
	t.Cleanup(d.Close)
	return d
}

// open serves connections from now on.
func (d *Door) open(serve func(c net.Conn)) {
	d.wg.Go(func() {
		for {
			c, err := d.listener.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() {
				defer d.hold(c)()
				serve(c)
			})
		}
	})
}

// hold makes Cut close a connection, too. release closes it.
func (d *Door) hold(c net.Conn) (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns[c] = true
	if d.shut {
		_ = c.Close()
	}
	return func() {
		_ = c.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.conns, c)
	}
}

// Addr returns the host and port.
func (d *Door) Addr() string { return d.listener.Addr().String() }

// URL returns the address as a URL.
func (d *Door) URL() string { return "redis://" + d.Addr() }

// Cut closes every connection. New ones can be made.
func (d *Door) Cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		_ = c.Close()
	}
}

// Close closes the door and every connection, and waits until serve has returned for all of them.
func (d *Door) Close() {
	_ = d.listener.Close() // the test may have closed it
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
	d.Cut()
	d.wg.Wait()
}

// Requests yields the commands that arrive on a connection, with their arguments. The driver parses
// them: a request looks like a reply that is an array.
func Requests(c net.Conn) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for in := redis.NewConn(c, 0, 0); ; {
			words, err := redis.Strings(in.Receive())
			if err != nil || !yield(words) {
				return
			}
		}
	}
}

// relay returns a door to the server at an address. For each connection, carry returns a function
// that forwards the requests and one that forwards the replies, each until that fails.
func relay(t testing.TB, to string, carry func(client, server net.Conn) (requests, replies func())) *Door {
	t.Helper()
	OneServer(t, OwnProxy)
	d := newDoor(t, Sure(net.Listen("tcp", "127.0.0.1:0"))(t))
	d.open(func(client net.Conn) {
		server, err := net.DialTimeout("tcp", to, 5*time.Second)
		if err != nil {
			return
		}
		defer d.hold(server)()
		requests, replies := carry(client, server)
		var both sync.WaitGroup
		for _, way := range []func(){requests, replies} {
			both.Go(func() {
				way()
				_, _ = client.Close(), server.Close() // so that the other direction ends
			})
		}
		both.Wait()
	})
	return d
}
