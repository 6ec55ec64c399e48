package api

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// However fast others fail, all are deleted, or requeued, that had failed.
func TestAllFailedEnds(t *testing.T) {
	is := parallel(t)
	const many = 300
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	old := func(i int) int64 { return 1e12 + int64(i) }
	more, exchanges := 0, 0
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
	}
	p, _ := tapped(t, redistest.URL(), prefix, failMore)
	for _, all := range []func(context.Context) (int, error){p.Queue("q").DeleteAllFailed, p.Queue("q").RequeueAllFailed} {
		seedLanes(t, c, prefix, many, old, "x")
		exchanges = 0
		is.True(sure(all(t.Context()))(t) >= many)
		is.Equal(sure(redis.Int(c.Do("ZCOUNT", prefix+":failed:schedule:{q}", 0, 1e12+many)))(t), 0)
	}
}
