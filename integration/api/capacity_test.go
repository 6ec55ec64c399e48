package api

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A freed unit goes to the queue with the higher priority, except that every eighth goes to the
// queue that has waited longest. internal/capacity tests the other rules.
func TestPriority(t *testing.T) {
	is := parallel(t)
	const ends = 32
	p := open(t, worqr.Options{Capacity: 1})
	starts, end := make(chan string, 3*ends), make(chan struct{})
	for name, priority := range map[string]int{"h": 1, "l": 0} {
		q := p.Queue(name)
		q.Handle(holding(starts, end), &worqr.HandleOptions{Concurrency: 2, Priority: priority})
		enqueue(t, q, slices.Repeat([]string{name}, ends+2)...)
	}
	stop := run(t, p)
	receive(t, starts, 1)
	order := ""
	for range ends {
		end <- struct{}{}
		order += receive(t, starts, 1)[0]
	}
	close(end)
	stop()
	last := strings.LastIndex(order, "l")
	is.True(strings.HasSuffix(order[:last+1], strings.Repeat("hhhhhhhl", 3)))
}

// Whatever their weights, the queues together never use more than Capacity. A full peer continues
// when a task ends, and no task is left over.
func TestCapacity(t *testing.T) {
	is := parallel(t)
	const capacity, each = 6, 60
	p := open(t, worqr.Options{Capacity: capacity})
	var mu sync.Mutex
	used, most := 0, 0
	use := func(units int) {
		mu.Lock()
		defer mu.Unlock()
		used += units
		most = max(most, used)
	}
	done := make(chan string, 1000)
	var queues []*worqr.Queue
	for name, o := range map[string]worqr.HandleOptions{
		"light": {Weight: 0, Priority: 2}, "middle": {Weight: 2, Priority: 1}, "heavy": {Weight: 5}, "all": {Weight: 6, Priority: -1},
	} {
		o.Concurrency, o.Backoff = 100, atOnce
		units := max(o.Weight, 1)
		q := p.Queue(name)
		q.Handle(func(_ context.Context, t *worqr.Task) error {
			use(units)
			defer use(-units)
			runtime.Gosched()
			if t.Retries == 0 && t.Payload[0]%3 == 0 {
				return errors.New("once more")
			}
			done <- t.Queue
			return nil
		}, &o)
		queues = append(queues, q)
	}
	for _, q := range queues[:2] {
		enqueue(t, q, numbers("", each)...)
	}
	stop := run(t, p)
	for _, q := range queues[2:] {
		for _, payload := range numbers("", each) {
			add(t, q, worqr.TaskSpec{Key: payload, Payload: []byte(payload)})
		}
	}
	count := map[string]int{}
	for _, name := range receive(t, done, 4*each) {
		count[name]++
	}
	is.Equal(count, map[string]int{"light": each, "middle": each, "heavy": each, "all": each})
	stop()
	is.Equal(len(done), 0)
	is.Equal(used, 0)
	is.Equal(most, capacity)
	for _, q := range queues {
		s := stats(t, q)
		is.Equal(s.Waiting+s.Scheduled+s.Running+s.Failed, 0)
	}
}

// openTwo returns a peer with two queues, each of which may take up all of its capacity, and whose
// handlers hold their tasks.
func openTwo(t *testing.T, capacity int, lease time.Duration) (
	p *worqr.Peer, one, two *worqr.Queue, started chan string, release chan struct{},
) {
	t.Helper()
	p = open(t, worqr.Options{Capacity: capacity, Lease: lease})
	started, release = make(chan string, 1000), make(chan struct{}, 1000)
	one, two = p.Queue("one"), p.Queue("two")
	for _, q := range []*worqr.Queue{one, two} {
		q.Handle(holding(started, release), &worqr.HandleOptions{Concurrency: capacity})
	}
	return p, one, two, started, release
}

// A queue that has fewer tasks than the units it was given leaves the rest to other queues.
func TestCapacityIsNotHoarded(t *testing.T) {
	is := parallel(t)
	const capacity = 300
	p, one, two, started, release := openTwo(t, capacity, 0)
	stop := run(t, p)
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
	enqueue(t, two, "a") // waits for its turn
	is.Equal(len(started), 0)
	for range capacity + 1 {
		release <- struct{}{}
	}
	eventually(t, "all has ended", func() bool { return p.Stats().Finished == capacity+1 && p.Stats().RunningHandlers == 0 })
	receive(t, started, 1)
	defer func() { close(release); stop() }()
	enqueue(t, one, numbers("", capacity)...)
	receive(t, started, capacity)
}

