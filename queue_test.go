package worqr_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Read-outs see both lanes, more than a page of each: what is due, the list, what is due later.
func TestReadOutsOfBothLanes(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	var due, later []string
	for i := range 250 {
		due, later = append(due, fmt.Sprint("due", i)), append(later, fmt.Sprint("later", i))
		put(t, q, later[i], later[i], &worqr.PutOptions{At: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
	}
	enqueue(t, q, numbers("list", 250)...)
	is.Equal(string(sure(q.Peek(t.Context()))(t)), "list0")
	for i, payload := range due {
		put(t, q, payload, payload, &worqr.PutOptions{At: time.UnixMilli(int64(1000 + i))})
	}
	is.Equal(string(sure(q.Peek(t.Context()))(t)), "due0")
	is.Equal(waiting(t, q), slices.Concat(due, numbers("list", 250), later))
	is.Equal(len(scheduled(t, q)), 500)
	is.Equal(sure(q.Len(t.Context()))(t), 750)
}

// More than a page is deleted, with its locks; what runs and what has failed is not touched.
func TestDeleteBothLanes(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "fails")
	is.NoErr(take(t, q).Fail(ctx, errors.New("no")))
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(take(t, q).Retry(ctx, time.Hour)) // the lock is with what is to be tried again
	put(t, q, "runs", "runs", nil)
	running := take(t, q)
	for i := range 1200 {
		put(t, q, fmt.Sprint(i), fmt.Sprint(i%10), &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	}
	enqueue(t, q, "list")
	is.NoErr(q.Delete(ctx))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Failed: 1, Workers: 1})
	is.Equal(sure(q.Stats(ctx))(t).Tokens, int64(3)) // one for each start
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(running.Finish(ctx))
}

// A pause keeps tasks from starting, on every peer and by hand, and leaves what runs.
func TestPause(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
	began, end := make(chan string, 10), make(chan struct{})
	q.Handle(holding(began, end), &worqr.HandleOptions{Concurrency: 2})
	run(t, p)
	enqueue(t, q, "before")
	is.Equal(receive(t, began, 1), []string{"before"})
	other := open(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
	byHand := working(t, other, "q")
	for range 2 { // a second pause changes nothing
		is.NoErr(byHand.Pause(ctx))
	}
	enqueue(t, byHand, "during")
	is.True(errors.Is(failure(byHand.StartTask(ctx)), worqr.ErrNoTask))
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
