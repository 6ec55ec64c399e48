package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// added adds payloads one by one, and returns their keys.
func added(t testing.TB, q *worqr.Queue, payloads ...string) (all []string) {
	t.Helper()
	for _, p := range payloads {
		all = append(all, sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte(p)}))(t)[0])
	}
	return all
}

// takes starts n tasks.
func takes(t testing.TB, q *worqr.Queue, n int) []*worqr.Task {
	t.Helper()
	tasks := sure(q.StartTasks(t.Context(), n))(t)
	if len(tasks) != n {
		t.Fatalf("%d tasks started, want %d", len(tasks), n)
	}
	return tasks
}

// keysAdded returns the keys of the waiting added tasks.
func keysAdded(t testing.TB, q *worqr.Queue) (all []string) {
	t.Helper()
	for task := range each(t, q.Named(t.Context())) {
		all = append(all, task.Key)
	}
	return all
}

// specs returns tasks for Add.
func specs(payloads ...string) (all []worqr.TaskSpec) {
	for _, p := range payloads {
		all = append(all, worqr.TaskSpec{Payload: []byte(p)})
	}
	return all
}

// Added tasks run in order, each under its own key, and leave nothing behind.
func TestAdd(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	all := added(t, q, "a", "a", "b")
	all = append(all, sure(q.Add(t.Context(), specs("c", "d")...))(t)...)
	is.Equal(len(slices.Compact(slices.Sorted(slices.Values(all)))), 5)
	is.Equal(keysAdded(t, q), all)
	is.Equal(stats(t, q).Waiting, 5)
	copies := sure(q.Explain(t.Context(), worqr.Query{Key: all[3]}))(t).Copies
	is.Equal(len(copies), 1)
	is.Equal(copies[0].Before, 3)
	is.True(near(copies[0].EnqueuedAt, time.Now()))

	ran := make(chan *worqr.Task, 5)
	q.Handle(func(_ context.Context, task *worqr.Task) error { ran <- task; return nil }, &worqr.HandleOptions{Concurrency: 1})
	stop := run(t, p)
	tasks := receive(t, ran, 5)
	is.Equal(payloads(tasks), []string{"a", "a", "b", "c", "d"})
	for i, task := range tasks {
		is.Equal(task.Key, all[i])
		is.Equal(task.Attempt, 1)
		is.True(near(task.EnqueuedAt, time.Now()))
		is.True(task.DueAt.IsZero())
	}
	eventually(t, "all are stored", func() bool { return p.Stats().Finished == 5 })
	stop()
	nothingLeft(t, prefix, q.Name())
}

// A task keeps its key and headers through a retry, a return and the failed queue.
func TestAddedComesBack(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	headers := map[string]string{"trace": "1", "\x00": "\xff"}
	key := sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("a"), Headers: headers}))(t)[0]
	since := time.Time{}
	again := func(attempt int, end func(*worqr.Task) error) {
		t.Helper()
		task := take(t, q)
		if since.IsZero() {
			since = task.EnqueuedAt
		}
		is.Equal(task.Key, key)
		is.True(maps.Equal(task.Headers, headers))
		is.Equal(task.Attempt, attempt)
		is.True(task.EnqueuedAt.Equal(since))
		running, err := first(q.Running(ctx))
		is.NoErr(err)
		is.Equal(running.Key, key)
		is.True(maps.Equal(running.Headers, headers) && running.EnqueuedAt.Equal(since))
		must(t, end(task))
	}
	again(1, func(t *worqr.Task) error { return t.Retry(ctx, 0) })
	again(2, func(t *worqr.Task) error { return t.Stop(ctx) })
	again(2, func(t *worqr.Task) error { return t.Fail(ctx, errors.New("no")) })
	f := failed(t, q)
	is.Equal(len(f), 1)
	is.Equal(f[0].Key, key)
	is.True(maps.Equal(f[0].Headers, headers) && f[0].EnqueuedAt.Equal(since) && f[0].DueAt.IsZero()) // no DueAt, since it had been returned to the front
	is.Equal(sure(q.RequeueAllFailed(ctx))(t), 1)
	again(1, func(t *worqr.Task) error { return t.Finish(ctx) })
	is.Equal(stats(t, q), inspect.QueueStats{Workers: 1})
}

// first returns the first row of a listing.
func first[T any](rows func(func(T, error) bool)) (row T, err error) {
	for row, err := range rows {
		return row, err
	}
	return row, worqr.ErrNoTask
}

// Add adds a thousand tasks in one call, all or none.
func TestAddSeveral(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	_, q := openQueue(t, worqr.Options{})
	var all []worqr.TaskSpec
	for i := range 1000 {
		all = append(all, worqr.TaskSpec{Payload: fmt.Append(nil, i), Headers: map[string]string{"n": fmt.Sprint(i)}})
	}
	keys := sure(q.Add(ctx, all...))(t)
	i := 0
	for task := range each(t, q.Named(ctx)) {
		is.Equal(task.Key, keys[i])
		is.Equal(string(task.Payload), fmt.Sprint(i))
		is.Equal(task.Headers["n"], fmt.Sprint(i))
		i++
	}
	is.Equal(i, 1000)
	all[999].MaxRetries = math.MaxInt
	is.True(is_(failure(q.Add(ctx, all...)), worqr.ErrInvalid))
	is.True(is_(failure(q.Add(ctx, make([]worqr.TaskSpec, worqr.MaxTasks+1)...)), worqr.ErrTooLarge))
	large := make([]byte, 1_100_000)
	is.True(is_(failure(q.Add(ctx, worqr.TaskSpec{Payload: large}, worqr.TaskSpec{Payload: large})), worqr.ErrTooLarge))
	is.Equal(stats(t, q).Waiting, 1000)
}

// An expired task stays if it can't be moved to the failed queue, and doesn't run. A peer that gets it tries again
// after its next heartbeat, and idle peers don't keep waking each other because of it.
func TestExpiredThatCannotFail(t *testing.T) {
	is := parallel(t)
	ctx, server := t.Context(), redistest.Start(t)
	conn, ran := redistest.Dial(t, server.URL()), make(chan string, 1)
	redistest.Do(t, conn, "SET", "p:failed:tasks:{q}", "foreign")
	var q *worqr.Queue
	peers := make([]*worqr.Peer, 2)
	for i := range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour}) // heartbeats come when they are asked for
		q, peers[i] = p.Queue("q"), p
		q.Handle(tell(ran), nil)
		run(t, p)
	}
	over := make([]worqr.TaskSpec, 100)
	for i := range over {
		over[i] = worqr.TaskSpec{Payload: []byte("over"), Expires: time.Now().Add(-time.Hour)}
	}
	for range 2 {
		_, err := q.Add(ctx, over...)
		is.NoErr(err)
	}
	added(t, q, "x")
	is.Equal(receive(t, ran, 1), []string{"x"}) // they don't block tasks behind them
	eventually(t, "they are held", func() bool { return stats(t, q).Running == 200 })
	eventually(t, "nobody calls Redis for half a second", func() bool {
		before := redistest.Calls(t, conn, "evalsha")
		time.Sleep(time.Second / 2)
		return redistest.Calls(t, conn, "evalsha") == before
	})
	is.Equal(stats(t, q).Running, 200)
	redistest.Do(t, conn, "DEL", "p:failed:tasks:{q}")
	for _, p := range peers {
		redistest.Do(t, conn, "PUBLISH", "p_{q}_wake:"+p.WorkerID(), 0) // asks for a heartbeat
	}
	eventually(t, "they fail", func() bool { s := stats(t, q); return s.Failed == 200 && s.Running == 0 })
}
