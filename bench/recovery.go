package main

import (
	"context"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// crews is the number of processes that run the workers that die together, if there are many.
const crews = 10

// measureRecovery kills a worker that holds ten tasks, and measures how long it takes until another
// worker, which was idle, has started the first and the last of them.
func measureRecovery(ctx context.Context, t testing.TB, j job) sample {
	return afterKill(ctx, t, j, 1, "block", "rescue")
}

// measureMassDeath kills many workers at once, each of which holds a task, and measures how long it
// takes until an idle one has started the first and the last of these tasks.
func measureMassDeath(ctx context.Context, t testing.TB, j job) sample {
	return afterKill(ctx, t, j, crews, "crew", "rescue")
}

// afterKill enqueues tasks, starts children that hold them and one that observes, kills the former
// at once, and returns the observer's sample. It converts times since the epoch to times since the
// kill.
func afterKill(ctx context.Context, t testing.TB, j job, holders int, holding, looking string) sample {
	j.URL = startServer(t, j.Fsync).URL()
	preload(j.open(t), j.N)
	hold := j
	hold.Measure, hold.Peers = holding, j.Peers/holders
	children := make([]worker, holders)
	for i := range children {
		children[i] = begun(ctx, t, hold)
	}
	j.Measure = looking
	looks := begun(ctx, t, j)
	time.Sleep(rand.N(time.Second)) // anywhere between two beats
	killed := seconds(time.Now())
	for _, c := range children {
		_ = c.Signal(os.Kill) // all at once; waiting for them comes later
	}
	found := looks.next(t)
	for _, moment := range []string{"first s", "last s"} {
		if at, ok := found[moment]; ok {
			found[moment] = at - killed
		}
	}
	return found
}

// seconds returns t in seconds since the epoch, which all processes of a machine share.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// blockHandlers holds tasks in handlers that don't return.
func blockHandlers(t *trial) sample { return block(t, 1, t.N) }

// holdOneEach runs workers that hold a task each.
func holdOneEach(t *trial) sample { return block(t, t.Peers, 1) }

// block runs workers that hold as many tasks as they have handlers, which don't return.
func block(t *trial, workers, handlers int) sample {
	var held atomic.Int64
	for range workers {
		t.work(t, handlers, func([]byte) {
			held.Add(1)
			select {}
		})
	}
	reaches(t, "all tasks are held", &held, workers*handlers)
	t.ready()
	select {}
}

// rescueTasks runs an idle worker that starts the tasks of a dead one.
func rescueTasks(t *trial) sample {
	starts := make(chan time.Time, 10*t.N) // in case some start twice
	t.work(t, t.N, func([]byte) { starts <- time.Now() })
	time.Sleep(t.Settle)
	t.ready()
	var first, last time.Time
	for n, end := 0, time.After(patience); n < t.N; n++ {
		select {
		case last = <-starts:
		case <-end:
			t.Fatalf("wait for the tasks of the killed worker: %d of %d started: %v", n, t.N, errPatience)
		}
		if n == 0 {
			first = last
		}
	}
	return sample{"first s": seconds(first), "last s": seconds(last)}
}
