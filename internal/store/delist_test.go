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

// A worker whose registration has expired is removed from the list. One that comes back at that
// moment isn't: since its registration exists, it would never notice.
func TestDelist(t *testing.T) {
	t.Parallel()
	for where, in := range places {
		t.Run("delist"+where, func(t *testing.T) {
			e := beside(t, nil)
			is, s := is.New(t), in(keys.NewSpace(e.prefix))
			other := redisconn.NewLine(sure(redisconn.FromURL(redistest.URL()))(t), 0)
			t.Cleanup(other.Close)
			listed := func() int { return sure(redis.Int(e.conn.Do("SISMEMBER", s.Workers(), "w")))(t) }
			is.NoErr(Register(e.ctx, e.line, s, "other", time.Hour, Registration{})) // otherwise Redis may have only one of the two scripts
			for range 500 {
				e.must(e.conn.Do("DEL", s.Worker("w")))
				back := make(chan error, 1)
				go func() { back <- Register(e.ctx, e.line, s, "w", time.Hour, Registration{}) }()
				is.NoErr(Delist(e.ctx, other, s, []string{"w"}))
				is.NoErr(<-back)
				is.Equal(listed(), 1)
			}
			takes := func() any { // the reply, which the library doesn't read
				return sure(other.One(e.ctx, delist.call(s.Queue(""), "worker", "w", "id", "w")))(t)
			}
			is.Equal(takes(), int64(0))
			is.Equal(listed(), 1)
			e.must(e.conn.Do("DEL", s.Worker("w")))
			is.Equal(takes(), int64(1))
			is.Equal(takes(), int64(0))
			e.must(e.conn.Do("SADD", s.Workers(), "w"))
			is.NoErr(Delist(e.ctx, other, s, []string{"w", "x"}))
			is.Equal(listed(), 0)
		})
	}
}
