package worqr_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// takeSoon starts the next task once there is one.
func takeSoon(t testing.TB, q *worqr.Queue) (task *worqr.Task) {
	t.Helper()
	eventually(t, "there is a task", func() bool {
		var err error
		task, err = q.StartTask(t.Context())
		if !is_(err, worqr.ErrNoTask) {
			must(t, err)
		}
		return err == nil
	})
	return task
}

// Retry and Fail by hand: once, once more, after another end, and after the task
// was lost.
func TestRetryAndFailByHand(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "key"} {
		t.Run("key="+key, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			p, other := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
			q := working(t, p, "q")
			if key == "" {
				enqueue(t, q, "a")
			} else {
				put(t, q, key, "a", nil)
			}
			var before int64
			for retries := range 3 { // at once
				task := take(t, q)
				is.Equal(task.Retries, retries)
				is.Equal(task.Key, key)
				is.True(task.Token > before)
				before = task.Token
				is.NoErr(task.Retry(ctx, 0))
				is.NoErr(task.Retry(ctx, 0)) // says the same again
				is.True(is_(task.Finish(ctx), worqr.ErrNotOwner))
				is.True(is_(task.Fail(ctx, errors.New("no")), worqr.ErrNotOwner))
				is.Equal(context.Cause(task.Context()), context.Canceled)
				is.Equal(len(scheduled(t, q)), 1)
			}
			task := take(t, q)
			is.NoErr(task.Retry(ctx, time.Hour))
			noTask(t, q)
			s := scheduled(t, q)
			is.Equal(len(s), 1)
			is.True(near(s[0].DueAt, time.Now().Add(time.Hour)))
			is.Equal(s[0].Key, key)
			is.Equal(s[0].Retries, 4)
			is.Equal(string(s[0].Payload), "a")

			// Lost: nothing happens to the other's.
			if key == "" {
				_, err := q.Cancel(ctx, []byte("a"))
				is.NoErr(err)
				enqueue(t, q, "b")
			} else {
				put(t, q, key, "b", nil)
			}
			lost := take(t, q)
			qo := working(t, other, "q")
			failWorker(t, other, p.WorkerID(), 1)
			task = take(t, qo)
			is.Equal(task.Crashes, 1)
			is.Equal(task.Retries, 0)
			is.True(is_(lost.Retry(ctx, 0), worqr.ErrNotOwner))
			is.True(is_(lost.Fail(ctx, errors.New("no")), worqr.ErrNotOwner))
			is.Equal(stats(t, qo).Running, 1)
			is.Equal(stats(t, qo).Failed, 0)

			why := errors.New("it is hopeless")
			is.NoErr(task.Fail(ctx, why))
			is.NoErr(task.Fail(ctx, why))
			is.True(is_(task.Retry(ctx, 0), worqr.ErrNotOwner))
			is.True(is_(task.Stop(ctx), worqr.ErrNotOwner))
			f := failed(t, qo)
			is.Equal(len(f), 1)
			is.True(near(f[0].FailedAt, time.Now()))
			f[0].FailedAt = time.Time{}
			is.Equal(f[0], worqr.FailedTask{ID: task.AttemptID, Payload: []byte("b"), Key: key, Kind: worqr.FailureError,
				Error: "it is hopeless", Retries: 0, Crashes: 1, WorkerID: other.WorkerID()})
			is.Equal(other.Stats().Failed, int64(1))
			n, err := qo.DeleteAllFailed(ctx)
			is.NoErr(err)
			is.Equal(n, 1)
			is.NoErr(other.StopWorker(ctx))
			is.NoErr(p.StopWorker(ctx))
			nothingLeftBut(t, prefix, "q")
		})
	}
}

