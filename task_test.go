package worqr_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

func TestRetryAndFailBadly(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a")
	task := take(t, q)
	is.True(is_(task.Retry(ctx, -1), worqr.ErrInvalid))
	is.True(is_(task.Retry(ctx, 1<<63-1), worqr.ErrInvalid))
	is.True(is_(task.Fail(ctx, nil), worqr.ErrInvalid))
	is.Equal(stats(t, q), inspect.QueueStats{Running: 1, Workers: 1})
	is.NoErr(task.Fail(ctx, worqr.Malformed(errors.New(strings.Repeat("x", 10000)+"\xff")))) // the worker still holds it
	f := failed(t, q)
	is.Equal(f[0].Kind, inspect.FailureMalformed)
	is.True(len(f[0].Error) > 1000)
	for _, reason := range []string{"", "a\nb", "a\x00b", ":", "bad \xff utf-8", "failed:x"} {
		enqueue(t, q, "a")
		is.NoErr(take(t, q).Fail(ctx, errors.New(reason)))
		f := failed(t, q)
		is.Equal(f[0].Error, strings.ToValidUTF8(strings.ReplaceAll(reason, "\x00", "�"), "�"))
		is.Equal(f[0].Kind, inspect.FailureError)
		sure(q.DeleteFailed(ctx, f[0].ID))(t)
	}
}

// The methods for working without Run, in order: their preconditions, and what they leave behind.
// TestRandom covers what they do to tasks.
func TestVerbs(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Name: "someone"})
	ctx := t.Context()
	is.True(is_(failure(q.StartTask(ctx)), worqr.ErrNotWorking))
	is.True(is_(q.StartWork(ctx), worqr.ErrNotStarted))
	is.True(is_(p.StopWorker(ctx), worqr.ErrNotStarted))
	is.NoErr(p.StartWorker(ctx))
	is.NoErr(p.StartWorker(ctx)) // does nothing
	is.True(is_(failure(q.StartTask(ctx)), worqr.ErrNotWorking))
	is.NoErr(q.StartWork(ctx))
	is.NoErr(q.StartWork(ctx)) // does nothing
	is.True(is_(failure(q.StartTask(ctx)), worqr.ErrNoTask))

	enqueue(t, q, "a", "b", "c", "d")
	tasks := sure(q.StartTasks(ctx, 3))(t)
	is.Equal(payloads(tasks), []string{"a", "b", "c"})
	var running []string
	for r := range each(t, q.Running(ctx)) {
		is.Equal(r.WorkerID, p.WorkerID())
		is.True(time.Since(r.StartedAt) < time.Hour)
		running = append(running, string(r.Payload))
	}
	is.Equal(running, []string{"a", "b", "c"})
	for w := range each(t, p.Workers(ctx)) {
		is.Equal(w.Name, "someone")
		is.Equal(w.ID, p.WorkerID())
		is.Equal(w.PID, os.Getpid())
		is.Equal(w.Queues, []string{"q"})
	}
	for name := range each(t, p.Queues(ctx)) {
		is.Equal(name, "q")
	}
	is.NoErr(tasks[0].Finish(ctx))
	is.NoErr(tasks[1].Stop(ctx))
	is.True(is_(tasks[1].Finish(ctx), worqr.ErrNotOwner))
	is.Equal(context.Cause(tasks[1].Context()), context.Canceled)

	is.NoErr(q.StopWork(ctx))
	is.Equal(context.Cause(tasks[2].Context()), worqr.ErrShutdown)
	is.True(is_(tasks[2].Finish(ctx), worqr.ErrNotOwner))
	is.Equal(waiting(t, q), []string{"c", "b", "d"}) // the front
	is.True(is_(q.StopWork(ctx), worqr.ErrNotWorking))
	is.NoErr(q.StartWork(ctx))
	is.Equal(payloads(sure(q.StartTasks(ctx, 10))(t)), []string{"c", "b", "d"})
	is.NoErr(p.StopWorker(ctx)) // returns its tasks, in order
	is.Equal(waiting(t, q), []string{"c", "b", "d"})
	is.NoErr(q.Delete(ctx))
	nothingLeft(t, prefix, "q")
}

// A task that a test creates belongs to no worker, but can be passed to a handler.
func TestTaskMadeByHand(t *testing.T) {
	is := parallel(t)
	task := &worqr.Task{Payload: []byte("a")}
	is.NoErr(task.Context().Err())
	for _, end := range []func() error{
		func() error { return task.Finish(t.Context()) },
		func() error { return task.Stop(t.Context()) },
		func() error { return task.Retry(t.Context(), 0) },
		func() error { return task.Fail(t.Context(), errors.New("no")) },
	} {
		err := end()
		is.True(errors.Is(err, worqr.ErrNotOwner))
		is.True(strings.Contains(err.Error(), " task: no worker has started this task"))
	}
}
