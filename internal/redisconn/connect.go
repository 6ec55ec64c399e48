package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	dialPause  = 20 * time.Millisecond // from one dial to the next, so that no sender makes the line spin
	renewAgain = time.Minute           // after a failed dial of a replacement
)

// lifeKey is the key for the line's *life in the contexts of its dials.
type lifeKey struct{}

// drop closes the connection, and gives up its replacement.
func (l *Line) drop() {
	l.mu.Lock()
	conn, next := l.conn, l.next.conn
	l.conn, l.next.conn, l.made, l.broken, l.spent = nil, nil, time.Time{}, nil, false
	l.next.giveUp()
	l.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // it has failed, or isn't needed anymore
	}
	if next != nil {
		_ = next.Close()
	}
}

// connect ensures that there is a connection that accepts calls.
func (l *Line) connect() error {
	l.mu.Lock()
	conn, closed, busy := l.conn, l.closed, l.busyLocked()
	replaced := l.next.conn != nil && !l.spent && !closed && !busy
	if replaced {
		l.useLocked(l.next.conn)
	}
	l.mu.Unlock()
	until := time.Now().Add(l.timeout) // for the check, the dial and the first reply
	switch {
	case busy:
		return nil
	case closed:
		return ErrClosed
	case replaced:
		_ = conn.Close()
		return nil
	case conn == nil:
	case conn.Err() != nil, // it was aborted
		l.verify && l.alive.since() > idleCheck && !Usable(ping(conn, l.timeout/checkShare)):
		l.drop()
	default:
		return nil
	}
	fresh, err := l.open(until)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.useLocked(fresh)
	return nil
}

func (l *Line) useLocked(fresh redis.Conn) {
	now := time.Now()
	l.conn, l.made, l.known = fresh, now, map[*Script]bool{}
	l.next.conn, l.next.due = nil, now.Add(Jitter(l.renew))
}

// renewLocked starts the dial of a replacement if the connection is old. Until there is one, calls go over the old
// connection: the dial may hang.
func (l *Line) renewLocked() {
	next := &l.next
	if l.renew == 0 || next.cease != nil || next.conn != nil || l.spent || l.closed || time.Now().Before(next.due) {
		return
	}
	next.due = time.Now().Add(min(l.renew, renewAgain)) // if this dial fails
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	next.cease = cancel
	go l.replace(ctx)
}

// replace dials a replacement, and makes run use it.
func (l *Line) replace(ctx context.Context) {
	fresh, err := l.reach(ctx)
	l.mu.Lock()
	late := ctx.Err() != nil // nothing needs it anymore
	l.next.cease()
	l.next.cease = nil
	if err == nil && !late {
		l.next.conn = fresh
		if !l.running {
			l.running = true
			go l.run(false)
		}
	}
	l.mu.Unlock()
	if err == nil && late {
		_ = fresh.Close()
	}
}

func (r *replacement) giveUp() {
	if r.cease != nil {
		r.cease()
	}
}

// open makes a connection for the calls that wait.
func (l *Line) open(until time.Time) (redis.Conn, error) {
	ctx, cancel := context.WithDeadline(context.Background(), until)
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
	return l.reach(ctx)
}

// reach makes a connection that answers. If requests arrived but replies didn't, calls would be
// carried out, again and again, and the peer would never know.
func (l *Line) reach(ctx context.Context) (redis.Conn, error) {
	conn, err := l.dial(context.WithValue(ctx, lifeKey{}, &l.alive))
	if err == nil {
		stop := context.AfterFunc(ctx, func() { Interrupt(conn) }) // by Abort or Close
		until, _ := ctx.Deadline()
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
	if err == context.DeadlineExceeded {
		err = fmt.Errorf("no reply within %v: %w", l.timeout, os.ErrDeadlineExceeded)
	} else if errors.Is(err, context.DeadlineExceeded) { // without the lock: a Pool's errors may use the peer
		err = &overdueError{err}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	return nil, &absentError{err}
}

// An overdueError is the error of a dial that took too long. It isn't context.DeadlineExceeded, as that of package net is:
// the time was the line's own, not that of a caller.
type overdueError struct{ error }

func (e *overdueError) Unwrap() error { return os.ErrDeadlineExceeded }

func (e *overdueError) As(target any) bool { return errors.As(e.error, target) }

// ping asks whether a connection answers.
func ping(conn redis.Conn, within time.Duration) error {
	if err := errors.Join(conn.Send("PING"), conn.Flush()); err != nil {
		return err
	}
	_, err := redis.ReceiveWithTimeout(conn, within)
	return err
}
