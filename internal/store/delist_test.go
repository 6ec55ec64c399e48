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

var _ = probed("delist",
	probe{call: func(e *env) string {
		for _, w := range []string{"w1", "w2"} {
			e.must(e.line.One(e.ctx, enlist.call(e.q, "names", keys.NewSpace(e.prefix).Workers(), "name", w)))
		}
		return raw(func(e *env) redisconn.Call { return delist.call(e.q, "worker", "w1", "id", "w1") })(e)
	}},
)

// A worker whose registration has ended goes off the list, and one that comes back
// at that moment does not: it would never notice, since its registration is there.
func TestDelist(t *testing.T) {
	t.Parallel()
	for where, in := range places {
		t.Run("delist"+where, func(t *testing.T) {
			t.Parallel()
			testDelist(t, in)
		})
	}
}

func testDelist(t *testing.T, in func(keys.Space) keys.Space) {
	t.Helper()
	chosen(t)
	is := is.New(t)
	prefix := redistest.Prefix(t)
	watched(t, redistest.URL(), prefix)
	dial := sure(redisconn.FromURL(redistest.URL()))(t)
	one, other := redisconn.NewLine(dial, 0), redisconn.NewLine(dial, 0)
	defer one.Close()
	defer other.Close()
	c, s := redistest.Conn(t), in(keys.NewSpace(prefix))
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
