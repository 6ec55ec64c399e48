package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// keep makes a task keep its result.
var keep = worqr.TaskSpec{KeepResult: time.Hour}

// Every way to end a task leaves a result, for callers that already wait and for later ones. That
// holds for added tasks, retried ones, and tasks put under a key.
func TestResults(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("\x00\"\\é\xff"), 20_000)
	no := errors.New("no!")
	type end struct {
		how  string // how the test ends it; "": its handler does
		do   func(task *worqr.Task) error
		want worqr.Result
	}
	for name, end := range map[string]end{
		"finished":       {do: func(*worqr.Task) error { return nil }, want: worqr.Result{Outcome: worqr.OutcomeFinished}},
		"with a result":  {do: func(task *worqr.Task) error { task.Result = []byte("a\x00"); return nil }, want: worqr.Result{Outcome: worqr.OutcomeFinished, Value: []byte("a\x00")}},
		"with none":      {do: func(task *worqr.Task) error { task.Result = []byte{}; return nil }, want: worqr.Result{Outcome: worqr.OutcomeFinished, Value: []byte{}}},
		"a large result": {do: func(task *worqr.Task) error { task.Result = large; return nil }, want: worqr.Result{Outcome: worqr.OutcomeFinished, Value: large}},
		"too large":      {do: func(task *worqr.Task) error { task.Result = make([]byte, 200_000); return nil }, want: worqr.Result{Outcome: worqr.OutcomeFinished}},
		"failed":         {do: func(*worqr.Task) error { return worqr.Permanent(no) }, want: worqr.Result{Outcome: worqr.OutcomeFailed, Error: no.Error()}},
		"malformed":      {do: func(*worqr.Task) error { return worqr.Malformed(errors.New(strings.Repeat("x", 5000))) }, want: worqr.Result{Outcome: worqr.OutcomeFailed, Error: strings.Repeat("x", 1024)}},
		"canceled":       {how: "cancel", want: worqr.Result{Outcome: worqr.OutcomeCanceled}},
		"running":        {how: "cancel running", want: worqr.Result{Outcome: worqr.OutcomeCanceled}},
		"removed":        {how: "remove", want: worqr.Result{Outcome: worqr.OutcomeRemoved}},
		"expired":        {how: "expire", want: worqr.Result{Outcome: worqr.OutcomeExpired}},
	} {
		waits := end.do == nil && end.how != "cancel running"
		for _, which := range []string{"added", "put", "tried"} {
			if waits && which == "tried" { // it isn't retried
				continue
			}
			t.Run(name+", "+which, func(t *testing.T) {
				is := parallel(t)
				ctx := t.Context()
				p := open(t, worqr.Options{MaxResult: 150_000})
				q, tried, started := p.Queue("q"), which != "tried", make(chan bool, 1)
				q.Handle(func(ctx context.Context, task *worqr.Task) error {
					if !tried {
						tried = true
						return worqr.RetryAfter(errors.New("later"), 0)
					}
					if end.do == nil {
						started <- true
						<-ctx.Done()
						return ctx.Err()
					}
					return end.do(task)
				}, &worqr.HandleOptions{Concurrency: 1})
				of, key := keep, "key"
				if end.how == "expire" {
					of.Expires = time.Now().Add(time.Millisecond)
				}
				if waits {
					is.NoErr(q.Pause(ctx))
				}
				if which == "put" {
					add(t, q, named(key, "payload", of))
				} else {
					key = add(t, q, named("", "payload", of))
				}
				is.True(is_(failure(q.Result(ctx, key)), worqr.ErrNotEnded))
				said := make(chan *worqr.Result, 3)
				for range 3 {
					go waitFor(t, q, key, said)
				}
				run(t, p)
				switch end.how {
				case "cancel running":
					<-started
					is.Equal(sure(q.CancelKey(ctx, key))(t).Removed, 0)
				case "cancel":
					is.Equal(sure(q.CancelKey(ctx, key))(t).Removed, 1)
				case "remove":
					is.True(sure(q.RemoveKey(ctx, key))(t))
				case "expire":
					is.NoErr(q.Resume(ctx))
				}
				for _, got := range receive(t, said, 3) {
					like(is, got, end.want)
				}
				like(is, sure(q.Result(ctx, key))(t), end.want)
				like(is, sure(q.Wait(ctx, key))(t), end.want)
			})
		}
	}
}

// like compares results, except for their times.
func like(is *is.I, got *worqr.Result, want worqr.Result) {
	is.Helper()
	is.Equal(got.Outcome, want.Outcome)
	is.True(bytes.Equal(got.Value, want.Value))
	if want.Error != "" {
		is.Equal(got.Error, want.Error)
	}
	is.True(near(got.EndedAt, time.Now()))
}

// A requeued task hasn't ended. Its next end replaces the result.
func TestResultOfRequeued(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	key := add(t, q, named("", "payload", keep))
	is.NoErr(sure(q.StartTask(ctx))(t).Fail(ctx, errors.New("no")))
	is.Equal(sure(q.Wait(ctx, key))(t).Error, "no")
	is.Equal(sure(q.RequeueAllFailed(ctx))(t), 1)
	is.True(is_(failure(q.Result(ctx, key)), worqr.ErrNotEnded))
	task := sure(q.StartTask(ctx))(t)
	is.True(is_(failure(q.Result(ctx, key)), worqr.ErrNotEnded))
	is.NoErr(task.Finish(ctx))
	is.Equal(sure(q.Wait(ctx, key))(t).Outcome, worqr.OutcomeFinished)
	is.NoErr(q.Delete(ctx))
	is.Equal(sure(q.Result(ctx, key))(t).Outcome, worqr.OutcomeFinished)
}

