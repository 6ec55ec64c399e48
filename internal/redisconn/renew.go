package redisconn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A renewal replaces the connection of a Line before its credentials expire and the server closes
// it. The next connection is dialed while the line is in use.
type renewal struct {
	every time.Duration              // the age by which a connection is replaced; 0 is never
	fresh atomic.Pointer[redis.Conn] // the next connection; nil if there is none yet

	// The fields below are protected by Line.mu.
	due    time.Time          // when the next dial may begin
	cancel context.CancelFunc // of the dial in progress; nil if there is none
}

// renewAgain is how long after a failed dial the next one begins.
const renewAgain = time.Minute

// Renewed makes the line replace each connection before it gets older than every, as long as the
// line is used. It returns the line. Zero is never.
func (l *Line) Renewed(every time.Duration) *Line {
	l.renewal.every = every
	return l
}

// hasFresh reports whether the next connection is ready.
func (l *Line) hasFresh() bool { return l.renewal.every > 0 && l.renewal.fresh.Load() != nil }

// madeLocked sets a new connection.
func (l *Line) madeLocked(conn redis.Conn) {
	l.conn, l.made = conn, time.Now()
	l.renewal.due = l.made.Add(Jitter(l.renewal.every))
}

// swap replaces the connection with the next one, if that is ready and still open.
func (l *Line) swap() {
	fresh := l.renewal.fresh.Swap(nil)
	if fresh == nil {
		return
	}
	if (*fresh).Err() != nil { // it was closed in the meantime
		_ = (*fresh).Close()
		return
	}
	l.mu.Lock()
	old := l.conn
	l.madeLocked(*fresh)
	l.mu.Unlock()
	if old != nil {
		_ = old.Close() // it has no calls in flight
	}
}

// renewLocked dials the next connection in the background, if it is time.
func (l *Line) renewLocked() {
	r := &l.renewal
	if r.every == 0 || r.cancel != nil || l.closed || l.conn == nil || time.Now().Before(r.due) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), lifeKey{}, &l.alive), l.timeout)
	r.cancel = cancel
	go func() {
		conn, err := l.dial(ctx)
		cancel()
		l.mu.Lock()
		r.cancel = nil
		r.due = time.Now().Add(min(r.every, renewAgain))
		if err == nil && !l.closed {
			conn = l.renewal.put(conn)
		}
		l.mu.Unlock()
		if conn != nil {
			_ = conn.Close() // not needed anymore
		}
	}()
}

// put stores the next connection, and returns the one stored before, or nil.
func (r *renewal) put(conn redis.Conn) redis.Conn {
	if before := r.fresh.Swap(&conn); before != nil {
		return *before
	}
	return nil
}

// endRenewal closes the next connection, and cancels its dial.
func (l *Line) endRenewal() {
	l.mu.Lock()
	if l.renewal.cancel != nil {
		l.renewal.cancel()
	}
	l.mu.Unlock()
	if fresh := l.renewal.fresh.Swap(nil); fresh != nil {
		_ = (*fresh).Close() // not needed anymore
	}
}