func TestRetryAndFailBadly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a")
	task := take(t, q)
	is.True(is_(task.Retry(ctx, -1), worqr.ErrInvalid))
	is.True(is_(task.Retry(ctx, 1<<63-1), worqr.ErrInvalid))
	is.True(is_(task.Fail(ctx, nil), worqr.ErrInvalid))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Workers: 1})
	is.NoErr(task.Fail(ctx, worqr.Malformed(errors.New(strings.Repeat("x", 10000)+"\xff")))) // still ours
	f := failed(t, q)
	is.Equal(f[0].Kind, worqr.FailureMalformed)
	is.True(len(f[0].Error) > 1000)
	for _, reason := range []string{"", "a\nb", "a\x00b", ":", "bad \xff utf-8", "failed:x"} {
		enqueue(t, q, "a")
		is.NoErr(take(t, q).Fail(ctx, errors.New(reason)))
		f := failed(t, q)
		is.Equal(f[0].Error, strings.ToValidUTF8(reason, "�"))
		is.Equal(f[0].Kind, worqr.FailureError)
		_, err := q.DeleteFailed(ctx, f[0].ID)
		is.NoErr(err)
	}
}

// The key that EnqueueAt returns is a key like any other.
func TestEnqueueAt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	at := func(at time.Time, payload string) string {
		key, err := q.EnqueueAt(ctx, at, []byte(payload))
		is.NoErr(err)
		is.True(key != "")
		return key
	}
	later := time.Now().Add(time.Hour)
	a, b := at(later, "same"), at(later, "same")
	is.True(a != b)
	is.Equal(len(scheduled(t, q)), 2)
	removed, err := q.RemoveKey(ctx, a)
	is.NoErr(err)
	is.True(removed)
	removed, err = q.RemoveKey(ctx, a)
	is.NoErr(err)
	is.True(!removed)
	report, err := q.CancelKey(ctx, b)
	is.NoErr(err)
	is.Equal(report.Removed, 1)
	is.Equal(scheduled(t, q), nil)

	c := at(time.Now(), "c")
	task := takeSoon(t, q)
	is.Equal(task.Key, c)
	removed, err = q.RemoveKey(ctx, c) // runs, and does not wait
	is.NoErr(err)
	is.True(!removed)
	is.NoErr(task.Finish(ctx))

	at(time.Time{}, "now")
	is.NoErr(take(t, q).Finish(ctx))
	at(later, "by content")
	is.Equal(cancel(t, q, "by content").Removed, 1)
	is.NoErr(p.StopWorker(ctx))
	nothingLeftBut(t, prefix, "q")
}

