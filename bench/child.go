package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

// A job is one measurement. Each runs in its own process, so that the CPU time and the heap
// in it belong to one system.
type job struct {
	Measure  string // a key of measures
	System   string // a key of systems
	URL      string // of the server
	N        int    // tasks
	Size     int    // bytes of each payload
	Callers  int    // that enqueue at the same time
	Batch    int    // payloads per call
	Handlers int
	Backlog  int // other waiting tasks
	Peers    int // idle peers
	Queues   int
	Fsync    string        // the server's appendfsync; "" means no log
	Trip     time.Duration // round trip to the server, in addition to the machine's own
	Work     time.Duration // duration of each handler
	Settle   time.Duration // before a window
	Window   time.Duration // in which the measurement takes place, or the system is idle
}

// A sample is the result of one measurement.
type sample map[string]float64

// A trial is a job in progress in its own process, which ends at the first error.
type trial struct {
	testing.TB
	job
	system
	*meter
	ready func() // reports to the parent that the job has begun
}

// measures are the measurements that a child can make.
var measures = map[string]func(t *trial) sample{
	"enqueue": measureEnqueue,
	"process": measureProcess,
	"latency": measureLatency,
	"waiting": measureWaiting,
	"beside":  measureBeside,
	"block":   blockHandlers,
	"rescue":  rescueTasks,
	"through": measureThrough,
	"crew":    holdOneEach,
	"members": keepMembers,
	"history": measureHistory,
	"idle":    func(t *trial) sample { values, _ := joinIdle(t); return values },
}

// childMain is the main function of a child. It writes its samples to standard output.
func childMain(j job) int {
	err := redistest.Outside(func(tb testing.TB) {
		out := json.NewEncoder(os.Stdout)
		t := j.open(tb)
		t.ready = func() { redistest.Must(t, out.Encode(sample{})) }
		redistest.Must(t, out.Encode(measures[j.Measure](t))) // fails if a value isn't a number
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A worker is the process of a job, from its parent's view.
type worker struct{ *child.Process[sample] }

// spawn starts a worker, which ends when ctx or the test ends.
func spawn(ctx context.Context, t testing.TB, j job) worker {
	w := worker{redistest.Sure(child.Start[sample](ctx, child.Options{Config: j}))(t)}
	t.Cleanup(w.Kill)
	return w
}

// begun starts a worker and waits until it reports that it is ready.
func begun(ctx context.Context, t testing.TB, j job) worker {
	w := spawn(ctx, t, j)
	w.next(t)
	return w
}

// next waits for the worker's next sample.
func (w worker) next(t testing.TB) sample {
	if s, ok := <-w.Reports; ok {
		return s
	}
	<-w.Exited
	t.Fatalf("it ended without a result: %v\n%s", w.Err, w.Said())
	return nil
}

// startServer starts a Redis for one measurement. Nothing carries over from the previous one: no
// memory, scripts or counters. With appendfsync, it writes an append-only file under that policy.
// There is no other persistence.
func startServer(t testing.TB, appendfsync string) *redistest.Server {
	args := []string{"--maxclients", "10000"}
	if appendfsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	}
	return redistest.Start(t, args...)
}

// measure runs the job in a worker with a new server.
func measure(ctx context.Context, t testing.TB, j job) sample {
	j.URL = startServer(t, j.Fsync).URL()
	return measureOn(ctx, t, j)
}

// measureOn runs the job in a worker with the job's server.
func measureOn(ctx context.Context, t testing.TB, j job) sample { return spawn(ctx, t, j).next(t) }
