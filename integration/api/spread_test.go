package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A spread queue runs every task of every part once, including those enqueued before it was spread,
// with no more handlers than Concurrency.
func TestSpread(t *testing.T) {
	for _, concurrency := range []int{1, 3, 64} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			is := parallel(t)
			p := open(t, worqr.Options{})
			q := p.Queue("q").Spread(5)
			want := numbers("plain", 20)
			enqueue(t, p.Queue("q"), want...)
			for i := range 200 {
				payload := fmt.Sprint("t", i)
				enqueue(t, q, payload)
				want = append(want, payload)
			}
			is.Equal(sure(q.Len(t.Context()))(t), len(want))
			is.Equal(len(waiting(t, q)), len(want))
			var running, most atomic.Int64
			done := make(chan string, len(want)+1)
			q.Handle(func(_ context.Context, task *worqr.Task) error {
				n := running.Add(1)
				defer running.Add(-1)
				atLeast(&most, int(n))
				if task.Queue != "q" {
					t.Errorf("a task says that it is of %q", task.Queue)
				}
				done <- string(task.Payload)
				return nil
			}, &worqr.HandleOptions{Concurrency: concurrency})
			stop := run(t, p)
			is.Equal(sorted(receive(t, done, len(want))), sorted(want))
			stop()
			is.True(most.Load() <= int64(concurrency))
			is.Equal(len(done), 0)
		})
	}
}

// No part starves, however unequal the backlogs are: all others are empty long before the largest
// one.
func TestSpreadStarvesNoPart(t *testing.T) {
	for _, concurrency := range []int{1, 4, 64} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			is := parallel(t)
			prefix := redistest.Prefix(t)
			p := open(t, worqr.Options{Prefix: prefix})
			q := p.Queue("q").Spread(8)
			backlogs := []int{20_000, 3000, 500, 100, 20, 5, 2, 1}
			others := 0
			for _, n := range backlogs[1:] {
				others += n
			}
			var small, large atomic.Int64
			conn := redistest.Conn(t)
			for i, n := range backlogs {
				key := keys.NewSpace(prefix).Queue(keys.Part("q", i, 8)).Waiting()
				for payloads := range slices.Chunk(numbers(fmt.Sprintf("part%d-", i), n), 1000) {
					sure(conn.Do("LPUSH", redis.Args{key}.AddFlat(payloads)...))(t)
				}
			}
			rest := make(chan int64, 1)
			q.Handle(func(_ context.Context, task *worqr.Task) error {
				if strings.HasPrefix(string(task.Payload), "part0-") {
					large.Add(1)
				} else if small.Add(1) == int64(others) {
					rest <- int64(backlogs[0]) - large.Load()
				}
				return nil
			}, &worqr.HandleOptions{Concurrency: concurrency})
			run(t, p)
			is.True(receive(t, rest, 1)[0] > 5000) // a turn has at most 4096 tasks
		})
	}
}

