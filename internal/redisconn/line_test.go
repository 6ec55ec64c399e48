package redisconn_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

func line(t testing.TB, url string) *redisconn.Line { return lineOf(t, url, 0) }

func lineOf(t testing.TB, url string, timeout time.Duration) *redisconn.Line {
	t.Helper()
	l := redisconn.NewLine(redistest.Sure(redisconn.FromURL(url))(t), timeout)
	t.Cleanup(l.Close)
	return l
}

// begin makes a call, and sends its error when it has ended.
func begin(ctx context.Context, l *redisconn.Line, c redisconn.Call) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := l.One(ctx, c)
		ended <- err
	}()
	return ended
}

// Scripts are loaded when Redis doesn't know them, even in the middle of a pipeline.
func TestScripts(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	s := redisconn.NewScript(func() string { return "return ARGV[1]" })
	c := redistest.Dial(t, server.URL())
	for range 3 {
		replies := l.Do(t.Context(), s.Call(nil, "a"), redisconn.Command("ECHO", "b"), s.Call([]string{"k"}, "c"))
		for i, want := range []string{"a", "b", "c"} {
			is.Equal(redistest.Sure(redis.String(replies[i].Value, replies[i].Err))(t), want)
		}
		redistest.Do(t, c, "SCRIPT", "FLUSH")
	}
}

// A nosy is an error whose methods make calls on the line.
type nosy struct{ ask func() }

func (n *nosy) Error() string { n.ask(); return "nosy" }

// The cause of a context is user code. Its methods may use the line, so none is called under the
// line's lock.
func TestCauseUsesLine(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l, c := line(t, server.URL()), redistest.Dial(t, server.URL())
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := begin(ctx, l, redisconn.Command("BLPOP", "list", 0))
	until(t, c, "blocked_clients:1") // it was sent
	asked := false
	cancel(&nosy{func() {
		asked = true
		redistest.Do(t, c, "LPUSH", "list", "x")
		redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	}})
	err := <-ended
	is.True(errors.Is(err, redisconn.ErrUnknown))
	is.Equal(err.Error(), "the reply was lost: nosy")
	is.True(asked)
}

// An idle connection is checked before it is used for calls that can't be repeated.
func TestVerified(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := line(t, server.URL()).Verified()
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
	time.Sleep(1100 * time.Millisecond) // the idle time
	redistest.Do(t, redistest.Dial(t, server.URL()), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	redistest.Sure(l.One(t.Context(), redisconn.Command("PING")))(t)
}
