package store

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

var _ = probed("register",
	probe{call: raw(func(e *env) redisconn.Call {
		return register.call(e.q, "worker", "w1", "ttl", 0, "name", "", "host", "", "pid", 0, "started", 0, "version", "", "queues", "[]", "lease", 0, "stuck", 0, "protocol", 0)
	})},
)

// A registration is replaced as a whole, expires with its TTL, and lists the worker. A queue is listed
// once. Both also work on a full Redis.
func TestRegister(t *testing.T) {
	is := redistest.Parallel(t)
	e := newEnv(t, redistest.Start(t).URL(), nil)
	s := keys.NewSpace(e.prefix)
	started := time.UnixMilli(1_700_000_000_000)
	for _, full := range []string{"0", "1"} {
		e.must(e.conn.Do("CONFIG", "SET", "maxmemory", full))
		e.must(e.conn.Do("HDEL", s.Worker("w"), "name")) // written again below
		reg := Registration{Name: "n", Host: "h", Version: "v", PID: 7, Started: started, Queues: `["q"]`, Lease: 3 * time.Second, Stuck: 2, Protocol: 4}
		is.NoErr(Register(e.ctx, e.line, s, "w", time.Hour, reg))
		is.NoErr(List(e.ctx, e.line, s, "q"))
		is.Equal(redistest.Keys(t, e.conn, e.prefix), []string{s.Registry(), s.Worker("w"), s.Workers()})
		fields := sure(redis.StringMap(e.conn.Do("HGETALL", s.Worker("w"))))(t)
		is.Equal(fields, map[string]string{"name": "n", "host": "h", "version": "v", "pid": "7", "started": "1700000000000", "queues": `["q"]`, "lease": "3000", "stuck": "2", "protocol": "4"})
		ttl := sure(redis.Int(e.conn.Do("TTL", s.Worker("w"))))(t)
		is.True(ttl > 3000 && ttl <= 3600)
		for _, set := range []string{s.Workers(), s.Registry()} {
			is.Equal(len(sure(redis.Strings(e.conn.Do("SMEMBERS", set)))(t)), 1)
		}
	}
	is.NoErr(Register(e.ctx, e.line, s, "w", 0, Registration{})) // never expires
	is.Equal(sure(redis.Int(e.conn.Do("TTL", s.Worker("w"))))(t), -1)
}
