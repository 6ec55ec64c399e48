package topology_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

const lonely = "-NOREPLICAS Not enough good replicas to write."

// alone returns a router to a single server without sentinels.
func alone(t *testing.T, n *fakeNode, timeout time.Duration) *topology.Router {
	t.Helper()
	place := redistest.Sure(topology.Open("redis://"+n.address, topology.Options{}))(t)
	r := topology.NewRouter(place, timeout, func(dial redisconn.Dial) *redisconn.Line { return redisconn.NewLine(dial, timeout) }).Patient()
	t.Cleanup(r.Close)
	return r
}

// A call that the single server refuses because replicas are missing is repeated. Other calls
// aren't: neither those sent with it, nor those that a server without sentinels refuses for other
// reasons.
func TestPostponed(t *testing.T) {
	is := redistest.Parallel(t)
	tries := 0
	a := node(t, func(command string) string {
		switch {
		case strings.HasPrefix(command, "ECHO"):
			return "$1\r\ne"
		case strings.HasPrefix(command, "GET"):
			if tries++; tries%3 != 0 {
				return lonely
			}
			return "$1\r\na"
		}
		return ""
	})
	r := alone(t, a, timeout)
	is.Equal(redistest.Sure(redis.String(r.One(t.Context(), get)))(t), "a")
	is.Equal(a.heard("GET"), 3)
	echo := redisconn.Command("ECHO", "e")
	for i, reply := range r.Do(t.Context(), echo, get, echo) {
		is.Equal(redistest.Sure(redis.String(reply.Value, reply.Err))(t), []string{"e", "a", "e"}[i])
	}
	is.Equal(a.heard("GET"), 6)
	is.Equal(a.heard("ECHO"), 2)
	is.Equal(a.conns, 1)

	for _, said := range []string{"READONLY You can't write against a read only replica.", "ERR Error running script -NOREPLICAS few"} {
		b := node(t, always("-"+said))
		_, err := alone(t, b, timeout).One(t.Context(), get)
		is.True(redisconn.Answered(err))
		is.Equal(b.heard("GET"), 1)
	}

	b := node(t, always(lonely)) // a router that isn't patient doesn't wait
	r = topology.Over(redisconn.NewLine(redistest.Sure(topology.Open("redis://"+b.address, topology.Options{}))(t).Dial(), timeout))
	defer r.Close()
	_, err := r.One(t.Context(), get)
	is.True(redisconn.Postponed(err) == redisconn.Alone)
	is.Equal(b.heard("GET"), 1)
}

// The retries end with the timeout of the call, its context or the router. The error contains the
// server's reason.
func TestPostponedHasAnEnd(t *testing.T) {
	is := redistest.Parallel(t)
	a := node(t, always(lonely))
	_, err := alone(t, a, 2*time.Second).One(t.Context(), get) // long enough for one try on a busy machine
	is.True(redisconn.Postponed(err) == redisconn.Alone)
	is.True(a.heard("GET") < 20)

	r := alone(t, a, timeout)
	ctx, cancel := context.WithCancel(t.Context())
	for _, end := range []struct {
		by  func()
		ctx context.Context
		err error
	}{{cancel, ctx, context.Canceled}, {r.Close, t.Context(), redisconn.ErrClosed}} {
		ended, asked := make(chan error, 1), a.heard("GET")
		go func() {
			_, err := r.One(end.ctx, get)
			ended <- err
		}()
		redistest.Eventually(t, "it was put off", func() bool { return a.heard("GET") > asked })
		end.by()
		err := <-ended
		sent := errors.Is(err, redisconn.ErrUnknown) // the last try was in flight
		is.True(errors.Is(err, end.err) && (sent || end.err == redisconn.ErrClosed || strings.Contains(err.Error(), "NOREPLICAS")))
	}
}
