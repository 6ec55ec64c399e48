package redistest_test

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A slot moves back and forth as quickly as the harness can, and it is always on one node, with its
// keys.
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
