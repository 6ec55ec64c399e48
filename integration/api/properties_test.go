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
	over := worqr.TaskSpec{Expires: time.Now().Add(-time.Hour), Headers: map[string]string{"a": "b"}}
	added := add(t, q, named("", "added", over))
	add(t, q, named("put", "put", over))
	still := sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("still"), Expires: time.Now().Add(time.Hour)}))(t)[0]
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

// However many tasks expire, the number of log lines about them per second is bounded. They have the reason,
// and together with their summary count all of them. No line says that workers died.
func TestExpiredLog(t *testing.T) {
	is := parallel(t)
	told := &journal{}
	p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
	const many = 300
	began := time.Now()
	for range many {
		sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("x"), Expires: time.Now().Add(-time.Hour)}))(t)
	}
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := run(t, p)
	eventually(t, "all have failed", func() bool { return p.Stats().Expired == many })
	stop()
	is.Equal(p.StatsOf("q"), inspect.PeerStats{Failed: many, Expired: many})
	is.Equal(len(told.Lines("died")), 0)
	lines := told.Lines("kind=expired")
	is.True(len(lines) > 0 && len(lines) <= 20*(int(time.Since(began)/time.Second)+2))
	n := leftOutOf(t, told.Lines("or have other warnings"))
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
	add := func(payload string, of worqr.TaskSpec) { add(t, q, named("", payload, of)) }
	add("none", worqr.TaskSpec{MaxRetries: -1})
	add("three", worqr.TaskSpec{MaxRetries: 2})
	add("slow", worqr.TaskSpec{Timeout: 20 * time.Millisecond, MaxRetries: -1})
	sure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte("put"), MaxRetries: -1}))(t)
	add("its queue's", worqr.TaskSpec{})
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
	add(t, p.Queue("q"), worqr.TaskSpec{Key: "key", Payload: []byte("put")})
	victim := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour})
	must(t, take(t, working(t, victim, "q")).Retry(ctx, 0))
	takes(t, victim.Queue("q"), 1)
	failWorker(t, p, victim.WorkerID(), 1)
	q := working(t, p, "q")
	sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte("added")}))(t)
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

// A repetition with the same Once adds nothing and returns the first key: with a time and
// with a key, too.
func TestOnce(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	var traced atomic.Int64
	_, q := openQueue(t, worqr.Options{Trace: &worqrtrace.Trace{Enqueued: func(t worqrtrace.Queue) { traced.Add(int64(t.Tasks)) }}})
	at := time.Now().Add(time.Hour)
	once := func(id, key, payload string) worqr.TaskSpec {
		return worqr.TaskSpec{Once: id, OnceFor: time.Hour, Key: key, Payload: []byte(payload)}
	}
	timed := func(id, key, payload string) worqr.TaskSpec {
		task := once(id, key, payload)
		task.At = at
		return task
	}
	key := add(t, q, once("1", "", "a"))
	is.Equal(add(t, q, once("1", "", "b")), key)
	is.Equal(add(t, q, timed("1", "", "b")), key)
	var other *worqr.OnceError
	_, err := q.Add(ctx, once("1", "k", "b"))
	is.True(errors.As(err, &other))
	is.Equal(other.Key, key)
	is.True(!strings.Contains(fmt.Sprintf("%v %+v %#v", err, other, other), key))
	is.Equal(keysAdded(t, q), []string{key})

	late := add(t, q, timed("2", "", "c"))
	is.True(late != key)
	is.Equal(add(t, q, once("2", "", "d")), late)
	is.Equal(add(t, q, timed("2", "", "d")), late)

	add(t, q, timed("3", "k", "e"))
	add(t, q, timed("3", "k", "f"))
	is.Equal(add(t, q, once("3", "", "g")), "k")
	is.True(errors.As(failure(q.Add(ctx, once("3", "l", "f"))), &other))
	is.Equal(other.Key, "k")
	is.Equal(sorted(namedPayloads(t, q)), []string{"a", "c", "e"})
	eventually(t, "three are traced", func() bool { return traced.Load() == 3 })

	is.True(sure(q.RemoveKey(ctx, key))(t)) // even when the task is gone
	is.Equal(add(t, q, once("1", "", "h")), key)
	brief := worqr.TaskSpec{Payload: []byte("i"), Once: "4", OnceFor: time.Millisecond}
	is.True(add(t, q, brief) != "")
	eventually(t, "it may be added again", func() bool {
		before := len(namedPayloads(t, q))
		add(t, q, brief)
		return len(namedPayloads(t, q)) > before
	})
}

