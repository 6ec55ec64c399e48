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

// A job is one measurement. Each has a process of its own, so that the processor time and
// the heap in it belong to one system.
type job struct {
	Measure  string // a key of measures
	System   string // a key of systems
	URL      string // of the server
	N        int    // tasks
	Size     int    // bytes of each payload
	Callers  int    // that enqueue at the same time
	Batch    int    // payloads in one call
	Handlers int
	Backlog  int // tasks that wait beside these
	Peers    int // idle ones, or those of a hot queue
	Queues   int
	Fsync    string        // the server's appendfsync; "": it has no log
	Trip     time.Duration // to the server and back, beyond what the machine takes
	Work     time.Duration // that each handler takes
	Settle   time.Duration // before a window
	Window   time.Duration // in which is measured, or nothing is to do
	Parts    int           // over which the queue is spread; 0: it is not
	Uneven   bool          // only one of them has tasks
	Nodes    []string      // URLs of the servers, where there are several
	Aside    bool          // the servers have the first core, and the job the others
}

// A sample is what a measurement has found.
type sample map[string]float64

// A trial is a job under way in a process of its own, which ends with the first error.
type trial struct {
	testing.TB
	job
	system
	*meter
	ready func() // tells the parent that what it waits for has begun
}

// measures are what a child can be asked for.
var measures = map[string]func(t *trial) sample{
	"enqueue": measureEnqueue,
	"process": measureProcess,
	"latency": measureLatency,
	"waiting": measureWaiting,
	"running": measureRunning,
	"idle":    measureIdle,
	"beside":  measureBeside,
	"backlog": measureBacklog,
	"queues":  measureQueues,
	"payload": measurePayload,
	"hold":    holdTasks,
	"block":   blockHandlers,
	"rescue":  rescueTasks,
	"sweep":   measureSweep,
	"through": measureThrough,
	"hot":     keepBusy,
	"quiet":   measureQuiet,
	"crew":    holdOneEach,
	"members": keepMembers,
	"spread":  measureSpread,
	"parts":   measureParts,
}

// childMain is the main function of a child, whose samples go to standard
// output.
func childMain(j job) int {
	err := redistest.Outside(func(tb testing.TB) {
		out := json.NewEncoder(os.Stdout)
		t := j.open(tb)
		t.ready = func() { redistest.Must(t, out.Encode(sample{})) }
		redistest.Must(t, out.Encode(measures[j.Measure](t))) // or a value is no number
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A worker is the process of a job as its parent sees it.
type worker struct{ *child.Process[sample] }

// spawn starts a worker, which ends with ctx and the test at the latest.
func spawn(ctx context.Context, t testing.TB, j job) worker {
	o := child.Options{Config: j}
	if j.Aside {
		o.Before = beyondFirst()
	}
	w := worker{redistest.Sure(child.Start[sample](ctx, o))(t)}
	t.Cleanup(w.Kill)
	return w
}

// begun starts a worker and waits until it says that it is ready.
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

// startServer starts a Redis for one measurement, to which more are arguments. Nothing carries over
// from the one before, neither memory nor scripts nor counters. It writes a log of what it does, with
// that appendfsync; "" is none, and no other persistence.
func startServer(t testing.TB, appendfsync string, more ...string) *redistest.Server {
	args := append([]string{"--maxclients", "10000"}, more...)
	if appendfsync != "" {
		args = append(args, "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	}
	return redistest.Start(t, args...)
}

// measure has a worker do the job with a server of its own.
func measure(ctx context.Context, t testing.TB, j job) sample {
	j.URL = startServer(t, j.Fsync).URL()
	return measureOn(ctx, t, j)
}

// measureOn has a worker do the job with the server that it names.
func measureOn(ctx context.Context, t testing.TB, j job) sample { return spawn(ctx, t, j).next(t) }
