package redisconn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// Credentials is called at each dial. Its error or panic becomes the error of the dial. No error
// contains a password.
func TestCredentials(t *testing.T) {
	is := redistest.Parallel(t)
	server, c := redistest.StartAndDial(t)
	redistest.Do(t, c, "ACL", "SETUSER", "ann", "on", ">one", "+@all", "~*")
	var user, password string
	var failed error
	_, address, _ := strings.Cut(server.URL(), "://")
	s := redisconn.Server{Network: "tcp", Address: address, Credentials: func(context.Context) (string, string, error) {
		if user == "panic" {
			panic("at the wall")
		}
		return user, password, failed
	}}
	try := func(as, with string, err error, want string) {
		t.Helper()
		user, password, failed = as, with, err
		conn, err := s.Dial(t.Context())
		if want == "" {
			is.NoErr(err)
			is.Equal(redistest.Sure(redis.String(conn.Do("ACL", "WHOAMI")))(t), as)
			is.NoErr(conn.Close())
			return
		}
		is.True(err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "canary"))
	}
	try("ann", "one", nil, "")
	redistest.Do(t, c, "ACL", "SETUSER", "ann", "resetpass", ">two")
	try("ann", "one", nil, "WRONGPASS")
	try("ann", "two", nil, "")
	try("ann", "canary", nil, `as user "ann": WRONGPASS`)
	try("", "", errors.New("the token service is away"), "connect to "+address+": credentials: the token service is away")
	try("panic", "", nil, "a function in the options panicked: at the wall")
	try("default", "", nil, "")
}

// A dial to a server that accepts and then says nothing times out.
func TestDialTimeout(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	server.Pause(t)
	s := redisconn.Server{Network: "tcp", Address: server.Addr(), Login: redisconn.Login{Password: "x"}, Timeout: 50 * time.Millisecond}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := s.Dial(ctx)
	is.True(err != nil && ctx.Err() == nil) // long before the context ends
}
