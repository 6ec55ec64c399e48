package api

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A valve is a handler that returns at once while it is open, and waits while it is shut. While
// shut it sends the payloads that it starts.
type valve struct {
	shut    atomic.Bool
	starts  chan string
	release chan struct{}
	through atomic.Int64
}

func newValve() *valve {
	return &valve{starts: make(chan string, 10000), release: make(chan struct{}, 10000)}
}

func (g *valve) handle(ctx context.Context, t *worqr.Task) error {
	if g.shut.Load() {
		g.starts <- string(t.Payload)
		select {
		case <-g.release:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	g.through.Add(1)
	return nil
}

// warm teaches the peer that the handler is fast.
func (g *valve) warm(t *testing.T, q *worqr.Queue) {
	t.Helper()
	before := g.through.Load()
	enqueue(t, q, numbers("warm", 2000)...)
	eventually(t, "all ran through", func() bool { return g.through.Load() == before+2000 })
	eventually(t, "all is stored", func() bool { return stats(t, q).Running == 0 })
}

// holds returns how many tasks of the queue q the peer holds.
func holds(t testing.TB, prefix string, p *worqr.Peer) int {
	t.Helper()
	return sure(redis.Int(redistest.Conn(t).Do("ZCARD", prefix+":working:{q}:"+p.WorkerID())))(t)
}

// When a peer's handlers are stuck, its prefetched tasks return to the queue, in order.
func TestStuckHoldsNothingAhead(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	stuck, free := newValve(), newValve()
	a.Queue("q").Handle(stuck.handle, &worqr.HandleOptions{Concurrency: 2})
	b.Queue("q").Handle(free.handle, &worqr.HandleOptions{Concurrency: 1})
	run(t, a)
	q := a.Queue("q")
	stuck.warm(t, q)
	stuck.shut.Store(true)
	free.shut.Store(true)
	all := numbers("", 500)
	enqueue(t, q, all...)
	first := receive(t, stuck.starts, 2)
	slices.Sort(first)
	is.Equal(first, all[:2])
	eventually(t, "nothing is held ahead", func() bool { return holds(t, prefix, a) == 2 })
	is.Equal(waiting(t, q), all[2:])
	run(t, b)
	is.Equal(receive(t, free.starts, 1), all[2:3])
	is.Equal(holds(t, prefix, b), 1)
	is.Equal(a.Stats().Stopped, int64(0)) // none that had started
}

// With Prefetch set, tasks are prefetched even while handlers are slow. They are dropped when
// canceled, and return in order when the peer drains.
func TestPrefetch(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix})
	slow := newValve()
	slow.shut.Store(true)
	q := p.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 2, Prefetch: 3})
	all := numbers("", 10)
	enqueue(t, q, all...)
	stop := run(t, p)
	receive(t, slow.starts, 2)
	eventually(t, "it holds five", func() bool { return holds(t, prefix, p) == 5 })
	report := cancel(t, q, "3")
	wait(t, report)
	eventually(t, "it takes another", func() bool { return holds(t, prefix, p) == 5 })
	slow.release <- struct{}{}
	is.Equal(receive(t, slow.starts, 1), []string{"2"})
	slow.release <- struct{}{}
	is.Equal(receive(t, slow.starts, 1), []string{"4"}) // never 3
	eventually(t, "it holds five again", func() bool { return holds(t, prefix, p) == 5 })
	slow.shut.Store(false)
	slow.release <- struct{}{}
	slow.release <- struct{}{}
	eventually(t, "all others ran", func() bool { return slow.through.Load() == 9 })
	slow.shut.Store(true)
	enqueue(t, q, all...)
	receive(t, slow.starts, 2)
	eventually(t, "it holds five", func() bool { return holds(t, prefix, p) == 5 })
	stop()
	is.Equal(stats(t, q).Waiting, 10)
	is.Equal(waiting(t, q)[0], "0")
	is.Equal(p.Stats().Stopped, int64(2))
}

// A prefetched task starts even if the slot that became free was reserved for a round that starts
// nothing.
func TestAheadOfARoundThatBringsNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := &tamper{Url: server.URL(), Before: func(string, []any) error { time.Sleep(30 * time.Millisecond); return nil }}
	p := link.Open(t, worqr.Options{Prefix: "p", Lease: time.Hour})
	done := make(chan string, 3)
	p.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		time.Sleep(10 * time.Millisecond)
		done <- string(t.Payload)
		return nil
	}, &worqr.HandleOptions{Concurrency: 1, Prefetch: 2})
	enqueue(t, openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q"), "a", "b", "c")
	run(t, p)
	receive(t, done, 3)
}

// Prefetched tasks start when Concurrency grows, and return to the queue when Prefetch is turned
// off.
func TestPrefetchChanges(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	a, b := open(t, worqr.Options{Prefix: prefix}), open(t, worqr.Options{Prefix: prefix})
	slow, free := newValve(), newValve()
	slow.shut.Store(true)
	q := a.Queue("q")
	q.Handle(slow.handle, &worqr.HandleOptions{Concurrency: 1, Prefetch: 5})
	b.Queue("q").Handle(free.handle, &worqr.HandleOptions{Concurrency: 1})
	enqueue(t, q, numbers("", 6)...)
	run(t, a)
	receive(t, slow.starts, 1)
	eventually(t, "it holds six", func() bool { return stats(t, q).Running == 6 })
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 3, Prefetch: 5}))
	receive(t, slow.starts, 2) // in the free slots
	must(t, q.SetOptions(&worqr.HandleOptions{Concurrency: 3, Prefetch: -1}))
	run(t, b)
	defer func() {
		for range 3 {
			slow.release <- struct{}{}
		}
	}()
	eventually(t, "the neighbour has done the others", func() bool { return free.through.Load() == 3 })
}

// Worker deaths don't count as crashes of a prefetched task with a key that hasn't started.
func TestInnocentKeyHeldAhead(t *testing.T) {
	t.Parallel()
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 600 * time.Millisecond})
	admin, q := openQueue(t, worqr.Options{Prefix: prefix})
	started := make(chan string, 100)
	p.Queue("q").Handle(func(ctx context.Context, t *worqr.Task) error {
		if string(t.Payload) == "innocent" {
			return nil
		}
		started <- string(t.Payload)
		<-ctx.Done()
		return context.Cause(ctx)
	}, &worqr.HandleOptions{Concurrency: 1, Prefetch: 10})
	run(t, p)
	idle(t, q, 1)
	must(t, q.Pause(t.Context()))
	past := time.Now().Add(-time.Hour)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "killer", Payload: []byte("killer"), At: past}))(t)
	sure(q.Add(t.Context(), worqr.TaskSpec{Key: "innocent", Payload: []byte("innocent"), At: past.Add(time.Minute)}))(t)
	must(t, q.Resume(t.Context()))
	for i := range 4 { // two killers in turn; each time the worker dies
		receive(t, started, 1)
		time.Sleep(100 * time.Millisecond) // time to prefetch something
		if i == 2 {
			sure(q.Add(t.Context(), worqr.TaskSpec{Key: "another", Payload: []byte("killer"), At: time.UnixMilli(1)}))(t) // in front
		}
		sure(admin.FailWorker(t.Context(), p.WorkerID()))(t)
	}
	receive(t, started, 1)
	for f := range each(t, q.Failed(t.Context())) {
		if string(f.Payload) == "innocent" {
			t.Errorf("failed, and never started: %s", f.Error)
		}
	}
}
