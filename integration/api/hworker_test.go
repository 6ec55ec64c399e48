package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// The test cases of hworker, and what it did wrong.

// allDone waits until the queue is empty and nothing runs.
func allDone(t testing.TB, q *worqr.Queue) {
	t.Helper()
	eventually(t, "all is done", func() bool {
		s := stats(t, q)
		return s.Waiting+s.Scheduled+s.Running == 0
	})
}

// One job, two, a thousand, with one worker and with several: each is done once.
func TestEachJobOnce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		for _, jobs := range []int{1, 2, 1000} {
			t.Run(fmt.Sprintf("%d jobs, %d workers", jobs, workers), func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				prefix := redistest.Prefix(t)
				var mu sync.Mutex
				count := map[string]int{}
				var q *worqr.Queue
				var stops []func()
				var peers []*worqr.Peer
				for range workers {
					p := open(t, worqr.Options{Prefix: prefix})
					q = p.Queue("q")
					q.Handle(func(_ context.Context, t *worqr.Task) error {
						mu.Lock()
						defer mu.Unlock()
						count[string(t.Payload)]++
						return nil
					}, nil)
					stops, peers = append(stops, run(t, p)), append(peers, p)
				}
				for some := range slices.Chunk(numbers("", jobs), 7) {
					enqueue(t, q, some...)
				}
				finished := func() (n int64) {
					for _, p := range peers {
						n += p.Stats().Finished
					}
					return n
				}
				eventually(t, "all is finished", func() bool { return finished() >= int64(jobs) })
				allDone(t, q)
				for _, stop := range stops {
					stop()
				}
				is.Equal(finished(), int64(jobs))
				is.Equal(len(count), jobs)
				for payload, n := range count {
					if n != 1 {
						t.Errorf("%s was done %d times", payload, n)
					}
				}
				nothingLeft(t, prefix, "q")
			})
		}
	}
}

// A panic is an error, or final, as OnPanic has it; an error is tried again, a
// Permanent one is not. The worker survives all of them.
func TestExceptions(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, c := range map[string]struct {
		fail   func() error
		policy worqr.PanicPolicy
		runs   int
		reason string
	}{
		"panic, retry":             {func() error { panic("no") }, worqr.RetryOnPanic, 3, "panic: no"},
		"panic, fail":              {func() error { panic("no") }, worqr.FailOnPanic, 1, "panic: no"},
		"panic with an error":      {func() error { panic(no) }, worqr.FailOnPanic, 1, "panic: no"},
		"panic with a Permanent":   {func() error { panic(worqr.Permanent(no)) }, worqr.RetryOnPanic, 1, "panic: no"},
		"panic, fail, RetryAfter":  {func() error { panic(worqr.RetryAfter(no, 0)) }, worqr.FailOnPanic, 1, "panic: no"},
		"panic, retry, RetryAfter": {func() error { panic(worqr.RetryAfter(no, 0)) }, worqr.RetryOnPanic, 3, "panic: no"},
		"Goexit, fail":             {func() error { runtime.Goexit(); return nil }, worqr.FailOnPanic, 3, "the handler called runtime.Goexit"},
		"panic nil, fail":          {func() error { panic(nil) }, worqr.FailOnPanic, 1, ""},
		"nil dereference, fail":    {func() error { var p *worqr.Task; return errors.New(p.AttemptID) }, worqr.FailOnPanic, 1, ""},
		"error, retry":             {func() error { return no }, worqr.RetryOnPanic, 3, "no"},
		"error, fail":              {func() error { return no }, worqr.FailOnPanic, 3, "no"},
		"Permanent, retry":         {func() error { return worqr.Permanent(no) }, worqr.RetryOnPanic, 1, "no"},
		"wrapped Permanent":        {func() error { return fmt.Errorf("about %w", worqr.Permanent(no)) }, worqr.RetryOnPanic, 1, "about no"},
		"RetryAfter":               {func() error { return worqr.RetryAfter(no, 0) }, worqr.FailOnPanic, 3, "no"},
		"Permanent of RetryAfter":  {func() error { return worqr.Permanent(worqr.RetryAfter(no, 0)) }, worqr.RetryOnPanic, 1, "no"},
		"RetryAfter of Permanent":  {func() error { return worqr.RetryAfter(worqr.Permanent(no), 0) }, worqr.RetryOnPanic, 3, "no"},
		"canceled by a subcontext": {func() error { return context.Canceled }, worqr.RetryOnPanic, 3, "context canceled"},
		"not ours":                 {func() error { return worqr.ErrNotOwner }, worqr.RetryOnPanic, 3, "worqr: task lost: another worker may be running it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			p := open(t, worqr.Options{})
			q := p.Queue("q")
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
			is.Equal(f.Kind, worqr.FailureError)
			is.Equal(f.Retries, c.runs-1)
			if c.reason != "" {
				is.Equal(f.Error, c.reason)
			}
			is.True(f.Error != "")
			is.Equal(p.Stats().Finished, int64(1))
			is.Equal(p.Stats().Failed, int64(1))
		})
	}
}

