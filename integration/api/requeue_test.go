package api

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// RequeueFailed puts a failed task at the back. It begins with no retries, as a new attempt. The
// other failed tasks stay.
func TestRequeueFailed(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix, begun, fails := redistest.Prefix(t), make(chan *worqr.Task, 10), errors.New("it fails")
	work := func() (q *worqr.Queue, stop func()) { // a peer runs once
		p, q := openQueue(t, worqr.Options{Prefix: prefix})
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			begun <- t
			if string(t.Payload) == "a" && t.Retries == 0 {
				return worqr.RetryAfter(fails, 0)
			}
			return worqr.Permanent(fails)
		}, &worqr.HandleOptions{Concurrency: 1})
		return q, run(t, p)
	}
	q, stop := work()
	enqueue(t, q, "a")
	first := receive(t, begun, 2)[1]
	is.Equal(first.Retries, 1)
	enqueue(t, q, "b")
	receive(t, begun, 1)
	eventually(t, "both have failed", func() bool { return len(failed(t, q)) == 2 })
	stop()
	enqueue(t, q, "waiting")
	is.Equal(sure(q.RequeueFailed(ctx, failed(t, q)[1].ID))(t), 1) // the oldest
	is.Equal(waiting(t, q), []string{"waiting", "a"})
	is.Equal(failedPayloads(t, q), []string{"b"})

	work()
	again := receive(t, begun, 2)[1]
	is.Equal(string(again.Payload), "a")
	is.Equal(again.Retries, 0)
	is.True(again.AttemptID != first.AttemptID && again.Token > first.Token)
}

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
