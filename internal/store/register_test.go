package store

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("register",
	probe{call: raw(func(e *env) redisconn.Call {
		return register.call(e.q, "worker", "w1", "ttl", 0, "name", "", "host", "", "pid", 0, "started", 0, "version", "", "queues", "[]", "lease", 0, "stuck", 0, "protocol", 0)
	})},
)

// A registration is replaced whole, ends with its time, and lists the worker;
// a queue is listed once. Both on a full Redis too.
func TestRegister(t *testing.T) {
	t.Parallel()
	chosen(t)
	is := is.New(t)
	server := redistest.Start(t)
	watched(t, server.URL(), "p")
	dial := sure(redisconn.FromURL(server.URL()))(t)
	line := redisconn.NewLine(dial, 0)
	defer line.Close()
	c := redistest.Dial(t, server.URL())
	s := keys.NewSpace("p")
	started := time.UnixMilli(1_700_000_000_000)
	for _, full := range []string{"0", "1"} {
		redistest.Do(t, c, "CONFIG", "SET", "maxmemory", full)
		redistest.Do(t, c, "HDEL", s.Worker("w"), "name") // replaced below
		reg := Registration{Name: "n", Host: "h", Version: "v", PID: 7, Started: started, Queues: `["q"]`, Lease: 3 * time.Second, Stuck: 2, Protocol: 4}
		is.NoErr(Register(t.Context(), line, s, "w", time.Hour, reg))
		is.NoErr(List(t.Context(), line, s, "q"))
		is.Equal(redistest.Keys(t, c, "p"), []string{"p:registry", "p:worker:w", "p:workers"})
		fields := sure(redis.StringMap(c.Do("HGETALL", s.Worker("w"))))(t)
		is.Equal(fields, map[string]string{"name": "n", "host": "h", "version": "v", "pid": "7", "started": "1700000000000", "queues": `["q"]`, "lease": "3000", "stuck": "2", "protocol": "4"})
		ttl := sure(redis.Int(c.Do("TTL", s.Worker("w"))))(t)
		is.True(ttl > 3000 && ttl <= 3600)
		for _, set := range []string{s.Workers(), s.Registry()} {
			is.Equal(len(sure(redis.Strings(c.Do("SMEMBERS", set)))(t)), 1)
		}
	}
	is.NoErr(Register(t.Context(), line, s, "w", 0, Registration{})) // never ends
	is.Equal(sure(redis.Int(c.Do("TTL", s.Worker("w"))))(t), -1)
}
