package worqrtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// add adds a task and returns its key.
func add(t testing.TB, q *worqr.Queue, task worqr.TaskSpec) string {
	t.Helper()
	keys, err := q.Add(t.Context(), task)
	must(t, err)
	return keys[0]
}

// A nightly task and its retries take no time. Times that end in zeros are kept.
func TestNight(t *testing.T) {
	t.Parallel()
	began := time.Now()
	Virtual(t, func(t *testing.T, redis *Redis) {
		midnight := time.Now()
		peer := redis.Peer(nil)
		times := make(chan time.Time, 10)
		reports := peer.Queue("reports")
		reports.Handle(func(_ context.Context, task *worqr.Task) error {
			times <- time.Now()
			if task.Attempt < 3 {
				return worqr.RetryAfter(errors.New("not yet"), 20*time.Minute)
			}
			return nil
		}, nil)
		defer peer.Serve()()
		due := midnight.Add(time.Hour)
		add(t, reports, worqr.TaskSpec{Key: "nightly", Payload: []byte("x"), At: due})
		if all := Enqueued(t, reports); len(all) != 1 || !all[0].DueAt.Equal(due) || all[0].Key != "nightly" {
			t.Errorf("waiting: %+v", all)
		}
		time.Sleep(30 * time.Minute)
		WaitIdle(t, reports)
		if len(times) != 0 {
			t.Error("ran too early")
		}
		time.Sleep(90 * time.Minute)
		WaitIdle(t, reports)
		if len(times) != 3 {
			t.Fatalf("ran %d times", len(times))
		}
		for i := range 3 {
			if late := (<-times).Sub(due.Add(time.Duration(i) * 20 * time.Minute)); late < 0 || late > time.Second {
				t.Errorf("attempt %d was late by %v", i+1, late)
			}
		}
	})
	if took := time.Since(began); took > 30*time.Second { // not the 2 h of virtual time
		t.Errorf("took %v", took)
	}
}

// A day with ten recurring jobs takes a second or two: an idle peer sends little, most of it heartbeats and schedules.
func TestDay(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		recurs(t, redis, 24*time.Hour, time.Hour, 2*time.Hour, 3*time.Hour, 4*time.Hour, 5*time.Hour, 6*time.Hour, 8*time.Hour, 12*time.Hour, 24*time.Hour, 48*time.Hour)
		if n := redis.Miniredis().CommandCount(); n > 100_000 { // a ping a second would be 86,400 more, and a script a second for each queue a million
			t.Errorf("%d commands", n)
		}
	})
}

// A job that is more frequent than peers renew its schedule runs each time.
func TestFrequent(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) { recurs(t, redis, 15*time.Minute, 5*time.Second) })
}

// So does one whose schedule has thousands of times until then.
func TestEverySecond(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) { recurs(t, redis, 20*time.Second, time.Second) })
}

