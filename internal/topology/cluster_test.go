package topology_test

import (
	"errors"
	"fmt"
	"strings"
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

// While a slot moves to another node, a script may end midway if all keys that it declares exist:
// at the first key that it doesn't declare. If it declares a key that never exists, it is rejected
// before it has written anything, and the router sends it again once the slot has moved. The same
// applies to a plain command that follows at once.
func TestSlotOnItsWay(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 2, 0)
	at := slot("{q}")
	is.Equal(at, c.Slot(t, "{q}")) // the slot of a queue named q
	owner, to := c.Owner(t, at), elsewhere(t, c, at)
	r := router(t, cluster(addresses(c)...), 20*time.Second)
	ctx := t.Context()
	redistest.Sure(r.One(ctx, redisconn.Command("SET", "count{q}", 0)))(t)
	redistest.Eventually(t, "the owner is known", func() bool { return r.Home(queue("q")) == owner.Addr() })
	script := redisconn.NewScript(func() string { return "redis.call('RPUSH', 'more{q}', 'x'); return redis.call('INCR', KEYS[1])" })
	half := redisconn.NewScript(func() string { return "redis.call('INCR', KEYS[1]); redis.call('RPUSH', 'more{q}', 'x')" })
	count := func(want int) {
		t.Helper()
		is.Helper()
		is.Equal(redistest.Sure(redis.Int(redistest.Dial(t, owner.URL()).Do("GET", "count{q}")))(t), want)
	}
	c.BeginMove(t, at, to)

	_, err := r.One(ctx, half.Call([]string{"count{q}"}))
	is.True(redisconn.Answered(err) && strings.Contains(err.Error(), "non local key"))
	count(1) // half of it was done

	p := r.Start(script.Call([]string{"count{q}", "never{q}"}))
	redistest.Sure(r.One(ctx, redisconn.Command("SET", "new{q}", "y")))(t) // it is on the new node now
	is.Equal(redistest.Sure(redis.Int(redistest.Dial(t, owner.URL()).Do("EXISTS", "count{q}")))(t), 1)
	is.Equal(redistest.Sure(redis.String(r.One(ctx, redisconn.Command("GET", "new{q}"))))(t), "y")
	// A script with one key that doesn't exist follows the slot; the new node doesn't know its
	// source.
	one := redisconn.NewScript(func() string { return "return redis.call('SET', KEYS[1], 'z')" })
	redistest.Sure(r.One(ctx, one.Call([]string{"newer{q}"})))(t)
	count(1)

	is.Equal(c.MoveKeys(t, at, 100, owner, to), 1)
	c.EndMove(t, at, owner, to)
	reply := p.Wait(ctx)[0]
	is.Equal(redistest.Sure(redis.Int(reply.Value, reply.Err))(t), 2)
	is.Equal(r.Home(queue("q")), to.Addr())
	is.Equal(redistest.Sure(redis.Int(r.One(ctx, redisconn.Command("EXISTS", "count{q}", "more{q}", "new{q}", "newer{q}"))))(t), 4)
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
