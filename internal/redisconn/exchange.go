package redisconn

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	flushSize = 256 << 10 // what gathers in one write, in bytes
	yields    = 4         // how many times gather yields to other goroutines
)

// run writes and reads until nothing is left; once, until one bunch is answered, and leaves the rest to a goroutine.
func (l *Line) run(once bool) {
	for {
		err := l.connect()
		if err == nil {
			err = l.exchange(once)
		}
		if err != nil {
			l.lose(err)
		}
		if !l.more() {
			return
		}
		if once {
			go l.run(false)
			return
		}
	}
}

// more reports whether run goes on.
func (l *Line) more() bool {
	l.mu.Lock()
	useless := !l.busyLocked() && (l.spent || l.closed)
	l.mu.Unlock()
	if useless {
		l.drop()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 || l.busyLocked() || l.next.conn != nil {
		return true
	}
	l.running = false
	if l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
	return false
}

// busyLocked reports whether conn is in use.
func (l *Line) busyLocked() bool { return len(l.flight) > 0 || l.writing }

// mayWriteLocked reports whether a goroutine may begin to write what is queued.
func (l *Line) mayWriteLocked() bool { return !l.writing && l.openLocked() }

// openLocked reports whether the connection accepts what is queued.
func (l *Line) openLocked() bool {
	return len(l.queue) > 0 && (len(l.flight) == 0 || !l.queue[0].turn) &&
		l.broken == nil && !l.spent && !l.closed && l.next.conn == nil
}

// exchange writes and reads until nothing is in flight; once, until one bunch is answered.
func (l *Line) exchange(once bool) error {
	for n := 1; ; n++ {
		b, err := l.first()
		if err == nil && b != nil {
			err = l.read(b)
		}
		if err != nil || b == nil {
			return err
		}
		last, replies := l.answered(b), b.replies
		if b.riders > 0 {
			replies = slices.Clone(replies) // its caller may change them
		}
		b.done(replies)
		if last && b.turn && !once {
			l.gather(n)
		}
		if last || once {
			return nil
		}
	}
}

// gather lets the callers that were just answered join the next exchange.
func (l *Line) gather(n int) {
	for range yields {
		runtime.Gosched()
		l.mu.Lock()
		all := len(l.queue) >= n
		l.mu.Unlock()
		if all {
			return
		}
	}
}

// first returns the oldest bunch in flight once it is written; nil if there is none. If nothing is in
// flight, run writes itself, which saves a goroutine.
func (l *Line) first() (*bunch, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.broken != nil:
			return nil, l.broken
		case l.written > 0:
			if l.mayWriteLocked() {
				l.writing = true
				go l.write()
			}
			l.reading = true
			return l.flight[0], nil
		case l.writing:
			l.wrote.Wait()
		case l.mayWriteLocked():
			l.writing = true
			l.mu.Unlock()
			l.write()
			l.mu.Lock()
		default:
			return nil, nil
		}
	}
}

// write writes what is queued.
func (l *Line) write() {
	for {
		conn, some := l.take()
		if len(some) == 0 {
			return
		}
		err := l.put(conn, some)
		l.mu.Lock()
		l.written, l.broken = len(l.flight), cmp.Or(l.broken, err)
		l.mu.Unlock()
		l.wrote.Signal()
	}
}

// take returns what to put into one write; if nothing, the caller has ended writing. What it returns
// counts as in flight: from now on, it may be carried out.
func (l *Line) take() (conn redis.Conn, some []*bunch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writing = l.openLocked(); !l.writing {
		l.wrote.Signal()
		return nil, nil
	}
	n := 0
	for size := 0; n < len(l.queue) && size < flushSize; n++ {
		size += l.queue[n].size
	}
	some = l.queue[:n]
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil // it would keep the calls in memory
	}
	combine(some)
	l.flight = append(l.flight, some...)
	return l.conn, some
}

// put writes some bunches with one flush.
func (l *Line) put(conn redis.Conn, some []*bunch) error {
	for _, b := range some {
		switch {
		case b.lead != nil:
			continue
		case b.stale != nil && b.stale():
			b.err = errStale
			continue
		}
		for i := range b.calls {
			name, args := b.calls[i].words(b.whole || !b.turn && l.learns(b.calls[i].script))
			if err := conn.Send(name, args...); err != nil {
				return err
			}
		}
	}
	return conn.Flush()
}

// learns reports whether a call must contain the script's source, and notes that the server knows it then: if the
// server didn't know the digest, the call would come after those behind it.
func (l *Line) learns(script *Script) bool {
	if script == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	is := !l.known[script]
	l.known[script] = true
	return is
}

// read reads the replies of the oldest bunch in flight.
func (l *Line) read(b *bunch) error {
	b.replies = make([]Reply, 0, len(b.calls))
	switch {
	case b.err != nil:
		b.fail(b.err)
		return nil
	case b.lead != nil:
		b.replies = append(b.replies, b.lead.replies...)
		return nil
	}
	timeout := l.allowance()
	for i := range b.calls {
		v, err := redis.ReceiveWithTimeout(l.conn, timeout)
		if err != nil {
			if !Answered(err) {
				return err
			}
			err = placed(Discreet(err, b.calls[i].told()...), l.routed)
		}
		l.alive.sign()
		b.replies = append(b.replies, Reply{v, err})
	}
	return nil
}

// allowance returns how long to wait for a reply: what is in flight may still be on its way.
func (l *Line) allowance() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for _, b := range l.flight {
		size += b.size
	}
	return l.timeout + time.Duration(size)*time.Second/slowestLink
}

// answered records that the oldest bunch has its replies, and what they say about the connection. It reports whether
// the connection isn't in use anymore.
func (l *Line) answered(b *bunch) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reading = false
	l.written--
	l.flight[0] = nil // it would be kept in memory
	if l.flight = l.flight[1:]; len(l.flight) == 0 {
		l.flight = nil
	}
	for _, r := range b.replies {
		if Unloaded(r.Err) {
			clear(l.known) // someone has flushed the scripts; the sender repeats the calls
		}
		l.spent = l.spent || poisoned(r.Err) && !harmless(r.Err, l.routed)
	}
	l.renewLocked()
	return !l.busyLocked()
}

// fail adds the error as the reply of all calls that have none.
func (b *bunch) fail(err error) {
	for len(b.replies) < len(b.calls) {
		b.replies = append(b.replies, Reply{Err: err})
	}
}

// lose closes the connection, and fails everything that was sent. Calls of Do that are still queued get the next
// connection; if none could be made, those that came meanwhile.
func (l *Line) lose(err error) {
	l.mu.Lock()
	conn := l.conn
	l.broken = err
	l.reading = false
	l.mu.Unlock()
	if conn != nil {
		Interrupt(conn) // so that a write ends
	}
	l.mu.Lock()
	for l.writing {
		l.wrote.Wait()
	}
	lost, queued := l.flight, l.queue
	l.flight, l.queue, l.written = nil, nil, 0
	var unsent []*bunch
	for _, b := range queued {
		if b.turn && !l.closed && (conn != nil || b.since.After(l.dialed)) {
			l.queue = append(l.queue, b)
		} else {
			unsent = append(unsent, b)
		}
	}
	l.mu.Unlock()
	l.drop()
	for _, b := range lost {
		b.fail(cmp.Or(b.err, fmt.Errorf("%w: %w", ErrUnknown, err)))
	}
	if conn != nil {
		err = fmt.Errorf("%w: %w", errLost, err)
	}
	for _, b := range unsent {
		b.fail(err)
	}
	for _, b := range slices.Concat(lost, unsent) {
		b.done(b.replies)
	}
}
