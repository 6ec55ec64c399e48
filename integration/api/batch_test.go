package api

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A batch runs when it's full, with its tasks in order.
func TestHandleBatch(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	got := make(chan []string, 10)
	q.HandleBatch(func(_ context.Context, tasks []*worqr.Task) []error {
		got <- payloads(tasks)
		return nil
	}, &worqr.BatchOptions{Size: 4, Wait: time.Hour})
	enqueue(t, q, numbers("", 8)...)
	stop := run(t, p)
	is.Equal(receive(t, got, 2), [][]string{{"0", "1", "2", "3"}, {"4", "5", "6", "7"}})
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 8 })

	enqueue(t, q, "8", "9") // they wait for more tasks or for the drain
	eventually(t, "they are taken", func() bool { return p.Stats().RunningHandlers == 2 })
	is.Equal(len(got), 0)
	stop()
	is.Equal(receive(t, got, 1)[0], []string{"8", "9"})
	is.Equal(p.Stats().Finished, int64(10))
	nothingLeft(t, prefix, "q")
}

// At most Concurrency batches run at the same time, and none is larger than Size. A batch that
// isn't full runs after Wait.
func TestBatchWaits(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	got, release := make(chan int, 100), make(chan struct{})
	q.HandleBatch(func(_ context.Context, tasks []*worqr.Task) []error {
		got <- len(tasks)
		<-release
		return nil
	}, &worqr.BatchOptions{HandleOptions: worqr.HandleOptions{Concurrency: 2}, Size: 5, Wait: time.Millisecond})
	run(t, p)
	enqueue(t, q, "a")
	is.Equal(receive(t, got, 1)[0], 1)
	enqueue(t, q, numbers("", 20)...)
	receive(t, got, 1)
	eventually(t, "all slots are taken", func() bool { return p.Stats().RunningHandlers == 10 })
	is.Equal(len(got), 0)
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: 3})) // one more
	receive(t, got, 1)
	close(release)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == 21 })
	for len(got) > 0 {
		is.True(<-got <= 5)
	}
}

// Each task has its own outcome. If the handler panics, calls Goexit or returns the wrong number of
// errors, all tasks of the batch fail.
func TestBatchVerdicts(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		do     func(tasks []*worqr.Task) []error
		failed []string
		text   string
	}{
		"each its own": {func(tasks []*worqr.Task) (errs []error) {
			for _, t := range tasks {
				errs = append(errs, map[string]error{"b": worqr.Permanent(no), "c": worqr.Snooze(time.Hour)}[string(t.Payload)])
			}
			return errs
		}, []string{"b"}, "no"},
		"panic":   {func([]*worqr.Task) []error { panic("no") }, []string{"a", "b", "c"}, "panic at api/batch_test.go:0: no"},
		"Goexit":  {func([]*worqr.Task) []error { runtime.Goexit(); return nil }, []string{"a", "b", "c"}, "the handler called runtime.Goexit"},
		"too few": {func([]*worqr.Task) []error { return []error{nil} }, []string{"a", "b", "c"}, "the batch handler returned 1 error for 3 tasks; return one per task, or nil if all are finished"},
		"none":    {func([]*worqr.Task) []error { return []error{} }, []string{"a", "b", "c"}, "the batch handler returned 0 errors for 3 tasks; return one per task, or nil if all are finished"},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			told := &journal{}
			p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
			q.HandleBatch(func(_ context.Context, tasks []*worqr.Task) []error { return c.do(tasks) },
				&worqr.BatchOptions{HandleOptions: worqr.HandleOptions{MaxRetries: -1}, Size: 3, Wait: time.Hour})
			enqueue(t, q, "a", "b", "c")
			run(t, p)
			eventually(t, "all have ended", func() bool {
				s := p.Stats()
				return s.Failed == int64(len(c.failed)) && s.Finished+s.Failed+s.Snoozed == 3
			})
			all := failed(t, q)
			is.Equal(sorted(failedPayloads(t, q)), c.failed)
			for _, f := range all {
				is.Equal(anyLine.ReplaceAllString(f.Error, ".go:0: "), c.text)
			}
			if name == "panic" {
				is.True(strings.Contains(strings.Join(told.Lines("handler panicked"), "\n"), "TestBatchVerdicts"))
			}
		})
	}
}

