package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// The context of an attempt that takes too long ends, and the task is retried with the handler's
// error.
func TestTimeout(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		err     error
		reason  string
		retried bool
	}{
		"cause":     {worqr.ErrTimeout, "", true},
		"error":     {no, "", true},
		"nil":       {nil, "", false},
		"Permanent": {worqr.Permanent(no), "no", false},
		"Broken":    {worqr.Malformed(no), "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p, q := openQueue(t, worqr.Options{})
			causes, again := make(chan error, 1), make(chan int, 1)
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				if t.Retries > 0 {
					again <- t.Retries
					return nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return c.err
			}, &worqr.HandleOptions{Timeout: 50 * time.Millisecond, Backoff: atOnce})
			stop := run(t, p)
			enqueue(t, q, "a")
			is.Equal(receive(t, causes, 1), []error{worqr.ErrTimeout})
			if c.retried {
				is.Equal(receive(t, again, 1), []int{1})
			}
			eventually(t, "it is over", func() bool { s := p.Stats(); return s.Finished+s.Failed == 1 })
			stop()
			is.Equal(len(again), 0)
			f := failed(t, q)
			is.Equal(len(f) == 1, c.reason != "")
			if len(f) == 1 {
				is.True(strings.Contains(f[0].Error, c.reason))
				is.Equal(f[0].Kind == inspect.FailureMalformed, name == "Broken")
			}
		})
	}
}

// A handler that ignores its timeout is abandoned: another task gets its slot, it's logged once
// with its stack, and its late return changes nothing.
func TestDisowned(t *testing.T) {
	t.Parallel()
	const ignores = "a handler didn't return after its context ended"
	for _, late := range []string{"nil", "error", "panic", "Finish"} {
		t.Run(late, func(t *testing.T) {
			is := parallel(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			told := &journal{}
			p, q := openQueue(t, worqr.Options{Prefix: prefix, Capacity: 1, Logger: told.Logger()})
			started, release, returned := make(chan string, 10), make(chan struct{}), make(chan error, 1)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				started <- fmt.Sprint(string(t.Payload), t.Retries)
				if string(t.Payload) == "a" && t.Retries == 0 {
					return stubborn(release, returned, late, t)
				}
				return nil
			}, &worqr.HandleOptions{Concurrency: 1, Timeout: 500 * time.Millisecond, Grace: 50 * time.Millisecond, Backoff: atOnce})
			stop := run(t, p)
			add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
			is.Equal(receive(t, started, 1), []string{"a0"})
			enqueue(t, q, "b")
			is.Equal(sorted(receive(t, started, 2)), []string{"a1", "b0"})
			is.Equal(p.Stats().StuckHandlers, int64(1))
			eventually(t, "these are finished", func() bool { return p.Stats().Finished == 2 })
			is.Equal(p.Stats().RunningHandlers, int64(0))
			add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("c")})
			is.Equal(receive(t, started, 1), []string{"c0"})
			eventually(t, "this is finished", func() bool { return p.Stats().Finished == 3 })
			eventually(t, "it is logged", func() bool { return len(told.Lines(ignores)) > 0 })
			is.True(strings.Contains(told.Lines(ignores)[0], "stubborn")) // the stack
			close(release)
			if late == "Finish" {
				is.True(is_(receive(t, returned, 1)[0], worqr.ErrNotOwner))
			}
			eventually(t, "it has returned", func() bool { return p.Stats().StuckHandlers == 0 })
			enqueue(t, q, "d")
			is.Equal(receive(t, started, 1), []string{"d0"})
			stop()
			is.Equal(len(started), 0)
			s := p.Stats()
			is.Equal(s.Finished, int64(4))
			is.Equal(s.Retried, int64(1))
			is.Equal(s.HandlerErrors, int64(1))
			is.Equal(s.Failed, int64(0))
			is.Equal(s.RunningHandlers, int64(0))
			is.Equal(len(told.Lines(ignores)), 1)
			is.NoErr(ctx.Err())
			nothingLeft(t, prefix, "q")
		})
	}
}

// stubborn ignores its context.
func stubborn(release chan struct{}, returned chan<- error, late string, t *worqr.Task) error {
	<-release
	switch late {
	case "error":
		return worqr.Permanent(errors.New("too late"))
	case "panic":
		panic("too late")
	case "Finish":
		returned <- t.Finish(context.Background())
	}
	return nil
}

