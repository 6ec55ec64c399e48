package redistest

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Link is a TCP proxy to a server that can be cut, stalled, made narrow, or made to
// lose replies.
type Link struct {
	to       string
	listener net.Listener
	wg       sync.WaitGroup

	mu    sync.Mutex // protects the fields below
	conns map[net.Conn]bool
	lose  string // replies to requests that contain this are lost
	times int    // that many are left to lose
	lost  chan struct{}
	deaf  bool
	gone  bool
	rate  int        // bytes a second of what the server says; 0 for as it comes
	pipe  sync.Mutex // held by who has something get through at that rate
}

// NewLink returns a link to the address.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	OneServer(t, OwnProxy)
	l := Sure(net.Listen("tcp", "127.0.0.1:0"))(t)
	link := &Link{to: to, listener: l, conns: map[net.Conn]bool{}}
	link.wg.Go(link.accept)
	t.Cleanup(func() {
		link.mu.Lock()
		link.gone = true
		link.mu.Unlock()
		_ = l.Close()
		link.Cut()
		link.wg.Wait()
	})
	return link
}

// URL is where the link listens.
func (l *Link) URL() string { return "redis://" + l.listener.Addr().String() }

// Cut closes every connection. New ones may be made.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
}

// LoseReplyTo loses the reply to the next request that contains the given bytes: the request
// reaches the server, and the connection ends before the reply. The returned channel is closed when
// that has happened.
func (l *Link) LoseReplyTo(request string) <-chan struct{} { return l.LoseRepliesTo(request, 1) }

// LoseRepliesTo does the same to the next so many requests. The channel is
// closed with the last.
func (l *Link) LoseRepliesTo(request string, times int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.times, l.lost = request, times, make(chan struct{})
	return l.lost
}

// Deafen drops everything that the server sends, while connections stay open, until it's called
// with false.
func (l *Link) Deafen(deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = deaf
}

// Narrow has so many bytes a second get through from the server, on all connections
// together.
func (l *Link) Narrow(rate int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = rate
}

// through takes as long as n bytes take.
func (l *Link) through(n int) {
	l.mu.Lock()
	rate := l.rate
	l.mu.Unlock()
	if rate > 0 {
		l.pipe.Lock()
		defer l.pipe.Unlock()
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

func (l *Link) accept() {
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.serve(c) })
	}
}

func (l *Link) serve(c net.Conn) {
	var d net.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s, err := d.DialContext(ctx, "tcp", l.to)
	if err != nil {
		_ = c.Close()
		return
	}
	l.mu.Lock()
	l.conns[c], l.conns[s] = true, true
	gone := l.gone
	l.mu.Unlock()
	end := func() { _ = c.Close(); _ = s.Close() }
	if gone {
		end()
	}
	var both sync.WaitGroup
	doomed := make(chan chan struct{}, 1) // the next reply is to be lost; closed then, unless nil
	both.Go(func() { l.requests(s, c, doomed); end() })
	both.Go(func() { l.replies(c, s, doomed); end() })
	both.Wait()
	l.mu.Lock()
	delete(l.conns, c)
	delete(l.conns, s)
	l.mu.Unlock()
}

func (l *Link) requests(server, client net.Conn, doomed chan<- chan struct{}) {
	buf := make([]byte, 64<<10)
	ends := false // with the next reply, which counts once, however much is asked until then
	for {
		n, err := client.Read(buf)
		if n > 0 {
			l.mu.Lock()
			if !ends && l.times > 0 && strings.Contains(string(buf[:n]), l.lose) {
				ends = true
				l.times--
				last := l.lost
				if l.times > 0 {
					last = nil
				}
				doomed <- last
			}
			l.mu.Unlock()
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) replies(client, server net.Conn, doomed <-chan chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			select {
			case lost := <-doomed:
				if lost != nil {
					close(lost)
				}
				return
			default:
			}
			l.through(n)
			if !l.isDeaf() {
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *Link) isDeaf() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}
