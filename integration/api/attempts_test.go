package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A task that fails in turns for two reasons on two workers shows that: the last five attempts are known while it's
// retried and after it has failed, and nowhere are they part of the last error. Requeuing it begins a new list.
func TestAttempts(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	reasons := [2]string{"no disk", "no\x00w:1:2:forged"}
	shown := [2]string{"no disk", "no�w:1:2:forged"}
	const last = 6 // the retries of the last attempt
	type seen struct {
		retries int
		last    string
		copy    inspect.TaskCopy
	}
	all := make(chan seen, last+1)
	var q *worqr.Queue
	var workers [2]string
	for i := range workers {
		var p *worqr.Peer
		p, q = openQueue(t, worqr.Options{Prefix: prefix})
		q.Handle(func(ctx context.Context, task *worqr.Task) error {
			if task.Retries%2 != i {
				return worqr.Snooze(time.Millisecond) // the other one's turn
			}
			e, err := q.Explain(ctx, worqr.Query{Key: "k"})
			if err != nil {
				return err
			}
			all <- seen{task.Retries, task.LastError, e.Copies[0]}
			return errors.New(reasons[i])
		}, &worqr.HandleOptions{MaxRetries: last, Backoff: atOnce})
		run(t, p)
		workers[i] = p.WorkerID()
	}
	check := func(attempts []inspect.Attempt, retries int) { // the newest is that after so many
		t.Helper()
		is.Equal(len(attempts), min(retries+1, 5))
		for n, a := range attempts {
			is.Equal(a.WorkerID, workers[(retries-n)%2])
			is.Equal(a.Error, shown[(retries-n)%2])
			is.True(near(a.StartedAt, time.Now()) && !a.EndedAt.Before(a.StartedAt))
			is.True(n == 0 || !a.StartedAt.After(attempts[n-1].StartedAt))
		}
	}
	add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("x"), KeepResult: time.Hour})
	is.Equal(sure(q.Wait(ctx, "k"))(t).Error, shown[last%2])
	for i, s := range receive(t, all, last+1) {
		is.Equal(s.retries, i)
		is.True(i == 0 && s.last == "" || i > 0 && s.last == shown[(i-1)%2])
		is.Equal(s.copy.Error, s.last)
		check(s.copy.Attempts, i-1)
	}
	f := failed(t, q)[0]
	is.Equal(f.Error, shown[last%2])
	check(f.Attempts, last)
	is.Equal(sure(q.Explain(ctx, worqr.Query{Key: "k"}))(t).Copies[0].Attempts, f.Attempts)
	is.NoErr(q.Pause(ctx))
	is.Equal(sure(q.RequeueFailed(ctx, f.ID))(t), 1)
	c := sure(q.Explain(ctx, worqr.Query{Key: "k"}))(t).Copies[0]
	is.True(c.State == inspect.CopyWaiting && len(c.Attempts) == 0 && c.Error == "")
}