// When the options of a queue change during a round, the units that it doesn't use go back to
// other queues.
func TestOptionsHoardNothing(t *testing.T) {
	t.Parallel()
	const capacity = 64
	p, one, two, started, release := openTwo(t, capacity, time.Hour)
	run(t, p)
	defer close(release)
	idle(t, one, 1)
	idle(t, two, 1)
	must(t, one.SetOptions(&worqr.HandleOptions{Concurrency: capacity}))
	enqueue(t, two, numbers("", capacity)...)
	receive(t, started, capacity)
}

// A lower Concurrency applies to everything but the round in flight: units that the higher one
// reserved for later rounds aren't used.
func TestConcurrencyLowered(t *testing.T) {
	is := parallel(t)
	const tasks = 100
	server := redistest.Start(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	var running, most atomic.Int64
	started, release := make(chan string, tasks), make(chan struct{})
	q := p.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		started <- ""
		<-release
		running.Add(-1)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1})
	run(t, p)
	enqueue(t, q, numbers("", tasks)...)
	receive(t, started, 1)
	server.Pause(t) // at most one round is in flight
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 5 * tasks}))
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 1}))
	server.Resume(t)
	for i := range int64(tasks) {
		release <- struct{}{}
		eventually(t, "one more is finished", func() bool { return p.Stats().Finished == i+1 })
	}
	is.True(most.Load() <= 20) // one, plus what a first round asks for
}

// Units are reserved only for a queue with a task to start. If a heavy task that needs more than is
// free goes away, light tasks start next to a long one.
func TestNothingIsHeldBackForNothing(t *testing.T) {
	t.Parallel()
	pause := func(t *testing.T, heavy *worqr.Queue) { must(t, heavy.Pause(t.Context())) }
	for name, queued := range map[string]struct {
		before, after func(t *testing.T, heavy *worqr.Queue) // called before and after its task is enqueued
	}{
		"paused before": {before: pause},
		"paused since":  {after: pause},
		"deleted":       {after: func(t *testing.T, heavy *worqr.Queue) { must(t, heavy.Delete(t.Context())) }},
		"canceled":      {after: func(t *testing.T, heavy *worqr.Queue) { sure(heavy.CancelKey(t.Context(), "key"))(t) }},
		"removed":       {after: func(t *testing.T, heavy *worqr.Queue) { sure(heavy.RemoveKey(t.Context(), "key"))(t) }},
		"taken by a peer": {after: func(t *testing.T, heavy *worqr.Queue) {
			take(t, working(t, openAt(t, redistest.URL(), worqr.Options{Prefix: t.Name()}), "heavy"))
		}},
		"never there": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openAt(t, redistest.URL(), worqr.Options{Prefix: t.Name(), Capacity: 10})
			light, heavy := p.Queue("light"), p.Queue("heavy")
			started, release := make(chan string, 10), make(chan struct{})
			light.Handle(holding(started, release), &worqr.HandleOptions{Concurrency: 10, Priority: 100})
			heavy.Handle(func(context.Context, *worqr.Task) error { return nil }, &worqr.HandleOptions{Weight: 10})
			run(t, p)
			defer close(release)
			idle(t, light, 1)
			idle(t, heavy, 1)
			enqueue(t, light, "long")
			receive(t, started, 1)
			if queued.before != nil {
				queued.before(t, heavy)
			}
			if name == "never there" {
				must(t, heavy.SetOptions(&worqr.HandleOptions{Weight: 10})) // it looks for tasks, and there's no room
			} else {
				add(t, heavy, worqr.TaskSpec{Key: "key", Payload: []byte("h")})
				if name != "paused before" { // then nobody is woken
					eventually(t, "its worker has looked", func() bool { return stats(t, heavy).IdleWorkers == 0 })
				}
			}
			if queued.after != nil {
				queued.after(t, heavy)
			}
			enqueue(t, light, "a", "b", "c")
			receive(t, started, 3)
		})
	}
}
