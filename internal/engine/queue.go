package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A Queue is one queue of a peer. It outlives the incarnations of the worker, and so do running
// handlers.
//
// A handler occupies a slot. Prefetched tasks are ready for the next free slot; while there are
// any, no slot is free.
type Queue struct {
	engine  *Engine
	id      string          // the name, or a different one for its failed queue
	name    string          // the same for both
	counts  *Counts         // shared by both
	handler Handler         // nil while the queue is served by hand
	share   *capacity.Share // nil while the queue is served by hand
	upset   logs.Outage     // outcomes that Redis refuses
	unsound logs.Outage     // failures of Backoff and of errors' methods
	unread  logs.Outage     // large payloads that can't be read

	handlers sync.WaitGroup // goroutines that run handlers that weren't disowned
	stored   chan struct{}  // holds a value when an outcome was stored; capacity 1

	mu       monitor         // protects the fields below, and those of sessions
	base     context.Context // parent of the tasks' contexts
	session  *Session        // nil if it has ended
	opts     *Options        // replaced, not changed
	taken    int             // slots in use: running handlers, tasks requested, and spare ones
	handling int             // slots of handlers that run
	grace    time.Duration   // the longest that earlier options gave a handler that may still run; 0 if none runs
	spare    []slot          // for the next round
	ready    []*Attempt      // prefetched, oldest first
	bytes    int             // of the payloads of ready
	asked    int             // tasks to prefetch that were asked for
	pace     pace
	ending   int // tasks whose outcome has yet to be stored
	draining bool
}

// A Handler works on a task. If it returns no error, the result is stored with the outcome.
type Handler func(ctx context.Context, t *Attempt) (result []byte, err error)

// Options are those of a handler, with defaults filled in.
type Options struct {
	Concurrency int
	Timeout     time.Duration // 0: none
	Grace       time.Duration
	MaxRetries  int
	MaxCrashes  int
	Keep        int                                       // failed tasks
	Backoff     func(t *Attempt, err error) time.Duration // before a retry after err
	Exclusive   bool
	FailOnPanic bool
	Followed    bool // failed tasks have a handler
	Priority    int
	Weight      int
	Prefetch    int
}

// Queue returns a queue of the peer. Until Serve is called, it's served by hand, and only the options
// MaxCrashes and Keep matter. Its counters belong to name.
func (e *Engine) Queue(name, id string, o Options) *Queue {
	return &Queue{mu: monitor{capacity: e.Capacity}, engine: e, id: id, name: name, counts: e.counted(name), opts: &o, base: context.Background(), stored: make(chan struct{}, 1)}
}

// Serve makes a handler work on the queue. Call it before the first Join.
func (q *Queue) Serve(h Handler, o Options) {
	q.handler, q.opts = h, &o
	q.share = q.engine.Capacity.Share(o.Weight, o.Priority, q.takeTurn)
}

func (q *Queue) serves() bool { return q.handler != nil }

// isFailed reports whether it's the failed queue of a queue.
func (q *Queue) isFailed() bool { return q.id != q.name }

// SetBase sets the parent of the contexts of tasks, for sessions that begin later.
func (q *Queue) SetBase(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = ctx
}

// Join begins a session once the worker has joined the queue.
func (q *Queue) Join(v View, m Membership) *Session {
	s := newSession(q, v, m)
	q.mu.Lock()
	q.session = s
	if q.draining {
		s.drainLocked()
	}
	q.mu.Unlock()
	q.engine.background.Go(s.run)
	s.listen()
	return s
}

// Options returns the current options.
func (q *Queue) Options() *Options {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.opts
}

// limitsLocked returns the limits that decide whether a task starts or fails, and how many
// failed tasks are kept.
func (q *Queue) limitsLocked() (crashes, keep int) {
	if keep = q.opts.Keep; q.opts.Followed {
		keep = 0
	}
	return max(q.opts.MaxCrashes, 0), keep
}

