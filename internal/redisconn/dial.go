// Package redisconn is the one door to Redis: it dials, shares one connection
// among many callers, drops connections that have gone bad, and says of every
// failed call whether Redis may have carried it out. It knows nothing of tasks.
package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
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
	dial := fromPool(pool)
	return func(ctx context.Context) (redis.Conn, error) {
		conn, err := dial(ctx)
		return conn, told(unfamiliar(err))
	}
}

// A toldError is an error of a Pool with its text, which is asked for once: its methods are
// user code, and whoever wants the text later may be who that code waits for.
type toldError struct {
	error
	text string
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.error }

func told(err error) error {
	if _, reply := err.(redis.Error); reply || err == nil {
		return err
	}
	return &toldError{err, err.Error()}
}

func fromPool(pool Pool) Dial {
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
		switch {
		case err != nil:
			return nil, err
		case c == nil:
			return nil, errors.New("the Pool has returned no connection")
		}
		return pooledConn{c}, nil
	}
}

// prompt returns a Dial that returns when its context ends, whatever the Pool does, so that
// nobody who ends a dial waits for it. A connection that comes later is closed. One dial is
// under way at a time: a Pool that hangs doesn't get more and more goroutines.
func prompt(dial Dial) Dial {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context) (redis.Conn, error) {
		began := time.Now()
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return nil, tardy(ctx, began)
		}
		var conn redis.Conn
		var err error
		done, gone := make(chan struct{}), make(chan struct{})
		go func() {
			returned := false
			defer func() { // also when the Pool ends its goroutine
				if v := recover(); v != nil {
					err = &absentError{fmt.Errorf("the Pool panicked: %v", v)}
				} else if !returned {
					err = &absentError{errors.New("the Pool called runtime.Goexit")}
				}
				<-turn
				select {
				case done <- struct{}{}:
				case <-gone:
					if err == nil {
						_ = conn.Close() // nobody wants it
					}
				}
			}()
			conn, err = dial(ctx)
			returned = true
		}()
		select {
		case <-done:
			return conn, err
		case <-ctx.Done():
		}
		if errors.Is(ctx.Err(), context.DeadlineExceeded) { // the error of the dial says more
			select {
			case <-done:
				return conn, err
			case <-time.After(lastWord / 2):
			}
		}
		close(gone)
		return nil, tardy(ctx, began)
	}
}

// tardy is the error of a dial that goes on after its context.
func tardy(ctx context.Context, began time.Time) error {
	within := time.Since(began)
	if end, ok := ctx.Deadline(); ok {
		within = min(within, end.Sub(began))
	}
	err := ctx.Err()
	if errors.Is(err, context.DeadlineExceeded) {
		err = os.ErrDeadlineExceeded
	}
	return &absentError{fmt.Errorf("no reply within %v: %w", within.Round(time.Millisecond), err)}
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

// How a URL is to be written. What is wrong with one is told by the name of its part,
// and nothing of it is repeated: where a password is not escaped, a piece of it stands
// in another part.
var errURL = errors.New("want redis://[[user]:password@]host[:port][/db], rediss:// for TLS, or unix:///path[?db=n]; " +
	"in users, passwords and paths, write @ : / ? # % as %40 %3A %2F %3F %23 %25")

func bad(what string) error { return fmt.Errorf("%s: %w", what, errURL) }

var (
	errEmpty    = errors.New("the URL is empty")
	errScheme   = bad("the URL does not begin with redis://, rediss:// or unix:///")
	errLogin    = bad("a part of the user or the password, or of a path, is not escaped")
	errFragment = bad("the URL has an unescaped # or a fragment")
	errHost     = bad("the host is invalid")
	errColons   = bad("the host or the port has too many colons; put an IPv6 address in brackets")
	errPort     = bad("the port is not a number from 1 to 65535")
	errDatabase = bad("the database is not a number, 0 or higher")
	errQuery    = bad("the URL has a query, but the database is written as /2")
	errSocket   = bad("the path of the socket does not begin with the third slash of unix:///, or is not escaped")
	errDB       = bad("the query must be ?db= and the number of the database")
)

var dialer = &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}

// FromURL returns a Dial for the URL. Its errors never repeat the URL, which
// may hold a password.
func FromURL(raw string) (Dial, error) { return FromURLWithTLS(raw, nil) }

// FromURLWithTLS is FromURL with the TLS configuration of rediss://. Nil is the
// defaults: the authorities that the system trusts, the host of the URL, and TLS 1.2
// at least, which is also what is put where the config says nothing.
func FromURLWithTLS(raw string, config *tls.Config) (Dial, error) {
	u, err := parse(raw)
	if err != nil {
		return nil, err
	}
	var network, address, db string
	dial := dialer.DialContext
	switch host := cmp.Or(u.Hostname(), "localhost"); u.Scheme {
	case "redis", "rediss":
		dial = plain
		if u.Scheme == "rediss" {
			dial = secure(config, host)
		}
		network, address, db = "tcp", net.JoinHostPort(host, cmp.Or(u.Port(), "6379")), strings.Trim(u.Path, "/")
	case "unix":
		network, address, db = "unix", u.Path, strings.TrimPrefix(u.RawQuery, "db=")
	}
	opts := []redis.DialOption{
		redis.DialContextFunc(bounded(dial)),
		redis.DialReadTimeout(dialTimeout),
	}
	opts = append(opts, login(u.User)...)
	if db != "" {
		n, err := strconv.Atoi(db)
		if err != nil || n < 0 {
			return nil, errDatabase
		}
		opts = append(opts, redis.DialDatabase(n))
	}
	who, secret := whose(u.User)
	return func(ctx context.Context) (redis.Conn, error) {
		writes := DefaultTimeout
		if until, ok := ctx.Deadline(); ok {
			writes = max(time.Until(until), time.Millisecond)
		}
		conn, err := redis.DialContext(ctx, network, address, append(opts[:len(opts):len(opts)], redis.DialWriteTimeout(writes))...)
		if u.Scheme == "rediss" {
			conn, err = greeted(ctx, conn, err)
		}
		if err != nil {
			return nil, &connectError{address, who, Discreet(err, secret)}
		}
		return conn, nil
	}, nil
}

