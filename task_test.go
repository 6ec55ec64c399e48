package worqr_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Retry and Fail by hand: once, once more, after another end, and after the task
// was lost.
func TestRetryAndFailByHand(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "key"} {
		t.Run("key="+key, func(t *testing.T) {
			is := parallel(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			p, other := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
			q := working(t, p, "q")
			if key == "" {
				enqueue(t, q, "a")
			} else {
				put(t, q, key, "a", nil)
			}
			var before int64
			for retries := range 3 { // at once
				task := take(t, q)
				is.Equal(task.Retries, retries)
				is.Equal(task.Key, key)
				is.True(task.Token > before)
				before = task.Token
				is.NoErr(task.Retry(ctx, 0))
				is.NoErr(task.Retry(ctx, 0)) // says the same again
				is.True(is_(task.Finish(ctx), worqr.ErrNotOwner))
				is.True(is_(task.Fail(ctx, errors.New("no")), worqr.ErrNotOwner))
				is.Equal(context.Cause(task.Context()), context.Canceled)
				is.Equal(len(scheduled(t, q)), 1)
			}
			task := take(t, q)
			is.NoErr(task.Retry(ctx, time.Hour))
			noTask(t, q)
			s := scheduled(t, q)
			is.Equal(len(s), 1)
			is.True(near(s[0].DueAt, time.Now().Add(time.Hour)))
			is.Equal(s[0].Key, key)
			is.Equal(s[0].Retries, 4)
			is.Equal(string(s[0].Payload), "a")

			// Lost: nothing happens to the other's.
			if key == "" {
				sure(q.Cancel(ctx, []byte("a")))(t)
				enqueue(t, q, "b")
			} else {
				put(t, q, key, "b", nil)
			}
			lost := take(t, q)
			qo := working(t, other, "q")
			failWorker(t, other, p.WorkerID(), 1)
			task = take(t, qo)
			is.Equal(task.Crashes, 1)
			is.Equal(task.Retries, 0)
			is.True(is_(lost.Retry(ctx, 0), worqr.ErrNotOwner))
			is.True(is_(lost.Fail(ctx, errors.New("no")), worqr.ErrNotOwner))
			is.Equal(stats(t, qo).Running, 1)
			is.Equal(stats(t, qo).Failed, 0)

			why := errors.New("it is hopeless")
			is.NoErr(task.Fail(ctx, why))
			is.NoErr(task.Fail(ctx, why))
			is.True(is_(task.Retry(ctx, 0), worqr.ErrNotOwner))
			is.True(is_(task.Stop(ctx), worqr.ErrNotOwner))
			f := failed(t, qo)
			is.Equal(len(f), 1)
			is.True(near(f[0].FailedAt, time.Now()))
			f[0].FailedAt = time.Time{}
			is.Equal(f[0], worqr.FailedTask{ID: task.AttemptID, Payload: []byte("b"), Key: key, Kind: worqr.FailureError,
				Error: "it is hopeless", Retries: 0, Crashes: 1, WorkerID: other.WorkerID()})
			is.Equal(other.Stats().Failed, int64(1))
			is.Equal(sure(qo.DeleteAllFailed(ctx))(t), 1)
			is.NoErr(other.StopWorker(ctx))
			is.NoErr(p.StopWorker(ctx))
			nothingLeftBut(t, prefix, "q")
		})
	}
}

func TestRetryAndFailBadly(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a")
	task := take(t, q)
	is.True(is_(task.Retry(ctx, -1), worqr.ErrInvalid))
	is.True(is_(task.Retry(ctx, 1<<63-1), worqr.ErrInvalid))
	is.True(is_(task.Fail(ctx, nil), worqr.ErrInvalid))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Workers: 1})
	is.NoErr(task.Fail(ctx, worqr.Malformed(errors.New(strings.Repeat("x", 10000)+"\xff")))) // still ours
	f := failed(t, q)
	is.Equal(f[0].Kind, worqr.FailureMalformed)
	is.True(len(f[0].Error) > 1000)
	for _, reason := range []string{"", "a\nb", "a\x00b", ":", "bad \xff utf-8", "failed:x"} {
		enqueue(t, q, "a")
		is.NoErr(take(t, q).Fail(ctx, errors.New(reason)))
		f := failed(t, q)
		is.Equal(f[0].Error, strings.ToValidUTF8(reason, "�"))
		is.Equal(f[0].Kind, worqr.FailureError)
		sure(q.DeleteFailed(ctx, f[0].ID))(t)
	}
}

