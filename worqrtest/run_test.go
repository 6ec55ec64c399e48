package worqrtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/worqrtrace"
)

// A handler runs once, whatever it returns, and its Task has all methods.
func TestRun(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		handler worqr.Handler
		outcome worqrtrace.Outcome
		err     error
		result  string
	}{
		"finished": {outcome: worqrtrace.Finished, result: "hello", handler: func(_ context.Context, task *worqr.Task) error {
			task.Result = append([]byte("hel"), task.Payload...)
			return nil
		}},
		"failed":  {outcome: worqrtrace.Failed, err: bad, handler: func(context.Context, *worqr.Task) error { return worqr.Permanent(bad) }},
		"retried": {outcome: worqrtrace.Retried, err: bad, handler: func(context.Context, *worqr.Task) error { return worqr.RetryAfter(bad, -1) }},
		"snoozed": {outcome: worqrtrace.Snoozed, handler: func(ctx context.Context, task *worqr.Task) error { return task.Snooze(ctx, time.Hour) }},
		"stopped": {outcome: worqrtrace.Stopped, handler: func(ctx context.Context, task *worqr.Task) error { return task.Stop(ctx) }},
		"by hand": {outcome: worqrtrace.Failed, handler: func(ctx context.Context, task *worqr.Task) error { return task.Fail(ctx, bad) }},
		"by hand, and then it returns": {outcome: worqrtrace.Finished, err: bad, result: "hello", handler: func(ctx context.Context, task *worqr.Task) error {
			task.Result = []byte("hello")
			if err := task.Finish(ctx); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			return bad
		}},
		"panic": {outcome: worqrtrace.Retried, handler: func(context.Context, *worqr.Task) error { panic("oh") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := Run(t, c.handler, []byte("lo"), nil)
			if a.Outcome != c.outcome || !errors.Is(a.Err, c.err) || string(a.Result) != c.result || a.Queue != "test" {
				t.Errorf("%+v, result %q, %v", a, a.Result, a.Err)
			}
		})
	}
}

// failing is a test that has failed.
type failing struct {
	testing.TB
	text string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) {
	f.text = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *failing) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func (f *failing) Errorf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

// A test that waits in vain fails after a minute.
func TestPatience(t *testing.T) {
	t.Parallel()
	for want, wait := range map[string]func(f *failing, redis *Redis){
		`"q" isn't idle after 1m0s`: func(f *failing, redis *Redis) {
			q := redis.Peer(nil).Queue("q") // nobody serves it
			must(f, q.Enqueue(f.Context(), []byte("x")))
			WaitIdle(f, q)
		},
		"the handler hasn't ended after 1m0s": func(f *failing, _ *Redis) {
			Run(f, func(ctx context.Context, _ *worqr.Task) error { <-ctx.Done(); return nil }, nil, nil)
		},
		"the handler hasn't started after 1m0s: the task has expired, or has a later time": func(f *failing, _ *Redis) {
			Run(f, func(context.Context, *worqr.Task) error { return nil }, nil, &RunOptions{Task: worqr.TaskSpec{Expires: time.Now()}})
		},
	} {
		Virtual(t, func(t *testing.T, redis *Redis) {
			f, began := &failing{TB: t}, time.Now()
			var test sync.WaitGroup
			test.Go(func() { wait(f, redis) })
			test.Wait()
			if took := time.Since(began); f.text != want || took < time.Minute || took > 2*time.Minute {
				t.Errorf("it fails with %q after %v", f.text, took)
			}
		})
	}
}

// A nil handler is a mistake in the test, not a panic of the handler.
func TestRunNil(t *testing.T) {
	t.Parallel()
	f := &failing{TB: t}
	var test sync.WaitGroup
	test.Go(func() { Run(f, nil, nil, nil) })
	test.Wait()
	if f.text != "worqrtest: the handler is nil" {
		t.Errorf("it fails with %q", f.text)
	}
}

// The properties of a task are available, in virtual time, too.
func TestRunVirtually(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, _ *Redis) {
		began := time.Now()
		a := Run(t, func(ctx context.Context, task *worqr.Task) error {
			if task.Headers["h"] != "v" || task.Attempt != 1 || task.EnqueuedAt.IsZero() || task.Queue != "mails" || task.Draining() == nil {
				t.Errorf("task: %+v", *task)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, nil, &RunOptions{
			Queue: "mails", Task: worqr.TaskSpec{Headers: map[string]string{"h": "v"}}, Handle: &worqr.HandleOptions{Timeout: 30 * time.Second},
		})
		if a.Outcome != worqrtrace.Retried || !errors.Is(a.Err, worqr.ErrTimeout) || a.Ran.Round(time.Second) != 30*time.Second {
			t.Errorf("%+v, %v after %v", a, a.Err, time.Since(began))
		}
	})
}
