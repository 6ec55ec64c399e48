// Package tracing calls a user's trace functions: in order, after the fact, on a goroutine of their own.
package tracing

import (
	"cmp"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

// Limits on the calls that wait for the functions: their number, and the bytes they keep of tasks.
const (
	maxTraced      = 50_000
	maxTracedBytes = 32 << 20
)

// A call is one call of a function, and about how many bytes it keeps.
type call struct {
	do   func()
	size int
}

// A Caller calls functions. A nil Caller calls none.
type Caller struct {
	worqrtrace.Trace
	calls logs.Relay[call]
}

// New returns a Caller for a copy of the functions; nil if there are none.
func New(t *worqrtrace.Trace, log *logs.Log) *Caller {
	if t == nil {
		return nil
	}
	r := &Caller{Trace: *t}
	r.calls = logs.Relay[call]{
		Most: maxTraced, Bytes: maxTracedBytes, Weigh: func(c call) int { return c.size }, Pass: func(c call) { c.do() },
		Left: func(missing int) call {
			log.Warn("worqr: Trace functions are too slow; calls were dropped", "calls", missing)
			return call{do: func() {
				if r.Missed != nil {
					r.Missed(missing)
				}
			}}
		},
		Broken: func(v any) {
			log.Error("worqr: a Trace function panicked; that call was lost", "err", logs.Text(v))
		},
	}
	return r
}

// Say calls a function, unless it's nil.
func Say[T any](r *Caller, f func(T), v T) {
	if f != nil {
		r.calls.Put(call{func() { f(v) }, weight(v)})
	}
}

// weight returns how many bytes an argument keeps.
func weight(v any) int {
	headers := func(all map[string]string) (n int) {
		for name, value := range all {
			n += len(name) + len(value) + 100
		}
		return n
	}
	switch v := v.(type) {
	case worqrtrace.Task:
		return len(v.Key) + len(v.Error) + headers(v.Headers)
	case worqrtrace.Queue:
		return len(v.Key) + headers(v.Headers)
	}
	return 0
}

// Flush waits for the pending calls, but not for a function that blocks.
func (r *Caller) Flush() {
	if r != nil {
		r.calls.Flush()
	}
}

// OfEngine returns the trace functions for the engine.
func (r *Caller) OfEngine() (t engine.Trace) {
	if r == nil {
		return t
	}
	if r.Started != nil {
		t.Started = func(a *engine.Attempt, began time.Time, waited time.Duration) {
			task := traced(a)
			task.At, task.Waited = began, waited
			Say(r, r.Started, task)
		}
	}
	if r.Ended != nil {
		t.Ended = func(a *engine.Attempt, e *engine.End) { Say(r, r.Ended, ended(a, e)) }
	}
	if r.Failed != nil {
		t.Failed = func(queue, worker string, failed bool, kind store.Kind, tasks int) {
			Say(r, r.Failed, worqrtrace.Queue{At: time.Now(), Queue: queue, WorkerID: worker, OnFailed: failed, Kind: kind, Tasks: tasks})
		}
	}
	if r.FailedDropped != nil {
		t.Dropped = func(queue, worker string, tasks int) {
			Say(r, r.FailedDropped, worqrtrace.Queue{At: time.Now(), Queue: queue, WorkerID: worker, Tasks: tasks})
		}
	}
	return t
}

// traced describes an attempt. It copies the Task, since handlers may change it.
func traced(a *engine.Attempt) worqrtrace.Task {
	key := store.KeyOf(a.Entry)
	if a.Failure != nil {
		key = store.KeyOf(a.Failure.From)
	}
	return worqrtrace.Task{
		Queue: a.Queue(), WorkerID: a.Worker(), AttemptID: a.ID, Key: key, Digest: a.Digest(), Token: a.Token, Retries: a.Retries,
		Crashes: a.Crashes, Size: a.Size(), OnFailed: a.Failure != nil, EnqueuedAt: store.Moment(a.Card.Since), DueAt: store.Moment(a.Due), Headers: a.Traced(),
	}
}

var outcomes = map[store.Ending]worqrtrace.Outcome{
	store.Finish: worqrtrace.Finished, store.Retry: worqrtrace.Retried, store.Snooze: worqrtrace.Snoozed, store.Fail: worqrtrace.Failed, store.Stop: worqrtrace.Stopped,
	store.Drop: worqrtrace.Canceled,
}

func ended(a *engine.Attempt, e *engine.End) worqrtrace.Task {
	t := traced(a)
	t.At, t.Waited, t.Ran, t.ResultSize, t.Kind, t.Error = e.At, e.Waited, e.Ran, e.Result, e.Kind, e.Error
	t.Outcome = cmp.Or(outcomes[e.Verb], worqrtrace.Lost)
	if e.Verb == store.Retry || e.Verb == store.Snooze {
		t.Next = e.At.Add(e.Delay)
	}
	return t
}

// OfFleet returns the trace functions for the fleet. They wrap errors for the user.
func (r *Caller) OfFleet(wrap func(queue, verb string, err error) error) (t fleet.Trace) {
	if r == nil {
		return t
	}
	of := func(q fleet.Half, worker string) worqrtrace.Queue {
		return worqrtrace.Queue{At: time.Now(), Queue: q.Queue, OnFailed: q.Failed, WorkerID: worker}
	}
	t.Joined = func(q fleet.Half, worker string) { Say(r, r.Joined, of(q, worker)) }
	t.Left = func(q fleet.Half, worker string, err error) {
		left := of(q, worker)
		left.Err = wrap(q.Queue, "leave", err)
		Say(r, r.Left, left)
	}
	t.Returned = func(q fleet.Half, worker string, tasks int) {
		returned := of(q, worker)
		returned.Tasks = tasks
		Say(r, r.TasksReturned, returned)
	}
	t.Evicted = func(old, id, name string, queues []string) {
		Say(r, r.Evicted, worqrtrace.Worker{At: time.Now(), WorkerID: old, NewID: id, Name: name, Queues: queues})
	}
	t.Failed = func(w store.Worker, queues []string, tasks int) {
		Say(r, r.WorkerFailed, worqrtrace.Worker{At: time.Now(), WorkerID: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, Queues: queues, Tasks: tasks})
	}
	return t
}

// Listen makes the log call ConnectionLost and ConnectionRestored. Its Server must be set.
func (r *Caller) Listen(log *logs.Log) {
	if r == nil {
		return
	}
	log.Lost = func(err error) {
		c, at := worqrtrace.Connection{Server: log.Server}, time.Now()
		if r.ConnectionLost == nil {
			return
		}
		r.calls.Put(call{do: func() { // the error may be a Pool's, with methods that call the peer
			c.At, c.Error = at, logs.Text(logs.WithoutInput(err))
			r.ConnectionLost(c)
		}})
	}
	log.Restored = func(away time.Duration) {
		Say(r, r.ConnectionRestored, worqrtrace.Connection{At: time.Now(), Server: log.Server, Away: away})
	}
}

// Enqueues returns the time if calls that enqueue are traced, or zero.
func (r *Caller) Enqueues() (now time.Time) {
	if r != nil && r.Enqueued != nil {
		now = time.Now()
	}
	return now
}

// Cancels returns the time if calls that cancel are traced, or zero.
func (r *Caller) Cancels() (now time.Time) {
	if r != nil && r.Canceled != nil {
		now = time.Now()
	}
	return now
}
