package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The failed list is newest first and bounded by KeepFailed. Dropped tasks leave no keys behind.
func TestFailedIsBounded(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	options := worqr.HandleOptions{Concurrency: 1, KeepFailed: 3}
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		return worqr.Permanent(fmt.Errorf("no %s", t.Payload))
	}, &options)
	run(t, p)
	for i := range 5 { // one after the other, so that their times differ
		enqueue(t, q, fmt.Sprint(i))
		eventually(t, "it has failed", func() bool { return p.Stats().Failed == int64(i+1) })
		time.Sleep(2 * time.Millisecond)
	}
	is.Equal(failedPayloads(t, q), []string{"4", "3", "2"})
	for _, f := range failed(t, q) {
		is.Equal(f.Error, "no "+string(f.Payload))
		is.True(near(f.FailedAt, time.Now()))
	}
	is.Equal(stats(t, q).Failed, 3)
	keys := left(t, prefix+":failed")
	is.Equal(len(keys), 3+2) // the tasks, and two keys of the failed queue
	options.KeepFailed = 1
	is.NoErr(q.SetOptions(&options))
	enqueue(t, q, "5")
	eventually(t, "it has failed", func() bool { return slices.Equal(failedPayloads(t, q), []string{"5"}) })
	options.KeepFailed = 0 // the default, 1000
	is.NoErr(q.SetOptions(&options))
	enqueue(t, q, numbers("", 1100)...)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 1106 })
	is.Equal(stats(t, q).Failed, 1000)
	is.Equal(sure(q.DeleteAllFailed(ctx))(t), 1000)
}

// KeepFailed still bounds the failed queue after the only peer that served it was killed.
func TestFailedIsBoundedAfterAKill(t *testing.T) {
	is := parallel(t)
	const keep, all = 10, 100
	prefix := redistest.Prefix(t)
	redistest.Do(t, redistest.Conn(t), "ZADD", prefix+":failed:workers:{q}", time.Now().Add(-time.Minute).UnixMilli(), "dead")
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	q.Handle(func(context.Context, *worqr.Task) error {
		return worqr.Permanent(errors.New("no"))
	}, &worqr.HandleOptions{KeepFailed: keep})
	run(t, p)
	enqueue(t, q, numbers("", all)...)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == all })
	is.Equal(stats(t, q).Failed, keep)
}

// A failed task has the DueAt that the task had, whatever its key looks like.
func TestFailedTellsWhenItWasDue(t *testing.T) {
	is := parallel(t)
	q, ctx := working(t, open(t, worqr.Options{Prefix: redistest.Prefix(t)}), "q"), t.Context()
	for _, enqueue := range []func() error{
		func() error { return q.Enqueue(ctx, []byte("x")) },
		func() error { return failure(q.Add(ctx, []byte("x"), nil)) },
		func() error { return failure(q.AddAt(ctx, time.Now().Add(20*time.Millisecond), []byte("x"), nil)) },
		func() error { return q.Put(ctx, "sms@4915112345678", []byte("x"), nil) },
		func() error { return q.Put(ctx, "019b76da-a800-7123-8abc-010123456789", []byte("x"), nil) },
		func() error { return q.Put(ctx, "past", []byte("x"), &worqr.PutOptions{At: time.Unix(1e9+1, 0)}) },
	} {
		is.NoErr(enqueue())
		var task *worqr.Task
		eventually(t, "it can start", func() bool {
			var err error
			task, err = q.StartTask(ctx)
			return err == nil
		})
		is.NoErr(task.Fail(ctx, errors.New("no")))
		f := failed(t, q)
		is.Equal(len(f), 1)
		is.True(f[0].DueAt.Equal(task.DueAt) && f[0].DueAt.IsZero() == (task.Key == ""))
		is.Equal(sure(q.DeleteAllFailed(ctx))(t), 1)
	}
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
