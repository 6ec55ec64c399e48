package fleet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/topology"
)

// A silencer makes connections to nodes. One of them can be made silent: connections to it are lost, and
// dials get no answer.
type silencer struct {
	mu    sync.Mutex
	node  string // that is silent
	conns map[redis.Conn]string
	dials atomic.Int32 // that got no answer
}

func (s *silencer) to(address string) redisconn.Dial {
	server := redisconn.Server{Network: "tcp", Address: address}
	return func(ctx context.Context) (redis.Conn, error) {
		s.mu.Lock()
		silent := s.node == address
		s.mu.Unlock()
		if silent {
			s.dials.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		conn, err := server.Dial(ctx)
		if err == nil {
			s.mu.Lock()
			s.conns[conn] = address
			s.mu.Unlock()
		}
		return conn, err
	}
}

func (s *silencer) silence(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = address
	for c, at := range s.conns {
		if at == address {
			redisconn.Interrupt(c)
		}
	}
}

// While a node is silent, the heartbeats at others come as before. It gets heartbeats again when it is back.
func TestOneNodeIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const lease = 3 * time.Second
	c := redistest.StartCluster(t, 2, 0)
	s := &silencer{conns: map[redis.Conn]string{}}
	known := topology.NewCluster([]string{c.Nodes[0].Addr(), c.Nodes[1].Addr()}, s.to)
	f, q := newFleetIn(t, topology.InCluster(known), "p", lease, nil)
	home := c.Owner(t, c.Slot(t, "{q}"))
	other := c.Nodes[(slices.Index(c.Nodes, home)+1)%2]
	there := queueOn(t, f, c, other)
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	is.NoErr(f.Join(t.Context(), there))
	w := f.present()
	id := f.ID()
	deadline := func(conn redis.Conn, q *Queue) int64 {
		t.Helper()
		return redistest.Sure(redis.Int64(conn.Do("ZSCORE", q.Keys.Workers(), id)))(t)
	}
	next := func(conn redis.Conn, q *Queue, after int64) (d int64) {
		t.Helper()
		until(t, "a heartbeat comes", func() bool { d = deadline(conn, q); return d != after })
		return d
	}
	homeConn, otherConn := redistest.Dial(t, home.URL()), redistest.Dial(t, other.URL())
	until(t, "there is a circle for each node", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.circles) == 3
	})
	s.silence(other.Addr())
	last, slowest := next(homeConn, q, deadline(homeConn, q)), int64(0)
	for range 8 {
		d := next(homeConn, q, last)
		slowest = max(slowest, d-last)
		last = d
	}
	t.Log("the slowest heartbeat came after", slowest, "ms;", s.dials.Load(), "dials got no answer")
	is.True(slowest < lease.Milliseconds()) // about one second
	is.True(s.dials.Load() > 1)
	is.Equal(f.ID(), id)
	before := deadline(otherConn, there)
	s.silence("")
	next(otherConn, there, before)
	is.NoErr(f.Stop(t.Context()))
}
