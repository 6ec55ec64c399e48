package redisconn

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

// owed reports whether another exchange must follow. If not, it frees the line.
func (l *Line) owed() bool {
	sound := l.conn != nil && l.conn.Err() == nil
	l.mu.Lock()
	if !sound {
		l.made = time.Time{}
	}
	if l.next != nil {
		l.mu.Unlock()
		return true
	}
	l.busy, l.now = false, nil
	closed, idle := l.closed, l.idle
	l.idle = nil
	if closed {
		l.muteLocked()
	}
	l.renewLocked()
	l.mu.Unlock()
	if closed { // Close may have stopped waiting
		l.drop()
	}
	if idle != nil {
		close(idle)
	}
	return false
}

// begin starts the exchange of a bundle for which the caller owns the line, and returns a channel to
// wait for. A goroutine makes it, since it has to dial first.
func (l *Line) begin(b *bundle) <-chan struct{} {
	wake := make(chan struct{})
	l.mu.Lock()
	l.now.wake = wake
	l.expectLocked(b)
	l.mu.Unlock()
	go func() {
		l.exchange()
		l.rest()
		l.run()
	}()
	return wake
}

// run makes exchanges as long as callers gather.
func (l *Line) run() {
	for l.owed() {
		l.mu.Lock()
		l.now, l.next = l.next, nil
		n := len(l.now.bundles)
		l.mu.Unlock()
		l.exchange()
		l.rest()
		l.gather(n)
	}
}

// rest records that an exchange has ended, and wakes its callers.
func (l *Line) rest() {
	l.mu.Lock()
	ended := l.now
	l.now = nil
	for _, b := range ended.bundles {
		if b.late != nil {
			b.late.Stop() // it would keep the calls and replies in memory
		}
	}
	ended.bundles = nil // a caller that keeps its bundle doesn't keep the others
	ended.over.Store(true)
	l.mu.Unlock()
	close(ended.wake) // the alarm doesn't replace it anymore
}

// gather lets the callers that were just answered join the next exchange.
func (l *Line) gather(n int) {
	for range patience {
		runtime.Gosched()
		l.mu.Lock()
		all := l.next != nil && len(l.next.bundles) >= n
		l.mu.Unlock()
		if all {
			return
		}
	}
}

// patience is how many times gather yields to other goroutines.
const patience = 4

// exchange sends the calls of the current batch and receives the replies.
func (l *Line) exchange() {
	if err := l.connect(); err != nil {
		for _, b := range l.now.bundles {
			copy(b.replies, fail(len(b.replies), err))
		}
		return
	}
	l.load()
	l.roundTrip()
	l.settle()
}

// load makes a pipeline of the calls whose callers still wait.
func (l *Line) load() {
	l.mu.Lock()
	for _, b := range l.now.bundles {
		b.sent = !b.gone
	}
	l.mu.Unlock()
	l.pipe.timeout = l.timeout
	for _, b := range l.now.bundles {
		if !b.sent {
			continue
		}
		for i := range b.calls {
			l.pipe.add(&b.calls[i], &b.replies[i], len(b.calls) > 1) // a caller's calls keep their order
		}
	}
}

// settle finishes an exchange after its replies have arrived.
func (l *Line) settle() {
	bad := l.pipe.poisoned(l.routed)
	if l.pipe.unloaded() {
		l.pipe.reload()
		l.roundTrip()
	}
	if bad || l.pipe.poisoned(l.routed) {
		l.drop()
	}
	l.pipe.reset(0)
}

// roundTrip sends the pipeline and receives the replies.
func (l *Line) roundTrip() {
	if l.send() {
		l.receive()
	}
}

// send sends the pipeline. If it fails, the replies contain the error.
func (l *Line) send() bool {
	if l.conn == nil {
		for i := range l.pipe.commands {
			l.pipe.commands[i].answer(Reply{Err: errLost})
		}
		return false
	}
	for i := range l.pipe.commands {
		if err := l.pipe.commands[i].send(l.conn); err != nil {
			l.lose(0, err)
			return false
		}
	}
	if err := l.conn.Flush(); err != nil {
		l.lose(0, err)
		return false
	}
	return true
}

func (l *Line) receive() {
	for i := range l.pipe.commands {
		v, err := redis.ReceiveWithTimeout(l.conn, l.pipe.timeout)
		if err != nil {
			if _, ok := errors.AsType[redis.Error](err); !ok {
				l.lose(i, err)
				return
			}
			err = placed(Discreet(err, l.pipe.commands[i].told()...), l.routed)
		}
		l.alive.sign()
		l.pipe.commands[i].answer(Reply{v, err})
	}
	l.used = time.Now()
}

// lose drops the connection and fails the remaining replies.
func (l *Line) lose(from int, err error) {
	l.drop()
	for i := range l.pipe.commands[from:] {
		l.pipe.commands[from+i].answer(Reply{Err: fmt.Errorf("%w: %w", ErrUnknown, err)})
	}
}

func fail(n int, err error) []Reply {
	return slices.Repeat([]Reply{{Err: err}}, n)
}
