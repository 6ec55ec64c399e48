package worqr_test

import (
	"errors"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

func TestDeleteAndRequeueFailed(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	no := errors.New("no")
	requeue := func(ids ...string) int {
		return sure(q.RequeueFailed(ctx, ids...))(t)
	}
	remove := func(ids ...string) int {
		return sure(q.DeleteFailed(ctx, ids...))(t)
	}
	requeueAll := func() int {
		return sure(q.RequeueAllFailed(ctx))(t)
	}
	removeAll := func() int {
		return sure(q.DeleteAllFailed(ctx))(t)
	}
	is.Equal(requeueAll(), 0)
	is.Equal(removeAll(), 0)
	is.Equal(requeue("unknown"), 0)
	is.Equal(remove("unknown", ""), 0)

	ids := map[string]string{}
	fail := func(task *worqr.Task) {
		is.NoErr(task.Fail(ctx, no))
		ids[string(task.Payload)] = task.AttemptID
	}
	for _, payload := range []string{"a", "b", "c", "d"} {
		enqueue(t, q, payload)
		fail(take(t, q))
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		put(t, q, key, key, nil)
		is.NoErr(take(t, q).Retry(ctx, 0))
		fail(take(t, q))
	}
	is.Equal(failedPayloads(t, q), []string{"k3", "k2", "k1", "d", "c", "b", "a"})
	is.Equal(failed(t, q)[0].Retries, 1)
	is.Equal(failed(t, q)[0].Key, "k3")

	is.Equal(requeue(), 0) // no ids are none, not all
	is.Equal(remove([]string{}...), 0)
	is.Equal(len(failed(t, q)), 7)

	is.Equal(requeue(ids["b"]), 1) // one
	is.Equal(requeue(ids["b"]), 0)
	is.Equal(remove(ids["a"]), 1)
	is.Equal(remove(ids["a"]), 0)
	is.Equal(requeue(ids["d"], "unknown", ids["a"], ids["d"]), 1) // some
	is.Equal(waiting(t, q), []string{"b", "d"})                   // at the back

	put(t, q, "k1", "waits", &worqr.PutOptions{At: time.Now().Add(time.Hour)}) // taken
	put(t, q, "k2", "runs", nil)
	running := take(t, q)
	is.Equal(requeueAll(), 2) // all that can
	is.Equal(failedPayloads(t, q), []string{"k2", "k1"})
	is.Equal(waiting(t, q), []string{"k3", "b", "d", "c", "waits"})
	task := take(t, q)
	is.Equal(task.Key, "k3")
	is.Equal(task.Retries, 0) // counts begin anew
	is.NoErr(task.Finish(ctx))
	is.NoErr(running.Finish(ctx))
	sure(q.RemoveKey(ctx, "k1"))(t)
	is.Equal(requeueAll(), 2)
	is.Equal(removeAll(), 0)

	// The same key twice among the failed: one at a time.
	is.NoErr(q.Delete(ctx))
	for range 2 {
		put(t, q, "twice", "twice", nil)
		fail(take(t, q))
	}
	is.Equal(requeueAll(), 1)
	is.Equal(len(failed(t, q)), 1)
	is.Equal(removeAll(), 1)

	// More than a page, of the same millisecond or not.
	is.NoErr(q.Delete(ctx))
	enqueue(t, q, numbers("", 350)...)
	tasks := sure(q.StartTasks(ctx, 350))(t)
	for _, task := range tasks {
		is.NoErr(task.Fail(ctx, no))
	}
	is.Equal(len(failed(t, q)), 350)
	is.Equal(stats(t, q).Failed, 350)
	is.Equal(requeueAll(), 350)
	is.Equal(len(failed(t, q)), 0)
	tasks = sure(q.StartTasks(ctx, 350))(t)
	for _, task := range tasks {
		is.NoErr(task.Fail(ctx, no))
	}
	is.Equal(removeAll(), 350)
	is.NoErr(p.StopWorker(ctx))
	nothingLeft(t, prefix, "q")
}
