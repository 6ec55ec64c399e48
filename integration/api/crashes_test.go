package api

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A task fails after MaxCrashes dead workers, whether it's on the list, under a key, or has been
// retried.
func TestMaxCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		max, crashes int // crashes 0: it never fails
	}{"default": {0, 3}, "one": {1, 1}, "two": {2, 2}, "negative": {-1, 0}} {
		for _, kind := range []string{"list", "key", "retried"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				is := parallel(t)
				ctx, prefix := t.Context(), redistest.Prefix(t)
				p, q := openQueue(t, worqr.Options{Prefix: prefix})
				key, retries := "", 0
				if kind == "key" {
					key = "key"
					add(t, q, worqr.TaskSpec{Key: key, Payload: []byte("a")})
				} else {
					enqueue(t, q, "a")
				}
				deaths := c.crashes
				if deaths == 0 {
					deaths = 2 // StartTask uses the default limit of 3
				}
				for i := range deaths {
					h := open(t, worqr.Options{Prefix: prefix})
					task := take(t, working(t, h, "q"))
					is.Equal(task.Crashes, i)
					if kind == "retried" && i == 0 {
						is.NoErr(task.Retry(ctx, 0))
						retries = take(t, h.Queue("q")).Retries
						is.Equal(retries, 1)
					}
					failWorker(t, p, h.WorkerID(), 1)
					is.NoErr(h.Close())
				}
				// A task behind it isn't blocked, and runs.
				enqueue(t, q, "behind")
				got := make(chan string, 10)
				q.Handle(tell(got), &worqr.HandleOptions{MaxCrashes: c.max})
				stop := run(t, p)
				if c.crashes == 0 {
					is.Equal(sorted(receive(t, got, 2)), []string{"a", "behind"})
				} else {
					is.Equal(receive(t, got, 1), []string{"behind"})
					eventually(t, "it has failed", func() bool { return stats(t, q).Failed == 1 })
				}
				allDone(t, q)
				stop()
				is.Equal(p.Stats().TakenOver, int64(0))
				is.Equal(p.Stats().Stopped, int64(0))
				if c.crashes > 0 {
					f := failed(t, q)
					is.Equal(len(f), 1)
					is.Equal(f[0].Kind, inspect.FailureCrashed)
					is.Equal(f[0].Crashes, c.crashes)
					is.Equal(f[0].Retries, retries)
					is.Equal(f[0].Key, key)
					is.True(f[0].Error != "")
					is.Equal(p.Stats().Failed, int64(1))
					sure(q.DeleteAllFailed(ctx))(t)
				}
				nothingLeft(t, prefix, "q")
			})
		}
	}
}

// Stops, drains and cancels don't count as crashes, and finishing a task resets its count.
func TestWhatIsNoCrash(t *testing.T) {
	is := parallel(t)
	ctx, prefix := t.Context(), redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	q := working(t, p, "q")
	enqueue(t, q, "list")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("key")})
	for range 4 {
		tasks := takes(t, q, 2)
		is.Equal(tasks[0].Crashes+tasks[1].Crashes, 0)
		is.NoErr(tasks[0].Stop(ctx))
		is.NoErr(q.StopWork(ctx))
		is.NoErr(q.StartWork(ctx))
	}
	other := open(t, worqr.Options{Prefix: prefix})
	takes(t, q, 2)
	failWorker(t, other, p.WorkerID(), 2)
	qo := working(t, other, "q")
	for _, crashes := range []int{1, 0} { // first for the returned tasks, then for equal new ones
		for _, task := range takes(t, qo, 2) {
			is.Equal(task.Crashes, crashes)
			is.NoErr(task.Finish(ctx))
		}
		if crashes == 1 {
			enqueue(t, qo, "list")
			add(t, qo, worqr.TaskSpec{Key: "key", Payload: []byte("key")})
		}
	}
	is.NoErr(other.StopWorker(ctx))
	_ = p.Close()
	nothingLeft(t, prefix, "q")
}

// If many due tasks are one crash away from failing, they run one at a time. While one of them
// runs, a worker that may start no other is idle, and still starts scheduled tasks behind them
// on time.
func TestManyNearlyCrashed(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	const suspects = 250 // a round starts 256 at most
	accused(t, server.URL(), "p", "q", suspects)
	p, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	started, release := make(chan string, 1000), make(chan struct{})
	var running, together atomic.Int64
	q.Handle(func(_ context.Context, t *worqr.Task) error {
		started <- string(t.Payload)
		if t.Crashes > 0 {
			together.Add(running.Add(1) - 1)
			defer running.Add(-1)
			<-release
		}
		return nil
	}, &worqr.HandleOptions{Concurrency: 8})
	run(t, p)
	receive(t, started, 1) // one of the suspects
	enqueue(t, q, "good")
	is.Equal(receive(t, started, 1), []string{"good"})
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("keyed")}) // due after all of them
	is.Equal(receive(t, started, 1), []string{"keyed"})
	idle(t, q, 1)
	silent(t, server)
	is.Equal(len(started), 0)
	add(t, q, worqr.TaskSpec{Key: "soon", Payload: []byte("soon"), At: time.Now().Add(300 * time.Millisecond)}) // long before the next heartbeat
	is.Equal(receive(t, started, 1), []string{"soon"})
	close(release)
	eventually(t, "all are finished", func() bool { return p.Stats().Finished == suspects+3 })
	is.Equal(together.Load(), int64(0))
	is.Equal(failed(t, q), nil)
}

// A task that is one crash away from failing gets its turn, however busy the
// peer's other queues are.
func TestLastChanceBesideBusyQueue(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	accused(t, redistest.URL(), prefix, "quiet", 3)
	ran := make(chan string, 3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var busy atomic.Int64
	p.Queue("quiet").Handle(tell(ran), &worqr.HandleOptions{Concurrency: 4})
	p.Queue("busy").Handle(func(context.Context, *worqr.Task) error {
		busy.Add(1)
		return nil
	}, &worqr.HandleOptions{Concurrency: 16})
	var feeding sync.WaitGroup
	feeder := open(t, worqr.Options{Prefix: prefix})
	feeding.Go(func() {
		for n := int64(0); ctx.Err() == nil; {
			if n-busy.Load() > 5000 {
				time.Sleep(time.Millisecond)
				continue
			}
			if feeder.Queue("busy").Enqueue(ctx, make([][]byte, 500)...) == nil {
				n += 500
			}
		}
	})
	must(t, p.Queue("quiet").Pause(t.Context()))
	run(t, p)
	eventually(t, "it is busy", func() bool { return busy.Load() > 5000 })
	must(t, p.Queue("quiet").Resume(t.Context()))
	began := time.Now()
	for range 3 {
		receive(t, ran, 1)
		t.Logf("after %v, beside %d others", time.Since(began), busy.Load())
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("they waited %v", took)
	}
	cancel()
	feeding.Wait()
}
