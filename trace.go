package worqr

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/fleet"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A Trace has functions that a peer calls when something happens, for metrics, traces and audit
// logs. Nil ones cost nothing.
//
// One goroutine makes all calls, in order, after the fact. So the functions need no locks among
// themselves, and may call every method of the peer. A slow one delays only the calls behind it: up
// to 50,000 wait, the rest are dropped, and Missed says how many. A call that panics or ends its
// goroutine is lost; the first panic is logged. Stopping the worker and closing the peer wait up to
// a second for the calls.
//
// To put something into a handler's context, wrap the handler instead.
type Trace struct {
	// Enqueued follows each successful call that adds tasks. If the call failed with
	// ErrUnknownOutcome, Err is set and the tasks may be there.
	Enqueued func(TraceQueue)
	// Canceled follows each successful Cancel and CancelKey. Tasks counts the waiting copies that it
	// removed. Running ones come to Ended, on the peer that runs them.
	Canceled func(TraceQueue)
	// Started comes when a handler begins, and when StartTask returns a task.
	Started func(TraceTask)
	// Ended follows each Started once: the end is stored, the task returned because the worker
	// left, or it's no longer this worker's (TraceLost). While Redis can't store the end, Ended
	// waits.
	Ended func(TraceTask)
	// Changed follows each call that was sent of RemoveKey, Delete, Pause, Resume, RequeueFailed and
	// DeleteFailed, and their variants. Method has its name, Tasks how many it has changed, if it counts.
	Changed func(TraceQueue)
	// Failed: this peer moved tasks to the failed queue that can't start. Kind says why: FailureExpired or
	// FailureCrashed. Ended tells of those that fail otherwise.
	Failed func(TraceQueue)
	// FailedDropped: tasks were dropped from a full failed queue.
	FailedDropped func(TraceQueue)
	// Joined: the worker became a member of the queue, once for each part of a spread queue, and
	// once more if OnFailed handles its failed tasks.
	Joined func(TraceQueue)
	// Left follows Joined, unless Evicted does. If Err is set, Redis didn't confirm it, and the
	// membership ends with the lease.
	Left func(TraceQueue)
	// Evicted: this worker was evicted from all queues, and comes back under NewID.
	Evicted func(TraceWorker)
	// WorkerFailed: this peer has evicted another worker. It comes once for each.
	WorkerFailed func(TraceWorker)
	// TasksReturned: this peer has returned tasks of evicted workers to the front.
	TasksReturned func(TraceQueue)
	// ConnectionLost: Redis doesn't answer a started worker, or calls that add tasks, twice in a row.
	// ConnectionRestored follows.
	ConnectionLost func(TraceConnection)
	// ConnectionRestored: Redis answers again.
	ConnectionRestored func(TraceConnection)
	// Missed: calls were dropped here because the functions were too slow.
	Missed func(calls int)
}

