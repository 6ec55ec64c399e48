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
	const ready, aside = ":failed:ready:{q}", ":failed:aside:{q}"
	for name, kind := range map[string]string{"waiting for OnFailed": ready, "given up": aside} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			const many, later = 300, 1000 // places: old ones have lower ones, and new ones higher ones
			prefix, c := redistest.Prefix(t), redistest.Conn(t)
			fail := func(kind, name string, place int) {
				must(t, c.Send("HSET", prefix+":failed:tasks:{q}", fmt.Sprint(name, "#", place), failedRecord(name, "x")))
				must(t, c.Send("ZADD", prefix+kind, place, fmt.Sprint(name, "#", place)))
			}
			more, before, exchanges, begun := 0, 0, 0, false
			failMore := func() {
				if exchanges++; exchanges > many {
					if exchanges == many+1 {
						t.Error("it does not end")
					}
					return
				}
				for range 200 {
					more++
					fail(ready, fmt.Sprint("k:new", more), later+more)
				}
				redistest.Do(t, c, "")
				if begun && before == 0 {
					before = more
				}
			}
			left := func(kind, from, to any) int {
				return sure(redis.Int(c.Do("ZCOUNT", fmt.Sprint(prefix, kind), from, to)))(t)
			}
			q := openThrough(t, redistest.URL(), worqr.Options{Prefix: prefix}, func(c *through) redis.Conn {
				c.OnFlush = failMore
				c.OnSend = func(command string, _ []any) { begun = begun || command == "ZRANGE" } // for the newest
				return c
			}).Queue("q")
			for _, all := range []func(context.Context) (int, error){q.DeleteAllFailed, q.RequeueAllFailed} {
				redistest.Do(t, c, "DEL", prefix+ready) // what is left from before would take long
				for i := range many {
					fail(kind, fmt.Sprint("k:", i), i+1)
				}
				redistest.Do(t, c, "")
				before, exchanges, begun = 0, 0, false
				is.True(sure(all(t.Context()))(t) >= many)
				is.Equal(left(kind, 0, many), 0)
				is.Equal(left(ready, 0, later+before), 0)
				is.Equal(left(ready, later+before+1, "+inf"), more-before)
			}
		})
	}
}
