package redisconn_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// Who a URL says that we are, and which database it names.
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

// What is wrong with a URL is told by the name of its part, and nothing is repeated of
// it: in any part there may stand a piece of a password that was not escaped.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	const escape, longest = "write @ : / ? # % as %40 %3A %2F %3F %23 %25", 150
	for url, part := range map[string]string{
		"":                                  "is empty",
		"canary:6379":                       "does not begin with",
		" redis://canary:6379":              "white space",
		"redis://canary:6379\n":             "white space",
		"redis://canary:6379,other:6379":    "several need redis+cluster://",
		"127.0.0.1:6379":                    "does not begin with",
		"http://canary":                     "does not begin with",
		"http://canary%zz":                  "does not begin with",
		"redis:canary":                      "does not begin with",
		"redis://h:99999":                   "the port",
		"redis://h:0":                       "the port",
		"redis://:canary@h:canary":          "the port",
		"redis://:canary@h:-1/2":            "the port",
		"rediss://[::1]:canary":             "the port",
		"redis://ann:canary@localhost:1:12": "the host or the port",
		"redis://::1:6379":                  "the host or the port",
		"redis://canary%zz":                 "the host",
		"redis://[::1":                      "the host",
		"redis://:canary@ho st:1":           "the host",
		"redis://h/canary":                  "the database",
		"redis://h/-1":                      "the database",
		"redis://h/1/2":                     "the database",
		"redis://h/99999999999999999999":    "the database",
		"redis://h/%zz":                     "the database",
		"unix:///path?db=canary":            "the database",
		"redis://h?db=canary":               "a query",
		"unix:///path?canary=2":             "the query",
		"unix:///path?db=1&db=canary":       "the database",
		"redis://h?":                        "the database is written as /2",
		"rediss://h/1?canary":               "the database is written as /2",
		"redis://h/2#canary":                "unescaped #",
		"unix://canary/path":                "the path",
		"unix://:canary@":                   "the path",
		"unix:///%zz":                       "the path",
		"redis://:canary%zz@h":              "the user or the password",
		"redis://:can@ry@h":                 "the user or the password",
		"redis://ann:can/ary@h:1":           "the user or the password",
		"redis://ann:12/canary@h":           "the user or the password",
		"redis://ann:can?ary@h":             "the user or the password",
		"redis://ann:can#ary@h":             "the user or the password",
		"redis://:12#canary@localhost:7391": "the user or the password",
		"redis://ann:12@canary/3@localhost": "the user or the password",
		"redis://canary%40localhost":        "the host",
		"unix://ann/canary@/s":              "the user or the password",
		"unix:///canary@/s":                 "the user or the password",
		"unix://ann:12#canary@/s":           "the user or the password",
		"unix://:12?db=3@/s":                "the user or the password",
	} {
		_, err := redisconn.FromURL(url)
		switch {
		case err == nil:
			t.Errorf("%s is taken", url)
		case !strings.Contains(err.Error(), part), strings.Contains(part, "password") && !strings.Contains(err.Error(), escape):
			t.Errorf("%s: %v; want %q", url, err, part)
		case len(err.Error()) > longest:
			t.Errorf("%s: %d bytes are more than a reader takes in: %v", url, len(err.Error()), err)
		case strings.Contains(err.Error(), "can") && !strings.Contains(err.Error(), "cannot"), strings.Contains(err.Error(), "ry@"):
			t.Errorf("%s: it is shown: %v", url, err)
		}
	}
	for _, url := range []string{
		"redis://", "rediss://h", "redis://h:", "REDIS://h:1", "redis://:1", "redis://h:65535/0/", "redis://[::1]:1/2", "redis://[fe80::1%25eth0]",
		"redis://:a:b%40c@h", "redis://canary@h", "unix:///path", "unix:///a%40b?db=2", "unix://ann:canary@/path",
	} {
		if _, err := redisconn.FromURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A server that does not know a command repeats what it was told with it. Neither
// passwords nor payloads are in the error.
func TestUnknownCommands(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t, "--rename-command", "AUTH", "NO-AUTH", "--rename-command", "EVALSHA", "NO-EVALSHA", "--rename-command", "LPUSH", "NO-LPUSH")
	_, err := line(t, "redis://ann:canary@"+server.Addr()).One(t.Context(), redisconn.Command("PING"))
	is.True(err != nil && strings.Contains(err.Error(), "unknown command 'AUTH'"))
	is.True(!strings.Contains(err.Error(), "canary"))
	l := line(t, server.URL())
	for _, call := range []redisconn.Call{
		redisconn.Command("LPUSH", "list", "canary"), redisconn.NewScript("return 1").Call([]string{"list"}, "canary"),
	} {
		_, err := l.One(t.Context(), call)
		is.True(err != nil && strings.Contains(err.Error(), "unknown command"))
		is.True(!strings.Contains(err.Error(), "canary"))
	}
}

// The dial function of a pool that has a URL which cannot be made out says so with
// the URL. The peer does not.
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
