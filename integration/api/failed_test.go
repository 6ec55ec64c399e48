package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The failed queue is bounded by KeepFailed, as it is when a task fails.
func TestFailedIsBounded(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	options := worqr.HandleOptions{KeepFailed: 3}
	q.Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) }, &options)
	run(t, p)
	all := int64(0)
	for _, c := range []struct{ keep, fail, left int }{{3, 5, 3}, {1, 1, 1}, {0, 1100, 1000}} { // 0 is the default
		options.KeepFailed = c.keep
		is.NoErr(q.SetOptions(&options))
		enqueue(t, q, numbers("", c.fail)...)
		all += int64(c.fail)
		eventually(t, "all have failed", func() bool { return p.Stats().Failed == all })
		is.Equal(stats(t, q).Failed, c.left)
	}
	is.Equal(sure(q.DeleteAllFailed(t.Context()))(t), 1000)
}

// A failed task has the DueAt that the task had, whatever its key looks like.
func TestFailedTellsWhenItWasDue(t *testing.T) {
	is := parallel(t)
	q, ctx := working(t, open(t, worqr.Options{Prefix: redistest.Prefix(t)}), "q"), t.Context()
	for i, enqueue := range []func() error{
		func() error { return q.Enqueue(ctx, []byte("x")) },
		func() error { return failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("x")})) },
		func() error {
			return failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("x"), At: time.Now().Add(20 * time.Millisecond)}))
		},
		func() error {
			return failure(q.Add(ctx, worqr.TaskSpec{Key: "sms@4915112345678", Payload: []byte("x")}))
		},
		func() error {
			return failure(q.Add(ctx, worqr.TaskSpec{Key: "019b76da-a800-7123-8abc-010123456789", Payload: []byte("x")}))
		},
		func() error {
			return failure(q.Add(ctx, worqr.TaskSpec{Key: "past", Payload: []byte("x"), At: time.Unix(1e9+1, 0)}))
		},
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
		is.True(f[0].DueAt.Equal(task.DueAt) && f[0].DueAt.IsZero() == (i != 2 && task.Key != "past"))
		is.Equal(sure(q.DeleteAllFailed(ctx))(t), 1)
	}
}
