package peertest

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A Tamper has calls of scripts come late to Redis, or never, and the answers late to
// the peer. Either function is called once for each call, in a goroutine, and may be nil.
type Tamper struct {
	Url    string
	Before func(verb string, args []any) error // it is sent; the connection ends with an error instead
	After  func(verb string, args []any)       // the answer is taken in
}

// open returns a peer with such connections.
func (p *Tamper) Open(t testing.TB, opts worqr.Options) *worqr.Peer {
	t.Helper()
	opts.Drain = cmp.Or(opts.Drain, time.Second)
	return OpenThrough(t, redistest.Worker(t, p.Url, opts.Prefix), opts, func(c Through) redis.Conn { return &Tampered{Through: c, of: p} })
}

// Hold waits until a channel is closed. In the end nothing is held.
func Hold(t testing.TB, until <-chan struct{}) {
	select {
	case <-until:
	case <-t.Context().Done():
	}
}

type Tampered struct {
	Through
	of *Tamper

	mu   sync.Mutex
	late []Call // of scripts; Receive sends them
	sent []Call // and not answered
}

type Call struct {
	verb string // "" of what is no script
	args []any
}

func (c *Tampered) Send(name string, args ...any) error {
	c.mu.Lock()
	one := Call{args: args}
	switch name {
	case "EVALSHA":
		one.verb = store.NameOf(args[0].(string))
		c.late = append(c.late, one)
	case "EVAL": // again, since Redis did not know it
		one.verb = store.NameOf(DigestOf(args[0].(string)))
	}
	c.sent = append(c.sent, one)
	c.mu.Unlock()
	return c.Conn.Send(name, args...)
}

func (c *Tampered) Flush() error {
	c.mu.Lock()
	late := len(c.late) > 0
	c.mu.Unlock()
	if late {
		return nil
	}
	return c.Conn.Flush()
}

func (c *Tampered) Receive() (any, error) { return c.ReceiveWithTimeout(0) }

func (c *Tampered) ReceiveWithTimeout(d time.Duration) (any, error) {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	if err := c.flush(late); err != nil {
		_ = c.Close() // nothing was sent
		return nil, err
	}
	v, err := redis.ReceiveWithTimeout(c.Conn, d)
	var one Call
	c.mu.Lock()
	if len(c.sent) > 0 { // else it is a message
		one, c.sent = c.sent[0], c.sent[1:]
	}
	c.mu.Unlock()
	if one.verb != "" && c.of.After != nil && (err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT")) {
		c.of.After(one.verb, one.args)
	}
	return v, err
}

// flush sends what is late.
func (c *Tampered) flush(late []Call) error {
	if len(late) == 0 {
		return nil
	}
	for _, one := range late {
		if c.of.Before == nil {
			break
		}
		if err := c.of.Before(one.verb, one.args); err != nil {
			return err
		}
	}
	return c.Conn.Flush()
}

// Through is a connection to be embedded in others, which change some of its methods.
type Through struct{ redis.Conn }

func (c Through) ReceiveWithTimeout(d time.Duration) (any, error) {
	return redis.ReceiveWithTimeout(c.Conn, d)
}

func (c Through) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

// OpenThrough returns a peer that works through other connections: what wrap makes of those
// to the URL.
func OpenThrough(t testing.TB, url string, opts worqr.Options, wrap func(Through) redis.Conn) *worqr.Peer {
	t.Helper()
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	p := worqr.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		c, err := redis.DialURLContext(ctx, url)
		if err != nil {
			return nil, err
		}
		return wrap(Through{c}), nil
	}}, &opts)
	t.Cleanup(func() { _ = p.Close() })
	return p
}
