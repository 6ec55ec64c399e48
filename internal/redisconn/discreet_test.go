package redisconn_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// However a server words its errors, ours contain no argument: neither a password nor a payload.
// They have a code and a limited length, and contain nothing that a terminal would interpret.
func TestDiscreet(t *testing.T) {
	is := redistest.Parallel(t)
	secret := "canary-hunter2"
	for said, want := range map[string]string{
		"ERR bad login ann canary-hunter2 here":                             "ERR bad login ann … here",
		"ERR cannot AUTH with canary-hunter2.":                              "ERR cannot AUTH with …",
		"ERR 'canary-hun' (cut short)":                                      "ERR … (cut short)",
		"ERR x=canary-hunter2;y":                                            "ERR …",
		"canary-hunter2 is wrong":                                           "… is …",
		"ERR unknown command `X`, with args beginning with: `a`":            "ERR unknown command `X`",
		"ERR title \x1b]0;owned\x07 here":                                   `ERR title \x1b]0;owned\a here`,
		"ERR " + strings.Repeat("x", 10_000):                                "ERR " + strings.Repeat("x", 296) + "…",
		"WRONGTYPE Operation against a key holding the wrong kind of value": "WRONGTYPE Operation against a key holding the wrong kind of value",
		"NOPERM this user has no permissions to run the 'get' command":      "NOPERM this user has no permissions to run the 'get' command",
	} {
		got := redisconn.Discreet(redis.Error(said), "key", []byte("a payload holding the wrong key"), secret, 7, "")
		is.Equal(got.Error(), want)
	}
	is.Equal(redisconn.Discreet(nil), nil)
	broken := errors.New("as it is")
	is.Equal(redisconn.Discreet(broken), broken)
}

// The same over a connection, for the login and for a call. The error of a connection names the
// address and the user.
func TestDiscreetServer(t *testing.T) {
	is := redistest.Parallel(t)
	url := replying(t, func(request string) string {
		if request == "AUTH" || request == "ECHO" {
			return "-ERR no " + request + " of canary-hunter2 and canary-payload\r\n"
		}
		return map[string]string{"PING": "+PONG\r\n"}[request]
	})
	address := strings.TrimPrefix(url, "redis://")
	_, err := line(t, "redis://ann:canary-hunter2@"+address).One(t.Context(), redisconn.Command("PING"))
	is.True(err != nil && !strings.Contains(err.Error(), "hunter2"))
	is.True(strings.Contains(err.Error(), "connect to "+address+` as user "ann": ERR no AUTH of`))
	_, err = line(t, "redis://canary-hunter2@"+address).One(t.Context(), redisconn.Command("PING"))
	is.True(err != nil && !strings.Contains(err.Error(), "hunter2") && strings.Contains(err.Error(), ` as user "default": `))
	_, err = line(t, url).One(t.Context(), redisconn.Command("ECHO", []byte("canary-payload")))
	is.True(err != nil && !strings.Contains(err.Error(), "payload"))

	closed := redistest.Nowhere(t)
	_, err = line(t, "redis://ann:canary@"+closed).One(t.Context(), redisconn.Command("PING"))
	is.True(err != nil && strings.HasPrefix(err.Error(), "connect to "+closed+` as user "ann": connection refused`))
}