// A job that is tried again does not hold up those behind it, and is done in the
// end; one that fails is not done again.
func TestRetryAndFail(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	got := make(chan string, 100)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- fmt.Sprint(string(t.Payload), t.Retries)
		switch {
		case string(t.Payload) == "retry" && t.Retries < 2:
			return worqr.RetryAfter(errors.New("once more"), 100*time.Millisecond)
		case string(t.Payload) == "fail":
			return worqr.Permanent(errors.New("never again"))
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	enqueue(t, q, "retry", "fail", "good")
	stop := run(t, p)
	is.Equal(receive(t, got, 5), []string{"retry0", "fail0", "good0", "retry1", "retry2"})
	allDone(t, q)
	stop()
	is.Equal(len(got), 0)
	is.Equal(failedPayloads(t, q), []string{"fail"})
	_, err := q.DeleteAllFailed(t.Context())
	is.NoErr(err)
	nothingLeft(t, prefix, "q")
}

// The failed list is newest first, and no longer than it may be; what falls off
// leaves nothing behind.
func TestFailedIsBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := p.Queue("q")
	options := worqr.HandleOptions{Concurrency: 1, KeepFailed: 3}
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		return worqr.Permanent(fmt.Errorf("no %s", t.Payload))
	}, &options)
	run(t, p)
	for i := range 5 { // one after the other, so that their times differ
		enqueue(t, q, fmt.Sprint(i))
		eventually(t, "it has failed", func() bool { return p.Stats().Failed == int64(i+1) })
		time.Sleep(2 * time.Millisecond)
	}
	is.Equal(failedPayloads(t, q), []string{"4", "3", "2"})
	for _, f := range failed(t, q) {
		is.Equal(f.Error, "no "+string(f.Payload))
		is.True(near(f.FailedAt, time.Now()))
	}
	is.Equal(stats(t, q).Failed, 3)
	keys := left(t, prefix+":failed")
	is.Equal(len(keys), 3+2) // the tasks, and two that tell of them
	options.KeepFailed = 1
	is.NoErr(q.SetOptions(&options))
	enqueue(t, q, "5")
	eventually(t, "it has failed", func() bool { return slices.Equal(failedPayloads(t, q), []string{"5"}) })
	options.KeepFailed = 0 // 1000
	is.NoErr(q.SetOptions(&options))
	enqueue(t, q, numbers("", 1100)...)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 1106 })
	is.Equal(stats(t, q).Failed, 1000)
	n, err := q.DeleteAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 1000)
}

// Two equal jobs are two: what becomes of one does not touch the other.
func TestEqualJobs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a", "a", "a", "a")
	tasks, err := q.StartTasks(ctx, 4)
	is.NoErr(err)
	is.NoErr(tasks[0].Finish(ctx))
	is.NoErr(tasks[1].Fail(ctx, errors.New("no")))
	is.NoErr(tasks[2].Retry(ctx, 0))
	is.Equal(stats(t, q), worqr.QueueStats{Running: 1, Scheduled: 1, Failed: 1, Workers: 1})
	is.NoErr(tasks[3].Finish(ctx))
	task := take(t, q)
	is.Equal(task.Retries, 1)
	is.NoErr(task.Finish(ctx))
	is.Equal(stats(t, q), worqr.QueueStats{Failed: 1, Workers: 1})
}

// A job that takes longer than any timeout of the monitor is not done twice.
func TestLongJob(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	var peers []*worqr.Peer
	started, release := make(chan string, 10), make(chan struct{})
	for range 3 {
		p := open(t, worqr.Options{Prefix: prefix, Lease: time.Second})
		p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
			started <- ""
			<-release
			return ctx.Err()
		}, nil)
		run(t, p)
		peers = append(peers, p)
	}
	q := peers[0].Queue("q")
	put(t, q, "key", "keyed", nil)
	enqueue(t, q, "list")
	receive(t, started, 2)
	time.Sleep(3 * time.Second) // several leases, in which nothing must happen
	is.Equal(len(started), 0)
	for _, p := range peers {
		is.Equal(p.Stats().TimesEvicted, int64(0))
	}
	close(release)
	allDone(t, q)
	is.Equal(len(started), 0)
}