func TestCancelKey(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	starts, causes := held(t, p, "q", nil)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q") // somebody else
	cancelKey := func(key string) *worqr.CancelReport {
		report, err := q.CancelKey(ctx, key)
		is.NoErr(err)
		return report
	}
	// Nothing.
	report := cancelKey("key")
	is.Equal(report.Removed, 0)
	wait(t, report)
	// Waiting.
	put(t, q, "key", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	put(t, q, "other", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	report = cancelKey("key")
	is.Equal(report.Removed, 1)
	wait(t, report)
	is.Equal(report.Stopped+report.Finished, 0)
	is.Equal(len(scheduled(t, q)), 1) // the other, though it is the same payload
	// Running, and what is blocked by it.
	put(t, q, "key", "b", nil)
	is.Equal(receive(t, starts, 1), []string{"b"})
	put(t, q, "key", "blocked", nil)
	report = cancelKey("key")
	is.Equal(report.Removed, 1)
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.Equal(report.Finished, 0)
	is.Equal(receive(t, causes, 1), []error{worqr.ErrCanceled})
	// What is put afterwards is not touched.
	put(t, q, "key", "c", nil)
	is.Equal(receive(t, starts, 1), []string{"c"})
	is.Equal(len(causes), 0)
	is.Equal(cancelKey("other").Removed, 1)
	is.Equal(len(causes), 0)
	wait(t, cancelKey("key"))
	eventually(t, "its peer counts both", func() bool { return p.Stats().Canceled == 2 }) // Redis knows it first
	is.Equal(len(failed(t, q)), 0)
}

// Also of a worker that is dead, and dies only now.
func TestCancelKeyHeldByTheDead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	victim, other := open(t, worqr.Options{Prefix: prefix, Lease: -1}), open(t, worqr.Options{Prefix: prefix})
	q := victim.Queue("q")
	must(t, victim.StartWorker(ctx))
	must(t, q.StartWork(ctx))
	put(t, q, "key", "a", nil)
	task := take(t, q)
	report, err := other.Queue("q").CancelKey(ctx, "key")
	is.NoErr(err)
	put(t, q, "key", "after", nil)
	_, err = other.FailWorker(ctx, victim.WorkerID())
	is.NoErr(err)
	wait(t, report)
	is.Equal(report.Stopped, 1)
	is.True(is_(task.Finish(ctx), worqr.ErrNotOwner))
	qo := working(t, other, "q")
	after := take(t, qo)
	is.Equal(string(after.Payload), "after")
	is.Equal(after.Crashes, 0)
	noTask(t, qo)
}

// Read-outs see both lanes.
func TestReadOutsOfBothLanes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := working(t, p, "q")
	count := func() int {
		n, err := q.Len(ctx)
		is.NoErr(err)
		return n
	}
	put(t, q, "tomorrow", "tomorrow", &worqr.PutOptions{At: time.Now().Add(24 * time.Hour)})
	_, err := q.Peek(ctx)
	is.True(is_(err, worqr.ErrNoTask))
	noTask(t, q)
	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	enqueue(t, q, "one", "two")
	peek, err := q.Peek(ctx)
	is.NoErr(err)
	is.Equal(string(peek), "one")
	put(t, q, "due2", "due2", &worqr.PutOptions{At: time.UnixMilli(2000)})
	put(t, q, "due1", "due1", &worqr.PutOptions{At: time.UnixMilli(1000)})
	peek, err = q.Peek(ctx)
	is.NoErr(err)
	is.Equal(string(peek), "due1")
	is.Equal(waiting(t, q), []string{"due1", "due2", "one", "two", "later", "tomorrow"})
	is.Equal(count(), 6)
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Workers: 1})

	task := take(t, q)
	is.Equal(task.Key, "due1")
	put(t, q, "due1", "blocked", nil)
	is.Equal(waiting(t, q), []string{"due2", "one", "two", "later", "tomorrow"})
	is.Equal(count(), 6) // what is blocked waits too
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Running: 1, Workers: 1})
	is.Equal(len(scheduled(t, q)), 3)
	for r, err := range q.Running(ctx) {
		is.NoErr(err)
		is.Equal(string(r.Payload), "due1")
		is.Equal(r.AttemptID, task.AttemptID)
	}
	peek, err = q.Peek(ctx)
	is.NoErr(err)
	is.Equal(string(peek), "due2")
	is.NoErr(task.Fail(ctx, errors.New("no")))
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 2, Scheduled: 4, Failed: 1, Workers: 1})
	is.Equal(waiting(t, q), []string{"due2", "blocked", "one", "two", "later", "tomorrow"})

	// What comes back starts before all that has a time, in the order of starts.
	tasks, err := q.StartTasks(ctx, 4)
	is.NoErr(err)
	is.Equal(payloads(tasks), []string{"due2", "blocked", "one", "two"})
	for _, i := range []int{1, 3, 0, 2} {
		is.NoErr(tasks[i].Stop(ctx))
	}
	all := waiting(t, q)
	is.Equal(all[:2], []string{"due2", "blocked"})
	is.Equal(all[4:], []string{"later", "tomorrow"})

	// More than a page of each.
	is.NoErr(q.Delete(ctx))
	_, err = q.DeleteAllFailed(ctx)
	is.NoErr(err)
	var want []string
	for i := range 250 {
		put(t, q, fmt.Sprint(i), fmt.Sprint("due", i), &worqr.PutOptions{At: time.UnixMilli(int64(1000 + i))})
		want = append(want, fmt.Sprint("due", i))
	}
	listed := numbers("list", 250)
	enqueue(t, q, listed...)
	want = append(want, listed...)
	for i := range 250 {
		put(t, q, fmt.Sprint("later", i), fmt.Sprint("later", i), &worqr.PutOptions{At: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
		want = append(want, fmt.Sprint("later", i))
	}
	is.Equal(waiting(t, q), want)
	is.Equal(len(scheduled(t, q)), 500)
	is.Equal(count(), 750)
}

// What becomes due starts at once on peers that have nothing to do, and wakes
// only one of them; so does what is put before it.
func TestClock(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	const peers = 4
	lease := 30 * time.Second // no beat helps
	type start struct {
		payload string
		late    time.Duration
	}
	started := make(chan start, 100)
	due := time.Now().Add(2 * time.Second)
	for range peers {
		p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: lease})
		p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
			started <- start{string(t.Payload), time.Since(due)}
			return nil
		}, &worqr.HandleOptions{Concurrency: 2})
		run(t, p)
	}
	q := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	put(t, q, "far", "far", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	put(t, q, "b", "b", &worqr.PutOptions{At: due}) // re-arms the clock
	eventually(t, "all are idle", func() bool { return stats(t, q).IdleWorkers == peers })
	c := redistest.Dial(t, server.URL())
	before := scriptCalls(t, c)
	got := receive(t, started, 1)[0]
	is.Equal(got.payload, "b")
	is.True(got.late >= 0)
	is.True(got.late < 2*time.Second) // no beat was waited for
	eventually(t, "all are idle", func() bool {
		s := stats(t, q)
		return s.IdleWorkers == peers && s.Running == 0
	})
	steps := scriptCalls(t, c) - before
	if steps > 2*peers {
		t.Errorf("%d scripts were called for one task that came due", steps)
	}
	is.Equal(stats(t, q).Scheduled, 1)
	removed, err := q.RemoveKey(t.Context(), "far")
	is.NoErr(err)
	is.True(removed)
}

