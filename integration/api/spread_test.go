package api

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/spread"
)

// Each task of each queue runs once, in no more handlers than each queue's share of Concurrency.
func TestSpread(t *testing.T) {
	for concurrency, most := range map[int]int64{1: 5, 10: 10, 64: 65} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			is := parallel(t)
			ctx := t.Context()
			p := open(t, worqr.Options{})
			q := spread.Over(p, "q", 5)
			want := numbers("t", 200)
			for _, payload := range want {
				is.NoErr(q.Enqueue(ctx, []byte(payload)))
			}
			is.Equal(sure(q.Stats(ctx))(t).Waiting, 200)
			for i, one := range q.Queues() {
				is.Equal(one.Name(), fmt.Sprint("q-", i+1))
				is.Equal(stats(t, one).Waiting, 40) // in turn
			}
			var running, peak atomic.Int64
			done := make(chan string, len(want)+1)
			q.Handle(func(_ context.Context, task *worqr.Task) error {
				atLeast(&peak, int(running.Add(1)))
				defer running.Add(-1)
				done <- string(task.Payload)
				return nil
			}, &worqr.HandleOptions{Concurrency: concurrency})
			stop := run(t, p)
			is.Equal(sorted(receive(t, done, len(want))), sorted(want))
			is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: concurrency}))
			is.NoErr(q.Unhandle(ctx))
			is.Equal(sure(q.Stats(ctx))(t).Workers, 0)
			stop()
			is.True(peak.Load() <= most)
			is.Equal(len(done), 0)
		})
	}
}

// Only one queue would know the nonce of a unique task.
func TestSpreadUniqueOnce(t *testing.T) {
	is := parallel(t)
	q := spread.Over(open(t, worqr.Options{}), "q", 4)
	_, err := q.Add(t.Context(), worqr.TaskSpec{Unique: true, Once: "a", Payload: []byte("a")})
	is.True(errors.Is(err, worqr.ErrInvalid))
	is.Equal(sure(q.Stats(t.Context()))(t).Waiting, 0)
}

// Every peer finds a key, a nonce and a Once on the same queue.
func TestSpreadKeys(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	p, other := open(t, worqr.Options{Prefix: prefix}), spread.Over(open(t, worqr.Options{Prefix: prefix}), "q", 7)
	q := spread.Over(p, "q", 7)
	used := map[string]bool{}
	for i := range 40 {
		key := fmt.Sprint("k", i)
		used[q.For(key).Name()] = true
		is.Equal(q.For(key).Name(), fmt.Sprint("q-", crc32.ChecksumIEEE([]byte(key))%7+1))
		is.True(sure(q.For(key).EnqueueOnce(ctx, key, []byte("a")))(t))
		is.True(!sure(other.For(key).EnqueueOnce(ctx, key, []byte("a")))(t))
		later := worqr.TaskSpec{At: time.Now().Add(time.Hour)}
		is.Equal(sure(q.Add(ctx, named(key, "b", later)))(t), key)
		is.Equal(sure(other.Add(ctx, named(key, "c", later)))(t), key) // replaces it
		is.Equal(len(sure(other.For(key).Explain(ctx, worqr.Query{Key: key}))(t).Copies), 1)
		once := worqr.TaskSpec{Payload: []byte("d"), Once: "add " + key}
		added := sure(q.Add(ctx, once))(t)
		is.Equal(sure(other.Add(ctx, once))(t), added)
		is.Equal(sure(other.For(added).CancelKey(ctx, added))(t).Removed, 1)
	}
	is.Equal(len(used), 7)
	s := sure(q.Stats(ctx))(t)
	is.Equal([]int{s.Waiting, s.Scheduled}, []int{40, 40})
	is.True(sure(other.For("k0").RemoveKey(ctx, "k0"))(t))
	is.Equal(sure(other.For("k1").CancelKey(ctx, "k1"))(t).Removed, 1)
	is.NoErr(q.Delete(ctx))
	is.Equal(waitIn(t, q), 0)

	q.Handle(func(_ context.Context, task *worqr.Task) error {
		task.Result = task.Payload
		return nil
	}, nil)
	is.NoErr(q.For("job").Every("job", worqr.Interval(time.Hour), []byte("now"), &worqr.EveryOptions{KeepResult: time.Hour}))
	run(t, p)
	eventually(t, "it recurs", func() bool { return sure(other.For("job").RunNow(ctx, "job"))(t) })
	eventually(t, "it has run", func() bool { // its next occurrence waits, so Wait would wait for that
		r, err := other.For("job").Result(ctx, "job")
		return err == nil && string(r.Value) == "now"
	})
	for i := range 20 {
		payload := fmt.Sprint(i)
		key := sure(q.Add(ctx, named("", payload, keep)))(t)
		is.Equal(string(sure(other.For(key).Wait(ctx, key))(t).Value), payload)
		is.Equal(string(sure(other.For(key).Result(ctx, key))(t).Value), payload)
	}
}