// StopWork abandons a handler: its slot is free when the peer serves the queue again.
func TestDisownedByStopWork(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	began, release := make(chan string, 2), make(chan struct{})
	defer close(release)
	var runs atomic.Int64
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		began <- string(task.Payload)
		if runs.Add(1) == 1 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Grace: 50 * time.Millisecond})
	run(t, p)
	enqueue(t, q, "a")
	receive(t, began, 1)
	is.NoErr(q.StopWork(t.Context()))
	is.NoErr(q.StartWork(t.Context()))
	is.Equal(receive(t, began, 1), []string{"a"}) // in the slot
	is.Equal(p.Stats().StuckHandlers, int64(1))
}

// A handler that ignores a cancel is abandoned: its task ends, and never runs again.
func TestDisownedByCancel(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	started, release := make(chan string, 10), make(chan struct{})
	q.Handle(holding(started, release), &worqr.HandleOptions{Concurrency: 1, Grace: 50 * time.Millisecond})
	stop := run(t, p)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
	receive(t, started, 1)
	report := sure(q.CancelKey(t.Context(), "key"))(t)
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("b")})
	wait(t, report)
	is.Equal(receive(t, started, 1), []string{"b"})
	is.Equal(p.Stats().StuckHandlers, int64(1))
	close(release)
	eventually(t, "both have returned", func() bool { return p.Stats().StuckHandlers == 0 && p.Stats().Finished == 1 })
	stop()
	is.Equal(p.Stats().Canceled, int64(1))
	is.Equal(len(failed(t, q)), 0)
	nothingLeftBut(t, prefix, "q")
}

// At shutdown, a handler that ignores its context is abandoned, and its task returns to the queue.
// It is logged with its stack before Run returns, and counted until it returns.
func TestStuckHandler(t *testing.T) {
	t.Parallel()
	for name, timeout := range map[string]time.Duration{"": 0, "with a timeout": time.Hour} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			d := &diary{}
			p, q := openQueue(t, worqr.Options{Drain: -1, Logger: d.logger()})
			started, release := make(chan string, 1), make(chan struct{})
			q.Handle(holding(started, release), &worqr.HandleOptions{Grace: 50 * time.Millisecond, Timeout: timeout})
			end, ran := start(t, p)
			enqueue(t, q, "a")
			receive(t, started, 1)
			end()
			err := receive(t, ran, 1)[0]
			is.True(err != nil && strings.Contains(err.Error(), "a handler didn't return after its context ended"))
			is.Equal(p.Stats().StuckHandlers, int64(1))
			is.Equal(p.Stats().RunningHandlers, int64(0))
			is.Equal(waiting(t, q), []string{"a"})
			for _, want := range []string{"didn't return after their context ended", "queue=q", "attempt_id=", "handlers=1", "peertest.Holding"} {
				is.True(strings.Contains(d.String(), want))
			}
			close(release)
			eventually(t, "it has returned", func() bool { return p.Stats().StuckHandlers == 0 })
			is.Equal(p.Stats().Finished, int64(0))
		})
	}
}

// Many handlers ignore their contexts at the same time: their tasks end without waiting for the
// log, which reports them at most once a second.
func TestDisownMany(t *testing.T) {
	is := parallel(t)
	const many = 100
	log := newGate(func(line string) bool { return strings.Contains(line, "didn't return") })
	p, q := openQueue(t, worqr.Options{Logger: slog.New(log)})
	release := make(chan struct{})
	q.Handle(func(context.Context, *worqr.Task) error {
		<-release
		return nil
	}, &worqr.HandleOptions{Concurrency: many, Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond, MaxRetries: -1})
	run(t, p)
	began := time.Now()
	enqueue(t, q, numbers("", many)...)
	<-log.Halted
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == many })
	is.Equal(p.Stats().StuckHandlers, int64(many))
	is.Equal(p.Stats().RunningHandlers, int64(0))
	close(log.Open)
	close(release)
	eventually(t, "all have returned", func() bool { return p.Stats().StuckHandlers == 0 })
	is.True(log.Lines.Load() <= 1+int64(time.Since(began)/time.Second))
	is.Equal(len(failed(t, q)), many)
}