// recurs runs jobs for a while, and checks that each runs at its times.
func recurs(t *testing.T, redis *Redis, while time.Duration, jobs ...time.Duration) {
	var mu sync.Mutex
	ran, want, from, queues := map[string]int{}, map[string]int{}, time.Now(), []*worqr.Queue{}
	peer := redis.Peer(nil)
	for i, every := range jobs {
		q, key := peer.Queue(fmt.Sprint(i)), every.String()
		queues = append(queues, q)
		q.Handle(func(_ context.Context, task *worqr.Task) error {
			mu.Lock()
			defer mu.Unlock()
			ran[task.Key]++
			if late := time.Since(task.DueAt); late < 0 || late > time.Second || task.DueAt.Truncate(every) != task.DueAt {
				t.Errorf("the one of %v, every %v, ran %v late", task.DueAt, every, late)
			}
			return nil
		}, nil)
		must(t, q.Every(key, worqr.Interval(every), nil, nil))
		for at := worqr.Interval(every).Next(from); !at.After(from.Add(while)); at = worqr.Interval(every).Next(at) {
			want[key]++
		}
	}
	stop := peer.Serve()
	time.Sleep(while + time.Second/2)
	WaitIdle(t, queues...)
	stop()
	if !maps.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

// The lease of a peer that crashes expires in virtual time, too, and its task starts elsewhere.
func TestCrash(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"default": 0, "short": 3 * time.Second, "long": 10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Virtual(t, func(t *testing.T, redis *Redis) {
				starts, began := make(chan string, 10), time.Now()
				var fleet []*Peer
				for _, name := range []string{"a", "b"} {
					p := redis.Peer(&worqr.Options{Name: name, Lease: lease, Drain: -1})
					p.Queue("q").Handle(func(ctx context.Context, _ *worqr.Task) error {
						starts <- name
						<-ctx.Done()
						return context.Cause(ctx)
					}, nil)
					p.Serve()
					fleet = append(fleet, p)
				}
				must(t, fleet[0].Queue("q").Enqueue(t.Context(), []byte("x")))
				first := <-starts
				fleet[strings.Index("ab", first)].Crash()
				if next := <-starts; next == first {
					t.Errorf("%s has crashed, but got its task again", first)
				}
				if after := time.Since(began); after > 2*cmp.Or(lease, time.Hour) {
					t.Errorf("its task started elsewhere after %v", after)
				}
			})
		})
	}
}

// Data sent by a paused peer arrives later, in order.
func TestPause(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		p, other := redis.Peer(nil), redis.Peer(nil)
		q, ctx := p.Queue("q"), t.Context()
		must(t, q.Enqueue(ctx, []byte("1")))
		p.Pause()
		done := make(chan error)
		go func() { done <- q.Enqueue(ctx, []byte("2")) }()
		time.Sleep(2 * time.Second)
		if got := Payloads(t, other.Queue("q")); !slices.Equal(got, []string{"1"}) {
			t.Errorf("during the pause: %q", got)
		}
		p.Resume()
		must(t, <-done)
		must(t, q.Enqueue(ctx, []byte("3")))
		if got := Payloads(t, other.Queue("q")); !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("afterwards: %q", got)
		}
		p.Pause()
		if err := q.Enqueue(ctx, []byte("4")); !errors.Is(err, worqr.ErrUnknownOutcome) {
			t.Errorf("without an answer: %v", err)
		}
	})
}

// If a reply is lost, the outcome of the call is unknown, although it took effect. That's also true
// of the first call, when Redis doesn't have its script yet.
func TestLoseReply(t *testing.T) {
	t.Parallel()
	redis := Start(t)
	p := redis.Peer(nil)
	q, ctx := p.Queue("q"), t.Context()
	p.LoseReply("first")
	if err := q.Enqueue(ctx, []byte("first")); !errors.Is(err, worqr.ErrUnknownOutcome) {
		t.Errorf("Enqueue: %v", err)
	}
	p.LoseReply("second")
	must(t, q.Enqueue(ctx, []byte("third")))
	if err := q.Enqueue(ctx, []byte("second")); !errors.Is(err, worqr.ErrUnknownOutcome) {
		t.Errorf("Enqueue: %v", err)
	}
	must(t, q.Enqueue(ctx, []byte("second")))
	if got := Payloads(t, q); !slices.Equal(got, []string{"first", "third", "second", "second"}) {
		t.Errorf("waiting: %q", got)
	}
	long := strings.Repeat("long", 5_000) // the driver sends it in parts
	p.LoseReply(long)
	must(t, q.Enqueue(ctx, []byte(long[1:])))
	if err := q.Enqueue(ctx, []byte(long)); !errors.Is(err, worqr.ErrUnknownOutcome) {
		t.Errorf("Enqueue: %v", err)
	}
}

