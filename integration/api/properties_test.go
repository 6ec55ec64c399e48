package api

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/worqrtrace"
)

// An expired task moves to the failed queue instead of a handler, however it was added.
func TestExpires(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	over := worqr.Properties{Expires: time.Now().Add(-time.Hour), Headers: map[string]string{"a": "b"}}
	added := sure(q.Add(ctx, []byte("added"), &over))(t)
	must(t, q.Put(ctx, "put", []byte("put"), &worqr.PutOptions{Properties: over}))
	still := sure(q.Add(ctx, []byte("still"), &worqr.Properties{Expires: time.Now().Add(time.Hour)}))(t)
	task := take(t, q)
	is.Equal(task.Key, still)
	must(t, task.Finish(ctx))
	is.True(is_(failure(q.StartTask(ctx)), worqr.ErrNoTask))
	seen := map[string]bool{}
	for _, f := range failed(t, q) {
		is.Equal(f.Kind, inspect.FailureExpired)
		is.Equal(f.Headers["a"], "b")
		seen[f.Key] = true
	}
	is.True(len(seen) == 2 && seen[added] && seen["put"])
	is.Equal(sure(q.RequeueAllFailed(ctx))(t), 2) // again, without an expiry
	is.Equal(len(takes(t, q, 2)), 2)
}

// However many tasks expire, at most one line per second is logged about them. It has the reason,
// and together with its summary counts all of them. No line says that workers died.
func TestExpiredLog(t *testing.T) {
	is := parallel(t)
	told := &journal{}
	p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
	const many = 300
	began := time.Now()
	for range many {
		sure(q.Add(t.Context(), []byte("x"), &worqr.Properties{Expires: time.Now().Add(-time.Hour)}))(t)
	}
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := run(t, p)
	eventually(t, "all have failed", func() bool { return p.Stats().Expired == many })
	stop()
	is.Equal(p.StatsOf("q"), inspect.PeerStats{Failed: many, Expired: many})
	is.Equal(len(told.Lines("died")), 0)
	lines := told.Lines("kind=expired")
	is.True(len(lines) > 0 && len(lines) <= int(time.Since(began)/time.Second)+2)
	n := leftOutOf(t, told.Lines("more tasks expired before they started"))
	for _, line := range lines {
		is.True(strings.Contains(line, "queue=q ") && strings.Contains(line, "level=WARN"))
		m := regexp.MustCompile(` tasks=(\d+) `).FindStringSubmatch(line)
		n += sure(strconv.Atoi(m[1]))(t)
	}
	is.Equal(n, many)
}

// A task can have its own timeout and number of retries, and has the error of its previous attempt.
func TestOwnLimits(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p, q := openQueue(t, worqr.Options{})
	type seen struct {
		payload, last string
		attempt       int
	}
	runs := make(chan seen, 20)
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		runs <- seen{string(task.Payload), task.LastError, task.Attempt}
		if string(task.Payload) == "slow" {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return fmt.Errorf("attempt %d failed%s", task.Attempt, strings.Repeat("!", 2000))
	}, &worqr.HandleOptions{MaxRetries: 1, Backoff: atOnce, Concurrency: 1})
	stop := run(t, p)
	add := func(payload string, props worqr.Properties) { sure(q.Add(ctx, []byte(payload), &props))(t) }
	add("none", worqr.Properties{MaxRetries: -1})
	add("three", worqr.Properties{MaxRetries: 2})
	add("slow", worqr.Properties{Timeout: 20 * time.Millisecond, MaxRetries: -1})
	must(t, q.Put(ctx, "k", []byte("put"), &worqr.PutOptions{Properties: worqr.Properties{MaxRetries: -1}}))
	add("its queue's", worqr.Properties{})
	eventually(t, "all have failed", func() bool { return len(failed(t, q)) == 5 })
	stop()
	close(runs)
	attempts := map[string]int{}
	for r := range runs {
		attempts[r.payload]++
		is.Equal(r.attempt, attempts[r.payload])
		want := ""
		if r.attempt > 1 {
			want = (fmt.Sprintf("attempt %d failed", r.attempt-1) + strings.Repeat("!", 2000))[:1024]
		}
		is.Equal(r.last, want)
	}
	is.Equal(attempts, map[string]int{"none": 1, "three": 3, "slow": 1, "put": 1, "its queue's": 2})
	for _, f := range failed(t, q) {
		if string(f.Payload) == "slow" {
			is.Equal(f.Error, worqr.ErrTimeout.Error())
		}
	}
}

// Running lists tasks with their attempts, and the time they were due if it's known.
func TestRunningAttempts(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	put(t, p.Queue("q"), "key", "put", nil)
	victim := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	must(t, take(t, working(t, victim, "q")).Retry(ctx, 0))
	takes(t, victim.Queue("q"), 1)
	failWorker(t, p, victim.WorkerID(), 1)
	q := working(t, p, "q")
	sure(q.Add(ctx, []byte("added"), nil))(t)
	enqueue(t, q, "plain")
	tasks := map[string]*worqr.Task{}
	for _, task := range takes(t, q, 3) {
		tasks[string(task.Payload)] = task
	}
	for running := range each(t, q.Running(ctx)) {
		task := tasks[string(running.Payload)]
		is.Equal(running.AttemptID, task.AttemptID)
		is.Equal([]int{running.Attempt, running.Retries, running.Crashes}, []int{task.Attempt, task.Retries, task.Crashes})
		if running.Key == "key" {
			is.Equal(task.Attempt, 3) // its due time is no longer known
			task.DueAt = time.Time{}
		}
		is.Equal(running.DueAt, task.DueAt)
		delete(tasks, string(running.Payload))
	}
	is.Equal(len(tasks), 0)
}

