package api

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A snoozed task starts again, more often than it could be retried. It keeps its key, its uniqueness and
// its retries, and Backoff isn't called.
func TestLater(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "under a key", "unique", "large"} {
		t.Run(kind, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p, q := openQueue(t, worqr.Options{Prefix: prefix})
			type attempt struct {
				key     string
				bytes   int
				retries int
			}
			got := make(chan attempt, 10)
			release := make(chan error)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				got <- attempt{t.Key, len(t.Payload), t.Retries}
				return <-release
			}, &worqr.HandleOptions{MaxRetries: 1, Backoff: atOnce})
			want := attempt{bytes: 1}
			switch kind {
			case "plain":
				enqueue(t, q, "a")
			case "large":
				want.bytes = 100_000
				enqueue(t, q, string(make([]byte, want.bytes)))
			case "unique":
				sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("a"), Unique: true}))(t)
			default:
				want.key = "key"
				add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
			}
			stop := run(t, p)
			for range 4 {
				is.Equal(receive(t, got, 1)[0], want)
				if kind == "unique" {
					is.True(errors.Is(failure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("a"), Unique: true})), worqr.ErrDuplicate))
				}
				release <- fmt.Errorf("not yet: %w", worqr.Snooze(0))
			}
			is.Equal(receive(t, got, 1)[0], want)
			release <- errors.New("no")
			want.retries = 1
			is.Equal(receive(t, got, 1)[0], want)
			release <- worqr.Snooze(-time.Second)
			is.Equal(receive(t, got, 1)[0], want)
			release <- nil
			eventually(t, "it is finished", func() bool { return p.Stats().Finished == 1 })
			s := p.Stats()
			is.Equal([]int64{s.Snoozed, s.Retried, s.HandlerErrors, s.Failed}, []int64{5, 1, 1, 0})
			stop()
			nothingLeft(t, prefix, "q")
		})
	}
}

// A canceled task that snoozes is dropped, one that timed out may snooze, and a shutdown returns it
// at once. Task.Snooze snoozes a task without a handler.
func TestLaterEndings(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	began := make(chan string, 3)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		began <- string(t.Payload)
		<-ctx.Done()
		return worqr.Snooze(time.Hour)
	}, &worqr.HandleOptions{Concurrency: 3})
	enqueue(t, q, "canceled", "stopped")
	stop := run(t, p)
	receive(t, began, 2)
	wait(t, cancel(t, q, "canceled"))
	eventually(t, "it is dropped", func() bool { return p.Stats().Canceled == 1 })
	stop()
	is.Equal(waiting(t, q), []string{"stopped"})

	other, q := openQueue(t, worqr.Options{})
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		<-ctx.Done()
		return worqr.Snooze(time.Hour)
	}, &worqr.HandleOptions{Timeout: time.Millisecond, MaxRetries: -1})
	enqueue(t, q, "slow")
	run(t, other)
	eventually(t, "it is snoozed", func() bool { return other.Stats().Snoozed == 1 })

	q = working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a")
	task := take(t, q)
	is.True(errors.Is(task.Snooze(t.Context(), -1), worqr.ErrInvalid))
	is.NoErr(task.Snooze(t.Context(), 0))
	is.NoErr(task.Snooze(t.Context(), 0)) // again
	task = take(t, q)
	is.Equal(task.Retries, 0)
	is.NoErr(task.Snooze(t.Context(), time.Hour))
	is.Equal(len(scheduled(t, q)), 1)
}
