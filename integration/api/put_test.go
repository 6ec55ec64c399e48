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

// Several Puts on a key that runs and ends: only what they made of each other.
func TestPutSeveralTimesOnRunning(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	hour := time.Now().Add(time.Hour)
	put(t, q, "key", "old", nil)
	task := take(t, q)
	put(t, q, "key", "first", &worqr.PutOptions{At: hour})
	put(t, q, "key", "second", &worqr.PutOptions{Reschedule: worqr.RescheduleNever})
	put(t, q, "key", "third", &worqr.PutOptions{KeepPayload: true, At: hour.Add(-30 * time.Minute), Reschedule: worqr.RescheduleIfEarlier})
	is.NoErr(task.Finish(ctx))
	waits := func(payload string, at time.Time, retries int) {
		t.Helper()
		s := scheduled(t, q)
		is.Equal(len(s), 1)
		is.Equal(string(s[0].Payload), payload)
		is.True(near(s[0].DueAt, at))
		is.Equal(s[0].Retries, retries)
	}
	waits("second", hour.Add(-30*time.Minute), 0)
	put(t, q, "key", "again", nil)
	task = take(t, q)
	put(t, q, "key", "blocked", nil)
	removed := sure(q.RemoveKey(ctx, "key"))(t) // and its rules
	is.True(removed)
	is.NoErr(task.Retry(ctx, time.Hour))
	waits("again", time.Now().Add(time.Hour), 1)
	put(t, q, "key", "", nil)
	is.Equal(len(scheduled(t, q)), 1)
	is.Equal(string(take(t, q).Payload), "")
}

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
					ho := &worqr.HandleOptions{Concurrency: 3, Backoff: func(int) time.Duration { return time.Hour }}
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

// A handler that puts its own key again has it done periodically.
func TestPeriodic(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	const period = 30 * time.Millisecond
	ticks := make(chan time.Time, 100)
	var running, twice, n atomic.Int64
	var stops []func()
	var q *worqr.Queue
	for range 2 {
		p := open(t, worqr.Options{Prefix: prefix})
		q = p.Queue("q")
		mine := q
		q.Handle(func(ctx context.Context, t *worqr.Task) error {
			if running.Add(1) > 1 {
				twice.Add(1)
			}
			defer running.Add(-1)
			ticks <- time.Now()
			if n.Add(1) >= 10 {
				return nil
			}
			if err := mine.Put(ctx, t.Key, t.Payload, &worqr.PutOptions{At: time.Now().Add(period)}); err != nil {
				return worqr.Permanent(err)
			}
			if n.Load() == 5 {
				return errors.New("no") // goes on all the same, when it was to
			}
			return nil
		}, &worqr.HandleOptions{Backoff: func(int) time.Duration { return time.Hour }})
		stops = append(stops, run(t, p))
	}
	put(t, q, "periodic", "tick", nil)
	all := receive(t, ticks, 10)
	for i := 1; i < len(all); i++ {
		if d := all[i].Sub(all[i-1]); d < period {
			t.Errorf("a tick after %v", d)
		}
	}
	eventually(t, "the last has ended", func() bool { return stats(t, q).Running == 0 })
	is.Equal(twice.Load(), int64(0))
	for _, stop := range stops {
		stop()
	}
	is.Equal(len(ticks), 0)
	is.Equal(len(failed(t, q)), 0)
	nothingLeft(t, prefix, "q")
	is.NoErr(ctx.Err())
}

// The same key in two queues of a peer is two things.
func TestSameKeyInTwoQueues(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Capacity: 2})
	started, release := make(chan string, 10), make(chan struct{}, 10)
	var queues []*worqr.Queue
	for _, name := range []string{"one", "two"} {
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			started <- t.Queue + "/" + t.Key
			<-release
			return nil
		}, &worqr.HandleOptions{Concurrency: 2})
		queues = append(queues, q)
	}
	stop := run(t, p)
	for range 3 { // no capacity goes astray
		for _, q := range queues {
			put(t, q, "key", "same", nil)
		}
		is.Equal(sorted(receive(t, started, 2)), []string{"one/key", "two/key"}) // at the same time
		for _, q := range queues {
			put(t, q, "key", "blocked", nil)
		}
		release <- struct{}{}
		release <- struct{}{}
		is.Equal(sorted(receive(t, started, 2)), []string{"one/key", "two/key"})
		report := sure(queues[0].CancelKey(t.Context(), "key"))(t) // of this one only
		release <- struct{}{}
		release <- struct{}{}
		wait(t, report)
		eventually(t, "nothing runs", func() bool { return stats(t, queues[0]).Running+stats(t, queues[1]).Running == 0 })
	}
	stop()
	is.Equal(p.Stats().Canceled+p.Stats().Finished, int64(12))
	is.True(p.Stats().Canceled <= 3)
	nothingLeftBut(t, prefix, "one", ":token:{two}")
}
