// Package worqrtrace has Trace, the functions that a peer calls when something happens, and the
// types of their arguments. Use them for metrics, traces and audit logs.
package worqrtrace

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/logs"
)

// A Trace has functions that a peer calls when something happens, for metrics, traces and audit
// logs. Nil functions cost nothing.
//
// One goroutine makes all calls, in order, after the fact, so the functions need no locks among
// themselves, and may call any method of the peer. A slow one delays only the calls behind it. Up
// to 20,000 calls wait. The rest are dropped, and Missed says how many. A call that panics or ends
// its goroutine is lost; the first panic is logged. Stopping the worker and closing the peer wait
// up to a second for the calls.
//
// To put something into a handler's context, wrap the handler instead.
type Trace struct {
	// Enqueued follows each call that has added tasks, or may have: if it failed with
	// worqr.ErrUnknownOutcome, Err is set.
	Enqueued func(Queue)
	// Canceled follows each successful Cancel and CancelKey. Tasks counts the waiting copies that
	// it removed. For those that were running, the peer that runs them calls Ended.
	Canceled func(Queue)
	// Started is called when a handler begins, and when StartTask returns a task.
	Started func(Task)
	// Ended follows each Started once: the end is stored, the task was returned because the worker
	// left, or this worker has lost it (Lost). While Redis can't store the end, Ended waits.
	Ended func(Task)
	// Changed follows each other call that was sent to Redis to change a queue, such as RemoveKey or Pause. Method is
	// its name; Tasks is how many tasks it changed, or 0 if it doesn't count them.
	Changed func(Queue)
	// Failed: this peer moved tasks to the failed queue without working on them. Kind says why:
	// inspect.FailureExpired or inspect.FailureCrashed. Ended reports tasks that fail in any other
	// way.
	Failed        func(Queue)
	FailedDropped func(Queue) // tasks were dropped from a full failed queue
	// Joined: the worker became a member of the queue, and once more if OnFailed handles its failed
	// tasks.
	Joined func(Queue)
	// Left follows Joined, unless Evicted does. If Err is set, Redis didn't confirm it, and the
	// membership ends with the lease.
	Left          func(Queue)
	Evicted       func(Worker) // this worker was evicted from all queues; it comes back under NewID
	WorkerFailed  func(Worker) // this peer evicted another worker; called once for each
	TasksReturned func(Queue)  // this peer returned tasks of an evicted worker to the front
	// ConnectionLost: a started worker, or calls that add tasks, got no answer from Redis twice in a
	// row.
	ConnectionLost     func(Connection)
	ConnectionRestored func(Connection) // Redis answers again
	Missed             func(calls int)  // calls dropped here because the functions were too slow
}

// Join returns a Trace that calls the functions of all of them in turn. Any of them may be nil.
func Join(all ...*Trace) *Trace {
	j := &Trace{}
	for _, t := range all {
		if t == nil {
			continue
		}
		j.Enqueued, j.Canceled, j.Changed = both(j.Enqueued, t.Enqueued), both(j.Canceled, t.Canceled), both(j.Changed, t.Changed)
		j.Failed, j.FailedDropped = both(j.Failed, t.Failed), both(j.FailedDropped, t.FailedDropped)
		j.Started, j.Ended = both(j.Started, t.Started), both(j.Ended, t.Ended)
		j.Joined, j.Left, j.TasksReturned = both(j.Joined, t.Joined), both(j.Left, t.Left), both(j.TasksReturned, t.TasksReturned)
		j.Evicted, j.WorkerFailed = both(j.Evicted, t.Evicted), both(j.WorkerFailed, t.WorkerFailed)
		j.ConnectionLost, j.ConnectionRestored = both(j.ConnectionLost, t.ConnectionLost), both(j.ConnectionRestored, t.ConnectionRestored)
		j.Missed = both(j.Missed, t.Missed)
	}
	return j
}

// both returns a function that calls a and b.
func both[T any](a, b func(T)) func(T) {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return func(v T) { a(v); b(v) }
}

// An Outcome says how an attempt ended.
type Outcome string

