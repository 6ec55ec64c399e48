package redistest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A slot moves with its keys, and a replica is promoted when its master is gone.
func TestCluster(t *testing.T) {
	is := redistest.Parallel(t)
	began := time.Now()
	c := redistest.StartCluster(t, 3, 3)
	t.Log("it was there after", time.Since(began).Round(time.Millisecond))
	slot := c.Slot(t, "{q}")
	owner := c.Owner(t, slot)
	conn := redistest.Dial(t, owner.URL())
	redistest.Do(t, conn, "SET", "{q}", "v")
	to := c.Nodes[0]
	if to == owner {
		to = c.Nodes[1]
	}
	c.Move(t, slot, to)
	is.Equal(c.Owner(t, slot), to)
	_, err := conn.Do("GET", "{q}")
	is.True(err != nil && strings.HasPrefix(err.Error(), "MOVED"))
	is.Equal(redistest.Sure(redis.String(redistest.Do(t, redistest.Dial(t, to.URL()), "GET", "{q}"), nil))(t), "v")

	to.Kill()
	for began := time.Now(); c.Owner(t, slot) == to; time.Sleep(50 * time.Millisecond) { // between two looks, no synchronisation
		if time.Since(began) > time.Minute {
			t.Fatal("no replica was promoted")
		}
	}
}

// A slot goes to and fro as quickly as the harness can, and it is always at one node, with its keys.
func TestClusterMoves(t *testing.T) {
	is := redistest.Parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	slot := c.Slot(t, "{q}")
	at := c.Owner(t, slot)
	redistest.Do(t, redistest.Dial(t, at.URL()), "SET", "{q}", "v")
	for range 40 {
		to := c.Nodes[0]
		if at == to {
			to = c.Nodes[1]
		}
		c.Move(t, slot, to)
		is.Equal(redistest.Sure(redis.String(to.Call("GET", "{q}")))(t), "v")
		at = to
	}
}
