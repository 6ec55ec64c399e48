package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

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
	is.Equal(keys, []string{prefix + ":failed:copies:{q}", prefix + ":failed:ready:{q}", prefix + ":failed:state:{q}", prefix + ":failed:tasks:{q}"})
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