// A canceled task ends alone, even while its batch waits for others. The context of the batch ends
// with its last task.
func TestBatchCancel(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	began, causes := make(chan []string, 10), make(chan error, 10)
	q.HandleBatch(func(ctx context.Context, tasks []*worqr.Task) []error {
		began <- payloads(tasks)
		if len(tasks) == 1 {
			return nil
		}
		<-tasks[0].Context().Done()
		causes <- context.Cause(tasks[0].Context())
		causes <- context.Cause(ctx)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil
	}, &worqr.BatchOptions{HandleOptions: worqr.HandleOptions{Grace: patience}, Size: 2, Wait: time.Hour})
	run(t, p)
	enqueue(t, q, "early")
	eventually(t, "it waits", func() bool { return p.Stats().RunningHandlers == 1 })
	wait(t, cancel(t, q, "early"))
	eventually(t, "it is dropped", func() bool { return p.Stats().Canceled == 1 })

	enqueue(t, q, "a", "b")
	is.Equal(receive(t, began, 1)[0], []string{"a", "b"})
	cancel(t, q, "a")
	is.Equal(receive(t, causes, 2), []error{worqr.ErrCanceled, nil})
	cancel(t, q, "b")
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
	eventually(t, "both have ended", func() bool { return p.Stats().Finished == 2 })
}

// Timeout applies to each task. If the handler ignores its contexts, its tasks end without it, and
// other tasks get its batch's slots.
func TestBatchTimeout(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	release, causes, good := make(chan struct{}), make(chan error, 1), make(chan []string, 3)
	o := worqr.HandleOptions{Concurrency: 1, Timeout: 200 * time.Millisecond, Grace: 50 * time.Millisecond, MaxRetries: -1}
	q.HandleBatch(func(ctx context.Context, tasks []*worqr.Task) []error {
		if string(tasks[0].Payload) != "stuck" {
			good <- payloads(tasks)
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-release
		return nil
	}, &worqr.BatchOptions{HandleOptions: o, Size: 1, Wait: -1})
	run(t, p)
	enqueue(t, q, "stuck")
	is.Equal(receive(t, causes, 1), []error{worqr.ErrTimeout})
	eventually(t, "it has failed", func() bool { return p.Stats().Failed == 1 && p.Stats().StuckHandlers == 1 })
	enqueue(t, q, "a", "b")
	is.Equal(receive(t, good, 2), [][]string{{"a"}, {"b"}})
	eventually(t, "they are finished", func() bool { return p.Stats().Finished == 2 })
	close(release)
	eventually(t, "it returns", func() bool { return p.Stats().StuckHandlers == 0 })
	is.Equal(p.Stats().Finished, int64(2))
}

// Middleware wraps each task of a batch, and its context applies to that task. Results belong to tasks.
func TestBatchUse(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	errs := make(chan string, 10)
	p.Use(func(h worqr.Handler) worqr.Handler {
		return func(ctx context.Context, t *worqr.Task) error {
			if string(t.Payload) == "alone" {
				return nil // it joins no batch
			}
			err := h(context.WithValue(ctx, mark{}, string(t.Payload)), t)
			errs <- fmt.Sprint(string(t.Payload), ": ", err)
			return err
		}
	})
	bad := errors.New("bad")
	q.HandleBatch(func(ctx context.Context, tasks []*worqr.Task) (errs []error) {
		if ctx.Value(mark{}) != nil {
			t.Error("the context of the batch is that of a task")
		}
		for _, task := range tasks {
			if task.Context().Value(mark{}) != string(task.Payload) {
				t.Error("the context of a task is another one's")
			}
			errs = append(errs, map[string]error{"b": bad}[string(task.Payload)])
		}
		return errs
	}, &worqr.BatchOptions{HandleOptions: worqr.HandleOptions{OnFailed: func(context.Context, *worqr.Task) error { return nil }, MaxRetries: -1}, Size: 2})
	run(t, p)
	enqueue(t, q, "alone", "a", "b")
	got := receive(t, errs, 3) // including the one from OnFailed
	slices.Sort(got)
	is.Equal(got, []string{"a: <nil>", "b: <nil>", "b: bad"})
}
