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
		reg := Registration{Name: "n", Host: "h", Version: "v", PID: 7, Started: started, Queues: `["q"]`, Lease: 3 * time.Second, Stuck: 2}
		is.NoErr(Register(t.Context(), line, s, "w", time.Hour, reg))
		is.NoErr(List(t.Context(), line, s, "q"))
		is.Equal(redistest.Keys(t, c, "p"), []string{"p:registry", "p:worker:w", "p:workers"})
		fields := sure(redis.StringMap(c.Do("HGETALL", s.Worker("w"))))(t)
		is.Equal(fields, map[string]string{"name": "n", "host": "h", "version": "v", "pid": "7", "started": "1700000000000", "queues": `["q"]`, "lease": "3000", "stuck": "2"})
		ttl := sure(redis.Int(c.Do("TTL", s.Worker("w"))))(t)
		is.True(ttl > 3000 && ttl <= 3600)
		for _, set := range []string{s.Workers(), s.Registry()} {
			is.Equal(len(sure(redis.Strings(c.Do("SMEMBERS", set)))(t)), 1)
		}
	}
	is.NoErr(Register(t.Context(), line, s, "w", 0, Registration{})) // never ends
	is.Equal(sure(redis.Int(c.Do("TTL", s.Worker("w"))))(t), -1)
}

// A worker whose registration has ended goes off the list, and one that comes back
// at that moment does not: it would never notice, since its registration is there.
func TestDelist(t *testing.T) {
	t.Parallel()
	chosen(t)
	is := is.New(t)
	prefix := redistest.Prefix(t)
	watched(t, redistest.URL(), prefix)
	dial := sure(redisconn.FromURL(redistest.URL()))(t)
	one, other := redisconn.NewLine(dial, 0), redisconn.NewLine(dial, 0)
	defer one.Close()
	defer other.Close()
	c, s := redistest.Conn(t), keys.NewSpace(prefix)
	listed := func() int { return sure(redis.Int(c.Do("SISMEMBER", s.Workers(), "w")))(t) }
	is.NoErr(Register(t.Context(), one, s, "other", time.Hour, Registration{})) // else Redis may know one script of the two
	for range 500 {
		redistest.Do(t, c, "DEL", s.Worker("w"))
		back := make(chan error, 1)
		go func() { back <- Register(t.Context(), one, s, "w", time.Hour, Registration{}) }()
		is.NoErr(Delist(t.Context(), other, s, []string{"w"}))
		is.NoErr(<-back)
		is.Equal(listed(), 1)
	}
	takes := func() any { // the answer, which the library does not read
		return sure(other.One(t.Context(), delist.call(s.Queue(""), "worker", "w", "id", "w")))(t)
	}
	is.Equal(takes(), int64(0))
	is.Equal(listed(), 1)
	redistest.Do(t, c, "DEL", s.Worker("w"))
	is.Equal(takes(), int64(1))
	is.Equal(takes(), int64(0))
	redistest.Do(t, c, "SADD", s.Workers(), "w")
	is.NoErr(Delist(t.Context(), other, s, []string{"w", "x"}))
	is.Equal(listed(), 0)
}