// Keys, unique tasks and nonces each have one part, the same for every peer.
func TestSpreadIsExact(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(16)
	other := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(16)
	for i := range 40 {
		payload, key := []byte(fmt.Sprint("u", i)), fmt.Sprint("k", i)
		is.NoErr(q.EnqueueUnique(ctx, payload))
		is.True(is_(other.EnqueueUnique(ctx, payload), worqr.ErrDuplicate))
		fresh := sure(q.EnqueueOnce(ctx, key, payload))(t)
		is.True(fresh)
		fresh = sure(other.EnqueueOnce(ctx, key, payload))(t)
		is.True(!fresh)
		put(t, q, key, "first", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
		put(t, other, key, "second", &worqr.PutOptions{At: time.Now().Add(time.Duration(40-i) * time.Hour)})
		e := sure(other.ExplainKey(ctx, key))(t)
		is.Equal(len(e.Copies), 1)
	}
	all := scheduled(t, q)
	is.Equal(len(all), 80)
	is.True(slices.IsSortedFunc(all, func(a, b inspect.ScheduledTask) int { return a.DueAt.Compare(b.DueAt) }))
	is.True(sure(other.RemoveKey(ctx, "k0"))(t))
	is.Equal(sure(q.CancelKey(ctx, "k1"))(t).Removed, 1)
	s := sure(q.Stats(ctx))(t)
	is.Equal([]int{s.Waiting, s.Scheduled}, []int{40, 78})
	lists := slices.DeleteFunc(left(t, prefix), func(key string) bool { return !strings.HasPrefix(key, prefix+":queues:") })
	is.True(len(lists) > 8) // on several parts
	is.NoErr(q.Delete(ctx))
	for _, key := range left(t, prefix) {
		is.True(strings.HasPrefix(key, prefix+":once:") || key == prefix+":spreads") // nonces expire
	}
}

// A spread queue is silent only if none of its parts has a live worker.
func TestSilentSpread(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(2)
	is.True(!stats(t, q).Silent)
	c := redistest.Conn(t)
	for i, until := range []string{"1", "2", "inf"} { // a member of the second part, of both, and a live one
		redistest.Do(t, c, "ZADD", keys.NewSpace(prefix).Queue(keys.Part("q", (i+1)%2, 2)).Workers(), until, "w"+until)
		is.Equal(stats(t, q).Silent, i < 2)
	}
}

// A peer with fewer parts asserts schedules on the same parts as the others, so that each occurs
// once.
func TestSpreadGrowsRecurs(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	serve := func(n int) (stop func()) {
		p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
		q := p.Queue("q").Spread(n)
		is.NoErr(q.Every("job", worqr.Interval(time.Hour), []byte("x"), nil))
		q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		return run(t, p)
	}
	asserted := func(n int) float64 {
		part := keys.NewSpace(prefix).Queue(keys.Part("q", store.PartOf([]byte("job"), n), n))
		until, err := redis.Float64(c.Do("ZSCORE", part.Recurring(), "k:job"))
		is.True(err == nil || is_(err, redis.ErrNil))
		return until
	}
	stop := serve(8)
	eventually(t, "it's asserted", func() bool { return asserted(8) > 0 })
	serve(4)
	stop()
	last := asserted(8)
	eventually(t, "it's asserted again", func() bool { return asserted(8) > last })
	is.Equal(asserted(4), 0.)
}

// Programs that spread a queue over different numbers of parts would look for a key in different
// places, so calls of one of them fail. Only peers that serve the queue raise the number.
func TestSpreadsDiffer(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	over := func(n int) *worqr.Queue { return open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(n) }
	put(t, over(4), "k", "x", nil)
	err := over(8).Put(ctx, "k", []byte("x"), nil)
	is.True(is_(err, worqr.ErrInvalid))
	is.True(strings.Contains(err.Error(), "other programs over 4"))
	_, err = over(8).CancelKey(ctx, "k")
	is.True(is_(err, worqr.ErrInvalid))
	enqueue(t, over(8), "anywhere") // any part will do

	done := make(chan string, 10)
	serve := func(n int) {
		p := open(t, worqr.Options{Prefix: prefix})
		p.Queue("q").Spread(n).Handle(tell(done), nil)
		run(t, p)
	}
	serve(8)
	is.Equal(len(receive(t, done, 2)), 2)
	eventually(t, "it has eight parts", func() bool { return over(8).Put(ctx, "k", []byte("y"), nil) == nil })
	is.True(is_(over(4).Put(ctx, "k", []byte("x"), nil), worqr.ErrInvalid))
	receive(t, done, 1)
	for _, q := range []*worqr.Queue{over(8), over(4)} {
		is.NoErr(q.Pause(ctx))
	}
	is.NoErr(over(8).Resume(ctx))
}

// A cancel ends every copy, on whichever part it waits or runs, and Wait waits for all of them.
func TestSpreadCancel(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q").Spread(4)
	started := make(chan string, 100)
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		started <- string(task.Payload)
		<-ctx.Done()
		return context.Cause(ctx)
	}, &worqr.HandleOptions{Concurrency: 6, Prefetch: -1})
	for range 12 {
		enqueue(t, q, "same")
	}
	run(t, p)
	receive(t, started, 6)
	e := sure(q.Explain(t.Context(), []byte("same")))(t)
	is.Equal(len(e.Copies), 12)
	report := cancel(t, q, "same")
	wait(t, report)
	is.Equal([]int{report.Removed + report.Stopped, report.Finished}, []int{12, 0})
	wait(t, report) // calling it again changes nothing
	is.Equal(report.Removed+report.Stopped, 12)
}

