package redisconn_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
)

// The parts of a URL. The login is for the servers, not for the sentinels.
func TestURLParts(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://":                              "{0 false tcp [localhost:6379]  0 { } { }}",
		"rediss://ann:a%40b@h:1/2":              "{0 true tcp [h:1]  2 {ann a@b} { }}",
		"unix:///path?db=3":                     "{0 false unix [/path]  3 { } { }}",
		"redis+sentinel://a:1,b/m":              "{1 false tcp [a:1 b:26379] m 0 { } { }}",
		"rediss+sentinel://pass@a,[::1]:2/m/5/": "{1 true tcp [a:26379 [::1]:2] m 5 { pass} { }}",
		"redis+sentinel://ann:p@a/my%2Fmaster?sentinel=bob:q%26": "{1 false tcp [a:26379] my/master 0 {ann p} {bob q&}}",
		"redis+sentinel://a/m?sentinel=q":                        "{1 false tcp [a:26379] m 0 { } { q}}",
		"REDIS+CLUSTER://:p,q@a,b:7,c/":                          "{2 false tcp [a:6379 b:7 c:6379]  0 { p,q} { }}",
		"rediss+cluster://a":                                     "{2 true tcp [a:6379]  0 { } { }}",
	} {
		u, err := redisconn.ParseURL(raw)
		if got := fmt.Sprint(u); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", raw, got, err, want)
		}
		if strings.ContainsAny(u.Address(), "@?") {
			t.Errorf("%s: for people, it is %s", raw, u.Address())
		}
	}
}

// The error of a bad URL names the part, and contains nothing of the URL: any part may contain a
// piece of a password that wasn't escaped.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	const escape, longest = "write @ : / ? # % as %40 %3A %2F %3F %23 %25", 150
	for url, part := range map[string]string{
		"":                                  "is empty",
		"canary:6379":                       "doesn't begin with",
		" redis://canary:6379":              "white space",
		"redis://canary:6379\n":             "white space",
		"redis://canary:6379,other:6379":    "for several, use redis+cluster://",
		"http://canary":                     "doesn't begin with",
		"redis:canary":                      "doesn't begin with",
		"redis://h:99999":                   "the port",
		"redis://:canary@h:canary":          "the port",
		"rediss://[::1]:canary":             "the port",
		"redis://ann:canary@localhost:1:12": "the host or the port",
		"redis://canary%zz":                 "the host",
		"redis://:canary@ho st:1":           "the host",
		"redis://h/canary":                  "the database",
		"redis://h/%zz":                     "the database",
		"unix:///path?db=canary":            "the database",
		"redis://h?db=canary":               "a query",
		"unix:///path?canary=2":             "the query",
		"rediss://h/1?canary":               "put the database in the path",
		"redis://h/2#canary":                "unescaped #",
		"unix://canary/path":                "the path",
		"unix:///%zz":                       "the path",
		"redis://:canary%zz@h":              "the user or the password",
		"redis://:can@ry@h":                 "the user or the password",
		"redis://ann:can/ary@h:1":           "the user or the password",
		"redis://ann:can?ary@h":             "the user or the password",
		"redis://ann:can#ary@h":             "the user or the password",
		"redis://ann:12@canary/3@localhost": "the user or the password",
		"redis://canary%40localhost":        "the host",
		"unix://ann/canary@/s":              "the user or the password",
		"unix:///canary@/s":                 "the user or the password",

		"redis+sentinel:canary":                     "doesn't begin with",
		"redis-sentinel://canary/m":                 "such as redis+cluster:",
		"REDISS-CLUSTER:canary":                     "such as redis+cluster:",
		"redis+sentinel://h/m:canary":               "the name of the master",
		"redis+sentinel://h/can%E2%80%AEary":        "the name of the master",
		"redis+sentinel:///m":                       "host 1: a host is missing",
		"redis+cluster://":                          "host 1: a host is missing",
		"redis+cluster://h,:6379":                   "host 2: a host is missing",
		"redis+cluster://h,g:canary":                "host 2: the port",
		"redis+cluster://h,fe80::1:1":               "host 2: the host or the port",
		"redis+cluster://h,canary%zz":               "host 2: the host",
		"redis+cluster://h/0":                       "a cluster has no databases",
		"redis+cluster://h?canary":                  "a cluster has no databases",
		"redis+cluster://h#canary":                  "unescaped #",
		"redis+sentinel://h":                        "the name of the master",
		"redis+sentinel://h/a%0d%0ab":               "the name of the master",
		"redis+sentinel://h/m/canary":               "the database",
		"redis+sentinel://h/m?db=canary":            "the query must be ?sentinel=",
		"redis+sentinel://h/m?sentinel=ann:can/ary": "the query must be ?sentinel=",
		"redis+sentinel://h/m?sentinel=%zzcanary":   "the query must be ?sentinel=",
		"redis+sentinel://h/m?sentinel=ann:can@ry":  "the user or the password",
		"redis+sentinel://:canary%zz@h/m":           "the user or the password",
		"redis+sentinel://:can@ry@h/m":              "the user or the password",
		"redis+cluster://ann:can/ary@h,g":           "the user or the password",
		"redis+cluster://ann:can?ary@h,g":           "the user or the password",
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
