package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/worqr/worqr/internal/redistest"
)

// measureEnqueue makes concurrent callers enqueue all payloads, a batch in each call.
func measureEnqueue(t *trial) sample {
	preload(t, t.Backlog)
	c := connect(t, t.Callers)
	work := payloads(0, t.N, t.Size)
	return t.during(func() { c.enqueue(t, work, t.Batch) }).perTask(t.N)
}

// callers enqueue concurrently.
type callers []func(payloads [][]byte) error

// connect returns n callers after each has made its first call, which connects.
func connect(t *trial, n int) callers {
	c := make(callers, n)
	for i := range c {
		c[i] = t.producer(t, "q0")
	}
	c.enqueue(t, payloads(1e9, n, 10), 1)
	return c
}

// enqueue distributes the work among the callers.
func (c callers) enqueue(t testing.TB, work [][]byte, batch int) {
	var all errgroup.Group
	next := 0
	for share := range slices.Chunk(work, (len(work)+len(c)-1)/len(c)) {
		send := c[next]
		next++
		all.Go(func() error {
			for some := range slices.Chunk(share, batch) {
				if err := send(some); err != nil {
					return err
				}
			}
			return nil
		})
	}
	redistest.Must(t, all.Wait())
}

// crowd is how many callers preload.
const crowd = 32

// preload enqueues n tasks, in a way that is fast for every system, and leaves no garbage. They
// include those that connect enqueues.
func preload(t *trial, n int) {
	const portion = 200_000
	if n == 0 {
		return
	}
	c := connect(t, min(n, crowd))
	for done := len(c); done < n; done += portion {
		c.enqueue(t, payloads(done, min(portion, n-done), t.Size), 100)
	}
	runtime.GC()
}

// measureProcess makes one worker process the waiting tasks, until all handlers have returned and
// all tasks have ended in Redis.
func measureProcess(t *trial) sample {
	preload(t, t.N)
	return t.during(func() { drain(t, t.Handlers, t.N) }).perTask(t.N)
}

// drain starts a worker and waits until it has processed n tasks and none is left.
func drain(t *trial, handlers, n int) {
	var handled atomic.Int64
	t.work(t, handlers, func([]byte) { handled.Add(1) })
	reaches(t, "all tasks are handled", &handled, n)
	until(t, "all tasks have ended", func() bool { return t.left(t) == 0 })
}