// Without a handler, StartTasks takes tasks of several parts, and StopWork returns them.
func TestSpreadByHand(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	p := open(t, worqr.Options{})
	is.NoErr(p.StartWorker(ctx))
	q := p.Queue("q").Spread(3)
	_, err := q.StartTask(ctx)
	is.True(is_(err, worqr.ErrNotWorking))
	is.NoErr(q.StartWork(ctx))
	ended, cancel := context.WithCancel(ctx)
	cancel()
	is.True(is_(failure(q.StartTask(ended)), context.Canceled)) // not ErrNoTask
	noTask(t, q)
	want := numbers("t", 9)
	for _, payload := range want {
		enqueue(t, q, payload)
	}
	tasks := sure(q.StartTasks(ctx, 20))(t)
	is.Equal(sorted(payloads(tasks)), want)
	is.NoErr(tasks[0].Finish(ctx))
	is.NoErr(tasks[1].Fail(ctx, errors.New("no")))
	is.Equal(sure(q.RequeueAllFailed(ctx))(t), 1)
	is.NoErr(q.StopWork(ctx))
	is.Equal(sure(q.Len(ctx))(t), 8)
	is.Equal(slices.Collect(each(t, p.Queues(ctx))), []string{"q"})
}

// Events of a spread queue are those of its parts, with the queue's name.
func TestSpreadEvents(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q").Spread(3)
	events := listen(t, p, "q")
	heard := func() (all []string) {
		for _, e := range receive(t, events, 3) {
			all = append(all, fmt.Sprint(e.Kind, " ", e.Queue))
		}
		return sorted(all)
	}
	for range 3 {
		enqueue(t, q, "x")
	}
	is.Equal(heard(), []string{"work q", "work q", "work q"})
	is.Equal(sure(q.Cancel(t.Context(), []byte("x")))(t).Removed, 3)
	is.NoErr(q.Delete(t.Context())) // both affect all parts and are reported once
	enqueue(t, q, "y")
	is.Equal(heard(), []string{"work q", "cancel q", "delete q"})
}

// Every method reports an invalid spread.
func TestBadSpread(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	for _, n := range []int{-1, 0, 257} {
		for verb, err := range verbs(t.Context(), p, p.Queue("q").Spread(n)) {
			if !is_(err, worqr.ErrInvalid) && !slices.Contains([]string{"Sweep", "StartWorker", "Queues", "Workers", "FailWorker"}, verb) {
				t.Errorf("%s over %d parts: %v", verb, n, err)
			}
		}
	}
	long := p.Queue(strings.Repeat("x", 250))
	is.True(is_(long.Spread(2).Enqueue(t.Context(), nil), worqr.ErrBadName))
	is.True(is_(p.Queue("q~8192~0e7i").Enqueue(t.Context(), nil), worqr.ErrBadName)) // a part's name
	is.NoErr(long.Spread(1).Enqueue(t.Context(), []byte("x")))
	is.Equal(waiting(t, long), []string{"x"}) // one part is the queue itself
}