// A retried plain task has the error of its previous attempt, too, and so do listings.
func TestLastError(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	last := make(chan string, 2)
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		last <- task.LastError
		if task.Attempt == 1 {
			return worqr.RetryAfter(errors.New("no"), time.Hour)
		}
		return nil
	}, nil)
	run(t, p)
	enqueue(t, q, "a")
	is.Equal(receive(t, last, 1), []string{""})
	eventually(t, "it waits for its retry", func() bool { return len(scheduled(t, q)) == 1 })
	is.Equal(scheduled(t, q)[0].LastError, "no")
}

// A repetition with the same Once adds nothing and returns the first key: with Add, with a time and
// with Put.
func TestOnce(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	var traced atomic.Int64
	_, q := openQueue(t, worqr.Options{Trace: &worqrtrace.Trace{Enqueued: func(t worqrtrace.Queue) { traced.Add(int64(t.Tasks)) }}})
	once := func(id string) *worqr.Properties { return &worqr.Properties{Once: id, OnceFor: time.Hour} }
	at := time.Now().Add(time.Hour)
	key := sure(q.Add(ctx, []byte("a"), once("1")))(t)
	is.Equal(sure(q.Add(ctx, []byte("b"), once("1")))(t), key)
	is.Equal(sure(q.AddAt(ctx, at, []byte("b"), once("1")))(t), key)
	var other *worqr.OnceError
	err := q.Put(ctx, "k", []byte("b"), &worqr.PutOptions{Properties: *once("1")})
	is.True(errors.As(err, &other))
	is.Equal(other.Key, key)
	is.True(!strings.Contains(fmt.Sprintf("%v %+v %#v", err, other, other), key))
	is.Equal(waiting(t, q), []string{"a"})

	late := sure(q.AddAt(ctx, at, []byte("c"), once("2")))(t)
	is.True(late != key)
	is.Equal(sure(q.Add(ctx, []byte("d"), once("2")))(t), late)
	is.Equal(sure(q.AddAt(ctx, at, []byte("d"), once("2")))(t), late)

	must(t, q.Put(ctx, "k", []byte("e"), &worqr.PutOptions{At: at, Properties: *once("3")}))
	must(t, q.Put(ctx, "k", []byte("f"), &worqr.PutOptions{At: at, Properties: *once("3")}))
	is.Equal(sure(q.Add(ctx, []byte("g"), once("3")))(t), "k")
	is.True(errors.As(q.Put(ctx, "l", []byte("f"), &worqr.PutOptions{Properties: *once("3")}), &other))
	is.Equal(other.Key, "k")
	is.Equal(sorted(waiting(t, q)), []string{"a", "c", "e"})
	eventually(t, "three are traced", func() bool { return traced.Load() == 3 })

	is.True(sure(q.RemoveKey(ctx, key))(t)) // even when the task is gone
	is.Equal(sure(q.Add(ctx, []byte("h"), once("1")))(t), key)
	brief := &worqr.Properties{Once: "4", OnceFor: time.Millisecond}
	is.True(sure(q.Add(ctx, []byte("i"), brief))(t) != "")
	eventually(t, "it may be added again", func() bool {
		before := sure(q.Len(ctx))(t)
		sure(q.Add(ctx, []byte("i"), brief))(t)
		return sure(q.Len(ctx))(t) > before
	})
}

// Neither headers nor keys are printed or logged.
func TestPropertiesAreSecret(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	props := worqr.Properties{Headers: map[string]string{canary: canary}, Once: canary}
	sure(q.Add(ctx, []byte(canary), &props))(t)
	must(t, q.Put(ctx, canary, []byte(canary), &worqr.PutOptions{At: time.Now().Add(time.Hour), Properties: worqr.Properties{Headers: props.Headers}}))
	listed, err := first(q.Added(ctx))
	is.NoErr(err)
	task := take(t, q)
	running, err := first(q.Running(ctx))
	is.NoErr(err)
	must(t, task.Fail(ctx, errors.New("no")))
	for _, v := range []any{props, &props, listed, *task, task, running, scheduled(t, q)[0], failed(t, q)[0],
		worqr.TaskSpec{Payload: []byte(canary), Properties: props}, worqr.PutOptions{Properties: props}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, canary) || text == "" {
				t.Errorf("%T with %s: %s", v, verb, text)
			}
		}
	}
}

// ExplainHeader finds tasks by a header, wherever they are.
func TestExplainHeader(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	of := func(id string) *worqr.Properties {
		return &worqr.Properties{Headers: map[string]string{"order": id, "other": "x"}}
	}
	gone := sure(q.Add(ctx, []byte("f"), of("7")))(t)
	must(t, take(t, q).Fail(ctx, errors.New("no")))
	runs := sure(q.Add(ctx, []byte("a"), of("7")))(t)
	takes(t, q, 1)
	waits := sure(q.Add(ctx, []byte("a"), of("7")))(t)
	later := sure(q.AddAt(ctx, time.Now().Add(time.Hour), []byte("a"), of("7")))(t)
	sure(q.Add(ctx, []byte("a"), of("8")))(t)
	e := sure(q.ExplainHeader(ctx, "order", "7"))(t)
	found := map[string]inspect.CopyState{}
	for _, c := range e.Copies {
		found[c.Key] = c.State
	}
	is.Equal(found, map[string]inspect.CopyState{gone: inspect.CopyFailed, runs: inspect.CopyRunning, waits: inspect.CopyWaiting, later: inspect.CopyScheduled})
	is.Equal(len(sure(q.ExplainHeader(ctx, "order", "9"))(t).Copies), 0)
	is.Equal(len(sure(q.ExplainHeader(ctx, "none", ""))(t).Copies), 0)
	is.True(is_(failure(q.ExplainHeader(ctx, "", "x")), worqr.ErrInvalid))
}
