package main

import (
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// measureEnqueue has so many callers enqueue all payloads, a batch in each call.
func measureEnqueue(j job, s system, m *meter, say func(sample)) error {
	c, err := connect(s, j.Callers)
	if err != nil {
		return err
	}
	work := payloads(0, j.N, j.Size)
	used, err := m.during(func() error { return c.enqueue(work, j.Batch) })
	if err != nil {
		return err
	}
	say(sample{Values: used.perTask(j.N)})
	return nil
}

// callers enqueue at the same time.
type callers []func(payloads [][]byte) error

// connect makes n callers, and has each make its first call, which is the one
// that connects.
func connect(s system, n int) (callers, error) {
	c := make(callers, n)
	for i := range c {
		send, err := s.producer("q0")
		if err != nil {
			return nil, err
		}
		c[i] = send
	}
	return c, c.enqueue(payloads(1e9, n, 10), 1)
}

// enqueue shares the work among the callers.
func (c callers) enqueue(work [][]byte, batch int) error {
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
	return all.Wait()
}

// crowd is how many callers enqueue where there are many.
const crowd = 32

// preload enqueues n tasks, in a way that is fast for every system, and leaves
// no garbage. With those that connect makes there are then n.
func preload(s system, n, size int) error {
	const portion = 200_000
	c, err := connect(s, min(n, crowd))
	if err != nil {
		return err
	}
	for done := len(c); done < n; done += portion {
		if err := c.enqueue(payloads(done, min(portion, n-done), size), 100); err != nil {
			return err
		}
	}
	runtime.GC()
	return nil
}

// measureProcess has one worker do what waits: until all handlers have returned
// and all tasks have ended in Redis.
func measureProcess(j job, s system, m *meter, say func(sample)) error {
	if err := preload(s, j.N, j.Size); err != nil {
		return err
	}
	used, err := m.during(func() error { return drain(s, j.Handlers, j.N) })
	if err != nil {
		return err
	}
	say(sample{Values: used.perTask(j.N)})
	return nil
}

// drain starts a worker and waits until it has done n tasks and none is left.
func drain(s system, handlers, n int) error {
	var handled atomic.Int64
	if err := s.work(handlers, func([]byte) { handled.Add(1) }); err != nil {
		return err
	}
	if err := reaches("all tasks are handled", &handled, n); err != nil {
		return err
	}
	return until("all tasks have ended", func() (bool, error) {
		n, err := s.left()
		return n == 0, err
	})
}
