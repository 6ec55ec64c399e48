// Package redisconn is the one door to Redis: it dials, shares one connection
// among many callers, drops connections that have gone bad, and says of every
// failed call whether Redis may have carried it out. It knows nothing of tasks.
package redisconn

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Pool hands out connections. *redis.Pool is one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A Dial makes one connection that its caller owns.
type Dial func(ctx context.Context) (redis.Conn, error)

const (
	dialTimeout = 2 * time.Second
	keepAlive   = 15 * time.Second
)

// FromPool returns a Dial that makes connections the way pool does. The long
// lived connections of a peer would starve a bounded pool and cannot be pooled
// while subscribed, so a *redis.Pool is asked for its dial function; any other
// Pool is asked for a connection, which is kept.
func FromPool(pool Pool) Dial {
	if p, ok := pool.(*redis.Pool); ok {
		switch {
		case p.DialContext != nil:
			return p.DialContext
		case p.Dial != nil:
			return func(context.Context) (redis.Conn, error) { return p.Dial() }
		}
	}
	return func(ctx context.Context) (redis.Conn, error) {
		c, err := pool.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		return pooledConn{c}, nil
	}
}

// A pooledConn belongs to a pool: it must not be closed while it is in use.
type pooledConn struct{ redis.Conn }

// DoWithTimeout and ReceiveWithTimeout make it a redis.ConnWithTimeout, as far
// as the pool's connection is one.
func (c pooledConn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

func (c pooledConn) ReceiveWithTimeout(d time.Duration) (any, error) {
	if _, ok := c.Conn.(redis.ConnWithTimeout); !ok {
		return c.Receive()
	}
	return redis.ReceiveWithTimeout(c.Conn, d)
}

var errURL = errors.New("want redis://[[user]:password@]host[:port][/db], rediss:// for TLS, or unix:///path[?db=n]")

// FromURL returns a Dial for the URL. Its errors never repeat the URL, which
// may hold a password.
func FromURL(raw string) (Dial, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return nil, errURL
	}
	opts := []redis.DialOption{
		redis.DialTLSHandshakeTimeout(dialTimeout),
		redis.DialReadTimeout(dialTimeout),
		redis.DialWriteTimeout(callTimeout),
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	opts = append(opts, redis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, addr)
		if err != nil || u.Scheme == "rediss" {
			return c, err
		}
		return &boundedConn{Conn: c}, nil
	}))
	opts = slices.Clip(opts) // the driver appends to them, for several dials at once
	switch u.Scheme {
	case "redis", "rediss":
		if db := strings.Trim(u.Path, "/"); db != "" {
			if n, err := strconv.Atoi(db); err != nil || n < 0 {
				return nil, errURL
			}
		}
		return func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, raw, opts...)
		}, nil
	case "unix":
		if u.Path == "" {
			return nil, errURL
		}
		if user := u.User; user != nil {
			password, _ := user.Password()
			opts = append(opts, redis.DialUsername(user.Username()), redis.DialPassword(password))
		}
		if db := u.Query().Get("db"); db != "" {
			n, err := strconv.Atoi(db)
			if err != nil || n < 0 {
				return nil, errURL
			}
			opts = append(opts, redis.DialDatabase(n))
		}
		return func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "unix", u.Path, opts...)
		}, nil
	}
	return nil, errURL
}

// poisons are the error replies after which a connection is of no more use: it
// leads to the wrong server, or to one that does not know us. The driver would
// keep it.
var poisons = []string{
	"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "NOAUTH", "NOPERM", "WRONGPASS", "MISCONF", "UNKILLABLE",
}

func poisoned(err error) bool { return err != nil && replied(err, poisons...) }

// Denied reports whether Redis does not allow the user what was asked for.
func Denied(err error) bool { return replied(err, "NOPERM") }

// replied reports whether err is an error reply that begins with one of the words.
func replied(err error, words ...string) bool {
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return false
	}
	for _, w := range words { // Redis 6.2 repeats the errors of a script's commands after a dash
		if strings.HasPrefix(string(e), w) || strings.Contains(string(e), " -"+w+" ") {
			return true
		}
	}
	return false
}

// Interrupt closes a connection that somebody else may be reading from, so that
// they notice. A connection that belongs to a pool must not be closed then.
func Interrupt(c redis.Conn) {
	if _, pooled := c.(pooledConn); !pooled {
		_ = c.Close() // whoever reads from it notices
	}
}
