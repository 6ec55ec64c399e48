package worqr_test

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

// Read-outs see both lanes.
func TestReadOutsOfBothLanes(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	count := func() int {
		return sure(q.Len(ctx))(t)
	}
	put(t, q, "tomorrow", "tomorrow", &worqr.PutOptions{At: time.Now().Add(24 * time.Hour)})
	_, err := q.Peek(ctx)
	is.True(is_(err, worqr.ErrNoTask))
	noTask(t, q)
	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	enqueue(t, q, "one", "two")
	peek := sure(q.Peek(ctx))(t)
	is.Equal(string(peek), "one")
	put(t, q, "due2", "due2", &worqr.PutOptions{At: time.UnixMilli(2000)})
	put(t, q, "due1", "due1", &worqr.PutOptions{At: time.UnixMilli(1000)})
	peek = sure(q.Peek(ctx))(t)
	is.Equal(string(peek), "due1")
	is.Equal(waiting(t, q), []string{"due1", "due2", "one", "two", "later", "tomorrow"})
	is.Equal(count(), 6)
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Workers: 1})

	task := take(t, q)
	is.Equal(task.Key, "due1")
	put(t, q, "due1", "blocked", nil)
	is.Equal(waiting(t, q), []string{"due2", "one", "two", "later", "tomorrow"})
	is.Equal(count(), 6) // what is blocked waits too
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Running: 1, Workers: 1})
	is.Equal(len(scheduled(t, q)), 3)
	for r := range each(t, q.Running(ctx)) {
		is.Equal(string(r.Payload), "due1")
		is.Equal(r.AttemptID, task.AttemptID)
	}
	peek = sure(q.Peek(ctx))(t)
	is.Equal(string(peek), "due2")
	is.NoErr(task.Fail(ctx, errors.New("no")))
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Failed: 1, Workers: 1})
	is.Equal(waiting(t, q), []string{"due2", "blocked", "one", "two", "later", "tomorrow"})

	// What comes back starts before all that has a time, in the order of starts.
	tasks := sure(q.StartTasks(ctx, 4))(t)
	is.Equal(payloads(tasks), []string{"due2", "blocked", "one", "two"})
	for _, i := range []int{1, 3, 0, 2} {
		is.NoErr(tasks[i].Stop(ctx))
	}
	all := waiting(t, q)
	is.Equal(all[:2], []string{"due2", "blocked"})
	is.Equal(all[4:], []string{"later", "tomorrow"})

	// More than a page of each.
	is.NoErr(q.Delete(ctx))
	sure(q.DeleteAllFailed(ctx))(t)
	var want []string
	for i := range 250 {
		put(t, q, fmt.Sprint(i), fmt.Sprint("due", i), &worqr.PutOptions{At: time.UnixMilli(int64(1000 + i))})
		want = append(want, fmt.Sprint("due", i))
	}
	listed := numbers("list", 250)
	enqueue(t, q, listed...)
	want = append(want, listed...)
	for i := range 250 {
		put(t, q, fmt.Sprint("later", i), fmt.Sprint("later", i), &worqr.PutOptions{At: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
		want = append(want, fmt.Sprint("later", i))
	}
	is.Equal(waiting(t, q), want)
	is.Equal(len(scheduled(t, q)), 500)
	is.Equal(count(), 750)
}

func TestDeleteBothLanes(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "fails")
	is.NoErr(take(t, q).Fail(ctx, errors.New("no")))
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(take(t, q).Retry(ctx, time.Hour)) // the lock is with what is to be tried again
	put(t, q, "runs", "runs", nil)
	running := take(t, q)
	put(t, q, "runs", "blocked", nil)
	for i := range 1200 {
		put(t, q, fmt.Sprint(i), fmt.Sprint(i%10), &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	}
	enqueue(t, q, "list")
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 1, Scheduled: 1202, Running: 1, Failed: 1, Workers: 1})
	is.NoErr(q.Delete(ctx))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Failed: 1, Workers: 1})
	is.Equal(scheduled(t, q), nil)
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(q.Delete(ctx))
	is.NoErr(running.Retry(ctx, 0)) // what runs was not touched
	task := take(t, q)
	is.Equal(string(task.Payload), "runs")
	is.Equal(task.Retries, 1)
	is.NoErr(task.Finish(ctx))
	is.NoErr(p.StopWorker(ctx))
	is.Equal(failedPayloads(t, q), []string{"fails"})
	sure(q.DeleteAllFailed(ctx))(t)
	nothingLeft(t, prefix, "q")
}

// A pause keeps tasks from starting, on every peer and by hand, and leaves what runs.
func TestPause(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
	began, end := make(chan string, 10), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		began <- string(t.Payload)
		<-end
		return nil
	}, &worqr.HandleOptions{Concurrency: 2})
	run(t, p)
	enqueue(t, q, "before")
	is.Equal(receive(t, began, 1), []string{"before"})
	other := open(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
	byHand := working(t, other, "q")
	for range 2 { // a second pause changes nothing
		is.NoErr(byHand.Pause(ctx))
	}
	enqueue(t, byHand, "during")
	_, err := byHand.StartTask(ctx)
	is.True(errors.Is(err, worqr.ErrNoTask))
	close(end)
	eventually(t, "what ran has ended", func() bool { return p.Stats().Finished == 1 })
	is.Equal(waiting(t, q), []string{"during"})
	is.NoErr(byHand.StopWork(ctx)) // else it may be the one that is woken
	is.NoErr(byHand.Resume(ctx))
	is.Equal(receive(t, began, 1), []string{"during"})
}

func TestPauseWithDueTasks(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p, q := openQueue(t, worqr.Options{Lease: time.Minute})
	got := make(chan string, 10)
	q.Handle(tell(got), &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	eventually(t, "it is idle", func() bool { return stats(t, q).IdleWorkers == 1 })
	is.NoErr(q.Pause(ctx))
	put(t, q, "now", "now", nil)
	put(t, q, "soon", "soon", &worqr.PutOptions{At: time.Now().Add(20 * time.Millisecond)})
	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Second)})
	eventually(t, "two are due", func() bool { return slices.Equal(waiting(t, q)[:2], []string{"now", "soon"}) })
	is.True(stats(t, q).Paused)
	is.Equal(len(got), 0)
	is.NoErr(q.Resume(ctx))
	since := time.Now()
	is.Equal(receive(t, got, 3), []string{"now", "soon", "later"})
	is.True(time.Since(since) < 15*time.Second) // not by a beat
}