// OnFailed handles failed tasks of any part, even of parts that only other peers know. KeepFailed
// applies to the sum of all parts.
func TestSpreadFailed(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	var log journal
	fails := func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) }
	p := open(t, worqr.Options{Prefix: prefix, Logger: log.Logger()})
	q := p.Queue("q").Spread(2)
	q.Handle(fails, &worqr.HandleOptions{KeepFailed: 9})
	big := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(4)
	for i := range 60 {
		put(t, big, fmt.Sprint("k", i), "x", nil)
	}
	stop := run(t, p)
	eventually(t, "all have failed", func() bool { return p.Stats().Failed == 60 })
	stop()
	kept := failed(t, big)
	is.True(len(kept) > 0 && len(kept) <= 15) // three on each of the five parts
	is.True(slices.IsSortedFunc(kept, func(a, b inspect.FailedTask) int { return b.FailedAt.Compare(a.FailedAt) }))
	is.Equal(len(log.Lines("serving those, too")), 1)

	again := open(t, worqr.Options{Prefix: prefix})
	handled := make(chan string, 100)
	again.Queue("q").Spread(2).Handle(fails, &worqr.HandleOptions{OnFailed: tell(handled)})
	run(t, again)
	receive(t, handled, len(kept))
	eventually(t, "none is left", func() bool { return stats(t, big).Failed == 0 })
}

// Calls about all parts include those that only other peers have.
func TestSpreadKnowsMore(t *testing.T) {
	is := parallel(t)
	ctx := t.Context()
	prefix := redistest.Prefix(t)
	big := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(8)
	put(t, big, "k", "x", &worqr.PutOptions{At: time.Now().Add(time.Hour)})
	for range 8 {
		enqueue(t, big, "same")
	}
	small := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(4)
	is.Equal(sure(small.Len(ctx))(t), 9)
	is.Equal(len(scheduled(t, small)), 1)
	is.Equal(len(waiting(t, small)), 9)
	is.Equal(len(sure(small.Explain(ctx, []byte("same")))(t).Copies), 8)
	is.Equal(cancel(t, small, "same").Removed, 8)
	is.NoErr(small.Pause(ctx))
	hand := open(t, worqr.Options{Prefix: prefix})
	is.NoErr(hand.StartWorker(ctx))
	is.NoErr(hand.Queue("q").Spread(8).StartWork(ctx))
	for range 8 {
		enqueue(t, big, "paused")
	}
	noTask(t, hand.Queue("q").Spread(8))
	is.NoErr(small.Resume(ctx))
	is.Equal(len(sure(hand.Queue("q").Spread(8).StartTasks(ctx, 20))(t)), 8)
	is.NoErr(small.Delete(ctx))
	is.Equal(sure(big.Len(ctx))(t), 0)
	is.True(is_(small.Put(ctx, "k", []byte("y"), nil), worqr.ErrInvalid)) // the others still have eight
}

// Events of a queue include all its parts, even if only other peers have spread it.
func TestSpreadEventsOfOthers(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	q := open(t, worqr.Options{Prefix: prefix}).Queue("q").Spread(8)
	put(t, q, "k", "x", &worqr.PutOptions{At: time.Now().Add(time.Hour)}) // now it has eight parts
	unaware := open(t, worqr.Options{Prefix: prefix})
	both := open(t, worqr.Options{Prefix: prefix})
	both.Queue("other").Spread(8)
	both.Queue("other").Spread(3)
	hears := func(p *worqr.Peer, q *worqr.Queue) {
		events := listen(t, p, q.Name())
		for range 8 {
			enqueue(t, q, "x")
		}
		for _, e := range receive(t, events, 8) {
			is.Equal(e.Kind, inspect.EventWork)
		}
	}
	hears(unaware, q)
	hears(both, both.Queue("other").Spread(8))
}

// After running a part's task, a worker listens for messages about that part again, so the next
// task starts at once, not with the next heartbeat.
func TestSpreadStartsAtOnce(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Prefix: redistest.Prefix(t), Lease: 10 * time.Minute}) // heartbeats are rare
	q := p.Queue("q").Spread(2)
	starts := make(chan bool, 9)
	q.Handle(func(context.Context, *worqr.Task) error {
		starts <- true
		return nil
	}, nil)
	stop := run(t, p)
	for i := range 12 {
		is.NoErr(q.Enqueue(t.Context(), []byte("x")))
		receive(t, starts, 1)
		eventually(t, "it is finished", func() bool { return p.Stats().Finished == int64(i+1) })
	}
	for range 6 {
		sure(q.AddAt(t.Context(), time.Now().Add(50*time.Millisecond), []byte("x"), nil))(t)
		receive(t, starts, 1)
	}
	stop()
}
