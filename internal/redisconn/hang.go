package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// shielded returns a Dial that fails if the user's code in it panics or ends its goroutine, and
// that returns soon after its context ends, even if that code hangs. what names that code. A dial that
// hangs is left behind; if it returns a connection later, that is closed.
//
// Dials that are left behind can't be ended, so behind limits their number: once 16 haven't
// returned, dials fail at once, except one after ten seconds, the next after twenty more, and so on, which
// is about 130 in a day. When one of those returns in time, the next may follow at once.
func shielded(dial Dial, what string, behind *behind) Dial {
	return func(ctx context.Context) (redis.Conn, error) {
		if err := behind.admit(what); err != nil {
			return nil, err
		}
		began := time.Now()
		type result struct {
			conn redis.Conn
			err  error
		}
		done := make(chan result, 1)
		go func() {
			r := result{err: errors.New(what + " called runtime.Goexit")}
			defer func() { done <- r }()
			defer func() {
				if v := recover(); v != nil {
					r.err = fmt.Errorf("%s panicked: %v", what, v) // may end its goroutine, too
				}
			}()
			r.conn, r.err = dial(ctx)
		}()
		select {
		case r := <-done:
			behind.returned()
			return r.conn, r.err
		case <-ctx.Done():
		}
		grace := time.Duration(0)
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			grace = lastWord / 4 // for the dial's error, which is more specific
		}
		select {
		case r := <-done:
			behind.returned()
			return r.conn, r.err
		case <-time.After(grace):
		}
		behind.add(1)
		go func() {
			if r := <-done; r.err == nil {
				_ = r.conn.Close() // the caller has left
			}
			behind.add(-1)
		}()
		return nil, tardy(ctx, began, what)
	}
}

// tardy returns the error of a dial that outlives its context.
func tardy(ctx context.Context, began time.Time, what string) error {
	within := time.Since(began)
	if end, ok := ctx.Deadline(); ok {
		within = min(within, end.Sub(began))
	}
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return fmt.Errorf("%s hasn't returned within %v: %w", what, within.Round(time.Millisecond), err)
}

// A behind counts the dials that were left behind and haven't returned.
type behind struct {
	mu   sync.Mutex // protects the fields below
	n    int
	next time.Time // when the next dial may begin, if there are too many
}

const (
	mostBehind  = 16
	behindPause = 10 * time.Second
)

func (b *behind) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += n
}

// admit returns an error if a dial may not begin now.
func (b *behind) admit(what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n < mostBehind {
		return nil
	}
	now := time.Now()
	if wait := b.next.Sub(now); wait > 0 {
		return fmt.Errorf("%d calls of %s haven't returned; the next try is in %v", b.n, what, wait.Round(time.Second))
	}
	b.next = now.Add(time.Duration(b.n-mostBehind+1) * behindPause)
	return nil
}

// returned records that a dial has ended in time.
func (b *behind) returned() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = time.Time{}
}