// Whoever keeps the time hands it over when it gets busy, when it is killed,
// fails or leaves.
func TestClockIsHandedOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"busy", "shut down", "failed", "paused"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			prefix := redistest.Prefix(t)
			started, release := make(chan string, 10), make(chan struct{})
			var peers []*worqr.Peer
			stops := map[string]func(){}
			for range 2 {
				p := open(t, worqr.Options{Prefix: prefix, Lease: 60 * time.Second, Drain: -1})
				p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
					started <- string(t.Payload)
					if string(t.Payload) == "holds" {
						select {
						case <-release:
						case <-ctx.Done():
						}
					}
					return nil
				}, &worqr.HandleOptions{Concurrency: 1})
				stops[p.WorkerID()] = run(t, p)
				peers = append(peers, p)
			}
			q := peers[0].Queue("q")
			eventually(t, "both are idle", func() bool { return stats(t, q).IdleWorkers == 2 })
			put(t, q, "key", "due", &worqr.PutOptions{At: time.Now().Add(1500 * time.Millisecond)})
			c := redistest.Conn(t)
			keeper := ""
			eventually(t, "somebody keeps the time", func() bool {
				last, err := redis.Strings(c.Do("ZRANGE", prefix+":idle:{q}", -1, -1, "WITHSCORES"))
				is.NoErr(err)
				if len(last) == 2 && stats(t, q).IdleWorkers == 2 {
					score, err := redis.Float64(last[1], nil)
					if err != nil {
						_, err = fmt.Sscan(last[1], &score)
						is.NoErr(err)
					}
					if score >= 1<<43 {
						keeper = last[0]
					}
				}
				return keeper != ""
			})
			other := peers[0]
			if other.WorkerID() == keeper {
				other = peers[1]
			}
			switch how {
			case "busy": // the other takes the first task, the keeper the second
				enqueue(t, q, "holds")
				is.Equal(receive(t, started, 1), []string{"holds"})
				is.Equal(other.Stats().RunningHandlers, int64(1))
				enqueue(t, q, "holds")
				is.Equal(receive(t, started, 1), []string{"holds"})
				release <- struct{}{} // one of them is idle again
			case "shut down":
				stops[keeper]()
			case "failed":
				_, err := other.FailWorker(t.Context(), keeper)
				is.NoErr(err)
			case "paused":
				is.NoErr(q.Pause(t.Context()))
				eventually(t, "it is due", func() bool { _, err := q.Peek(t.Context()); return err == nil })
				is.Equal(len(started), 0)
				is.NoErr(q.Resume(t.Context()))
			}
			since := time.Now()
			is.Equal(receive(t, started, 1), []string{"due"})
			is.True(time.Since(since) < 15*time.Second) // not by a beat
			close(release)
		})
	}
}

