package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Server is an address and a login.
type Server struct {
	Network, Address string
	DB               int
	Login            Login
	Credentials      Credentials   // if not nil, called at each dial instead of using Login
	Timeout          time.Duration // of each step of a dial; 0 is DialTimeout
	Secure           bool
	// TLS is the configuration of secure connections. Nil is the defaults: the system's
	// authorities, the host of the address, and at least TLS 1.2. The defaults also replace unset
	// fields.
	TLS *tls.Config

	behind *behind
}

// Guarded returns the server with a limit for dials that hang in Credentials or in a function of TLS:
// it counts those of all copies of the server.
func (s Server) Guarded() Server {
	s.behind = &behind{}
	return s
}

// Credentials returns the current login. It's user code.
type Credentials func(ctx context.Context) (user, password string, err error)

var errSeveral = errors.New("the URL names sentinels or a cluster; use the URL of a single server")

// FromURL returns a Dial for the URL of one server. Its errors never contain the URL, which may
// hold a password.
func FromURL(raw string) (Dial, error) {
	u, err := ParseURL(raw)
	if err != nil {
		return nil, err
	}
	if u.Kind != Single {
		return nil, errSeveral
	}
	return Server{Network: u.Network, Address: u.Addresses[0], DB: u.DB, Login: u.Login, Secure: u.Secure}.Dial, nil
}

// Dial makes a connection. It calls the user's code: Credentials, and functions in TLS. Each may take
// until ctx ends or, if it has no deadline, as long as the steps of the dial.
func (s Server) Dial(ctx context.Context) (redis.Conn, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, steps*s.timeout())
		defer cancel()
	}
	what := "the dial"
	if s.Credentials != nil || s.TLS != nil {
		what = "a function in the options"
	}
	return shielded(s.dial, what, cmp.Or(s.behind, &behind{}))(ctx)
}

// steps are those of a dial: credentials, connect, login.
const steps = 3

func (s Server) dial(ctx context.Context) (redis.Conn, error) {
	who, err := s.login(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.Address, err)
	}
	writes := DefaultTimeout // not the dial's remaining time, since the connection outlives the dial
	if of, ok := ctx.Value(lifeKey{}).(*life); ok {
		writes = of.timeout
	}
	conn, err := redis.DialContext(ctx, s.Network, s.Address,
		redis.DialContextFunc(bounded(s.connect())),
		redis.DialReadTimeout(s.timeout()), redis.DialWriteTimeout(writes),
		redis.DialUsername(who.User), redis.DialPassword(who.Password), redis.DialDatabase(s.DB))
	if s.Secure {
		conn, err = greeted(ctx, conn, err)
	}
	if err != nil {
		return nil, &connectError{s.Address, who.user(), Discreet(err, who.Password)}
	}
	return conn, nil
}

func (s Server) timeout() time.Duration { return cmp.Or(s.Timeout, DialTimeout) }

// login returns the login. It reads the text of a user's error only here: later, the error's
// methods might block on the code that needs the text.
func (s Server) login(ctx context.Context) (who Login, err error) {
	if s.Credentials == nil {
		return s.Login, nil
	}
	user, password, failed := s.Credentials(ctx)
	if failed != nil {
		return Login{}, fmt.Errorf("credentials: %v", failed)
	}
	return Login{user, password}, nil
}

// connect makes a connection to an address.
func (s Server) connect() connect {
	dialer := &net.Dialer{Timeout: s.timeout(), KeepAlive: keepAlive}
	switch {
	case s.Network == "unix":
		return dialer.DialContext
	case s.Secure:
		host, _, err := net.SplitHostPort(s.Address)
		if err != nil {
			host = s.Address
		}
		return secure(dialer, s.TLS, host)
	}
	return plain(reaches(dialer))
}

// reaches makes TCP connections, with two tries in the dialer's time.
func reaches(dialer *net.Dialer) connect {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return twice(ctx, dialer.Timeout, func(ctx context.Context, begin func()) (net.Conn, error) {
			d := *dialer
			d.Control = func(string, string, syscall.RawConn) error { begin(); return nil } // the name is resolved
			return d.DialContext(ctx, network, address)
		})
	}
}

// twice dials, and dials again if half of the time has passed since the first try began to connect.
// Packets to an unreachable server are lost, and the system repeats them after a second, then after
// two: too late for a heartbeat once the server is back. A connection that takes longer than half
// of the time would be useless, since the first exchange on it takes as long again.
func twice(ctx context.Context, within time.Duration, dial func(ctx context.Context, begin func()) (net.Conn, error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	until, _ := ctx.Deadline()
	first, over := context.WithCancel(ctx)
	defer over()
	conn, err := dial(first, func() { time.AfterFunc(time.Until(until)/2, over) })
	if err == nil || first.Err() == nil || ctx.Err() != nil {
		return conn, err
	}
	return dial(ctx, func() {})
}

// A connectError explains why there is no connection.
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
		why = of.Err // it repeats the operation
	}
	return fmt.Sprintf("connect to %s as user %q: %v", e.address, e.user, why)
}

func (e *connectError) Unwrap() error { return e.err }