// parse takes a URL apart. It refuses what is not understood, and where a password
// may have got into another part, since it was not escaped: that part would be dialed,
// and be in the error.
func parse(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errEmpty
	}
	scheme, authority := pieces(raw)
	if scheme == "" {
		return nil, errScheme
	}
	login, host, named := strings.Cut(authority, "@")
	if !named {
		login, host = "", authority
	}
	_, port, _ := strings.Cut(host, ":")
	u, err := url.Parse(raw)
	switch {
	case strings.Count(raw, "@") > 1, strings.Contains(raw, "@") && !named, !parses("//" + login + "@"):
		return nil, errLogin
	case strings.Contains(raw, "#"):
		return nil, errFragment
	case !strings.HasPrefix(host, "[") && strings.Contains(port, ":"):
		return nil, errColons
	case !parses("//" + host):
		if i := strings.LastIndex(host, ":"); i >= 0 && parses("//"+host[:i]) {
			return nil, errPort
		}
		return nil, errHost
	case scheme == "unix" && (err != nil || host != "" || u.Path == ""):
		return nil, errSocket
	case scheme == "unix" && u.RawQuery != "" && !strings.HasPrefix(u.RawQuery, "db="):
		return nil, errDB
	case scheme == "unix":
		return u, nil
	case err != nil:
		return nil, errDatabase
	case strings.Contains(raw, "?"):
		return nil, errQuery
	}
	if n, err := strconv.Atoi(cmp.Or(u.Port(), "1")); err != nil || n < 1 || n > 65535 {
		return nil, errPort
	}
	return u, nil
}

// pieces are the scheme of a URL, "" if it is none that is known, and what stands
// between it and the path: who is to log in, the host and the port.
func pieces(raw string) (scheme, authority string) {
	scheme, rest, _ := strings.Cut(raw, ":")
	scheme = strings.ToLower(scheme)
	if !slices.Contains([]string{"redis", "rediss", "unix"}, scheme) || !strings.HasPrefix(rest, "/") {
		return "", ""
	}
	if rest, ok := strings.CutPrefix(rest, "//"); ok {
		authority = rest[:strings.IndexAny(rest+"/", "/?#")]
	}
	return scheme, authority
}

// parses reports whether a piece of a URL is one.
func parses(piece string) bool {
	_, err := url.Parse(piece)
	return err == nil
}

// login says who we are.
func login(user *url.Userinfo) []redis.DialOption {
	if user == nil {
		return nil
	}
	name, password := user.Username(), ""
	if given, two := user.Password(); two {
		password = given
	} else {
		name, password = "", name
	}
	return []redis.DialOption{redis.DialUsername(name), redis.DialPassword(password)}
}

// whose are the user to log in and the password. A name alone is a password, as
// redis-cli has it.
func whose(user *url.Userinfo) (name, password string) {
	if user == nil {
		return "default", ""
	}
	if password, two := user.Password(); two {
		return cmp.Or(user.Username(), "default"), password
	}
	return "default", user.Username()
}

// A connectError is why there is no connection.
type connectError struct {
	address, user string
	err           error
}

func (e *connectError) Error() string {
	why := e.err
	if of, ok := errors.AsType[*net.OpError](why); ok && of == why && of.Op == "dial" && of.Err != nil {
		why = of.Err // it repeats the address
	}
	if of, ok := errors.AsType[*os.SyscallError](why); ok && of == why && of.Syscall == "connect" {
		why = of.Err // so is what was tried
	}
	return fmt.Sprintf("connect to %s as user %q: %v", e.address, e.user, why)
}

func (e *connectError) Unwrap() error { return e.err }

// Address is where a valid URL leads, without a user and a password.
func Address(raw string) string {
	u, err := parse(raw)
	switch {
	case err != nil:
		return ""
	case u.Scheme == "unix":
		return u.Path
	}
	return net.JoinHostPort(cmp.Or(u.Hostname(), "localhost"), cmp.Or(u.Port(), "6379"))
}

// An absentError is why there is no connection that answers, of whatever Dial.
type absentError struct{ error }

func (e *absentError) Unwrap() error { return e.error }

// Marked has Away know the errors of a Dial.
func Marked(dial Dial) Dial {
	return func(ctx context.Context) (redis.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, &absentError{err}
		}
		return conn, nil
	}
}

// Away reports whether an error says that Redis can't be used at present, rather than
// that one call makes no sense or may not be made.
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

// Answered reports whether an error is a reply, which nothing but Redis gives.
func Answered(err error) bool {
	_, reply := errors.AsType[redis.Error](err)
	return reply
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

// Full reports whether Redis has reached its maxmemory.
func Full(err error) bool { return replied(err, "OOM") }

// Refused reports whether Redis does not let the user in.
func Refused(err error) bool { return replied(err, "NOPERM", "NOAUTH", "WRONGPASS") }

// UnknownCommand reports whether the server does not have what was asked for.
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

// Interrupt closes a connection that somebody else may be reading from, so that
// they notice. A connection that belongs to a pool must not be closed then.
func Interrupt(c redis.Conn) {
	if _, pooled := c.(pooledConn); !pooled {
		_ = c.Close() // whoever reads from it notices
	}
}