func TestDeleteBothLanes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "fails")
	is.NoErr(take(t, q).Fail(ctx, errors.New("no")))
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(take(t, q).Retry(ctx, time.Hour)) // the lock is with what is to be tried again
	put(t, q, "runs", "runs", nil)
	running := take(t, q)
	put(t, q, "runs", "blocked", nil)
	for i := range 1200 {
		put(t, q, fmt.Sprint(i), fmt.Sprint(i%10), &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	}
	enqueue(t, q, "list")
	is.Equal(stats(t, q), worqr.QueueStats{Waiting: 1, Scheduled: 1202, Running: 1, Failed: 1, Workers: 1})
	is.NoErr(q.Delete(ctx))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Failed: 1, Workers: 1})
	is.Equal(scheduled(t, q), nil)
	is.NoErr(q.EnqueueUnique(ctx, []byte("unique")))
	is.NoErr(q.Delete(ctx))
	is.NoErr(running.Retry(ctx, 0)) // what runs was not touched
	task := take(t, q)
	is.Equal(string(task.Payload), "runs")
	is.Equal(task.Retries, 1)
	is.NoErr(task.Finish(ctx))
	is.NoErr(p.StopWorker(ctx))
	is.Equal(failedPayloads(t, q), []string{"fails"})
	_, err := q.DeleteAllFailed(ctx)
	is.NoErr(err)
	nothingLeft(t, prefix, "q")
}

func TestPauseWithDueTasks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	p := open(t, worqr.Options{Lease: time.Minute})
	q := p.Queue("q")
	got := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	eventually(t, "it is idle", func() bool { return stats(t, q).IdleWorkers == 1 })
	is.NoErr(q.Pause(ctx))
	put(t, q, "now", "now", nil)
	put(t, q, "soon", "soon", &worqr.PutOptions{At: time.Now().Add(20 * time.Millisecond)})
	put(t, q, "later", "later", &worqr.PutOptions{At: time.Now().Add(time.Second)})
	eventually(t, "two are due", func() bool { return slices.Equal(waiting(t, q)[:2], []string{"now", "soon"}) })
	is.True(stats(t, q).Paused)
	is.Equal(len(got), 0)
	is.NoErr(q.Resume(ctx))
	since := time.Now()
	is.Equal(receive(t, got, 3), []string{"now", "soon", "later"})
	is.True(time.Since(since) < 15*time.Second) // not by a beat
}

func TestDeleteAndRequeueFailed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	no := errors.New("no")
	requeue := func(ids ...string) int {
		n, err := q.RequeueFailed(ctx, ids...)
		is.NoErr(err)
		return n
	}
	remove := func(ids ...string) int {
		n, err := q.DeleteFailed(ctx, ids...)
		is.NoErr(err)
		return n
	}
	requeueAll := func() int {
		n, err := q.RequeueAllFailed(ctx)
		is.NoErr(err)
		return n
	}
	removeAll := func() int {
		n, err := q.DeleteAllFailed(ctx)
		is.NoErr(err)
		return n
	}
	is.Equal(requeueAll(), 0)
	is.Equal(removeAll(), 0)
	is.Equal(requeue("unknown"), 0)
	is.Equal(remove("unknown", ""), 0)

	ids := map[string]string{}
	fail := func(task *worqr.Task) {
		is.NoErr(task.Fail(ctx, no))
		ids[string(task.Payload)] = task.AttemptID
	}
	for _, payload := range []string{"a", "b", "c", "d"} {
		enqueue(t, q, payload)
		fail(take(t, q))
	}
	for _, key := range []string{"k1", "k2", "k3"} {
		put(t, q, key, key, nil)
		is.NoErr(take(t, q).Retry(ctx, 0))
		fail(take(t, q))
	}
	is.Equal(failedPayloads(t, q), []string{"k3", "k2", "k1", "d", "c", "b", "a"})
	is.Equal(failed(t, q)[0].Retries, 1)
	is.Equal(failed(t, q)[0].Key, "k3")

	is.Equal(requeue(), 0) // no ids are none, not all
	is.Equal(remove([]string{}...), 0)
	is.Equal(len(failed(t, q)), 7)

	is.Equal(requeue(ids["b"]), 1) // one
	is.Equal(requeue(ids["b"]), 0)
	is.Equal(remove(ids["a"]), 1)
	is.Equal(remove(ids["a"]), 0)
	is.Equal(requeue(ids["d"], "unknown", ids["a"], ids["d"]), 1) // some
	is.Equal(waiting(t, q), []string{"b", "d"})                   // at the back

	put(t, q, "k1", "waits", &worqr.PutOptions{At: time.Now().Add(time.Hour)}) // taken
	put(t, q, "k2", "runs", nil)
	running := take(t, q)
	is.Equal(requeueAll(), 2) // all that can
	is.Equal(failedPayloads(t, q), []string{"k2", "k1"})
	is.Equal(waiting(t, q), []string{"k3", "b", "d", "c", "waits"})
	task := take(t, q)
	is.Equal(task.Key, "k3")
	is.Equal(task.Retries, 0) // counts begin anew
	is.NoErr(task.Finish(ctx))
	is.NoErr(running.Finish(ctx))
	_, err := q.RemoveKey(ctx, "k1")
	is.NoErr(err)
	is.Equal(requeueAll(), 2)
	is.Equal(removeAll(), 0)

	// The same key twice among the failed: one at a time.
	is.NoErr(q.Delete(ctx))
	for range 2 {
		put(t, q, "twice", "twice", nil)
		fail(take(t, q))
	}
	is.Equal(requeueAll(), 1)
	is.Equal(len(failed(t, q)), 1)
	is.Equal(removeAll(), 1)

	// More than a page, of the same millisecond or not.
	is.NoErr(q.Delete(ctx))
	enqueue(t, q, numbers("", 350)...)
	tasks, err := q.StartTasks(ctx, 350)
	is.NoErr(err)
	for _, task := range tasks {
		is.NoErr(task.Fail(ctx, no))
	}
	is.Equal(len(failed(t, q)), 350)
	is.Equal(stats(t, q).Failed, 350)
	is.Equal(requeueAll(), 350)
	is.Equal(len(failed(t, q)), 0)
	tasks, err = q.StartTasks(ctx, 350)
	is.NoErr(err)
	for _, task := range tasks {
		is.NoErr(task.Fail(ctx, no))
	}
	is.Equal(removeAll(), 350)
	is.NoErr(p.StopWorker(ctx))
	nothingLeft(t, prefix, "q")
}