// JoinTraces returns a Trace that calls the functions of each of them in turn; those that are nil are
// left out.
func JoinTraces(all ...*Trace) *Trace {
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

// A TraceOutcome says how an attempt ended.
type TraceOutcome string

const (
	TraceFinished TraceOutcome = "finished"
	TraceRetried  TraceOutcome = "retried"
	TraceSnoozed  TraceOutcome = "snoozed" // by Snooze
	TraceFailed   TraceOutcome = "failed"  // moved to the failed queue
	TraceStopped  TraceOutcome = "stopped" // returned to the front
	TraceCanceled TraceOutcome = "canceled"
	// TraceLost: another worker takes over the task, or its outcome is unknown: this worker was
	// evicted, too late, or left without a reply.
	TraceLost TraceOutcome = "lost"
)

// A TraceTask is an attempt that started or ended.
type TraceTask struct {
	At        time.Time // by this peer's clock
	Queue     string
	WorkerID  string
	AttemptID string
	Key       string // "" if it has none
	Digest    string // the first 8 digits of the payload's digest, as in the log; "" if unknown
	Token     int64
	Retries   int
	Crashes   int
	Size      int           // of the payload, in bytes
	OnFailed  bool          // OnFailed handles it
	Waited    time.Duration // in this peer, from its arrival until it started

	EnqueuedAt time.Time // this and the next two as in Task; times are by Redis's clock
	DueAt      time.Time
	Headers    map[string]string

	// Of Ended.
	Outcome    TraceOutcome
	Ran        time.Duration
	ResultSize int         // in bytes
	Kind       FailureKind // of TraceFailed
	Error      string      // why it didn't finish
	Next       time.Time   // of TraceRetried and TraceSnoozed: when it starts again, by this peer's clock
}

// A TraceQueue is something that happened to a queue.
type TraceQueue struct {
	At       time.Time // by this peer's clock
	Queue    string
	OnFailed bool              // of Joined, Left, Failed and TasksReturned: it's about the failed queue
	WorkerID string            // "" for Enqueued, Canceled and Changed
	Key      string            // of Put, EnqueueAt, Add, AddAt, CancelKey and RemoveKey
	Tasks    int               // that were enqueued, removed, changed, returned, failed or dropped
	Size     int               // of their payloads, of Enqueued, in bytes
	DueAt    time.Time         // of Enqueued; zero is now
	Took     time.Duration     // the call, of Enqueued, Canceled and Changed
	Err      error             // of Enqueued, Changed and Left
	Method   string            // of Changed, such as "RemoveKey"
	Kind     FailureKind       // of Failed
	Headers  map[string]string // of Enqueued, of a single task
}

// A TraceWorker is a worker that was evicted.
type TraceWorker struct {
	At       time.Time // by this peer's clock
	WorkerID string
	NewID    string // of Evicted
	Name     string // this and the next two may be unknown
	Host     string
	PID      int
	Queues   []string // from which it was evicted so far
	Tasks    int      // that it held there; 0 for Evicted
}

// A TraceConnection is the connection to Redis.
type TraceConnection struct {
	At     time.Time // by this peer's clock
	Server string    // "" if unknown, as in a cluster
	Error  string    // of ConnectionLost
	Away   time.Duration
}

// maxTraced is how many calls wait for the functions of a Trace.
const maxTraced = 50_000

// A tracer calls the functions of a Trace. A nil one calls nothing.
type tracer struct {
	Trace
	calls logs.Relay[func()]
}

// newTracer returns a tracer for a copy of the functions; nil if there are none.
func newTracer(t *Trace, log *logs.Log) *tracer {
	if t == nil {
		return nil
	}
	r := &tracer{Trace: *t}
	r.calls = logs.Relay[func()]{
		Most: maxTraced, Pass: func(call func()) { call() },
		Left: func(missing int) func() {
			log.Warn("worqr: the functions of Trace are too slow; calls are missing", "calls", missing)
			return func() {
				if r.Missed != nil {
					r.Missed(missing)
				}
			}
		},
		Broken: func(v any) {
			log.Error("worqr: a function of Trace panicked; its call is lost", "err", logs.Text(v))
		},
	}
	return r
}

// say calls a function, unless it's nil.
func say[T any](r *tracer, f func(T), v T) {
	if f != nil {
		r.calls.Put(func() { f(v) })
	}
}

// flush waits for the calls, but not for a function that blocks.
func (r *tracer) flush() {
	if r != nil {
		r.calls.Flush()
	}
}

// ofEngine returns what the engine tells.
func (r *tracer) ofEngine() (t engine.Trace) {
	if r == nil {
		return t
	}
	if r.Started != nil {
		t.Started = func(a *engine.Attempt, began time.Time, waited time.Duration) {
			task := traced(a)
			task.At, task.Waited = began, waited
			say(r, r.Started, task)
		}
	}
	if r.Ended != nil {
		t.Ended = func(a *engine.Attempt, e *engine.End) { say(r, r.Ended, ended(a, e)) }
	}
	if r.Failed != nil {
		t.Failed = func(queue, worker string, failed bool, kind store.Kind, tasks int) {
			say(r, r.Failed, TraceQueue{At: time.Now(), Queue: queue, WorkerID: worker, OnFailed: failed, Kind: FailureKind(kind), Tasks: tasks})
		}
	}
	if r.FailedDropped != nil {
		t.Dropped = func(queue, worker string, tasks int) {
			say(r, r.FailedDropped, TraceQueue{At: time.Now(), Queue: queue, WorkerID: worker, Tasks: tasks})
		}
	}
	return t
}

// traced describes an attempt. Handlers may change a Task, so it isn't given away.
func traced(a *engine.Attempt) TraceTask {
	t := taskOf(a.Queue(), a)
	return TraceTask{
		Queue: t.Queue, WorkerID: a.Worker(), AttemptID: t.AttemptID, Key: t.Key, Digest: a.Digest(), Token: t.Token, Retries: t.Retries,
		Crashes: t.Crashes, Size: a.Size(), OnFailed: t.Failure != nil, EnqueuedAt: t.EnqueuedAt, DueAt: t.DueAt, Headers: a.Traced(),
	}
}

var outcomes = map[store.Ending]TraceOutcome{
	store.Finish: TraceFinished, store.Retry: TraceRetried, store.Snooze: TraceSnoozed, store.Fail: TraceFailed, store.Stop: TraceStopped,
	store.Drop: TraceCanceled,
}

func ended(a *engine.Attempt, e *engine.End) TraceTask {
	t := traced(a)
	t.At, t.Waited, t.Ran, t.ResultSize, t.Kind, t.Error = e.At, e.Waited, e.Ran, e.Result, FailureKind(e.Kind), e.Error
	t.Outcome = cmp.Or(outcomes[e.Verb], TraceLost)
	if e.Verb == store.Retry || e.Verb == store.Snooze {
		t.Next = e.At.Add(e.Delay)
	}
	return t
}

// ofFleet returns what the fleet tells.
func (r *tracer) ofFleet() (t fleet.Trace) {
	if r == nil {
		return t
	}
	of := func(q fleet.Half, worker string) TraceQueue {
		return TraceQueue{At: time.Now(), Queue: q.Queue, OnFailed: q.Failed, WorkerID: worker}
	}
	t.Joined = func(q fleet.Half, worker string) { say(r, r.Joined, of(q, worker)) }
	t.Left = func(q fleet.Half, worker string, err error) {
		left := of(q, worker)
		left.Err = wrapOn(q.Queue, "leave", err)
		say(r, r.Left, left)
	}
	t.Returned = func(q fleet.Half, worker string, tasks int) {
		returned := of(q, worker)
		returned.Tasks = tasks
		say(r, r.TasksReturned, returned)
	}
	t.Evicted = func(old, id, name string, queues []string) {
		say(r, r.Evicted, TraceWorker{At: time.Now(), WorkerID: old, NewID: id, Name: name, Queues: queues})
	}
	t.Failed = func(w store.Worker, queues []string, tasks int) {
		say(r, r.WorkerFailed, TraceWorker{At: time.Now(), WorkerID: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, Queues: queues, Tasks: tasks})
	}
	return t
}

// listen makes the log tell when Redis doesn't answer. The server must be known.
func (r *tracer) listen(log *logs.Log) {
	if r == nil {
		return
	}
	log.Lost = func(err error) {
		c, at := TraceConnection{Server: log.Server}, time.Now()
		if r.ConnectionLost == nil {
			return
		}
		r.calls.Put(func() { // the error may be a Pool's, with methods that call the peer
			c.At, c.Error = at, logs.Text(logs.WithoutInput(err))
			r.ConnectionLost(c)
		})
	}
	log.Restored = func(away time.Duration) {
		say(r, r.ConnectionRestored, TraceConnection{At: time.Now(), Server: log.Server, Away: away})
	}
}

// enqueues returns the time if calls that enqueue are traced, or zero.
func (r *tracer) enqueues() (now time.Time) {
	if r != nil && r.Enqueued != nil {
		now = time.Now()
	}
	return now
}

// cancels is the same for calls that cancel.
func (r *tracer) cancels() (now time.Time) {
	if r != nil && r.Canceled != nil {
		now = time.Now()
	}
	return now
}

// changes begins a call that Changed tells of. The function that it returns ends it, with how many
// tasks it has changed and its error, which it returns.
func (q *Queue) changes(method, key string) func(tasks int, err error) error {
	r := q.peer.trace
	if r == nil || r.Changed == nil {
		return func(_ int, err error) error { return err }
	}
	began := time.Now()
	return func(tasks int, err error) error {
		t := TraceQueue{At: time.Now(), Queue: q.name, Method: method, Key: key, Tasks: tasks, Err: err}
		t.Took = t.At.Sub(began)
		say(r, r.Changed, t)
		return err
	}
}

// enqueued tells of a call that has added payloads, or may have, and returns its error.
func (q *Queue) enqueued(began time.Time, t TraceQueue, err error, payloads ...[]byte) error {
	if began.IsZero() || err != nil && !errors.Is(err, ErrUnknownOutcome) {
		return err
	}
	t.At, t.Queue, t.Tasks, t.Err = time.Now(), q.name, len(payloads), err
	t.Took = t.At.Sub(began)
	t.Headers = maps.Clone(t.Headers)
	for _, p := range payloads {
		t.Size += len(p)
	}
	say(q.peer.trace, q.peer.trace.Enqueued, t)
	return err
}

// canceled tells of a cancel that has removed tasks.
func (q *Queue) canceled(began time.Time, key string, removed int) {
	if !began.IsZero() {
		now := time.Now()
		say(q.peer.trace, q.peer.trace.Canceled, TraceQueue{At: now, Queue: q.name, Key: key, Tasks: removed, Took: now.Sub(began)})
	}
}

func (t TraceTask) Format(s fmt.State, _ rune) { show(s, "trace of a task", t) }

func (t TraceTask) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("worker", t.WorkerID), slog.String("attempt_id", t.AttemptID), slog.String("digest", t.Digest),
		slog.Int64("token", t.Token), slog.Int("retries", t.Retries), slog.Int("crashes", t.Crashes), slog.Int("bytes", t.Size),
		slog.Duration("waited", t.Waited), slog.String("outcome", string(t.Outcome)), slog.Duration("ran", t.Ran), slog.String("error", t.Error))
}

func (t TraceQueue) Format(s fmt.State, _ rune) { show(s, "trace of a queue", t) }

func (t TraceQueue) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("queue", t.Queue), slog.String("worker", t.WorkerID), slog.Int("tasks", t.Tasks), slog.Int("bytes", t.Size),
		slog.Duration("took", t.Took), slog.Any("err", t.Err))
}