// storedLocked records that the outcome of a task was stored.
func (q *Queue) storedLocked() {
	q.ending--
	q.signalStoredLocked()
}

// signalStoredLocked wakes a call of Stored.
func (q *Queue) signalStoredLocked() {
	select {
	case q.stored <- struct{}{}:
	default:
	}
}

// Stored waits until the outcomes of all tasks whose handlers have returned are stored, or ctx
// ends.
func (q *Queue) Stored(ctx context.Context) {
	for {
		q.mu.Lock()
		ending := q.ending
		if ending == 0 {
			q.signalStoredLocked() // Run and Unhandle may both wait
		}
		q.mu.Unlock()
		if ending == 0 {
			return
		}
		select {
		case <-q.stored:
		case <-ctx.Done():
			return
		}
	}
}

func (q *Queue) isDraining() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.draining
}

// Drain keeps the queue from taking or beginning more tasks.
func (q *Queue) Drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	q.forgoLocked()
	if s := q.session; s != nil {
		s.drainLocked()
		s.recallLocked()
		s.lookLocked() // so that Redis no longer counts the worker as idle
	}
}

// Grace returns the longest Grace that a running handler may have, at least that of the current
// options.
func (q *Queue) Grace() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.grace, q.opts.Grace)
}

// HandlersDone waits until no handler runs, except those that were disowned.
func (q *Queue) HandlersDone() { q.handlers.Wait() }

// pause calls Backoff for the delay after a failure, and recovers from its panics.
func (q *Queue) pause(o *Options, t *Attempt, failure error) (d time.Duration) {
	defer func() {
		var err error
		attrs := []any{"queue", q.id}
		if v := recover(); v != nil {
			stack := debug.Stack()
			d, err = DefaultBackoff(t.Retries), &panicError{value: v, stack: stack}
			attrs = append(attrs, "stack", string(stack))
		}
		q.unsound.Note(q.engine.Log, "Backoff panicked; using the default", err, attrs...)
	}()
	return min(max(o.Backoff(t, failure), 0), Longest)
}

// disown logs, with a stack, that a handler ignores its context.
func (q *Queue) disown(r *run, cause error) {
	if q.engine.failures.stuck.Allow(q.id) {
		q.engine.Log.Error("worqr: a handler didn't return after its context ended; its slot goes to other tasks",
			r.task.named("cause", cause, "grace", r.opts.Grace, "stack", stackOf(r.label))...)
	}
}

// keepTrying sends a refused outcome again until it's stored or the worker no longer holds the task.
func (q *Queue) keepTrying(t *Attempt, e store.End) {
	for retry := (&store.Backoff{}); ; {
		select {
		case <-time.After(retry.Next()):
		case <-t.session.ctx.Done():
		}
		err := t.End(context.Background(), e)
		if err == nil || errors.Is(err, ErrNotOwner) {
			q.upset.Note(q.engine.Log, "can't store task results; retrying", nil, "queue", q.id)
			return
		}
		q.upset.Note(q.engine.Log, "can't store task results; retrying", err, "queue", q.id)
	}
}

// Recall returns the prefetched tasks.
func (q *Queue) Recall() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.session != nil {
		q.session.recallLocked()
	}
}

// SetOptions replaces the options, for tasks that begin later.
func (q *Queue) SetOptions(o Options) {
	q.setOptions(o)
	q.takeTurn()
	q.engine.Capacity.Pass()
}

func (q *Queue) setOptions(o Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.handling > 0 {
		q.grace = max(q.grace, q.opts.Grace)
	}
	q.opts = &o
	q.forgoLocked() // spare slots were taken under the old options
	q.share.Set(o.Weight, o.Priority)
	for _, of := range q.grabLocked(len(q.ready)) {
		q.beginLocked(q.nextLocked(), of, true)
	}
	if s := q.session; s != nil && o.Prefetch != 0 && len(q.ready) > max(o.Prefetch, 0) {
		s.recallLocked()
	}
}
