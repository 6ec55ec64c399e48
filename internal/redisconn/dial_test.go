package redisconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// The login and the database in a URL.
func TestLogins(t *testing.T) {
	t.Parallel()
	server, c := redistest.StartAndDial(t)
	for _, rule := range [][]any{{"ann", "on", ">p@ss w:rd", "+@all", "~*"}, {"default", "resetpass", ">hunter2"}} {
		redistest.Do(t, c, "ACL", redis.Args{"SETUSER"}.Add(rule...)...)
	}
	for _, at := range []string{"redis://%s" + server.Addr() + "/3", "unix://%s" + server.Socket() + "?db=3"} {
		for login, want := range map[string]string{
			"ann:p%40ss%20w%3Ard@": "user=ann db=3", ":hunter2@": "user=default db=3", "hunter2@": "user=default db=3", "default:hunter2@": "user=default db=3",
			"ann:hunter2@": "WRONGPASS", "ann@": "WRONGPASS", "": "NOAUTH",
		} {
			l := line(t, fmt.Sprintf(at, login))
			got, err := redis.String(l.One(t.Context(), redisconn.Command("CLIENT", "INFO")))
			if err != nil {
				got = err.Error()
			}
			for word := range strings.FieldsSeq(want) {
				if !strings.Contains(got, word) {
					t.Errorf(at+": %s, want %s", login, got, want)
				}
			}
		}
	}
}

// A server that doesn't know a command quotes its arguments in the error. Our error contains
// neither passwords nor payloads.
func TestUnknownCommands(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t, "--rename-command", "AUTH", "NO-AUTH", "--rename-command", "EVALSHA", "NO-EVALSHA", "--rename-command", "LPUSH", "NO-LPUSH")
	fromPool := redisconn.NewLine(redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.DialURL("redis://ann:canary@" + server.Addr())
	}}), 0)
	defer fromPool.Close()
	for _, l := range []*redisconn.Line{line(t, "redis://ann:canary@"+server.Addr()), fromPool} {
		_, err := l.One(t.Context(), redisconn.Command("PING"))
		is.True(err != nil && strings.Contains(err.Error(), "unknown command 'AUTH'"))
		is.True(!strings.Contains(err.Error(), "canary"))
	}
	l := line(t, server.URL())
	for _, call := range []redisconn.Call{
		redisconn.Command("LPUSH", "list", "canary"), redisconn.NewScript(func() string { return "return 1" }).Call([]string{"list"}, "canary"),
	} {
		_, err := l.One(t.Context(), call)
		is.True(err != nil && strings.Contains(err.Error(), "unknown command"))
		is.True(!strings.Contains(err.Error(), "canary"))
	}
}

// If Credentials, or a function in the configuration of TLS, panics or ends its goroutine, only the
// dial fails. Sentinels are asked on goroutines that do other things, too.
func TestDialMisbehaves(t *testing.T) {
	t.Parallel()
	ca := redistest.NewAuthority(t)
	server := redistest.StartTLS(t, ca, []string{"localhost"})
	for how, misbehave := range map[string]func(){
		"panics": func() { panic("at the disco") }, "exits": runtime.Goexit, "does both": func() { panic(exiting{}) },
	} {
		for what, s := range map[string]redisconn.Server{
			"Credentials": {Credentials: func(context.Context) (user, password string, err error) { misbehave(); return "", "", nil }},
			"TLS": {Secure: true, TLS: &tls.Config{
				RootCAs: ca.Pool(), ServerName: "localhost", VerifyConnection: func(tls.ConnectionState) error { misbehave(); return nil },
			}},
		} {
			s.Network, s.Address = "tcp", server.Addr()
			if _, err := s.Dial(t.Context()); err == nil {
				t.Errorf("%s %s: no error", what, how)
			}
		}
	}
}

// If a pool's dial function can't parse its URL, its error contains the URL. The peer's error
// doesn't.
func TestPoolWithBadURL(t *testing.T) {
	is := redistest.Parallel(t)
	for _, url := range []string{"redis://:canary@host:x", "redis:canary", "redis://:canary%zz@host"} {
		dial := redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }})
		_, err := dial(t.Context())
		is.True(err != nil && !strings.Contains(err.Error(), "canary"))
		is.True(strings.Contains(err.Error(), "the dial function of the pool"))
	}
	broken := errors.New("as it is")
	_, err := redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) { return nil, broken }})(t.Context())
	is.True(errors.Is(err, broken))
}

// A Pool that returns neither a connection nor an error is no reason to crash, however late it is.
func TestPoolWithoutConnections(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]redisconn.Pool{
		"function of a redis.Pool": &redis.Pool{Dial: func() (redis.Conn, error) { return nil, nil }},
		"another Pool":             emptyPool{},
	} {
		dial := redisconn.FromPool(pool)
		if conn, err := dial(t.Context()); conn != nil || err == nil || !strings.Contains(err.Error(), "no connection") {
			t.Errorf("%s: %v, %v", name, conn, err)
		}
		late := make(chan struct{})
		l := redisconn.NewLine(redisconn.FromPool(&redis.Pool{Dial: func() (redis.Conn, error) {
			defer close(late)
			time.Sleep(500 * time.Millisecond)
			return dial(context.Background())
		}}), 50*time.Millisecond)
		if _, err := l.One(t.Context(), redisconn.Command("PING")); err == nil {
			t.Errorf("%s: a reply", name)
		}
		<-late
		time.Sleep(50 * time.Millisecond) // the line would close it
		l.Close()
	}
}

type emptyPool struct{}

func (emptyPool) GetContext(context.Context) (redis.Conn, error) { return nil, nil }

// A server that has answered once doesn't want TLS when it closes a connection.
func TestSuggestTLS(t *testing.T) {
	is := redistest.Parallel(t)
	var served atomic.Bool
	door := redistest.Listen(t, func(c net.Conn) {
		if served.Swap(true) {
			return
		}
		for range redistest.Requests(c) {
			_, _ = c.Write([]byte("+PONG\r\n"))
		}
	})
	known, fresh, ping := line(t, door.URL()), line(t, door.URL()), redisconn.Command("PING")
	redistest.Sure(known.One(t.Context(), ping))(t)
	door.Cut()
	for range 2 {
		_, err := known.One(t.Context(), ping)
		is.True(err != nil && !strings.Contains(err.Error(), "rediss://"))
	}
	_, err := fresh.One(t.Context(), ping)
	is.True(err != nil && strings.Contains(err.Error(), "rediss://"))
}