// A unique task can have a time, Once and properties. TestRandom covers how long it's there.
func TestUniqueProperties(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	later := worqr.TaskSpec{Payload: []byte("u"), Unique: true, At: time.Now().Add(time.Hour), Headers: map[string]string{"a": "b"}, Once: "o"}
	for range 2 { // the second call finds the first one's task, not a duplicate
		is.Equal(sure(q.Add(ctx, later))(t), []string{""})
	}
	now := later
	now.At, now.Once = time.Time{}, ""
	is.True(is_(failure(q.Add(ctx, now)), worqr.ErrDuplicate))
	is.Equal(len(scheduled(t, q)), 1)
	is.True(near(scheduled(t, q)[0].DueAt, later.At))
	is.Equal(scheduled(t, q)[0].Headers, later.Headers)
	var other *worqr.OnceError
	is.True(errors.As(failure(q.Add(ctx, worqr.TaskSpec{Key: "k", Once: "o"})), &other))
	is.Equal(other.Key, "")
	add(t, q, worqr.TaskSpec{Key: "k", Once: "of k", At: later.At})
	later.Once = "of k"
	is.Equal(add(t, q, later), "k")
	is.Equal(cancel(t, q, "u").Removed, 1)
}

// Neither headers nor keys are printed or logged.
func TestPropertiesAreSecret(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	props := worqr.TaskSpec{Payload: []byte(canary), Headers: map[string]string{canary: canary}, Once: canary}
	add(t, q, props)
	sure(q.Add(ctx, worqr.TaskSpec{Key: canary, Payload: []byte(canary), At: time.Now().Add(time.Hour), Headers: props.Headers}))(t)
	listed, err := first(q.Named(ctx))
	is.NoErr(err)
	task := take(t, q)
	running, err := first(q.Running(ctx))
	is.NoErr(err)
	must(t, task.Fail(ctx, errors.New("no")))
	for _, v := range []any{props, &props, []worqr.TaskSpec{props}, listed, *task, task, running, scheduled(t, q)[0], failed(t, q)[0]} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, canary) || text == "" {
				t.Errorf("%T with %s: %s", v, verb, text)
			}
		}
	}
}

// Explain finds tasks by a header, wherever they are. A unique task has no key.
func TestExplainByHeader(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	of := func(id, payload string) worqr.TaskSpec {
		return worqr.TaskSpec{Payload: []byte(payload), Headers: map[string]string{"order": id, "other": "x"}}
	}
	gone := add(t, q, of("7", "f"))
	must(t, take(t, q).Fail(ctx, errors.New("no")))
	runs := add(t, q, of("7", "a"))
	takes(t, q, 1)
	waits := add(t, q, of("7", "a"))
	hour := of("7", "a")
	hour.At = time.Now().Add(time.Hour)
	later := add(t, q, hour)
	add(t, q, of("8", "a"))
	unique := of("7", "u")
	unique.Unique = true
	is.Equal(add(t, q, unique), "")
	e := sure(q.Explain(ctx, worqr.Query{Header: "order", Value: "7"}))(t)
	found := map[string]inspect.CopyState{}
	for _, c := range e.Copies {
		found[c.Key] = c.State
	}
	is.Equal(found, map[string]inspect.CopyState{"": inspect.CopyWaiting, gone: inspect.CopyFailed, runs: inspect.CopyRunning, waits: inspect.CopyWaiting, later: inspect.CopyScheduled})
	is.Equal(len(sure(q.Explain(ctx, worqr.Query{Header: "order", Value: "9"}))(t).Copies), 0)
	is.Equal(len(sure(q.Explain(ctx, worqr.Query{Header: "none", Value: ""}))(t).Copies), 0)
	is.True(is_(failure(q.Explain(ctx, worqr.Query{Header: "", Value: "x"})), worqr.ErrInvalid))
}
