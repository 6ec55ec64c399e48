package api

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// OnFailed gets the failure, has its own retries, and removes a task by returning nil.
func TestOnFailed(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	type told struct {
		payload, key string
		retries      int
		failure      inspect.FailedTask
	}
	got := make(chan told, 100)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if t.Failure != nil {
			return nil // must not happen
		}
		if string(t.Payload) == "broken" {
			return worqr.Malformed(errors.New("what is this"))
		}
		return errors.New("no")
	}, &worqr.HandleOptions{MaxRetries: 1, Backoff: atOnce,
		OnFailed: func(_ context.Context, t *worqr.Task) error {
			got <- told{string(t.Payload), t.Key, t.Retries, *t.Failure}
			if t.Retries < 2 {
				return errors.New("not yet")
			}
			return nil
		},
		OnFailedOptions: &worqr.HandleOptions{Backoff: atOnce},
	})
	stop := run(t, p)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
	all := receive(t, got, 3)
	for i, g := range all {
		is.Equal(g.retries, i)
		is.True(near(g.failure.FailedAt, time.Now()))
		is.True(g.failure.ID != "")
		is.Equal(g.failure.ID, all[0].failure.ID)
		is.True(g.failure.DueAt.IsZero() && near(g.failure.EnqueuedAt, time.Now()))
		is.Equal(len(g.failure.Attempts), 2)
		g.failure.ID, g.failure.FailedAt, g.failure.EnqueuedAt, g.failure.Attempts = "", time.Time{}, time.Time{}, nil
		is.Equal(g, told{"a", "key", i, inspect.FailedTask{Payload: []byte("a"), Key: "key", Kind: inspect.FailureError,
			Error: "no", Retries: 1, WorkerID: p.WorkerID()}})
	}
	enqueue(t, q, "broken")
	b := receive(t, got, 3)[2]
	is.Equal(b.key, "")
	is.Equal(b.failure.Kind, inspect.FailureMalformed)
	is.Equal(b.failure.Retries, 0)
	is.Equal(b.failure.Error, "what is this")
	eventually(t, "all is done", func() bool { return p.Stats().Finished == 2 })
	is.Equal(failed(t, q), nil)
	stop()
	is.Equal(len(got), 0)
	for _, key := range left(t, prefix+":failed") {
		if !strings.HasPrefix(key, prefix+":failed:state:") {
			t.Errorf("left behind: %s", key)
		}
	}
}

// OnFailed runs at least once, even if its worker dies. If it gives up on a task, the task stays,
// doesn't run again, and can be requeued.
func TestOnFailedAtLeastOnce(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	no := errors.New("no")
	type told struct {
		payload string
		crashes int
	}
	started := make(chan told, 10)
	serve := func(holds bool) *worqr.Peer {
		p := open(t, worqr.Options{Prefix: prefix, Drain: -1})
		p.Queue("q").Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(no) },
			&worqr.HandleOptions{OnFailed: func(ctx context.Context, t *worqr.Task) error {
				started <- told{string(t.Payload), t.Crashes}
				if holds {
					<-ctx.Done()
					return ctx.Err()
				}
				return worqr.Permanent(errors.New("hopeless"))
			}})
		return p
	}
	a := serve(true)
	stop := run(t, a)
	q := a.Queue("q")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
	is.Equal(receive(t, started, 1), []told{{"a", 0}})
	is.Equal(failed(t, q), nil) // it's running
	n := sure(q.DeleteAllFailed(ctx))(t)
	is.Equal(n, 0)
	n = sure(q.RequeueAllFailed(ctx))(t)
	is.Equal(n, 0)
	b := serve(false)
	run(t, b)
	eventually(t, "both serve", func() bool { return stats(t, q).Workers == 2 })
	failWorker(t, b, a.WorkerID(), 1)
	is.Equal(receive(t, started, 1), []told{{"a", 1}})
	stop()
	eventually(t, "OnFailed has given up", func() bool { return len(failed(t, q)) == 1 })
	f := failed(t, q)[0]
	is.Equal(f.Error, "no") // the error of the task, not that of OnFailed
	is.Equal(f.Key, "key")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("b")}) // the next one runs, and the first doesn't run again
	is.Equal(receive(t, started, 1), []told{{"b", 0}})
	eventually(t, "OnFailed has given up on both", func() bool { return len(failed(t, q)) == 2 })
	is.Equal(len(started), 0)
	is.Equal(stats(t, q).Failed, 2)
	n = sure(q.DeleteFailed(ctx, f.ID))(t)
	is.Equal(n, 1)
	n = sure(q.RequeueAllFailed(ctx))(t)
	is.Equal(n, 1)
	is.Equal(receive(t, started, 1), []told{{"b", 0}}) // it has failed again
}

// If OnFailed runs out of retries, or its workers die, the task stays in the failed queue, too.
func TestOnFailedGivesUp(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	var runs atomic.Int64
	q.Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) },
		&worqr.HandleOptions{
			OnFailed: func(context.Context, *worqr.Task) error {
				runs.Add(1)
				panic("no")
			},
			OnFailedOptions: &worqr.HandleOptions{MaxRetries: 2, Backoff: atOnce},
		})
	stop := run(t, p)
	enqueue(t, q, "a")
	eventually(t, "OnFailed has given up", func() bool { return len(failed(t, q)) == 1 && runs.Load() == 3 && stats(t, q).Running == 0 })
	stop()
	is.Equal(runs.Load(), int64(3))
	is.Equal(failedPayloads(t, q), []string{"a"})
	is.Equal(sure(q.DeleteAllFailed(ctx))(t), 1)
}

// Failed tasks stay even if KeepFailed is the largest int.
func TestOnFailedKeepsAll(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	fail := func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) }
	q.Handle(fail, &worqr.HandleOptions{KeepFailed: math.MaxInt, OnFailed: fail})
	enqueue(t, q, "a", "b", "c", "d")
	stop := run(t, p)
	eventually(t, "OnFailed has given up", func() bool { return p.Stats().Failed == 8 })
	stop()
	is.Equal(p.Stats().Dropped, int64(0))
	is.Equal(stats(t, q).Failed, 4)
}
