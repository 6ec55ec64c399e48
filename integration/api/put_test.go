package api

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The same with handlers: what is put while they run runs after, and never two
// at once.
func TestPutOnHandled(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	type end struct {
		do     func(ctx context.Context) error
		fails  bool   // ends in the failed queue
		before string // what is to be done before the handler ends
	}
	ends := map[string]end{
		"nil":        {do: func(context.Context) error { return nil }},
		"error":      {do: func(context.Context) error { return no }},
		"RetryAfter": {do: func(context.Context) error { return worqr.RetryAfter(no, time.Hour) }},
		"Permanent":  {do: func(context.Context) error { return worqr.Permanent(no) }, fails: true},
		"Broken":     {do: func(context.Context) error { return worqr.Malformed(no) }, fails: true},
		"panic":      {do: func(context.Context) error { panic("no") }},
		"Goexit":     {do: func(context.Context) error { runtime.Goexit(); return nil }},
		"timeout":    {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"canceled":   {do: func(ctx context.Context) error { return ctx.Err() }, before: "cancel"},
		"shutdown":   {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, before: "shutdown"},
		"failed":     {do: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, before: "fail"},
	}
	for how, end := range ends {
		for which, o := range map[string]*worqr.PutOptions{
			"default": nil, "past": {At: time.Unix(1, 0)}, "soon": {At: time.Now().Add(time.Second)},
			"if earlier": {Reschedule: worqr.RescheduleIfEarlier}, "keep counts": {KeepCounts: true},
		} {
			t.Run(how+", "+which, func(t *testing.T) {
				is := parallel(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				var running, runs, twice atomic.Int64
				started, release, got := make(chan string, 10), make(chan struct{}), make(chan string, 10)
				serve := func() (*worqr.Peer, func()) {
					p := open(t, worqr.Options{Prefix: prefix, Drain: -1})
					ho := &worqr.HandleOptions{Concurrency: 3, Backoff: func(*worqr.Task, error) time.Duration { return time.Hour }}
					if how == "timeout" {
						ho.Timeout = 700 * time.Millisecond
					}
					p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
						if running.Add(1) > 1 {
							twice.Add(1)
						}
						defer running.Add(-1)
						if runs.Add(1) > 1 {
							got <- string(t.Payload)
							return nil
						}
						started <- string(t.Payload)
						<-release
						if end.before == "cancel" {
							<-ctx.Done()
						}
						return end.do(ctx)
					}, ho)
					return p, run(t, p)
				}
				a, stop := serve()
				q := a.Queue("q")
				put(t, q, "key", "old", nil)
				is.Equal(receive(t, started, 1), []string{"old"})
				b, _ := serve()
				eventually(t, "both serve", func() bool { return stats(t, q).Workers == 2 })
				if end.before == "cancel" {
					is.Equal(sure(q.CancelKey(ctx, "key"))(t).Removed, 0)
				}
				put(t, q, "key", "new", o)
				close(release)
				switch end.before {
				case "shutdown":
					stop()
				case "fail":
					failWorker(t, b, a.WorkerID(), 1)
				}
				is.Equal(receive(t, got, 1), []string{"new"})
				if end.before != "fail" {
					is.Equal(twice.Load(), int64(0))
				}
				eventually(t, "nothing is left", func() bool {
					s := stats(t, q)
					return s.Running+s.Scheduled+s.Waiting == 0
				})
				is.Equal(runs.Load(), int64(2))
				is.Equal(len(failed(t, q)) == 1, end.fails)
			})
		}
	}
}
