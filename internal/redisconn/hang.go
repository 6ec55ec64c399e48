package redisconn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// shielded returns a Dial that fails if the user's code in it panics or ends its goroutine, and
// that returns when its context ends, even if that code hangs. A hanging call is left behind, and
// the error names the function; a connection that arrives later is closed. what names the user's
// code in the error of a panic outside of a known function.
//
// Calls that are left behind can't be ended, so behind limits their number: once 16 haven't
// returned, dials fail at once, except one after ten seconds, the next after twenty more, and so on, which
// is about 130 in a day. When one of those returns in time, the next may follow at once.
func shielded(dial Dial, what string, behind *behind) Dial {
	return func(ctx context.Context) (redis.Conn, error) {
		if err := behind.admit(); err != nil {
			return nil, err
		}
		began := time.Now()
		grace := lastWord / 2 // for the dial's error, which is more specific
		if ctx.Value(userCallKey{}) != nil {
			grace /= 2 // the dial is part of another one
		}
		in := &userCall{}
		type result struct {
			conn redis.Conn
			err  error
		}
		done, gone, counted := make(chan result), make(chan struct{}), false
		go func() {
			r := result{err: &absentError{errors.New(what + " called runtime.Goexit")}}
			defer func() {
				select {
				case done <- r:
				case <-gone:
					if counted {
						behind.add(-1, "")
					}
					if r.err == nil {
						_ = r.conn.Close() // the caller has left
					}
				}
			}()
			defer func() {
				if v := recover(); v != nil {
					r.err = &absentError{fmt.Errorf("%s panicked: %v", what, v)} // may end its goroutine, too
				}
			}()
			r.conn, r.err = dial(context.WithValue(ctx, userCallKey{}, in))
		}()
		select {
		case r := <-done:
			behind.returned()
			return r.conn, r.err
		case <-ctx.Done():
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			select {
			case r := <-done:
				behind.returned()
				return r.conn, r.err
			case <-time.After(grace):
			}
		}
		hangs := in.name()
		if counted = hangs != ""; counted {
			behind.add(1, hangs)
		}
		close(gone)
		return nil, tardy(ctx, began, hangs)
	}
}

// tardy returns the error of a dial that outlives its context. hangs is the user's function that
// hasn't returned, or "".
func tardy(ctx context.Context, began time.Time, hangs string) error {
	within := time.Since(began)
	if end, ok := ctx.Deadline(); ok {
		within = min(within, end.Sub(began))
	}
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	says := "no reply"
	if hangs != "" {
		says = hangs + " hasn't returned"
	}
	return &absentError{fmt.Errorf("%s within %v: %w", says, within.Round(time.Millisecond), err)}
}

// A userCall names the user's function that a dial is calling.
type userCall struct{ what atomic.Pointer[string] }

type userCallKey struct{}

func (u *userCall) name() string {
	if what := u.what.Load(); what != nil {
		return *what
	}
	return ""
}

// calling records that the dial with the context begins to call a function of the user. Call left
// once that has returned.
func calling(ctx context.Context, what string) (left func()) {
	u, ok := ctx.Value(userCallKey{}).(*userCall)
	if !ok {
		return func() {}
	}
	before := u.what.Swap(&what)
	return func() { u.what.Store(before) }
}

// A behind counts the calls of the user's functions that were left behind and haven't returned.
type behind struct {
	mu   sync.Mutex // protects the fields below
	n    int
	what string    // the function that was left behind last
	next time.Time // when the next dial may begin, if there are too many
}

const (
	mostBehind  = 16
	behindPause = 10 * time.Second
)

func (b *behind) add(n int, what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n += n; n > 0 {
		b.what = what
	}
}

// admit returns an error if a dial may not begin now.
func (b *behind) admit() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n < mostBehind {
		return nil
	}
	now := time.Now()
	if wait := b.next.Sub(now); wait > 0 {
		return &absentError{fmt.Errorf("%d calls of %s haven't returned; the next try is in %v", b.n, b.what, wait.Round(time.Second))}
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