// A peer at the URL shares the Redis with others.
func TestURL(t *testing.T) {
	t.Parallel()
	r := Start(t)
	p, err := worqr.Open(r.URL(), nil)
	must(t, err)
	defer func() { must(t, p.Close()) }()
	q := r.Peer(nil).Queue("q")
	worker := r.Peer(nil)
	worker.Queue("q").Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := worker.Serve()
	must(t, p.Queue("q").Enqueue(t.Context(), []byte("x")))
	WaitIdle(t, q)
	stop()
	if n := worker.Stats().Finished; n != 1 {
		t.Errorf("%d calls", n)
	}
	conn := r.Pool().Get()
	defer func() { _ = conn.Close() }()
	if known, err := redis.Strings(conn.Do("SMEMBERS", "worqr:registry")); err != nil || !slices.Equal(known, []string{"q"}) {
		t.Errorf("queues: %q, %v", known, err)
	}
	if url := r.URL(); url != r.URL() || !slices.Contains(r.Miniredis().Keys(), "worqr:registry") {
		t.Error("another server")
	}
}

// A task that enqueues another one, on a queue that was looked at before, isn't missed, nor one that returns to its own.
func TestWaitIdleAcross(t *testing.T) {
	t.Parallel()
	peer := Start(t).Peer(nil)
	there, back := peer.Queue("there"), peer.Queue("back")
	const hops = 1_000
	var n atomic.Int32
	hop := func(to *worqr.Queue) worqr.Handler {
		return func(ctx context.Context, task *worqr.Task) error {
			if n.Add(1) >= hops {
				return nil
			}
			return to.Enqueue(ctx, task.Payload)
		}
	}
	there.Handle(hop(back), nil)
	back.Handle(hop(there), nil)
	defer peer.Serve()()
	must(t, there.Enqueue(t.Context(), []byte("x")))
	if WaitIdle(t, there, back); n.Load() < hops {
		t.Errorf("idle after %d hops", n.Load())
	}
}

// Every waiting task is listed, with its properties.
func TestEnqueued(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		ctx, due := t.Context(), time.Now().Add(time.Hour)
		q := redis.Peer(nil).Queue("q")
		must(t, q.Enqueue(ctx, []byte("a"), []byte("b")))
		key := add(t, q, worqr.TaskSpec{Payload: []byte("b"), Headers: map[string]string{"h": "v"}})
		add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("a"), At: due})
		got := Enqueued(t, q)
		if len(got) != 4 || got[0].Payload != "a" || got[1].Payload != "b" || got[0].Key+got[1].Key != "" ||
			got[2].Key != key || got[2].Headers["h"] != "v" || got[3].Key != "k" || !got[3].DueAt.Equal(due) {
			t.Errorf("%+v", got)
		}
		WaitIdle(t) // of no queue
		q = redis.Peer(nil).Queue("other")
		want := strings.Split("aabcdefghi", "")
		for _, payload := range want {
			must(t, q.Enqueue(ctx, []byte(payload)))
			add(t, q, worqr.TaskSpec{Payload: []byte(payload + "-added")})
			add(t, q, worqr.TaskSpec{Key: payload + "-key", Payload: []byte(payload)}) // the second replaces the first
		}
		listed := Payloads(t, q)[:len(want)]
		slices.Sort(listed)
		if !slices.Equal(listed, want) {
			t.Errorf("%q, want %q", listed, want)
		}
	})
}

// Whether a task waits, runs or has ended is known, as on Redis.
func TestResult(t *testing.T) {
	t.Parallel()
	Virtual(t, func(t *testing.T, redis *Redis) {
		peer := redis.Peer(nil)
		q, ctx, began, end := peer.Queue("q"), t.Context(), make(chan bool), make(chan bool)
		q.Handle(func(_ context.Context, task *worqr.Task) error {
			began <- true
			<-end
			task.Result = []byte("done")
			return nil
		}, nil)
		add(t, q, worqr.TaskSpec{Key: "k", KeepResult: time.Hour})
		for _, then := range []func(){func() { peer.Serve(); <-began }, func() { close(end) }} {
			if _, err := q.Result(ctx, "k"); !errors.Is(err, worqr.ErrNotEnded) {
				t.Errorf("Result before the end: %v", err)
			}
			then()
		}
		if r, err := q.Wait(ctx, "k"); err != nil || string(r.Value) != "done" {
			t.Errorf("Wait: %v, %v", r, err)
		}
	})
}
