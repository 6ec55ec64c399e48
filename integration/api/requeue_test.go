package api

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// DeleteAllFailed and RequeueAllFailed end however fast other tasks fail. They change every task
// that had failed before, including those OnFailed gave up on; later failures stay.
func TestAllFailedEnds(t *testing.T) {
	t.Parallel()
	for name, aside := range map[string]int64{"waiting for OnFailed": 0, "given up": 1 << 52} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			const many = 300
			prefix, c := redistest.Prefix(t), redistest.Conn(t)
			old := func(i int) int64 { return aside + 1e12 + int64(i) }
			more, before, exchanges := 0, 0, 0
			failMore := func() {
				if exchanges++; exchanges > many {
					if exchanges == many+1 {
						t.Error("it does not end")
					}
					return
				}
				for range 200 {
					more++
					entry := fmt.Sprintf("k:new%d", more)
					must(t, c.Send("HSET", prefix+":failed:keyed:{q}:"+entry, "payload", "new"))
					must(t, c.Send("ZADD", prefix+":failed:schedule:{q}", 2e12+int64(more), entry))
				}
				redistest.Do(t, c, "")
				if exchanges == 2 { // the first one asks for the number of parts
					before = more
				}
			}
			left := func(from, to int64) int {
				return sure(redis.Int(c.Do("ZCOUNT", prefix+":failed:schedule:{q}", from, to)))(t)
			}
			q := openThrough(t, redistest.URL(), worqr.Options{Prefix: prefix}, func(c *through) redis.Conn {
				c.OnFlush = failMore
				return c
			}).Queue("q")
			for _, all := range []func(context.Context) (int, error){q.DeleteAllFailed, q.RequeueAllFailed} {
				seedLanes(t, c, prefix, many, old, "x")
				exchanges = 0
				is.True(sure(all(t.Context()))(t) >= many)
				is.Equal(left(old(0), old(many)), 0)
				is.Equal(left(2e12+int64(before)+1, 3e12), more-before)
			}
		})
	}
}