// A worker dies: what it did is done by others. Many of them look after it, and
// each job comes back once.
func TestManyMonitors(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const jobs, monitors = 250, 5
	prefix := redistest.Prefix(t)
	c := childConfig{URL: redistest.URL(), Prefix: prefix, Queue: "q", Concurrency: jobs, Hold: true, Lease: 1500 * time.Millisecond}
	victim := spawn(t, c)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q")
	for i := range 10 {
		put(t, q, fmt.Sprint(i), fmt.Sprint("keyed", i), nil)
	}
	enqueue(t, q, numbers("", jobs-10)...)
	held := victim.starts(jobs)
	victim.kill()

	got := make(chan string, 10*jobs)
	var crashes atomic.Int64
	var peers []*worqr.Peer
	var stops []func()
	for range monitors {
		p := open(t, worqr.Options{Prefix: prefix, Lease: c.Lease})
		p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
			crashes.Add(int64(t.Crashes))
			got <- string(t.Payload)
			return nil
		}, nil)
		stops, peers = append(stops, run(t, p)), append(peers, p)
	}
	is.Equal(sorted(receive(t, got, jobs)), sorted(held))
	allDone(t, q)
	swept, returned, finished := int64(0), int64(0), int64(0)
	for i, stop := range stops {
		stop()
		s := peers[i].Stats()
		swept, returned, finished = swept+s.WorkersEvicted, returned+s.TasksReturned, finished+s.Finished
	}
	is.Equal(len(got), 0)
	is.Equal(swept, int64(1))
	is.True(returned <= jobs)
	is.Equal(finished, int64(jobs))
	is.Equal(crashes.Load(), int64(jobs))
	nothingLeft(t, prefix, "q")
}

// What cannot be decoded is set aside with its kind, and what stands behind it
// is done. It can be put back once the decoder is better.
func TestBrokenJobs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	var better atomic.Bool
	got := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		if t.Payload[0] == '{' && !better.Load() {
			return fmt.Errorf("decode: %w", worqr.Malformed(errors.New("unexpected end")))
		}
		got <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	enqueue(t, q, "{1", "good", "{2")
	is.Equal(receive(t, got, 1), []string{"good"})
	eventually(t, "both have failed", func() bool { return len(failed(t, q)) == 2 })
	for _, f := range failed(t, q) {
		is.Equal(f.Kind, worqr.FailureMalformed)
		is.Equal(f.Error, "decode: unexpected end")
		is.Equal(f.Retries, 0)
	}
	is.Equal(sorted(failedPayloads(t, q)), []string{"{1", "{2"})
	better.Store(true)
	n, err := q.RequeueAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 2)
	is.Equal(sorted(receive(t, got, 2)), []string{"{1", "{2"})
}

// What is listed is in order: waiting, running and failed.
func TestListing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	q := working(t, open(t, worqr.Options{}), "q")
	all := numbers("", 230) // more than two pages
	enqueue(t, q, all...)
	is.Equal(waiting(t, q), all)
	tasks, err := q.StartTasks(ctx, 210)
	is.NoErr(err)
	is.Equal(waiting(t, q), all[210:])
	running := func() (payloads []string) {
		for r, err := range q.Running(ctx) {
			is.NoErr(err)
			payloads = append(payloads, string(r.Payload))
		}
		return payloads
	}
	is.Equal(running(), all[:210])
	for _, task := range tasks[:105] {
		is.NoErr(task.Fail(ctx, errors.New("no")))
	}
	is.Equal(running(), all[105:210])
	got := failedPayloads(t, q)
	slices.Reverse(got)
	is.Equal(got, all[:105])
	for i, task := range tasks[105:] {
		is.NoErr(task.Retry(ctx, time.Hour+time.Duration(i)*time.Second))
	}
	got = nil
	for _, s := range scheduled(t, q) {
		is.Equal(s.Key, "")
		is.Equal(s.Retries, 1)
		got = append(got, string(s.Payload))
	}
	is.Equal(got, all[105:210])
	is.Equal(waiting(t, q), append(slices.Clone(all[210:]), all[105:210]...))
	// Whoever has seen enough may stop.
	for range q.Tasks(ctx) {
		break
	}
	for range q.Scheduled(ctx) {
		break
	}
	for range q.Failed(ctx) {
		break
	}
	// An error comes last.
	done, cancel := context.WithCancel(ctx)
	cancel()
	n := 0
	for _, err := range q.Failed(done) {
		is.True(err != nil)
		n++
	}
	for _, err := range q.Scheduled(done) {
		is.True(err != nil)
		n++
	}
	is.Equal(n, 2)
}