// A unique task keeps its lock while it waits to be tried again, and loses it
// when it has failed. A plain twin of it neither locks nor unlocks.
func TestUniqueRetry(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p, other := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	unique := func() error { return q.EnqueueUnique(ctx, []byte("u")) }
	locked := func(want bool) {
		t.Helper()
		if want != is_(unique(), worqr.ErrDuplicate) {
			t.Fatalf("the lock should be there: %v", want)
		}
	}
	is.NoErr(unique())
	task := take(t, q)
	is.NoErr(task.Retry(ctx, 0))
	locked(true) // it waits
	task = take(t, q)
	is.Equal(task.Retries, 1)
	locked(true)             // it runs
	enqueue(t, q, "u")       // a twin
	is.NoErr(task.Stop(ctx)) // goes back with its count
	locked(true)
	task = take(t, q)
	is.Equal(task.Retries, 1)
	twin := take(t, q)
	is.Equal(twin.Retries, 0)
	is.NoErr(twin.Retry(ctx, 0)) // both wait in the schedule by turns
	locked(true)
	twin = take(t, q)
	is.NoErr(twin.Fail(ctx, errors.New("the twin")))
	locked(true) // it is not the twin's
	is.NoErr(task.Retry(ctx, time.Hour))
	locked(true)
	put(t, q, "key", "u", nil) // nor a key's
	is.NoErr(take(t, q).Finish(ctx))
	locked(true)

	is.Equal(cancel(t, q, "u").Removed, 1)
	is.NoErr(unique())
	take(t, q)
	failWorker(t, other, p.WorkerID(), 1)
	qo := working(t, other, "q")
	locked(true)
	task = take(t, qo)
	is.Equal(task.Crashes, 1)
	is.NoErr(task.Fail(ctx, errors.New("no")))
	is.NoErr(unique()) // what has failed locks nothing
	is.Equal(len(failed(t, qo)), 2)
	n, err := qo.RequeueAllFailed(ctx) // nor is it locked out
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(waiting(t, qo), []string{"u", "u", "u"})
	locked(true)
	for range 3 {
		is.NoErr(take(t, qo).Finish(ctx))
	}
	is.NoErr(unique())
	is.NoErr(take(t, qo).Finish(ctx))
	is.NoErr(other.StopWorker(ctx))
	is.NoErr(p.StopWorker(ctx))
	nothingLeftBut(t, prefix, "q")
}

