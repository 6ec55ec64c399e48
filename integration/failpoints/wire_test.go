package failpoints_test

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A gate holds one call at one place.
type gate struct {
	reached func(what []command) // called with the call, and what travels with it
	verdict chan bool            // whether it goes on; otherwise its connection is cut
	over    chan struct{}        // closed when no more calls are to be held

	mu    sync.Mutex // protects the fields below
	name  string     // of the call
	place place
	skip  int // how many calls pass first
	times int // how many calls are still to be held
}

// arm makes the gate hold that many calls of that name, after others have passed.
func (g *gate) arm(name string, at place, skip, times int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.name, g.place, g.skip, g.times = name, at, skip, times
}

// meets returns the place at which commands are held; "" if they aren't.
func (g *gate) meets(commands []command) place {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == 0 || !slices.ContainsFunc(commands, func(c command) bool { return c.calls(g.name) }) {
		return ""
	}
	if g.skip--; g.skip >= 0 {
		return ""
	}
	g.times--
	return g.place
}

// hold waits for the verdict. It is false if the connection is cut.
func (g *gate) hold(commands []command) bool {
	g.reached(commands)
	on := <-g.verdict
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == 0 {
		close(g.over)
	}
	return on
}

// pool returns a pool of connections, named name, that pass through the gate.
func (g *gate) pool(url, name string) *redis.Pool {
	return &redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		c, err := redis.DialURLContext(ctx, url, redis.DialClientName(name))
		if err != nil {
			return nil, err
		}
		return &wire{Conn: c, gate: g}, nil
	}}
}

// A wire is a connection that passes through a gate. Like any other, it has one sender and one
// receiver at a time.
type wire struct {
	redis.Conn
	gate *gate
	out  []command // since the last Flush; used by the sender

	mu      sync.Mutex // protects the fields below
	held    []command  // sent, and held once they are answered
	at      place      // where they are held
	replies []answer   // received ahead of their receiver
	cut     error
}

type answer struct {
	value any
	err   error
}

func (w *wire) Send(name string, args ...any) error {
	w.out = append(w.out, newCommand(name, args))
	return w.Err()
}

func (w *wire) Flush() error {
	commands := w.out
	w.out = nil
	at := w.gate.meets(commands)
	switch at {
	case before:
		if !w.gate.hold(commands) {
			return w.end(io.ErrClosedPipe)
		}
	case sent:
		if !w.gate.hold(commands) {
			_ = w.end(io.ErrUnexpectedEOF) // the receiver notices
		}
		return nil
	}
	if err := w.Err(); err != nil {
		return err
	}
	for _, c := range commands {
		if err := w.Conn.Send(c[0], c.args()...); err != nil {
			return err
		}
	}
	if at == executed || at == received {
		w.mu.Lock()
		w.held, w.at = commands, at
		w.mu.Unlock()
	}
	return w.Conn.Flush()
}

func (w *wire) Receive() (any, error) { return w.ReceiveWithTimeout(0) }

// ReceiveWithTimeout receives all replies to held commands before it holds them, so that all of
// them were carried out.
func (w *wire) ReceiveWithTimeout(d time.Duration) (any, error) {
	if err := w.Err(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	held, at := w.held, w.at
	w.held = nil
	w.mu.Unlock()
	if held == nil {
		if r := w.next(); r != nil {
			return r.value, r.err
		}
		return redis.ReceiveWithTimeout(w.Conn, d)
	}
	for range held {
		v, err := redis.ReceiveWithTimeout(w.Conn, d)
		w.mu.Lock()
		w.replies = append(w.replies, answer{v, err})
		w.mu.Unlock()
		if _, refused := errors.AsType[redis.Error](err); err != nil && !refused {
			panic(err) // a bug in the test
		}
	}
	if !w.gate.hold(held) {
		if at != executed {
			panic("a reply that was read cannot be lost")
		}
		return nil, w.end(os.ErrDeadlineExceeded)
	}
	r := w.next()
	return r.value, r.err
}

// DoWithTimeout implements redis.ConnWithTimeout. It isn't called here.
func (w *wire) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(w.Conn, d, name, args...)
}

// next removes a reply that was received ahead, if there is one.
func (w *wire) next() *answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.replies) == 0 {
		return nil
	}
	r := w.replies[0]
	w.replies = w.replies[1:]
	return &r
}

// end cuts the connection.
func (w *wire) end(err error) error {
	w.mu.Lock()
	w.cut = err
	w.mu.Unlock()
	_ = w.Conn.Close()
	return err
}

func (w *wire) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut != nil {
		return w.cut
	}
	return w.Conn.Err()
}
