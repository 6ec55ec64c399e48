package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
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
	conn, err := redis.DialContext(ctx, s.Network, s.Address,
		redis.DialContextFunc(bounded(s.connect(), s.Secure)),
		redis.DialReadTimeout(s.timeout()),
		redis.DialUsername(who.User), redis.DialPassword(who.Password), redis.DialDatabase(s.DB))
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
	if !s.Secure {
		return dialer.DialContext
	}
	host, _, err := net.SplitHostPort(s.Address)
	if err != nil {
		host = s.Address
	}
	return secure(dialer, s.TLS, host)
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