// Jobs of several megabytes, in every place that a job can be in.
func TestLargeJobs(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx := t.Context()
	p := openAt(t, redistest.Start(t).URL(), worqr.Options{Prefix: "p"}) // which stands still for a while
	q := p.Queue("q")
	large := make([]byte, 4<<20)
	_, _ = rand.Read(large)
	got := make(chan bool, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- bytes.Equal(t.Payload, large)
		switch t.Retries {
		case 0:
			return worqr.RetryAfter(errors.New("once more"), 0)
		case 1:
			return worqr.Permanent(errors.New("no"))
		}
		return nil
	}, nil)
	run(t, p)
	is.NoErr(q.Enqueue(ctx, large))
	is.NoErr(q.Put(ctx, "key", large, nil))
	is.Equal(receive(t, got, 4), []bool{true, true, true, true})
	eventually(t, "both have failed", func() bool { return stats(t, q).Failed == 2 })
	for _, f := range failed(t, q) {
		is.True(bytes.Equal(f.Payload, large))
	}
	is.NoErr(q.Pause(ctx))
	n, err := q.RequeueAllFailed(ctx)
	is.NoErr(err)
	is.Equal(n, 2)
	report, err := q.Cancel(ctx, large)
	is.NoErr(err)
	is.Equal(report.Removed, 2)
	s := stats(t, q)
	is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)
}

// A pool that the application has, for all of it.
func TestExistingPoolForAll(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	url := redistest.Worker(t, redistest.URL(), prefix)
	pool := &redis.Pool{
		DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) },
		MaxActive:   2, Wait: true,
	}
	defer func() { is.NoErr(pool.Close()) }()
	p := worqr.New(pool, &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
	defer p.Close()
	q := p.Queue("q")
	got := make(chan string, 10)
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		got <- fmt.Sprint(t.Key, t.Retries)
		if t.Retries == 0 {
			return errors.New("once more")
		}
		return worqr.Permanent(errors.New("no"))
	}, &worqr.HandleOptions{Backoff: func(int) time.Duration { return 20 * time.Millisecond }})
	stop := run(t, p)
	put(t, q, "key", "a", &worqr.PutOptions{At: time.Now().Add(50 * time.Millisecond)})
	is.Equal(receive(t, got, 2), []string{"key0", "key1"})
	eventually(t, "it has failed", func() bool { return len(failed(t, q)) == 1 })
	_, err := q.DeleteAllFailed(t.Context())
	is.NoErr(err)
	stop()
	nothingLeft(t, prefix, "q")
	c := pool.Get() // which is still the application's
	_, err = c.Do("PING")
	is.NoErr(err)
	is.NoErr(c.Close())
}

// Whoever asks an empty queue changes nothing: no phantom comes of it.
func TestEmptyPolls(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	q, qb := working(t, a, "q"), working(t, b, "q")
	before := left(t, prefix)
	for range 100 {
		noTask(t, q)
		_, err := q.Peek(ctx)
		is.True(is_(err, worqr.ErrNoTask))
		noTask(t, qb)
	}
	is.Equal(left(t, prefix), before)
	failWorker(t, b, a.WorkerID(), 0)
	noTask(t, qb)
	_, err := b.Sweep(ctx)
	is.NoErr(err)
	noTask(t, qb)
	is.Equal(waiting(t, qb), nil)
	is.Equal(failed(t, qb), nil)
	s := stats(t, qb)
	is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)

	// The same with Run, whose workers ask when they are woken.
	p := open(t, worqr.Options{Prefix: prefix})
	started := make(chan string, 10)
	qp := p.Queue("q")
	qp.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		return worqr.Permanent(errors.New("no"))
	}, nil)
	stop := run(t, p)
	eventually(t, "it is idle", func() bool { return stats(t, qp).IdleWorkers >= 1 })
	for range 20 {
		put(t, qp, "key", "a", &worqr.PutOptions{At: time.Now().Add(time.Hour)}) // wakes, for nothing
		_, err := qp.RemoveKey(ctx, "key")
		is.NoErr(err)
	}
	eventually(t, "it is idle", func() bool { return stats(t, qp).IdleWorkers >= 1 })
	stop()
	is.Equal(len(started), 0)
	is.Equal(failed(t, qb), nil)
	is.NoErr(b.StopWorker(ctx))
	is.NoErr(a.Close())
	nothingLeft(t, prefix, "q")
}
