package redistest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// A Link is a TCP proxy to a server that can be cut, stalled, slowed down, or made to lose replies.
type Link struct {
	*Door

	mu    sync.Mutex // protects the fields below
	lose  string     // replies to requests that contain this are lost
	times int        // how many more replies to lose
	lost  chan struct{}
	deaf  bool
	mute  bool
	until string // with the request that contains this, for the nth time, it turns deaf
	nth   int
	heard chan struct{}
	rate  int        // bytes per second from the server; 0 is no limit
	pipe  sync.Mutex // held while bytes pass at that rate
}

// NewLink returns a link to the address.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	l := &Link{}
	l.Door = relay(t, to, func(client, server net.Conn) (requests, replies func()) {
		doomed := make(chan chan struct{}, 1) // the next reply is lost, and the channel closed then, unless it's nil
		return func() { l.requests(server, client, doomed) }, func() { l.replies(client, server, doomed) }
	})
	return l
}

// LoseReplyTo loses the reply to the next request that contains the given bytes: the request
// reaches the server, and the connection ends before the reply. The returned channel is closed when
// that has happened.
func (l *Link) LoseReplyTo(request string) <-chan struct{} { return l.LoseRepliesTo(request, 1) }

// LoseRepliesTo loses the replies to several such requests. The channel is closed after the last
// one.
func (l *Link) LoseRepliesTo(request string, times int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lose, l.times, l.lost = request, times, make(chan struct{})
	return l.lost
}

// Deafen drops everything that the server sends, while connections stay open, until it's called
// with false. A connection on which something was dropped ends with what is sent next.
func (l *Link) Deafen(deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = deaf
}

// Mute drops everything that clients send, as Deafen does.
func (l *Link) Mute(mute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mute = mute
}

// DeafenAt is Deafen(true) as soon as a request that contains the given bytes arrives for the nth
// time: it reaches the server, and its reply doesn't arrive. The returned channel is closed then.
func (l *Link) DeafenAt(request string, nth int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until, l.nth, l.heard = request, nth, make(chan struct{})
	return l.heard
}

// Narrow limits the bytes per second from the server, over all connections together.
func (l *Link) Narrow(rate int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = rate
}

// through takes as long as n bytes take at that rate.
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

func (l *Link) requests(server, client net.Conn, doomed chan<- chan struct{}) {
	buf := make([]byte, 64<<10)
	dropped := false
	ends := false // set to end with the next reply, which counts once, however many requests match until then
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
			if l.nth > 0 && strings.Contains(string(buf[:n]), l.until) {
				if l.nth--; l.nth == 0 {
					l.deaf = true
					close(l.heard)
				}
			}
			mute := l.mute
			l.mu.Unlock()
			switch {
			case mute:
				dropped = true
				continue
			case dropped:
				return
			}
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
	dropped := false
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
			switch {
			case l.isDeaf():
				dropped = true
				continue
			case dropped:
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
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
