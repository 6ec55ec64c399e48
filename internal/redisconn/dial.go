// Package redisconn connects to Redis: it dials, shares one connection among many callers, drops
// bad connections, and reports for each failed call whether Redis may have carried it out. It knows
// nothing about tasks.
package redisconn

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Pool provides connections. *redis.Pool is one.
type Pool interface {
	GetContext(ctx context.Context) (redis.Conn, error)
}

// A Dial makes a connection that its caller owns. It returns when its context ends, or soon after.
type Dial func(ctx context.Context) (redis.Conn, error)

// DialTimeout is the timeout of a Server without one.
const DialTimeout = 2 * time.Second

const keepAlive = 15 * time.Second

// FromPool returns a Dial that connects as pool does. A peer's long-lived connections would exhaust
// a bounded pool, and can't be pooled while subscribed. So FromPool uses the dial function of a
// *redis.Pool, and keeps the connections that it gets from any other Pool.
func FromPool(pool Pool) Dial {
	dial, what := fromPool(pool)
	return shielded(func(ctx context.Context) (redis.Conn, error) {
		conn, err := dial(ctx)
		if conn == nil && err == nil {
			err = errors.New("the Pool returned no connection")
		}
		return conn, Discreet(err)
	}, what, &behind{})
}

// fromPool returns what FromPool calls, and its name.
func fromPool(pool Pool) (dial Dial, what string) {
	if p, ok := pool.(*redis.Pool); ok {
		switch {
		case p.DialContext != nil:
			return p.DialContext, "the pool's DialContext"
		case p.Dial != nil:
			return func(context.Context) (redis.Conn, error) { return p.Dial() }, "the pool's Dial"
		}
	}
	return func(ctx context.Context) (redis.Conn, error) {
		c, err := pool.GetContext(ctx)
		if c == nil || err != nil {
			return nil, err
		}
		return pooledConn{c}, nil
	}, "the pool's GetContext"
}

// A pooledConn belongs to a pool: it must not be closed while it is in use.
type pooledConn struct{ redis.Conn }

// DoWithTimeout and ReceiveWithTimeout implement redis.ConnWithTimeout, if the pool's connection
// does.
func (c pooledConn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}

func (c pooledConn) ReceiveWithTimeout(d time.Duration) (any, error) {
	if _, ok := c.Conn.(redis.ConnWithTimeout); !ok {
		return c.Receive()
	}
	return redis.ReceiveWithTimeout(c.Conn, d)
}

// An absentError explains why there is no working connection, for any kind of Dial.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

// A shutError is a server's reply to a new connection.
type shutError struct{ error }

func (e *shutError) Unwrap() error { return e.error }

// Unsent reports whether a call wasn't sent, since there was no connection, even if a server has refused one.
func Unsent(err error) bool {
	_, absent := errors.AsType[*absentError](err)
	_, shut := errors.AsType[*shutError](err)
	return absent || shut
}

// Away reports whether an error means that Redis can't be used at present, rather than that one
// call is invalid or not permitted.
func Away(err error) bool {
	if _, ok := errors.AsType[*absentError](err); ok {
		return true
	}
	if _, ok := errors.AsType[redis.Error](err); ok {
		return replied(err, "LOADING", "MASTERDOWN", "CLUSTERDOWN")
	}
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, ErrUnknown) || errors.Is(err, errLost) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// Answered reports whether an error is a reply of Redis.
func Answered(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return reply
}

// poisons are the error replies after which a connection is useless: it leads to the wrong server,
// or to one that no longer accepts the login. The driver would keep it.
var poisons = []string{
	"READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "ASK", "NOAUTH", "NOPERM", "WRONGPASS", "UNKILLABLE",
}

func poisoned(err error) bool { return err != nil && replied(err, poisons...) }

// Usable reports whether a connection can be used, by the result of a PING on it. Some error replies
// refuse the PING and not every command: Redis can't save, the user may not use PING, or a script is
// running. Whatever else is wrong, the calls that follow will report it.
func Usable(err error) bool { return err == nil || replied(err, "MISCONF", "NOPERM", "BUSY") }

// Demoted reports whether a server says that it isn't a master, or no longer is.
func Demoted(err error) bool { return replied(err, "READONLY", "MASTERDOWN") }

// Denied reports whether Redis doesn't permit the user's command. For scripts, versions before
// Redis 7.2 and Valkey 8 use other words.
func Denied(err error) bool {
	return replied(err, "NOPERM", "ERR The user executing the script can't", "ERR ACL failure in script")
}

// Full reports whether Redis has reached its maxmemory.
func Full(err error) bool { return replied(err, "OOM") }

// Refused reports whether Redis refuses the login.
func Refused(err error) bool { return replied(err, "NOPERM", "NOAUTH", "WRONGPASS") }

// BadLogin reports whether the user or the password is wrong, or missing.
func BadLogin(err error) bool {
	return replied(err, "NOAUTH", "WRONGPASS", "ERR Client sent AUTH", "ERR AUTH ")
}

// UnknownCommand reports whether the server doesn't know the command.
func UnknownCommand(err error) bool { return replied(err, "ERR unknown command") }

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

// Interrupt closes a connection that another goroutine may be reading from, so that the read fails.
// It leaves a pool's connection open, since that may be in use.
func Interrupt(c redis.Conn) {
	if _, pooled := c.(pooledConn); !pooled {
		_ = c.Close() // pending reads fail
	}
}