func TestTimes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	for _, past := range []time.Time{
		time.Now().Add(-time.Hour), time.Unix(0, 0), time.Unix(0, 1), time.Unix(-1, 0), time.Unix(-1, 999_999_999),
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{},
		time.Unix(-10_000_000_000_000_000, 0), time.Unix(math.MinInt64, 0), // of which UnixMilli overflows
	} {
		key, err := q.EnqueueAt(ctx, past, []byte("past"))
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		task, err := q.StartTask(ctx)
		if err != nil {
			t.Fatalf("%v is in the past: %v", past, err)
		}
		is.Equal(task.Key, key)
		is.NoErr(task.Finish(ctx))
	}
	last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	key, err := q.EnqueueAt(ctx, last, []byte("far"))
	is.NoErr(err)
	s := scheduled(t, q)
	is.True(s[0].DueAt.Equal(last))
	is.Equal(s[0].Key, key)
	noTask(t, q)
	last = last.Add(time.Second - 1) // the last nanosecond may be rounded
	is.NoErr(q.Put(ctx, "last", []byte("far"), &worqr.PutOptions{At: last}))
	is.Equal(len(scheduled(t, q)), 2)
	noTask(t, q)
	for _, bad := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<60, 0), time.Date(300_000_000, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(math.MaxInt64, 0), // which is before everything else for Before
	} {
		_, err = q.EnqueueAt(ctx, bad, []byte("x"))
		is.True(is_(err, worqr.ErrInvalid))
		is.True(strings.Contains(err.Error(), `enqueue at a time on "q"`))
		is.True(is_(q.Put(ctx, "x", []byte("x"), &worqr.PutOptions{At: bad}), worqr.ErrInvalid))
	}
	// By the zone of the one who asks, or any other.
	at := time.Date(2100, 1, 1, 12, 0, 0, 123_000_000, time.FixedZone("far east", 14*3600))
	put(t, q, "zone", "x", &worqr.PutOptions{At: at})
	is.True(scheduled(t, q)[0].DueAt.Equal(at))
	for _, when := range []worqr.Reschedule{-1, worqr.RescheduleIfEarlier + 1, 100} {
		is.True(is_(q.Put(ctx, "x", nil, &worqr.PutOptions{Reschedule: when}), worqr.ErrInvalid))
	}
	is.Equal(len(scheduled(t, q)), 3)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	for _, bad := range []string{"", strings.Repeat("k", worqr.MaxKeySize+1)} {
		is.True(is_(q.Put(ctx, bad, []byte("x"), nil), worqr.ErrInvalid))
		_, err := q.RemoveKey(ctx, bad)
		is.True(is_(err, worqr.ErrInvalid))
		_, err = q.CancelKey(ctx, bad)
		is.True(is_(err, worqr.ErrInvalid))
	}
	keys := []string{
		"k", " ", "\x00", "a\x00b", "a\nb\r\n", "\xff\xfe\xc0", "{}", "{q}", "}x{", "a:b:c", ":", "k:k", "r:k", "*", "%s%d", "ключ",
		"w:x", "offset", "0", "-1", "1e5", `"`, `\`, "00000000-0000-7000-8000-000000000000",
		strings.Repeat("k", worqr.MaxKeySize), strings.Repeat("\x00", worqr.MaxKeySize),
	}
	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	keys = append(keys, string(all))
	for i, key := range keys {
		put(t, q, key, fmt.Sprint(i), &worqr.PutOptions{At: time.UnixMilli(int64(i + 1))})
	}
	s := scheduled(t, q)
	is.Equal(len(s), len(keys))
	for i, key := range keys {
		is.Equal(s[i].Key, key)
	}
	tasks, err := q.StartTasks(ctx, len(keys)+1)
	is.NoErr(err)
	is.Equal(len(tasks), len(keys))
	for i, key := range keys {
		is.Equal(tasks[i].Key, key)
		is.Equal(string(tasks[i].Payload), fmt.Sprint(i))
		put(t, q, key, "blocked", nil)
		removed, err := q.RemoveKey(ctx, key)
		is.NoErr(err)
		is.True(removed)
		switch i % 3 {
		case 0:
			is.NoErr(tasks[i].Retry(ctx, time.Hour))
			report, err := q.CancelKey(ctx, key)
			is.NoErr(err)
			is.Equal(report.Removed, 1)
		case 1:
			is.NoErr(tasks[i].Fail(ctx, errors.New("no")))
			is.Equal(failed(t, q)[0].Key, key)
			n, err := q.RequeueFailed(ctx, tasks[i].AttemptID)
			is.NoErr(err)
			is.Equal(n, 1)
			task := take(t, q)
			is.Equal(task.Key, key)
			is.NoErr(task.Finish(ctx))
		default:
			report, err := q.CancelKey(ctx, key)
			is.NoErr(err)
			<-tasks[i].Context().Done()
			is.Equal(context.Cause(tasks[i].Context()), worqr.ErrCanceled)
			is.NoErr(tasks[i].Stop(ctx))
			wait(t, report)
			is.Equal(report.Stopped, 1)
		}
	}
	is.NoErr(p.StopWorker(ctx))
	nothingLeftBut(t, prefix, "q")
}

// Payloads of the schedule are any bytes, and theirs for whom they are.
func TestKeyedPayloads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	for _, payload := range [][]byte{nil, {}, {0}, []byte("\x00\xff\r\n{}:"), []byte(strings.Repeat("long", 1<<18))} {
		mine := slices.Clone(payload)
		is.NoErr(q.Put(ctx, "key", mine, nil))
		for i := range mine {
			mine[i] = 'x'
		}
		task := take(t, q)
		is.Equal(string(task.Payload), string(payload))
		is.NoErr(task.Fail(ctx, errors.New("no")))
		is.Equal(string(failed(t, q)[0].Payload), string(payload))
		_, err := q.DeleteAllFailed(ctx)
		is.NoErr(err)
	}
}

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

// Who is idle hears of a time that comes up while others do something else: what
// was put during a pause, and what was blocked by a task that others end.
func TestClockHearsOfAll(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"resume", "finish", "fail", "retry", "requeue"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			ctx, prefix := t.Context(), redistest.Prefix(t)
			hand := working(t, open(t, worqr.Options{Prefix: prefix, Lease: time.Minute}), "q")
			put(t, hand, "key", "held", nil)
			task := take(t, hand)
			p := open(t, worqr.Options{Prefix: prefix, Lease: time.Minute})
			q := p.Queue("q")
			got := make(chan string, 10)
			q.Handle(func(_ context.Context, t *worqr.Task) error {
				got <- string(t.Payload)
				return nil
			}, nil)
			run(t, p)
			eventually(t, "it is idle", func() bool { return stats(t, q).IdleWorkers == 1 })
			soon := &worqr.PutOptions{At: time.Now().Add(700 * time.Millisecond)}
			want := "soon"
			switch how {
			case "resume":
				is.NoErr(q.Pause(ctx))
				put(t, q, "other", "soon", soon)
				is.NoErr(q.Resume(ctx))
			case "finish":
				put(t, q, "key", "soon", soon)
				is.NoErr(task.Finish(ctx))
			case "fail":
				put(t, q, "key", "soon", soon)
				is.NoErr(task.Fail(ctx, errors.New("no")))
			case "retry":
				is.NoErr(task.Retry(ctx, 700*time.Millisecond))
				want = "held"
			case "requeue":
				is.NoErr(task.Fail(ctx, errors.New("no")))
				_, err := q.RequeueAllFailed(ctx)
				is.NoErr(err)
				want = "held"
			}
			since := time.Now()
			is.Equal(receive(t, got, 1), []string{want})
			is.True(time.Since(since) < 15*time.Second) // not by a beat
		})
	}
}

// Whoever keeps the time hears of what is planned also while something that is
// due stands before it, which nobody may start yet.
func TestClockBehindWhatIsDue(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	accused(t, redistest.URL(), prefix, "q", 2)
	p := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour}) // no beat helps
	q := p.Queue("q")
	started, release := make(chan string, 10), make(chan struct{})
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- t.Key
		if t.Crashes > 0 {
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	defer close(release)
	receive(t, started, 1) // the other one is due, and left until this has ended
	idle(t, q, 1)
	is.Equal(stats(t, q).Scheduled, 1)
	put(t, q, "soon", "soon", &worqr.PutOptions{At: time.Now().Add(300 * time.Millisecond)})
	is.Equal(receive(t, started, 1), []string{"soon"})
}
