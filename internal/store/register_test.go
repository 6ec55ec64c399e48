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
	dial, err := redisconn.FromURL(server.URL())
	is.NoErr(err)
	line := redisconn.NewLine(dial, 0)
	defer line.Close()
	c := redistest.Dial(t, server.URL())
	s := keys.NewSpace("p")
	started := time.UnixMilli(1_700_000_000_000)
	for _, full := range []string{"0", "1"} {
		_, err := c.Do("CONFIG", "SET", "maxmemory", full)
		is.NoErr(err)
		_, err = c.Do("HDEL", s.Worker("w"), "name") // replaced below
		is.NoErr(err)
		reg := Registration{Name: "n", Host: "h", Version: "v", PID: 7, Started: started, Queues: `["q"]`, Lease: 3 * time.Second, Stuck: 2}
		is.NoErr(Register(t.Context(), line, s, "w", time.Hour, reg))
		is.NoErr(List(t.Context(), line, s, "q"))
		is.Equal(redistest.Keys(t, c, "p"), []string{"p:registry", "p:worker:w", "p:workers"})
		fields, err := redis.StringMap(c.Do("HGETALL", s.Worker("w")))
		is.NoErr(err)
		is.Equal(fields, map[string]string{"name": "n", "host": "h", "version": "v", "pid": "7", "started": "1700000000000", "queues": `["q"]`, "lease": "3000", "stuck": "2"})
		ttl, err := redis.Int(c.Do("TTL", s.Worker("w")))
		is.NoErr(err)
		is.True(ttl > 3000 && ttl <= 3600)
		for _, set := range []string{s.Workers(), s.Registry()} {
			members, err := redis.Strings(c.Do("SMEMBERS", set))
			is.NoErr(err)
			is.Equal(len(members), 1)
		}
	}
	is.NoErr(Register(t.Context(), line, s, "w", 0, Registration{})) // never ends
	ttl, err := redis.Int(c.Do("TTL", s.Worker("w")))
	is.NoErr(err)
	is.Equal(ttl, -1)
}

// A worker whose registration has ended goes off the list, and one that comes back
// at that moment does not: it would never notice, since its registration is there.
func TestDelist(t *testing.T) {
	t.Parallel()
	chosen(t)
	is := is.New(t)
	prefix := redistest.Prefix(t)
	watched(t, redistest.URL(), prefix)
	dial, err := redisconn.FromURL(redistest.URL())
	is.NoErr(err)
	one, other := redisconn.NewLine(dial, 0), redisconn.NewLine(dial, 0)
	defer one.Close()
	defer other.Close()
	c, s := redistest.Conn(t), keys.NewSpace(prefix)
	listed := func() int {
		n, err := redis.Int(c.Do("SISMEMBER", s.Workers(), "w"))
		is.NoErr(err)
		return n
	}
	is.NoErr(Register(t.Context(), one, s, "other", time.Hour, Registration{})) // else Redis may know one script of the two
	for range 500 {
		_, err := c.Do("DEL", s.Worker("w"))
		is.NoErr(err)
		back := make(chan error, 1)
		go func() { back <- Register(t.Context(), one, s, "w", time.Hour, Registration{}) }()
		is.NoErr(Delist(t.Context(), other, s, []string{"w"}))
		is.NoErr(<-back)
		is.Equal(listed(), 1)
	}
	takes := func() any { // the answer, which the library does not read
		v, err := other.One(t.Context(), delist.call(s.Queue(""), "worker", "w", "id", "w"))
		is.NoErr(err)
		return v
	}
	is.Equal(takes(), int64(0))
	is.Equal(listed(), 1)
	_, err = c.Do("DEL", s.Worker("w"))
	is.NoErr(err)
	is.Equal(takes(), int64(1))
	is.Equal(takes(), int64(0))
	_, err = c.Do("SADD", s.Workers(), "w")
	is.NoErr(err)
	is.NoErr(Delist(t.Context(), other, s, []string{"w", "x"}))
	is.Equal(listed(), 0)
}