func TestCancelKey(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	starts, causes := held(t, p, "q", nil)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q") // somebody else
	cancelKey := func(key string) *worqr.CancelReport {
		return sure(q.CancelKey(ctx, key))(t)
	}
	// Nothing.
	report := cancelKey("key")
	is.Equal(report.Removed, 0)
	wait(t, report)
	// Waiting.
	put(t, q, "key", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	put(t, q, "other", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	report = cancelKey("key")
	is.Equal(report.Removed, 1)
	wait(t, report)
	is.Equal(report.Stopped+report.Finished, 0)
	is.Equal(len(scheduled(t, q)), 1) // the other, though it is the same payload
	// Running, and what is blocked by it.
	put(t, q, "key", "b", nil)
	is.Equal(receive(t, starts, 1), []string{"b"})
	put(t, q, "key", "blocked", nil)
	report = cancelKey("key")
	is.Equal(report.Removed, 1)
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.Equal(report.Finished, 0)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
	// What is put afterwards is not touched.
	put(t, q, "key", "c", nil)
	is.Equal(receive(t, starts, 1), []string{"c"})
	is.Equal(len(causes), 0)
	is.Equal(cancelKey("other").Removed, 1)
	is.Equal(len(causes), 0)
	wait(t, cancelKey("key"))
	eventually(t, "its peer counts both", func() bool { return p.Stats().Canceled == 2 }) // Redis knows it first
	is.Equal(len(failed(t, q)), 0)
}

// Also of a worker that is dead, and dies only now.
func TestCancelKeyHeldByTheDead(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	victim, other := open(t, worqr.Options{Prefix: prefix, Lease: -1}), open(t, worqr.Options{Prefix: prefix})
	q := victim.Queue("q")
	must(t, victim.StartWorker(ctx))
	must(t, q.StartWork(ctx))
	put(t, q, "key", "a", nil)
	task := take(t, q)
	report := sure(other.Queue("q").CancelKey(ctx, "key"))(t)
	put(t, q, "key", "after", nil)
	sure(other.FailWorker(ctx, victim.WorkerID()))(t)
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.True(is_(task.Finish(ctx), worqr.ErrNotOwner))
	qo := working(t, other, "q")
	after := take(t, qo)
	is.Equal(string(after.Payload), "after")
	is.Equal(after.Crashes, 0)
	noTask(t, qo)
}

func TestEnqueueOnce(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	for i := range 3 {
		is.Equal(sure(q.EnqueueOnce(t.Context(), "nonce", []byte("a"), []byte("b")))(t), i == 0)
	}
	is.True(sure(q.EnqueueOnce(t.Context(), "other", []byte("c")))(t))
	is.Equal(waiting(t, q), []string{"a", "b", "c"})
}

func TestEnqueueUnique(t *testing.T) {
	is := parallel(t)
	q := working(t, open(t, worqr.Options{}), "q")
	unique := func() error { return q.EnqueueUnique(t.Context(), []byte("u")) }
	take := func() *worqr.Task {
		return sure(q.StartTask(t.Context()))(t)
	}
	enqueue(t, q, "u") // a plain twin, in front
	is.NoErr(unique())
	is.True(is_(unique(), worqr.ErrDuplicate))
	is.NoErr(take().Finish(t.Context()))
	is.True(is_(unique(), worqr.ErrDuplicate)) // it was the twin that finished
	task := take()
	is.True(is_(unique(), worqr.ErrDuplicate)) // it runs
	is.NoErr(task.Stop(t.Context()))
	is.True(is_(unique(), worqr.ErrDuplicate)) // it waits again
	is.NoErr(take().Finish(t.Context()))
	is.NoErr(unique())
	sure(q.Cancel(t.Context(), []byte("u")))(t)
	is.NoErr(unique())
	is.NoErr(q.Delete(t.Context()))
	is.NoErr(unique())
}

// Verbs without Run.
func TestVerbs(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Name: "someone"})
	ctx := t.Context()

	_, err := q.StartTask(ctx)
	is.True(is_(err, worqr.ErrNotWorking))
	is.True(is_(q.StartWork(ctx), worqr.ErrNotStarted))
	is.True(is_(p.StopWorker(ctx), worqr.ErrNotStarted))
	is.NoErr(p.StartWorker(ctx))
	is.NoErr(p.StartWorker(ctx)) // does nothing
	_, err = q.StartTask(ctx)
	is.True(is_(err, worqr.ErrNotWorking))
	is.NoErr(q.StartWork(ctx))
	is.NoErr(q.StartWork(ctx)) // does nothing
	_, err = q.StartTask(ctx)
	is.True(is_(err, worqr.ErrNoTask))
	_, err = q.Peek(ctx)
	is.True(is_(err, worqr.ErrNoTask))

	enqueue(t, q, "a", "b", "c", "d")
	is.Equal(string(sure(q.Peek(ctx))(t)), "a")
	tasks := sure(q.StartTasks(ctx, 3))(t)
	is.Equal(payloads(tasks), []string{"a", "b", "c"})
	is.True(tasks[0].Token < tasks[1].Token && tasks[1].Token < tasks[2].Token)
	is.Equal(sure(q.Len(ctx))(t), 1)
	is.Equal(sure(q.Stats(ctx))(t), worqr.QueueStats{Waiting: 1, Running: 3, Workers: 1})

	var running []string
	for r := range each(t, q.Running(ctx)) {
		is.Equal(r.WorkerID, p.WorkerID())
		is.True(time.Since(r.StartedAt) < time.Hour)
		running = append(running, string(r.Payload))
	}
	is.Equal(running, []string{"a", "b", "c"})

	is.NoErr(tasks[0].Finish(ctx))
	is.NoErr(tasks[0].Finish(ctx)) // says the same again
	is.True(is_(tasks[0].Stop(ctx), worqr.ErrNotOwner))
	is.NoErr(tasks[1].Stop(ctx))
	is.True(is_(tasks[1].Finish(ctx), worqr.ErrNotOwner))
	is.Equal(waiting(t, q), []string{"b", "d"}) // the front

	var workers []worqr.Worker
	for w := range each(t, p.Workers(ctx)) {
		workers = append(workers, w)
	}
	is.Equal(len(workers), 1)
	is.Equal(workers[0].Name, "someone")
	is.Equal(workers[0].ID, p.WorkerID())
	is.Equal(workers[0].PID, os.Getpid())
	is.Equal(workers[0].Queues, []string{"q"})
	var queues []string
	for name := range each(t, p.Queues(ctx)) {
		queues = append(queues, name)
	}
	is.Equal(queues, []string{"q"})

	is.NoErr(q.Pause(ctx))
	_, err = q.StartTask(ctx)
	is.True(is_(err, worqr.ErrNoTask))
	is.NoErr(q.Resume(ctx))

	is.NoErr(q.StopWork(ctx))
	is.Equal(context.Cause(tasks[2].Context()), worqr.ErrShutdown)
	is.True(is_(tasks[2].Finish(ctx), worqr.ErrNotOwner))
	is.Equal(waiting(t, q), []string{"c", "b", "d"})
	is.True(is_(q.StopWork(ctx), worqr.ErrNotWorking))

	is.NoErr(q.StartWork(ctx))
	tasks = sure(q.StartTasks(ctx, 10))(t)
	is.Equal(payloads(tasks), []string{"c", "b", "d"})
	is.NoErr(p.StopWorker(ctx)) // puts them back, in their order
	is.Equal(waiting(t, q), []string{"c", "b", "d"})

	is.NoErr(p.StartWorker(ctx)) // and once more
	is.NoErr(q.StartWork(ctx))
	is.NoErr(q.Delete(ctx))
	is.Equal(waiting(t, q), nil)
	is.NoErr(p.StopWorker(ctx))
	nothingLeft(t, prefix, "q")
}

// A task that a test has made belongs to no worker, and can still be handed to a handler.
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
