package fleet

import (
	"context"
	"fmt"
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
	var there *Queue
	for i := 0; there == nil; i++ {
		if name := fmt.Sprint("q", i); c.Owner(t, c.Slot(t, "{"+name+"}")) == other {
			there = queueOf(f, name)
		}
	}
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	is.NoErr(f.Join(t.Context(), there))
	w := f.present()
	id := f.ID()
	deadline := func(conn redis.Conn, q *Queue) int64 {
		t.Helper()
		return redistest.Sure(redis.Int64(conn.Do("ZSCORE", q.Keys.Workers(), id)))(t)
	}
	next := func(conn redis.Conn, q *Queue, after int64) int64 {
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if d := deadline(conn, q); d != after {
				return d
			}
		}
		t.Fatal("no heartbeat comes")
		return 0
	}
	homeConn, otherConn := redistest.Dial(t, home.URL()), redistest.Dial(t, other.URL())
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		w.mu.Lock()
		n := len(w.circles)
		w.mu.Unlock()
		if n == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no circle for each node")
		}
	}
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
