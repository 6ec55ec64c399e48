package topology_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// addresses returns the addresses of all nodes.
func addresses(c *redistest.Cluster) (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Addr())
	}
	return all
}

// elsewhere returns a master that doesn't own the slot.
func elsewhere(t *testing.T, c *redistest.Cluster, slot int) *redistest.Server {
	t.Helper()
	if owner := c.Owner(t, slot); owner != c.Nodes[0] {
		return c.Nodes[0]
	}
	return c.Nodes[1]
}

// A slot moves back and forth during calls: each call is carried out once, and none fails. In the
// end, the router knows the slots as the nodes report them.
func TestSlotMoves(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	at := slot("{q}")
	r := router(t, cluster(c.Nodes[0].Addr()), 20*time.Second)
	script := redisconn.NewScript(func() string {
		return "redis.call('SADD', KEYS[1], ARGV[1]); redis.call('RPUSH', 'more{q}', 'x'); return redis.call('INCR', 'n{q}')"
	})
	over, stopped := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	go func() {
		defer close(stopped)
		for {
			select {
			case <-over:
				return
			default:
			}
			n := int(calls.Add(1))
			v, err := redis.Int(r.One(t.Context(), script.Call([]string{"set{q}", "never{q}"}, n)))
			if err != nil || v != n {
				t.Error(n, v, err)
				return
			}
		}
	}()
	slowest := time.Duration(0)
	for range 6 {
		before := calls.Load()
		redistest.Eventually(t, "calls are made", func() bool { return t.Failed() || calls.Load() > before+50 })
		began := time.Now()
		c.Move(t, at, elsewhere(t, c, at))
		slowest = max(slowest, time.Since(began))
	}
	close(over)
	<-stopped
	n := int(calls.Load())
	is.Equal(redistest.Sure(redis.Int(r.One(t.Context(), redisconn.Command("SCARD", "set{q}"))))(t), n)
	redistest.Eventually(t, "the owner is known", func() bool { return r.Home(queue("q")) == c.Owner(t, at).Addr() })
	t.Log(n, "calls; the slowest move took", slowest)
}

// When the owner of a slot dies, calls for the slot wait until its replica is promoted. Other calls
// wait only while the cluster is down.
func TestPromotion(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 3, 3)
	r := router(t, cluster(addresses(c)...), time.Minute)
	ctx := t.Context()
	other := "{other}"
	for i := 0; c.Owner(t, slot(other)) == c.Owner(t, slot("{q}")); i++ {
		other = fmt.Sprintf("{other%d}", i)
	}
	for _, key := range []string{"{q}", other} {
		redistest.Sure(r.One(ctx, redisconn.Command("SET", key, "x")))(t)
	}
	owner := c.Owner(t, slot("{q}"))
	redistest.Eventually(t, "the replicas have it", func() bool { // otherwise it would be lost
		n, err := redis.Int(r.One(ctx, redisconn.Command("WAIT", 1, 1000).At("{q}")))
		return err == nil && n == 1
	})
	owner.Kill()
	died := time.Now()
	for _, key := range []string{"{q}", other} {
		reply := redisconn.Reply{Err: redisconn.ErrUnknown} // it may have been in flight when the node died
		for errors.Is(reply.Err, redisconn.ErrUnknown) {
			reply = r.Do(ctx, redisconn.Command("GET", key))[0]
		}
		is.Equal(redistest.Sure(redis.String(reply.Value, reply.Err))(t), "x")
		t.Log(key, "is served", time.Since(died).Round(time.Millisecond), "after the owner of {q} has died")
	}
	redistest.Eventually(t, "the new owner is known", func() bool {
		redistest.Sure(r.One(ctx, get))(t)
		return r.Home(queue("q")) != owner.Addr()
	})
}
