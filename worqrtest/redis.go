// Package worqrtest helps you test programs that use worqr, without a Redis server: Start runs one
// in memory, Virtual does so in virtual time, and Run runs a handler once. Peers have methods that
// crash or pause them, or lose a reply.
//
// The server is [github.com/alicebob/miniredis/v2]. It's meant for tests with a few thousand tasks:
// it's slower than Redis, and slows down as more tasks wait. It has no users, persistence, Sentinel
// or Cluster, and Peer.Check can't read its settings. A day of virtual time takes a fraction of a
// second for each peer.
package worqrtest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
)

// A Redis is an in-memory server. It ends with its test.
type Redis struct {
	t      testing.TB
	server *miniredis.Miniredis
	lease  time.Duration // of peers, by default; 0 is theirs

	mu       sync.Mutex // protects the fields below
	listener net.Listener
	over     bool      // the test has ended
	expired  time.Time // up to when keys have expired
}

// epoch is when time begins in a bubble: worqr interprets earlier times differently.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// expireEach is how precisely keys expire.
const expireEach = 100 * time.Millisecond

// Start starts a server for this test. In a bubble of testing/synctest, its clock is the bubble's,
// which Start advances to 2030-01-01 UTC.
func Start(t testing.TB) *Redis {
	t.Helper()
	if year := time.Now().UTC().Year(); year == 2000 { // only in a bubble
		time.Sleep(time.Until(epoch))
	}
	r := &Redis{t: t, server: miniredis.NewMiniRedis(), expired: time.Now()}
	if first, err := r.server.Dial(); err != nil { // starts it without a listener
		t.Fatal(err)
	} else {
		_ = first.Close()
	}
	t.Cleanup(r.end)
	return r
}

// Virtual runs test in a bubble of testing/synctest, with a server. Its clock begins at midnight of
// 2030-01-01 UTC and advances only while every goroutine waits, so time.Sleep(24*time.Hour) takes
// a moment, and everything due by then runs in the meantime:
//
//	worqrtest.Virtual(t, func(t *testing.T, redis *worqrtest.Redis) {
//		...
//		time.Sleep(24 * time.Hour)
//		worqrtest.WaitIdle(t, reports)
//	})
//
// There, Options.Lease is an hour by default; otherwise, a test would spend most of its time on
// heartbeats. A test in a bubble can't use sockets, so URL and a real Redis don't work there.
func Virtual(t *testing.T, test func(t *testing.T, redis *Redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := Start(t)
		r.lease = time.Hour
		test(t, r)
	})
}

// Pool returns a pool of connections to the server, for worqr.New and for commands of your own.
func (r *Redis) Pool() *redis.Pool { return &redis.Pool{MaxIdle: 4, DialContext: over(r.dial)} }

// over returns a function that makes connections of the driver.
func over[C net.Conn](dial func() (C, error)) func(context.Context) (redis.Conn, error) {
	return func(context.Context) (redis.Conn, error) {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		return redis.NewConn(conn, 0, 0), nil
	}
}

// Miniredis returns the server itself, for inspecting keys or setting its clock. Keys expire by the
// test's clock, whatever SetTime says; FastForward makes them expire earlier.
func (r *Redis) Miniredis() *miniredis.Miniredis { return r.server }

// URL returns the URL of the server for worqr.Open, and listens there, on the loopback interface,
// until the test ends.
func (r *Redis) URL() string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.listener == nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		r.listener = l
		var served sync.WaitGroup
		served.Go(func() { r.accept(l, &served) })
		r.t.Cleanup(func() {
			_ = l.Close()
			r.end() // and the connections
			served.Wait()
		})
	}
	return "redis://" + r.listener.Addr().String()
}

// accept connects clients to the server until the listener is closed.
func (r *Redis) accept(l net.Listener, served *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		to, err := r.dial()
		if err != nil {
			_ = conn.Close()
			return
		}
		for _, way := range [][2]net.Conn{{conn, to}, {to, conn}} {
			served.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = way[0].Close(), way[1].Close()
			})
		}
	}
}

// load makes the server know all scripts. Otherwise the first reply to a script would only ask for
// its text, and losing that reply would mean that the script hadn't run.
func (r *Redis) load() {
	r.t.Helper()
	pool := r.Pool()
	defer func() { _ = pool.Close() }()
	conn := pool.Get()
	defer func() { _ = conn.Close() }()
	for _, text := range worqr.Scripts() {
		if _, err := conn.Do("SCRIPT", "LOAD", text); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *Redis) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.server.Close()
}

// dial connects to the server, unless the test has ended. Miniredis's own Dial has no buffer.
func (r *Redis) dial() (*end, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return nil, net.ErrClosed
	}
	client, server := newPair()
	client.sends = r.expire
	r.server.Server().ServeConn(server)
	return client, nil
}

// expire lets keys expire before a client's commands, such as registrations of dead peers. Miniredis's
// ClockTTL would look at all keys at each step of each script.
func (r *Redis) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := time.Since(r.expired); d >= expireEach {
		r.expired = r.expired.Add(d)
		r.server.FastForward(d)
	}
}