// On a cluster of three nodes, calls about all queues reach all nodes.
func TestSpreadCluster(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	c := redistest.StartCluster(t, 3, 0)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p"})
	q := spread.Over(p, "q", 3)
	nodes := map[*redistest.Server]bool{}
	for _, one := range q.Queues() {
		nodes[c.Owner(t, c.Slot(t, "{"+one.Name()+"}"))] = true
	}
	is.Equal(len(nodes), 3)
	is.NoErr(q.Pause(ctx))
	started := make(chan string, 100)
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		if string(task.Payload) == "bad" {
			return worqr.Permanent(errors.New("no"))
		}
		if string(task.Payload) == "later" {
			return worqr.RetryAfter(errors.New("no"), time.Hour)
		}
		started <- string(task.Payload)
		<-ctx.Done()
		return context.Cause(ctx)
	}, &worqr.HandleOptions{Concurrency: 6, Prefetch: -1})
	for range 12 {
		is.NoErr(q.Enqueue(ctx, []byte("same")))
	}
	run(t, p)
	eventually(t, "all are served", func() bool { return sure(q.Stats(ctx))(t).IdleWorkers > 0 })
	s := sure(q.Stats(ctx))(t)
	is.Equal([]any{s.Waiting, s.Running, s.Workers, s.Paused}, []any{12, 0, 1, true})
	is.NoErr(q.Resume(ctx))
	receive(t, started, 6) // two on each node
	s = sure(q.Stats(ctx))(t)
	is.Equal([]any{s.Waiting, s.Running, s.Workers, s.Paused}, []any{6, 6, 1, false})
	report := sure(q.Cancel(ctx, []byte("same")))(t)
	is.Equal(report.Removed, 6)
	is.NoErr(report.Wait(ctx))
	is.Equal(report.Removed, 6)
	is.NoErr(report.Wait(ctx)) // calling it again changes nothing
	is.Equal(report.Removed, 6)

	for range 9 {
		is.NoErr(q.Enqueue(ctx, []byte("bad")))
	}
	eventually(t, "all have failed", func() bool { return sure(q.Stats(ctx))(t).Failed == 9 })
	var ids []string
	for f := range each(t, q.Failed(ctx)) {
		ids = append(ids, f.ID)
	}
	is.Equal(len(ids), 9)
	is.Equal(sure(q.DeleteFailed(ctx, ids[0], ids[8]))(t), 2)
	for range 3 {
		is.NoErr(q.Enqueue(ctx, []byte("later")))
	}
	eventually(t, "retries wait", func() bool { return sure(q.Stats(ctx))(t).Retrying == 3 })
	is.Equal(sure(q.Cancel(ctx, []byte("later")))(t).Removed, 3)
	is.NoErr(q.Pause(ctx))
	is.True(!sure(q.Stats(ctx))(t).PausedSince.IsZero())
	is.Equal(sure(q.RequeueFailed(ctx, ids[1], ids[4], ids[7]))(t), 3)
	is.Equal(waitIn(t, q), 3)
	is.Equal(sure(q.DeleteAllFailed(ctx))(t)+sure(q.RequeueAllFailed(ctx))(t), 4)
	is.NoErr(q.Delete(ctx))
	is.Equal(waitIn(t, q), 0)
}

// While a node is silent, the queues on the others can be used, and calls about all of them say what
// they reached.
func TestSpreadSilentNode(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	c := partial(t)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p", CallTimeout: 500 * time.Millisecond})
	q := spread.Over(p, "q", 3)
	for range 6 {
		is.NoErr(q.Enqueue(ctx, []byte("x")))
	}
	frozen := c.Owner(t, c.Slot(t, "{q-1}"))
	frozen.Pause(t)
	defer frozen.Resume(t)
	s, err := q.Stats(ctx)
	is.True(err != nil)
	is.Equal(s, inspect.QueueStats{Waiting: 4})
	sent := 0
	for range 3 {
		if q.Enqueue(ctx, []byte("x")) == nil {
			sent++
		}
	}
	is.Equal(sent, 2)
	report, err := q.Cancel(ctx, []byte("x"))
	is.True(err != nil)
	is.Equal(report.Removed, 6)
	is.NoErr(report.Wait(ctx))
}

// Invalid arguments are rejected as by a queue, and Over needs a queue.
func TestBadSpread(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	panics(t, "at least one", func() { spread.Over(p, "q", 0) })
	bad := spread.Over(p, "bad name", 2)
	is.True(is_(bad.Enqueue(t.Context(), nil), worqr.ErrBadName))
	is.True(is_(failure(bad.Stats(t.Context())), worqr.ErrBadName))
	is.True(is_(failure(spread.Over(p, "q", 2).Add(t.Context(), worqr.TaskSpec{Key: "k", Unique: true})), worqr.ErrInvalid))
	panics(t, "negative", func() { spread.Over(p, "q", 2).Handle(tell(nil), &worqr.HandleOptions{Concurrency: -1}) })
}

func waitIn(t testing.TB, q *spread.Queue) int {
	t.Helper()
	s := sure(q.Stats(t.Context()))(t)
	return s.Waiting + s.Scheduled
}
