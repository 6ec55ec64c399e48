package api

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

var anyLine = regexp.MustCompile(`\.go:[1-9][0-9]*: `)

// A panic is retried or final, as OnPanic says. An error is retried; a Permanent one isn't. The
// worker survives all of them. Package internal/engine tests wrapped errors.
func TestExceptions(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		fail   func() error
		policy worqr.PanicPolicy
		runs   int
		reason string
	}{
		"panic, retry":             {func() error { panic("no") }, worqr.RetryOnPanic, 3, "panic at api/retries_test.go:0: no"},
		"panic, fail":              {func() error { panic("no") }, worqr.FailOnPanic, 1, "panic at api/retries_test.go:0: no"},
		"panic with an error":      {func() error { panic(no) }, worqr.FailOnPanic, 1, "panic at api/retries_test.go:0: no"},
		"Goexit, fail":             {func() error { runtime.Goexit(); return nil }, worqr.FailOnPanic, 3, "the handler called runtime.Goexit"},
		"panic nil, fail":          {func() error { panic(nil) }, worqr.FailOnPanic, 1, ""},
		"nil dereference, fail":    {func() error { var p *worqr.Task; return errors.New(p.AttemptID) }, worqr.FailOnPanic, 1, ""},
		"error, retry":             {func() error { return no }, worqr.RetryOnPanic, 3, "no"},
		"Permanent, retry":         {func() error { return worqr.Permanent(no) }, worqr.RetryOnPanic, 1, "no"},
		"canceled by a subcontext": {func() error { return context.Canceled }, worqr.RetryOnPanic, 3, "context canceled"},
		"not ours":                 {func() error { return worqr.ErrNotOwner }, worqr.RetryOnPanic, 3, "worqr: this worker no longer holds the task; another may be running it"},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			p, q := openQueue(t, worqr.Options{})
			var runs atomic.Int64
			good := make(chan string, 1)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				if string(t.Payload) == "good" {
					good <- ""
					return nil
				}
				runs.Add(1)
				return c.fail()
			}, &worqr.HandleOptions{OnPanic: c.policy, MaxRetries: 2, Backoff: atOnce, Concurrency: 1})
			stop := run(t, p)
			enqueue(t, q, "bad")
			eventually(t, "it has failed", func() bool { return len(failed(t, q)) == 1 })
			enqueue(t, q, "good")
			receive(t, good, 1)
			stop()
			is.Equal(runs.Load(), int64(c.runs))
			f := failed(t, q)[0]
			is.Equal(string(f.Payload), "bad")
			is.Equal(f.Kind, inspect.FailureError)
			is.Equal(f.Retries, c.runs-1)
			if c.reason != "" {
				is.Equal(anyLine.ReplaceAllString(f.Error, ".go:0: "), c.reason)
			}
			is.True(f.Error != "")
			is.Equal(p.Stats().Finished, int64(1))
			is.Equal(p.Stats().Failed, int64(1))
		})
	}
}

// A handler that ends its goroutine and panics in a deferred function doesn't take down its slot and
// the next task: recovering from that panic doesn't stop runtime.Goexit.
func TestGoexitAndPanic(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	began := make(chan string, 10)
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		began <- string(task.Payload)
		if string(task.Payload) == "bad" {
			defer panic("no")
			runtime.Goexit()
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Prefetch: 5, MaxRetries: -1})
	enqueue(t, q, "bad", "1", "2") // one round brings all
	stop := run(t, p)
	is.Equal(receive(t, began, 3), []string{"bad", "1", "2"})
	stop()
	is.Equal(anyLine.ReplaceAllString(failed(t, q)[0].Error, ".go:0: "), "panic at api/retries_test.go:0: no")
}

// A task is retried MaxRetries times with the same identity, and then it fails.
func TestMaxRetries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max, runs int
		key       string
	}{"default": {0, 11, ""}, "two": {2, 3, "key"}, "none": {-1, 1, ""}} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p, q := openQueue(t, worqr.Options{Prefix: prefix})
			type attempt struct {
				payload, key string
				retries      int
			}
			var want []attempt
			got := make(chan attempt, 100)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				got <- attempt{string(t.Payload), t.Key, t.Retries}
				return fmt.Errorf("no %d", t.Retries)
			}, &worqr.HandleOptions{MaxRetries: c.max, Backoff: func(task *worqr.Task, err error) time.Duration {
				if task.Queue != "q" || task.Key != c.key || err.Error() != fmt.Sprintf("no %d", task.Retries) {
					t.Error(task, err)
				}
				return 0
			}})
			if c.key == "" {
				enqueue(t, q, "a")
			} else {
				add(t, q, worqr.TaskSpec{Key: c.key, Payload: []byte("a")})
			}
			stop := run(t, p)
			for i := range c.runs {
				want = append(want, attempt{"a", c.key, i})
			}
			is.Equal(receive(t, got, c.runs), want)
			eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
			f := failed(t, q)[0]
			is.Equal(f.Retries, c.runs-1)
			is.Equal(f.Error, fmt.Sprintf("no %d", c.runs-1))
			is.Equal(f.Key, c.key)
			is.Equal(string(f.Payload), "a")
			is.Equal(f.WorkerID, p.WorkerID())
			stop()
			is.Equal(len(got), 0)
			s := p.Stats()
			is.Equal([]int64{s.Retried, s.HandlerErrors, s.Failed, s.Finished}, []int64{int64(c.runs - 1), int64(c.runs), 1, 0})
			sure(q.DeleteAllFailed(t.Context()))(t)
			nothingLeft(t, prefix, "q")
		})
	}
}

// A Backoff that panics is logged once, with its stack, and again when it has stopped panicking;
// the tasks are retried after a while. An endless delay becomes a century, and the task stays
// listed. Package internal/engine tests other delays.
func TestBackoffIsTold(t *testing.T) {
	is := parallel(t)
	told := &journal{}
	p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
	fail := errors.New("no")
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if string(t.Payload) == "later" {
			return worqr.RetryAfter(fail, 1<<63-1)
		}
		return fail
	}, &worqr.HandleOptions{Concurrency: 1, Backoff: func(*worqr.Task, error) time.Duration { panic("unsound") }})
	began := time.Now()
	run(t, p)
	enqueue(t, q, "a", "b", "later")
	eventually(t, "they wait", func() bool { return p.Stats().Retried == 3 })
	lines := told.Lines("Backoff panicked")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "unsound") && strings.Contains(lines[0], "TestBackoffIsTold"))
	for _, s := range scheduled(t, q) {
		least, most := time.Second-time.Since(began), 13*time.Second
		if string(s.Payload) == "later" {
			least, most = 99*365*24*time.Hour, 101*366*24*time.Hour
		}
		if in := time.Until(s.DueAt); in < least || in > most {
			t.Errorf("%s is delayed by %v", s.Payload, in)
		}
	}
}
