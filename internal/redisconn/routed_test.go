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

// A call's first key, or the hint of a call without keys, determines its node.
func TestCallKey(t *testing.T) {
	t.Parallel()
	script := redisconn.NewScript(func() string { return "return 1" })
	for want, call := range map[string]redisconn.Call{
		"k1": redisconn.Command("GET", "k1"),
		"k2": script.Call([]string{"k2", "other"}, "a"),
		"k3": script.Call([]string{"k3"}).Head().Call([]any{"a"}),
		"k4": redisconn.Command("TIME").At("k4"),
		"k5": redisconn.Command("LPUSH", "k5").With([]any{[]byte("x")}),
		"":   redisconn.Command("TIME"),
	} {
		if key, ok := call.Key(); key != want || ok != (want != "") {
			t.Errorf("%q, %v, want %q", key, ok, want)
		}
	}
	for _, call := range []redisconn.Call{script.Call(nil, "a"), redisconn.Command("INFO", "server"), redisconn.Command("SCAN", "0")} {
		if key, ok := call.Key(); ok {
			t.Errorf("%q is no key", key)
		}
	}
}

// A hint doesn't change how a call is made.
func TestCallAt(t *testing.T) {
	is := redistest.Parallel(t)
	l := line(t, redistest.URL())
	v := redistest.Sure(redis.Int64s(l.One(t.Context(), redisconn.Command("TIME").At("k"))))(t)
	is.Equal(len(v), 2)
	for _, reply := range l.Do(t.Context(), redisconn.Command("ECHO", "a"), redisconn.Command("TIME").At("k")) {
		is.NoErr(reply.Err)
	}
}

// Redirections are recognized by their form.
func TestRedirected(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]redisconn.Redirection{
		"MOVED 3999 127.0.0.1:6381": {Slot: 3999, Address: "127.0.0.1:6381"},
		"ASK 3999 host:6381":        {Ask: true, Slot: 3999, Address: "host:6381"},
		"MOVED 3999 ::1:6381":       {Slot: 3999, Address: "[::1]:6381"},
		"MOVED 3999 :6381":          {Slot: 3999, Address: ":6381"},
		"MOVED 3999 :0":             {Slot: 3999},
		"ASK 3999 ?:6381":           {Ask: true, Slot: 3999},
	} {
		if got, ok := redisconn.Redirected(redis.Error(said)); !ok || got != want {
			t.Errorf("%q: %v, %v", said, got, ok)
		}
	}
	for _, said := range []string{
		"", "MOVED", "MOVED x h:1", "MOVED -1 h:1", "MOVED 1 h", "MOVED 1 h:", "MOVED 1 h:70000", "MOVED 1 h:1 more",
		"ERR MOVED 1 h:1", "MOVED 1 " + strings.Repeat("h", 1000) + ":1",
	} {
		if got, ok := redisconn.Redirected(redis.Error(said)); ok {
			t.Errorf("%q: %v", said, got)
		}
	}
	if _, ok := redisconn.Redirected(fmt.Errorf("MOVED 1 h:1")); ok { //nolint:perfsprint // not a reply
		t.Error("this is no reply")
	}
	if redisconn.Postponed(redis.Error("ERR Error running script -TRYAGAIN later")) != "" {
		t.Error("a script that ran may have written")
	}
	for said, want := range map[redis.Error]bool{
		"OOM command not allowed when used memory > 'maxmemory'.":                  true,
		"MISCONF Redis is configured to save RDB snapshots":                        true,
		"BUSY Redis is busy running a script.":                                     true,
		"NOREPLICAS Not enough good replicas to write.":                            true,
		"ERR Error running script: -OOM command not allowed when used memory > 1.": true, // Redis 6.2, before its first write
		"NOPERM this user has no permissions to run the 'evalsha' command":         false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":        false,
	} {
		if redisconn.Repeatable(said) != want {
			t.Errorf("%q passes by itself: want %v", said, want)
		}
	}
	if err := redisconn.Astray(redis.Error("MOVED 1 h:1")); !redisconn.Away(err) || redisconn.Answered(err) {
		t.Error("a call that no node takes must count as an outage")
	}
}

// A line to a node of a cluster keeps its connection when a call is redirected or postponed, and
// returns the reply unchanged, even if words of it are in a payload. Other lines don't.
func TestRoutedLine(t *testing.T) {
	is := redistest.Parallel(t)
	replies := map[string]string{
		"A": "-MOVED 12182 127.0.0.1:6381\r\n", "B": "-ASK 12182 127.0.0.1:6381\r\n",
		"C": "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "D": "-CLUSTERDOWN The cluster is down\r\n",
		"E": "-READONLY You can't write against a read only replica.\r\n", "PING": "+PONG\r\n",
	}
	url := replying(t, func(request string) string { return replies[request] })
	routed := line(t, url).Routed()
	call := func(l *redisconn.Line, name string) error {
		_, err := l.One(t.Context(), redisconn.Command(name, []byte("12182 127.0.0.1:6381")))
		return err
	}
	is.True(redisconn.Answered(call(routed, "A")))
	made := routed.Made()
	for _, name := range []string{"A", "B", "C", "D"} {
		err := call(routed, name)
		is.True(redisconn.Answered(err))
		is.Equal(routed.Made(), made) // the connection was kept
		if r, ok := redisconn.Redirected(err); name < "C" && (!ok || r.Slot != 12182 || r.Address != "127.0.0.1:6381") {
			t.Errorf("%s: %v", name, err)
		}
	}
	is.Equal(redisconn.Postponed(call(routed, "E")), redisconn.Later("READONLY"))
	redistest.Sure(routed.One(t.Context(), redisconn.Command("PING")))(t)
	is.True(routed.Made() != made) // this one wasn't

	other := line(t, url)
	redistest.Sure(other.One(t.Context(), redisconn.Command("PING")))(t)
	made = other.Made()
	err := call(other, "A")
	is.True(errors.Is(err, redisconn.ErrCluster))
	redistest.Sure(other.One(t.Context(), redisconn.Command("PING")))(t)
	is.True(other.Made() != made)
}
