package api

import (
	"errors"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A pause keeps tasks from starting, on every peer and by hand, and doesn't affect running ones.
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
	eventually(t, "the running task has ended", func() bool { return p.Stats().Finished == 1 })
	is.Equal(waiting(t, q), []string{"during"})
	is.NoErr(byHand.StopWork(ctx)) // otherwise it may be the worker that is woken
	is.NoErr(byHand.Resume(ctx))
	is.Equal(receive(t, began, 1), []string{"during"})
}

// A pause keeps due tasks, too. They start in order once it ends.
func TestPauseWithDueTasks(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p, q := openQueue(t, worqr.Options{Lease: time.Minute})
	got := make(chan string, 10)
	q.Handle(tell(got), &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	eventually(t, "it is idle", func() bool { return stats(t, q).IdleWorkers == 1 })
	is.NoErr(q.Pause(ctx))
	add(t, q, worqr.TaskSpec{Key: "now", Payload: []byte("now")})
	add(t, q, worqr.TaskSpec{Key: "soon", Payload: []byte("soon"), At: time.Now().Add(20 * time.Millisecond)})
	add(t, q, worqr.TaskSpec{Key: "later", Payload: []byte("later"), At: time.Now().Add(time.Second)})
	eventually(t, "two are due", func() bool {
		e := peertest.Named(t, q)
		return len(e) == 3 && e[1].DueAt.Before(time.Now()) && e[1].Key == "soon"
	})
	is.True(stats(t, q).Paused)
	is.Equal(len(got), 0)
	is.NoErr(q.Resume(ctx))
	since := time.Now()
	is.Equal(receive(t, got, 3), []string{"now", "soon", "later"})
	is.True(time.Since(since) < 15*time.Second) // sooner than a heartbeat
}
