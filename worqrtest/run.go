package worqrtest

import (
	"cmp"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/worqrtrace"
)

// An Attempt says how a run of a handler ended.
type Attempt struct {
	worqrtrace.Task        // Outcome, Error, Next, ...
	Err             error  // what the handler returned
	Result          []byte // of its Task
}

// RunOptions configure Run. A zero field means the default.
type RunOptions struct {
	Queue  string         // "" is "test"
	Task   worqr.TaskSpec // its payload is that of Run
	Handle *worqr.HandleOptions
}

// Run runs a handler once, as a peer would, on its own Redis, and returns how the attempt ended:
// finished, retried, snoozed, failed or stopped. All methods of its Task work. Opts may be nil. The
// test fails if it takes more than a minute.
func Run(t testing.TB, h worqr.Handler, payload []byte, opts *RunOptions) Attempt {
	t.Helper()
	if h == nil {
		t.Fatal("worqrtest: the handler is nil")
	}
	var o RunOptions
	if opts != nil {
		o = *opts
	}
	ended := make(chan worqrtrace.Task, 1)
	peer := Start(t).Peer(&worqr.Options{Trace: &worqrtrace.Trace{Ended: func(e worqrtrace.Task) {
		select {
		case ended <- e:
		default: // another attempt
		}
	}}})
	var began atomic.Bool
	attempts := make(chan Attempt, 1)
	q := peer.Queue(cmp.Or(o.Queue, "test"))
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		if began.Swap(true) { // another attempt
			<-task.Draining()
			return worqr.Snooze(0)
		}
		defer close(attempts) // even if it panics
		err := h(ctx, task)
		attempts <- Attempt{Err: err, Result: task.Result}
		return err
	}, o.Handle)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o.Task.Payload = payload
	if _, err := q.Add(ctx, o.Task); err != nil {
		t.Fatal(err)
	}
	defer peer.Serve()()
	var a Attempt
	select {
	case a.Task = <-ended:
	case <-ctx.Done():
		if !began.Load() {
			t.Fatalf("the handler hasn't started after %v: the task has expired, or has a later time", patience)
		}
		t.Fatalf("the handler hasn't ended after %v", patience)
	}
	for { // it may have ended its task before it returns
		select {
		case end := <-attempts:
			a.Err, a.Result = end.Err, end.Result
			return a
		case <-time.After(time.Millisecond):
			if peer.Stats().StuckHandlers > 0 { // it ignores its context
				return a
			}
		case <-ctx.Done():
			t.Fatalf("the handler hasn't returned after %v", patience)
		}
	}
}