// If a key is put again, Wait returns the next end.
func TestResultOfKey(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	wait := func() chan string {
		said := make(chan string, 1)
		go func() { said <- string(sure(q.Wait(ctx, "key"))(t).Value) }()
		return said
	}
	finish := func(task *worqr.Task, with string) {
		t.Helper()
		task.Result = []byte(with)
		is.NoErr(task.Finish(ctx))
	}
	add(t, q, named("key", "a", keep))
	first := wait()
	add(t, q, named("key", "b", keep)) // replaces "a"
	task := sure(q.StartTask(ctx))(t)
	second := wait()
	finish(task, "b")
	is.Equal(<-first, "b")
	is.Equal(<-second, "b")
	add(t, q, named("key", "b again", keep))
	task = sure(q.StartTask(ctx))(t)
	add(t, q, named("key", "c", keep)) // waits for "b again"
	finish(task, "b again")
	third := wait()
	is.Equal(string(sure(q.Result(ctx, "key"))(t).Value), "b again") // of the last task that has ended
	finish(sure(q.StartTask(ctx))(t), "c")
	is.Equal(<-third, "c")
	is.Equal(<-wait(), "c")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("d")}) // keeps no result
	is.True(is_(failure(q.Wait(ctx, "key")), worqr.ErrNoResult))
	finish(sure(q.StartTask(ctx))(t), "d")
	is.Equal(<-wait(), "c") // the last result that was kept
}

// A recurring task always has a next occurrence, and the result of its last one.
func TestResultOfRecurring(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p, q := openQueue(t, worqr.Options{})
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		task.Result = task.Payload
		return nil
	}, nil)
	is.NoErr(q.Every("key", worqr.Interval(time.Second), []byte("a"), &worqr.EveryOptions{KeepResult: time.Hour}))
	run(t, p)
	eventually(t, "it occurs", func() bool {
		r, err := q.Result(ctx, "key")
		is.True(err == nil || errors.Is(err, worqr.ErrNotEnded) || errors.Is(err, worqr.ErrNoResult))
		return err == nil && string(r.Value) == "a"
	})
	is.Equal(sure(q.Wait(ctx, "key"))(t).Outcome, worqr.OutcomeFinished)
}

// A result is kept for as long as KeepResult says.
func TestResultExpires(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	for _, bad := range []time.Duration{-1, 1, worqr.MinKeepResult - 1, worqr.MaxKeepResult + 1} {
		is.True(is_(failure(q.Add(ctx, worqr.TaskSpec{KeepResult: bad})), worqr.ErrInvalid))
	}
	long := sure(q.Add(ctx, worqr.TaskSpec{KeepResult: worqr.MaxKeepResult}))(t)[0]
	short := sure(q.Add(ctx, worqr.TaskSpec{KeepResult: worqr.MinKeepResult}))(t)[0]
	for range 2 {
		is.NoErr(sure(q.StartTask(ctx))(t).Finish(ctx))
	}
	eventually(t, "it has expired", func() bool { return is_(failure(q.Wait(ctx, short)), worqr.ErrNoResult) })
	is.Equal(sure(q.Result(ctx, long))(t).Outcome, worqr.OutcomeFinished)
}

// Callers that wait for a task learn that it failed because its workers died too often.
func TestResultOfCrashed(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	producer, q := openQueue(t, worqr.Options{Prefix: prefix})
	key := add(t, q, named("", "payload", keep))
	for range 2 {
		p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
		sure(working(t, p, "q").StartTask(ctx))(t)
		failWorker(t, producer, p.WorkerID(), 1)
	}
	p := open(t, worqr.Options{Prefix: prefix})
	p.Queue("q").Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{MaxCrashes: 2})
	run(t, p)
	got := sure(q.Wait(ctx, key))(t)
	is.Equal(got.Outcome, worqr.OutcomeFailed)
	is.Equal(got.Error, "2 workers died holding it")
}

// waitFor sends how a task ended. It may run concurrently with the test.
func waitFor(t *testing.T, q *worqr.Queue, key string, said chan<- *worqr.Result) {
	r, err := q.Wait(t.Context(), key)
	if err != nil {
		t.Errorf("wait: %v", err)
		r = &worqr.Result{}
	}
	said <- r
}

// Wait polls if the peer may not subscribe.
func TestWaitUnsubscribed(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
	key := add(t, q, keep)
	redistest.OneServer(t, "its users are of one server")
	deaf, conn := redistest.As(t, redistest.URL(), "worker", prefix), redistest.Dial(t, redistest.URL())
	user := sure(url.Parse(deaf))(t).User.Username()
	redistest.Do(t, conn, "ACL", "SETUSER", user, "-subscribe")
	waiter := sure(worqr.Open(deaf, &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { must(t, waiter.Close()) })
	said := make(chan *worqr.Result, 1)
	go waitFor(t, waiter.Queue("q"), key, said)
	is.NoErr(sure(q.StartTask(ctx))(t).Finish(ctx))
	is.Equal((<-said).Outcome, worqr.OutcomeFinished)
	redistest.Do(t, conn, "ACL", "SETUSER", user, "-get")
	is.True(is_(failure(waiter.Queue("q").Wait(ctx, key)), worqr.ErrDenied))
}
