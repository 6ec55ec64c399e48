package redistest_test

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// The tests' connection to a cluster finds every key, whichever node has it.
func TestRouted(t *testing.T) {
	is := redistest.Parallel(t)
	cluster := redistest.StartCluster(t, 3, 0)
	c := cluster.Dial(t)
	var all []any
	for _, key := range []string{"p:a", "p:b", "p:c", "p:{q}", "other"} { // on three nodes
		is.NoErr(c.Send("SET", key, key))
		all = append(all, key)
	}
	is.Equal(len(redistest.Do(t, c, "").([]any)), 5)
	is.Equal(redistest.Keys(t, c, "p"), []string{"p:a", "p:b", "p:c", "p:{q}"})
	is.Equal(len(redistest.Do(t, c, "KEYS", "*").([]any)), 5)
	is.Equal(redistest.Do(t, c, "EVAL", "return redis.call('GET', KEYS[1])", 1, "p:b"), []byte("p:b"))
	is.Equal(redistest.Do(t, c, "MULTI"), "OK")
	redistest.Do(t, c, "RPUSH", "{q}list", "a")
	redistest.Do(t, c, "LLEN", "{q}list")
	is.Equal(redistest.Do(t, c, "EXEC"), []any{int64(1), int64(1)})
	is.Equal(redistest.Do(t, c, "DEL", all...), int64(5))
	_, err := c.Do("INCR", "{q}list")
	is.True(err != nil)

	ear := redis.PubSubConn{Conn: cluster.Dial(t)}
	is.NoErr(ear.Subscribe("{q}"))
	is.Equal(ear.Receive(), redis.Subscription{Kind: "subscribe", Channel: "{q}", Count: 1})
	redistest.Do(t, c, "PUBLISH", "{q}", "plain")
	is.Equal(ear.Receive(), redis.Message{Channel: "{q}", Data: []byte("plain")})
	redistest.Do(t, c, "SPUBLISH", "{q}", "sharded")
	is.Equal(ear.Receive(), redis.Message{Channel: "{q}", Data: []byte("sharded")})
}
