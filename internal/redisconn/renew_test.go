package redisconn_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A line that is in use replaces its connection from time to time, and no call notices. If dialing
// the next one fails, it keeps the current one.
func TestRenewal(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	dial := redistest.Sure(redisconn.FromURL(server.URL()))(t)
	var dials atomic.Int32
	var refuse atomic.Bool
	l := redisconn.NewLine(func(ctx context.Context) (redis.Conn, error) {
		dials.Add(1)
		if refuse.Load() {
			return nil, errors.New("no more")
		}
		return dial(ctx)
	}, 0).Renewed(20 * time.Millisecond)
	t.Cleanup(l.Close)
	call := func() int64 {
		t.Helper()
		return redistest.Sure(redis.Int64(l.One(context.Background(), redisconn.Command("CLIENT", "ID"))))(t)
	}
	seen := map[int64]bool{}
	redistest.Eventually(t, "it has had four connections", func() bool { seen[call()] = true; return len(seen) == 4 })

	refuse.Store(true)
	last, before := call(), dials.Load()
	redistest.Eventually(t, "it tries to replace the last", func() bool { last = call(); return dials.Load() >= before+2 })
	is.Equal(call(), last)
	l.Close()
	conn := redistest.Dial(t, server.URL())
	redistest.Eventually(t, "no connections are left", func() bool {
		list := redistest.Sure(redis.String(conn.Do("CLIENT", "LIST")))(t)
		return strings.Count(list, "id=") == 1
	})
}

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
