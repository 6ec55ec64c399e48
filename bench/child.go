package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/worqr/worqr/internal/child"
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
	Log      string        // the server's appendfsync; "": it has no log
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
type sample struct {
	Values map[string]float64
}

// measures are what a child can be asked for. Each calls say with every sample
// that it has; most have one.
var measures = map[string]func(j job, s system, m *meter, say func(sample)) error{
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
	s, m, err := j.open()
	var unsaid error // the parent is gone, or a value is no number
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		err = measures[j.Measure](j, s, m, func(s sample) { unsaid = errors.Join(unsaid, out.Encode(s)) })
	}
	if err = errors.Join(err, unsaid); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A worker is the process of a job as its parent sees it.
type worker struct{ *child.Process[sample] }

// spawn starts a worker, which ends with ctx at the latest.
func spawn(ctx context.Context, j job) (worker, error) {
	o := child.Options{Config: j}
	if j.Aside {
		o.Before = beyondFirst()
	}
	p, err := child.Start[sample](ctx, o)
	return worker{p}, err
}

// ready starts a worker and waits until it says that it is ready.
func ready(ctx context.Context, j job) (worker, error) {
	w, err := spawn(ctx, j)
	if err != nil {
		return w, err
	}
	if _, err = w.next(); err != nil {
		w.Kill()
	}
	return w, err
}

// next waits for the worker's next sample.
func (w worker) next() (sample, error) {
	if s, ok := <-w.Reports; ok {
		return s, nil
	}
	<-w.Exited
	return sample{}, fmt.Errorf("it ended without a result: %v\n%s", w.Err, w.Said())
}

// measure has a worker do the job with a server of its own.
func measure(ctx context.Context, j job) (sample, error) {
	return withServer(ctx, j, func(j job, _ *server) (sample, error) { return measureOn(ctx, j) })
}

// withServer does a job with a server of its own.
func withServer(ctx context.Context, j job, do func(job, *server) (sample, error)) (sample, error) {
	s, err := startServer(ctx, j.Log)
	if err != nil {
		return sample{}, err
	}
	defer s.stop()
	j.URL = s.url
	return do(j, s)
}

// measureOn has a worker do the job with the server that it names.
func measureOn(ctx context.Context, j job) (sample, error) {
	w, err := spawn(ctx, j)
	if err != nil {
		return sample{}, err
	}
	defer w.Kill()
	return w.next()
}
