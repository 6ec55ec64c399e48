package redisconn

import (
	"context"
	"net"

	"github.com/gomodule/redigo/redis"
)

// FromURL returns a Dial for the URL of one server.
func FromURL(raw string) (Dial, error) {
	u, err := ParseURL(raw)
	if err != nil {
		return nil, err
	}
	return Server{Network: u.Network, Address: u.Addresses[0], DB: u.DB, Login: u.Login, Secure: u.Secure}.Dial, nil
}

// Over returns a Dial for connections to one server, made by a function.
func Over(connect func() net.Conn) Dial {
	return func(ctx context.Context) (redis.Conn, error) {
		dial := func(context.Context, string, string) (net.Conn, error) { return connect(), nil }
		return redis.DialContext(ctx, "", "", redis.DialContextFunc(bounded(dial, false)))
	}
}

// Waiting returns how many callers wait for their turn.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

// Running reports whether the line has a goroutine, or a caller makes an exchange.
func (l *Line) Running() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// Exchanges reports whether calls are in flight: those of Do that come now wait.
func (l *Line) Exchanges() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flight) > 0
}

// Ticks reports whether the line's timer runs.
func (l *Line) Ticks() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock != nil
}

// Closed reports whether Close was called.
func (l *Line) Closed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}
