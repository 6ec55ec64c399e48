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

// A Tamper delays or drops script calls on their way to Redis, and delays the replies. Each
// function is called once per call, in a goroutine, and may be nil.
type Tamper struct {
	Url    string
	Before func(verb string, args []any) error // called before sending; on an error, the connection ends instead
	After  func(verb string, args []any)       // called before the peer gets the reply
}

// Open returns a peer with such connections.
func (p *Tamper) Open(t testing.TB, opts worqr.Options) *worqr.Peer {
	t.Helper()
	opts.Drain = cmp.Or(opts.Drain, time.Second)
	return OpenThrough(t, redistest.Worker(t, p.Url, opts.Prefix), opts, p.tamper)
}

// Hold waits until a channel is closed, or until the test ends.
func Hold(t testing.TB, until <-chan struct{}) {
	select {
	case <-until:
	case <-t.Context().Done():
	}
}

// A tampered connection sends scripts only when replies are requested.
type tampered struct {
	*Through
	of   *Tamper
	mu   sync.Mutex // one may send while another receives, which flushes
	late []request
}

// tamper wraps a connection.
func (p *Tamper) tamper(c *Through) redis.Conn {
	t := &tampered{Through: c, of: p}
	c.OnReply = func(command string, args []any, reply any, err error) (any, error) {
		verb := request{command, args}.verb()
		if verb != "" && p.After != nil && (err == nil || !strings.HasPrefix(err.Error(), "NOSCRIPT")) {
			p.After(verb, args)
		}
		return reply, err
	}
	return t
}

// CarryOut makes a call that was passed to Before or After, on another connection.
func CarryOut(t testing.TB, c redis.Conn, args []any) {
	t.Helper()
	command := "EVALSHA"
	if script, _ := args[0].(string); len(script) > len(Sha("")) {
		command = "EVAL" // the first call on a connection sends the script
	}
	redistest.Do(t, c, command, args...)
}

// VerbOf returns the name of the verb whose script has a digest; "" if there is none.
func VerbOf(digest string) string {
	for _, v := range store.Verbs() {
		if alone, apart := v.Digests(); digest == alone || digest == apart {
			return v.Name
		}
	}
	return ""
}

// verb returns which script is called; "" if none is.
func (r request) verb() string {
	switch r.command {
	case "EVALSHA":
		return VerbOf(r.args[0].(string))
	case "EVAL": // Redis may not have it
		return VerbOf(Sha(r.args[0].(string)))
	}
	return ""
}

func (c *tampered) Send(command string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if command == "EVALSHA" || command == "EVAL" {
		c.late = append(c.late, request{command, args})
	}
	return c.Through.Send(command, args...)
}

func (c *tampered) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.late) > 0 {
		return nil
	}
	return c.Through.Flush()
}

func (c *tampered) Receive() (any, error) { return c.ReceiveWithTimeout(0) }

func (c *tampered) ReceiveWithTimeout(d time.Duration) (any, error) {
	c.mu.Lock()
	late := c.late
	c.late = nil
	c.mu.Unlock()
	for _, one := range late {
		if c.of.Before == nil {
			break
		}
		if err := c.of.Before(one.verb(), one.args); err != nil {
			_ = c.Close() // nothing was sent
			return nil, err
		}
	}
	if len(late) > 0 {
		c.mu.Lock()
		err := c.Through.Flush()
		c.mu.Unlock()
		if err != nil {
			_ = c.Close()
			return nil, err
		}
	}
	return c.Through.ReceiveWithTimeout(d)
}

// A Through is a connection with hooks that see what is sent and received, and may change replies.
// Each of them may be nil.
type Through struct {
	redis.Conn
	OnSend  func(command string, args []any)
	OnFlush func()
	OnReply func(command string, args []any, reply any, err error) (any, error) // the command is "" for a message

	mu   sync.Mutex // subscriptions read and write concurrently
	sent []request  // commands without a reply yet
}

type request struct {
	command string
	args    []any
}

func (c *Through) Send(command string, args ...any) error {
	if c.OnSend != nil {
		c.OnSend(command, args)
	}
	c.mu.Lock()
	c.sent = append(c.sent, request{command, args})
	c.mu.Unlock()
	return c.Conn.Send(command, args...)
}

func (c *Through) Flush() error {
	if c.OnFlush != nil {
		c.OnFlush()
	}
	return c.Conn.Flush()
}

func (c *Through) Receive() (any, error) { return c.ReceiveWithTimeout(0) }

func (c *Through) ReceiveWithTimeout(d time.Duration) (any, error) {
	reply, err := redis.ReceiveWithTimeout(c.Conn, d)
	var of request
	c.mu.Lock()
	if len(c.sent) > 0 {
		of, c.sent = c.sent[0], c.sent[1:]
	}
	c.mu.Unlock()
	if c.OnReply == nil {
		return reply, err
	}
	return c.OnReply(of.command, of.args, reply, err)
}

func (c *Through) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

// OpenThrough returns a peer. Its connections to the URL have hooks, or wrap replaces them.
func OpenThrough(t testing.TB, url string, opts worqr.Options, wrap func(*Through) redis.Conn) *worqr.Peer {
	t.Helper()
	redistest.OneServer(t, redistest.OwnPool)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	p := worqr.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
		c, err := redis.DialURLContext(ctx, url)
		if err != nil {
			return nil, err
		}
		return wrap(&Through{Conn: c}), nil
	}}, &opts)
	t.Cleanup(func() { _ = p.Close() })
	return p
}
