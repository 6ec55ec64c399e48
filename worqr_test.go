package worqr_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(peertest.Main(m)) }

func TestEnqueueAndHandleInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	got := make(chan string, 300)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	stop := run(t, p)
	var want []string
	for i := range 100 { // one, and many
		s := numbers(fmt.Sprint(i, "/"), 1+i%3)
		enqueue(t, q, s...)
		want = append(want, s...)
	}
	is.Equal(receive(t, got, len(want)), want)
	stop()
	is.Equal(p.Stats().Finished, int64(len(want)))
	is.Equal(p.Stats().RunningHandlers, int64(0))
	nothingLeft(t, prefix, "q")
}

// The zero options, as most people use them, including the namespace.
func TestDefaults(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p, err := worqr.Open(server.URL(), nil)
	is.NoErr(err)
	defer p.Close()
	q := p.Queue("q")
	got := make(chan string, 1)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- string(t.Payload)
		return nil
	}, nil)
	stop := run(t, p)
	must(t, q.Enqueue(t.Context(), []byte("hello")))
	is.Equal(receive(t, got, 1), []string{"hello"})
	stop()
	is.Equal(redistest.Keys(t, redistest.Dial(t, server.URL()), "worqr"), []string{"worqr:registry", "worqr:token:{q}"})
}

func TestEnqueueOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := open(t, worqr.Options{}).Queue("q")
	for i := range 3 {
		fresh, err := q.EnqueueOnce(t.Context(), "nonce", []byte("a"), []byte("b"))
		is.NoErr(err)
		is.Equal(fresh, i == 0)
	}
	fresh, err := q.EnqueueOnce(t.Context(), "other", []byte("c"))
	is.NoErr(err)
	is.True(fresh)
	is.Equal(waiting(t, q), []string{"a", "b", "c"})
}

func TestEnqueueUnique(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := working(t, open(t, worqr.Options{}), "q")
	unique := func() error { return q.EnqueueUnique(t.Context(), []byte("u")) }
	take := func() *worqr.Task {
		task, err := q.StartTask(t.Context())
		must(t, err)
		return task
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
	_, err := q.Cancel(t.Context(), []byte("u"))
	is.NoErr(err)
	is.NoErr(unique())
	is.NoErr(q.Delete(t.Context()))
	is.NoErr(unique())
}

// Verbs without Run.
func TestVerbs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Name: "someone"})
	q := p.Queue("q")
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
	front, err := q.Peek(ctx)
	is.NoErr(err)
	is.Equal(string(front), "a")
	tasks, err := q.StartTasks(ctx, 3)
	is.NoErr(err)
	is.Equal(payloads(tasks), []string{"a", "b", "c"})
	is.True(tasks[0].Token < tasks[1].Token && tasks[1].Token < tasks[2].Token)
	n, err := q.Len(ctx)
	is.NoErr(err)
	is.Equal(n, 1)
	stats, err := q.Stats(ctx)
	is.NoErr(err)
	is.Equal(stats, worqr.QueueStats{Waiting: 1, Running: 3, Workers: 1})

	var running []string
	for r, err := range q.Running(ctx) {
		is.NoErr(err)
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
	for w, err := range p.Workers(ctx) {
		is.NoErr(err)
		workers = append(workers, w)
	}
	is.Equal(len(workers), 1)
	is.Equal(workers[0].Name, "someone")
	is.Equal(workers[0].ID, p.WorkerID())
	is.Equal(workers[0].PID, os.Getpid())
	is.Equal(workers[0].Queues, []string{"q"})
	var queues []string
	for name, err := range p.Queues(ctx) {
		is.NoErr(err)
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
	tasks, err = q.StartTasks(ctx, 10)
	is.NoErr(err)
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

// Two peers on one queue: failing one leaves the other's tasks alone.
func TestFailWorkerTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	qa, qb := working(t, a, "q"), working(t, b, "q")
	enqueue(t, qa, numbers("", 6)...)
	ta, err := qa.StartTasks(t.Context(), 2)
	is.NoErr(err)
	tb, err := qb.StartTasks(t.Context(), 2)
	is.NoErr(err)
	old := a.WorkerID()

	n, err := b.FailWorker(t.Context(), old)
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(waiting(t, qb), []string{"0", "1", "4", "5"})
	err = ta[0].Finish(t.Context())
	is.True(is_(err, worqr.ErrNotOwner))
	is.Equal(waiting(t, qb), []string{"0", "1", "4", "5"}) // nothing happened
	is.NoErr(tb[0].Finish(t.Context()))
	is.NoErr(tb[1].Finish(t.Context()))

	// The failed one comes back by itself, under a new id.
	eventually(t, "the failed worker is back", func() bool {
		task, err := qa.StartTask(t.Context())
		return err == nil && string(task.Payload) == "0"
	})
	is.True(a.WorkerID() != old)
	is.Equal(context.Cause(ta[1].Context()), worqr.ErrEvicted)
	is.Equal(a.Stats().TimesEvicted, int64(1))

	n, err = b.FailWorker(t.Context(), "nobody")
	is.NoErr(err)
	is.Equal(n, 0)
}

// More tasks than one call returns at a time keep their order.
func TestReturnInChunks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q := working(t, a, "q")
	want := numbers("", 1000)
	enqueue(t, q, append(want, "last")...)
	_, err := q.StartTasks(t.Context(), 1000)
	is.NoErr(err)
	n, err := b.FailWorker(t.Context(), a.WorkerID())
	is.NoErr(err)
	is.Equal(n, 1000)
	is.Equal(waiting(t, b.Queue("q")), append(want, "last"))
}

// A pool that the application has already.
func TestExistingPool(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]func(url string) worqr.Pool{
		"redigo": func(url string) worqr.Pool {
			return &redis.Pool{
				DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) },
				MaxActive:   1, // the peer's long-lived connections must not use it up
				Wait:        true,
			}
		},
		"another": func(url string) worqr.Pool {
			return otherPool{&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			p := worqr.New(pool(redistest.Worker(t, redistest.URL(), prefix)), &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
			defer p.Close()
			got := make(chan string, 1)
			p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
				got <- string(t.Payload)
				return nil
			}, nil)
			stop := run(t, p)
			for i := range 10 {
				enqueue(t, p.Queue("q"), fmt.Sprint(i))
				is.Equal(receive(t, got, 1), []string{fmt.Sprint(i)})
			}
			stop()
			nothingLeft(t, prefix, "q")
		})
	}
}

type otherPool struct{ pool *redis.Pool }

func (o otherPool) GetContext(ctx context.Context) (redis.Conn, error) { return o.pool.GetContext(ctx) }
