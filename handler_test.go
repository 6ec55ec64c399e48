package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Whatever a handler does instead of returning nil, its task is tried again
// later, without holding up the next, and the peer goes on.
func TestHandlerFails(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"error":      func() error { return errors.New("no") },
		"panic":      func() error { panic("no") },
		"panic nil":  func() error { panic(nil) },
		"Goexit":     func() error { runtime.Goexit(); return nil },
		"own finish": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			p := open(t, worqr.Options{Prefix: prefix})
			q := p.Queue("q")
			got := make(chan string, 10)
			first := true
			q.Handle(func(ctx context.Context, t *worqr.Task) error {
				got <- string(t.Payload)
				if string(t.Payload) == "a" && first {
					first = false // one at a time
					if fail == nil {
						_ = t.Finish(ctx)
						return errors.New("after it finished")
					}
					return fail()
				}
				return nil
			}, &worqr.HandleOptions{Concurrency: 1}) // the default backoff
			enqueue(t, q, "a", "b")
			stop := run(t, p)
			if fail == nil {
				is.Equal(receive(t, got, 2), []string{"a", "b"})
			} else {
				is.Equal(receive(t, got, 3), []string{"a", "b", "a"})
			}
			stop()
			is.Equal(p.Stats().HandlerErrors, int64(1))
			is.Equal(p.Stats().Finished, int64(2))
			nothingLeft(t, prefix, "q")
		})
	}
}

type key struct{}

func TestBadHandleOptions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := func(context.Context, *worqr.Task) error { return nil }
	both := map[string]worqr.HandleOptions{
		"Concurrency":               {Concurrency: -1},
		"Timeout":                   {Timeout: -1},
		"Grace":                     {Grace: -1},
		"KeepFailed":                {KeepFailed: -1},
		"Weight":                    {Weight: -1},
		"Weight above Capacity":     {Weight: 11},
		"OnPanic":                   {OnPanic: 2},
		"OnPanic negative":          {OnPanic: -1},
		"FailedOptions alone":       {OnFailedOptions: &worqr.HandleOptions{}},
		"FailedOptions of those":    {OnFailedOptions: &worqr.HandleOptions{OnFailedOptions: &worqr.HandleOptions{}}},
		"FailedOptions.OnFailed":    {OnFailedOptions: &worqr.HandleOptions{OnFailed: h}},
		"FailedOptions.KeepFailed":  {OnFailedOptions: &worqr.HandleOptions{KeepFailed: 1}},
		"FailedOptions.Weight":      {OnFailedOptions: &worqr.HandleOptions{Weight: 11}},
		"FailedOptions.Concurrency": {OnFailedOptions: &worqr.HandleOptions{Concurrency: -1}},
	}
	for name, o := range both {
		p := open(t, worqr.Options{Capacity: 10})
		panics(t, name, func() { p.Queue("q").Handle(h, &o) })
		if !strings.HasSuffix(name, "alone") {
			o.OnFailed = h
			panics(t, name+" with OnFailed", func() { p.Queue("q").Handle(h, &o) })
			o.OnFailed = nil
		}
		p.Queue("q").Handle(h, nil) // the failure left nothing
		is.True(is_(p.Queue("q").SetOptions(&o), worqr.ErrInvalid))
	}
	p := open(t, worqr.Options{Capacity: 10})
	q := p.Queue("q")
	is.True(is_(q.SetOptions(nil), worqr.ErrInvalid)) // no handler
	q.Handle(h, &worqr.HandleOptions{OnFailed: h, OnFailedOptions: &worqr.HandleOptions{Concurrency: 2}})
	is.NoErr(q.SetOptions(nil))
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Weight: 10, OnFailedOptions: &worqr.HandleOptions{Concurrency: 3}}))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{OnFailed: h}), worqr.ErrInvalid))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Exclusive: true}), worqr.ErrInvalid))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{OnFailedOptions: &worqr.HandleOptions{Exclusive: true}}), worqr.ErrInvalid))
	is.True(is_(p.SetCapacity(-1), worqr.ErrInvalid))
	is.NoErr(p.SetCapacity(0))
	is.NoErr(p.SetCapacity(1))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Weight: 2}), worqr.ErrInvalid))
	is.True(is_(p.Queue("bad name").SetOptions(nil), worqr.ErrInvalid) || is_(p.Queue("bad name").SetOptions(nil), worqr.ErrBadName))
	bad := p.Queue("bad name")
	is.True(is_(bad.Put(t.Context(), "k", nil, nil), worqr.ErrBadName))
	_, err := bad.EnqueueAt(t.Context(), time.Now(), nil)
	is.True(is_(err, worqr.ErrBadName))
	_, err = bad.RequeueAllFailed(t.Context())
	is.True(is_(err, worqr.ErrBadName))
	_, err = bad.DeleteFailed(t.Context(), "x")
	is.True(is_(err, worqr.ErrBadName))
}

// A RetryAfter with a negative delay is at once, and the verdicts of nil are nil.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.NoErr(worqr.Permanent(nil))
	is.NoErr(worqr.Malformed(nil))
	is.NoErr(worqr.RetryAfter(nil, time.Hour))
	cause := errors.New("cause")
	is.True(is_(worqr.Permanent(fmt.Errorf("about: %w", cause)), cause))
	is.Equal(worqr.RetryAfter(cause, 0).Error(), "cause")

	p := open(t, worqr.Options{})
	q := p.Queue("q")
	var runs atomic.Int64
	done := make(chan int, 1)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if runs.Add(1) == 1 {
			return fmt.Errorf("wrapped: %w", worqr.RetryAfter(cause, -time.Hour))
		}
		done <- t.Retries
		return nil
	}, &worqr.HandleOptions{Backoff: func(int) time.Duration { return time.Hour }})
	run(t, p)
	enqueue(t, q, "a")
	is.Equal(receive(t, done, 1), []int{1})
}

// A handler may do what it likes with the payload: the task keeps its identity.
func TestHandlerChangesPayload(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	started := make(chan string, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		for i := range t.Payload {
			t.Payload[i] = 'x'
		}
		t.Payload = nil
		started <- ""
		<-ctx.Done()
		return errors.New("ended")
	}, nil)
	run(t, p)
	enqueue(t, q, "job")
	receive(t, started, 1)
	report := cancel(t, q, "job")
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.Equal(len(started), 0)
}
