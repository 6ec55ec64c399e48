package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	dialPause  = 20 * time.Millisecond // from one dial to the next, so that no sender makes the line spin
	renewAgain = time.Minute           // after a failed dial of a replacement
)

// lifeKey is the key for the line's *life in the contexts of its dials.
type lifeKey struct{}

// drop closes the connection.
func (l *Line) drop() {
	l.mu.Lock()
	conn := l.conn
	l.conn, l.made, l.broken, l.spent = nil, time.Time{}, nil, false
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it has failed, or isn't needed anymore
	}
}

// connect ensures that there is a connection that accepts calls.
func (l *Line) connect() error {
	l.mu.Lock()
	conn, closed, due, busy := l.conn, l.closed, l.isDueLocked(), l.busyLocked()
	l.mu.Unlock()
	until := time.Now().Add(l.timeout) // for the check, the dial and the first reply
	switch {
	case busy:
		return nil
	case closed:
		return ErrClosed
	case conn == nil:
	case conn.Err() != nil, // it was aborted
		l.verify && l.alive.since() > idleCheck && !Usable(ping(conn, l.timeout/checkShare)):
		l.drop()
		conn = nil
	case !due:
		return nil
	}
	fresh, err := l.open(until)
	now := time.Now()
	if err != nil {
		if conn != nil { // it's still good for a while
			l.mu.Lock()
			l.due = now.Add(min(l.renew, renewAgain))
			l.mu.Unlock()
			return nil
		}
		return err
	}
	l.drop()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.made, l.due, l.known = fresh, now, now.Add(Jitter(l.renew)), map[*Script]bool{}
	return nil
}

// open makes a connection that answers. If requests arrived but replies didn't, calls would be
// carried out, again and again, and the peer would never know.
func (l *Line) open(until time.Time) (redis.Conn, error) {
	ctx, cancel := context.WithDeadline(context.WithValue(context.Background(), lifeKey{}, &l.alive), until)
	defer cancel()
	l.mu.Lock()
	closed, pause := l.closed, time.Until(l.dialed.Add(dialPause))
	l.forgo = cancel
	l.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if pause > 0 {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	l.mu.Lock()
	l.dialed = time.Now()
	l.mu.Unlock()
	conn, err := l.dial(ctx)
	if err == nil {
		stop := context.AfterFunc(ctx, func() { Interrupt(conn) }) // by Abort or Close
		err = ping(conn, max(time.Until(until), time.Millisecond))
		if !stop() { // it's closed, even if it has answered
			err = context.Cause(ctx)
		}
		if Usable(err) {
			l.alive.sign()
			return conn, nil
		}
		_ = conn.Close() // useless
		if Answered(err) {
			return nil, &shutError{placed(Discreet(err), l.routed)}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	return nil, &absentError{err}
}

// ping asks whether a connection answers.
func ping(conn redis.Conn, within time.Duration) error {
	if err := errors.Join(conn.Send("PING"), conn.Flush()); err != nil {
		return err
	}
	_, err := redis.ReceiveWithTimeout(conn, within)
	return err
}
