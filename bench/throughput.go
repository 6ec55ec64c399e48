package main

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/worqr/worqr/internal/redistest"
)

// measureEnqueue has so many callers enqueue all payloads, a batch in each call.
func measureEnqueue(t *trial) sample {
	c := connect(t, t.Callers)
	work := payloads(0, t.N, t.Size)
	return t.during(func() { c.enqueue(t, work, t.Batch) }).perTask(t.N)
}

// callers enqueue at the same time.
type callers []func(payloads [][]byte) error

// connect makes n callers, and has each make its first call, which is the one
// that connects.
func connect(t *trial, n int) callers {
	c := make(callers, n)
	for i := range c {
		c[i] = t.producer(t, "q0")
	}
	c.enqueue(t, payloads(1e9, n, 10), 1)
	return c
}

// enqueue shares the work among the callers.
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

// crowd is how many callers enqueue where there are many.
const crowd = 32

// preload enqueues n tasks, in a way that is fast for every system, and leaves
// no garbage. With those that connect makes there are then n.
func preload(t *trial, n int) {
	const portion = 200_000
	c := connect(t, min(n, crowd))
	for done := len(c); done < n; done += portion {
		c.enqueue(t, payloads(done, min(portion, n-done), t.Size), 100)
	}
	runtime.GC()
}

// measureProcess has one worker do what waits: until all handlers have returned
// and all tasks have ended in Redis.
func measureProcess(t *trial) sample {
	preload(t, t.N)
	return t.during(func() { drain(t, t.Handlers, t.N) }).perTask(t.N)
}

// drain starts a worker and waits until it has done n tasks and none is left.
func drain(t *trial, handlers, n int) {
	var handled atomic.Int64
	t.work(t, handlers, func([]byte) { handled.Add(1) })
	reaches(t, "all tasks are handled", &handled, n)
	until(t, "all tasks have ended", func() bool { return t.left(t) == 0 })
}