const (
	Finished Outcome = "finished"
	Retried  Outcome = "retried"
	Snoozed  Outcome = "snoozed" // by Snooze
	Failed   Outcome = "failed"  // moved to the failed queue
	Stopped  Outcome = "stopped" // returned to the front
	Canceled Outcome = "canceled"
	// Lost: this worker was evicted, ended the task too late, or got no reply. Another worker takes
	// over the task, or its outcome is unknown.
	Lost Outcome = "lost"
)

// A Task is an attempt that started or ended.
type Task struct {
	At        time.Time // by this peer's clock
	Queue     string
	WorkerID  string
	AttemptID string // unique within the queue
	Key       string // "" if it has none
	Digest    string // the first 8 digits of the payload's digest, as in the log; "" if unknown
	Token     int64
	Retries   int
	Crashes   int
	Size      int           // of the payload, in bytes
	OnFailed  bool          // OnFailed handles it
	Waited    time.Duration // in this peer, from its arrival until it started

	EnqueuedAt time.Time // this and the next two as in worqr.Task; times are by Redis's clock
	DueAt      time.Time
	Headers    map[string]string

	// For Ended.
	Outcome    Outcome
	Ran        time.Duration
	ResultSize int                 // in bytes
	Kind       inspect.FailureKind // for Failed
	Error      string              // why it didn't finish
	Next       time.Time           // for Retried and Snoozed: when it starts again, by this peer's clock
}

// Wait returns how long a task waited from when it could start until it did. That isn't known for tasks of Enqueue,
// nor after a crash, since the task ran in between.
func (t Task) Wait() (d time.Duration, known bool) {
	since := t.EnqueuedAt
	if t.DueAt.After(since) {
		since = t.DueAt
	}
	return max(t.At.Sub(since), 0), !since.IsZero() && t.Crashes == 0 && !t.OnFailed // the clocks may differ
}

// A Queue is something that happened on a queue.
type Queue struct {
	At       time.Time // by this peer's clock
	Queue    string
	OnFailed bool                // for Joined, Left, Failed and TasksReturned: it's about the failed queue
	WorkerID string              // "" for Enqueued, Canceled and Changed
	Key      string              // for Enqueued, Canceled and Changed, if the call is about one key
	Tasks    int                 // that were enqueued, removed, changed, returned, failed or dropped
	Size     int                 // of their payloads, for Enqueued, in bytes
	DueAt    time.Time           // for Enqueued; zero is now
	Took     time.Duration       // how long the call took, for Enqueued, Canceled and Changed
	Err      error               // for Enqueued, Changed and Left
	Method   string              // for Changed, such as "RemoveKey"
	Kind     inspect.FailureKind // for Failed
	Headers  map[string]string   // for Enqueued, if it is a single task
}

// A Worker is an evicted worker.
type Worker struct {
	At       time.Time // by this peer's clock
	WorkerID string
	NewID    string // for Evicted
	Name     string // this and the next two may be unknown
	Host     string
	PID      int
	Queues   []string // that it has been evicted from
	Tasks    int      // that it held there; 0 for Evicted

	LastHeartbeat time.Time // for WorkerFailed, by this peer's clock; zero if it's unknown
}

// A Connection is a change of the connection to Redis.
type Connection struct {
	At     time.Time     // by this peer's clock
	Server string        // "" if unknown, as in a cluster
	Error  string        // for ConnectionLost
	Away   time.Duration // for ConnectionRestored: how long Redis didn't answer
}

func (t Task) Format(s fmt.State, _ rune) { logs.Show(s, "trace of a task", t) }

func (t Task) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("worker", t.WorkerID), slog.String("attempt_id", t.AttemptID), slog.String("digest", t.Digest),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes), slog.Int("bytes", t.Size),
		slog.Duration("waited", t.Waited), slog.String("outcome", string(t.Outcome)), slog.Duration("ran", t.Ran), slog.String("error", t.Error))
}

func (t Queue) Format(s fmt.State, _ rune) { logs.Show(s, "trace of a queue", t) }

func (t Queue) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("worker", t.WorkerID), slog.Int("tasks", t.Tasks), slog.Int("bytes", t.Size),
		slog.Duration("took", t.Took), slog.Any("err", t.Err))
}
