package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// A Queue is one queue of a peer. It outlives the incarnations of the
// worker, and so do the handlers that run.
//
// A handler occupies a slot. Prefetched tasks are ready for the next slot that's free;
// while there are any, no slot is free. If the queue is spread over
// parts, each has a session, and they share the slots.
type Queue struct {
	engine  *Engine
	id      string          // the name, or what tells its failed queue from it
	name    string          // of both
	counts  *Counts         // of both
	handler Handler         // nil while the queue is served by hand
	share   *capacity.Share // nil while the queue is served by hand
	upset   logs.Outage
	unsound logs.Outage // about Backoff and errors

	handlers sync.WaitGroup // goroutines that run handlers, and were not disowned
	stored   chan struct{}  // has an element when an end was stored; holds one
	watch    *time.Timer    // while tasks are ready: whether any is begun

	mu       monitor         // protects the fields below, and those of sessions
	base     context.Context // parent of the tasks' contexts
	sessions []*Session      // that have not ended, one with each part
	turns    turns           // which of them asks for tasks
	opts     *Options        // replaced, not changed
	taken    int             // slots: of handlers that run, of tasks that were asked for, and spare
	handling int             // slots of handlers that run
	spare    []slot          // for the next round
	ready    []*Attempt      // taken ahead, oldest first
	bytes    int             // of their payloads
	asked    int             // tasks that are asked for ahead
	pace     pace
	ending   int // tasks whose end has yet to be stored
	draining bool
}

// A Handler works on a task. The result goes with the end, if it returns no error.
type Handler func(ctx context.Context, t *Attempt) (result []byte, err error)

// Options are those of a handler, all filled in.
type Options struct {
	Concurrency int
	Timeout     time.Duration // 0: none
	Grace       time.Duration
	MaxRetries  int
	MaxCrashes  int
	Keep        int                                       // failed tasks
	Backoff     func(t *Attempt, err error) time.Duration // before another one, after err
	Exclusive   bool
	FailOnPanic bool
	Followed    bool // a handler works on what fails
	Priority    int
	Weight      int
	Prefetch    int
}

// Queue returns a queue of the peer that is served by hand until Serve is called. Until then,
// only the options MaxCrashes and Keep count. What is done with it counts for a name.
func (e *Engine) Queue(name, id string, o Options) *Queue {
	return &Queue{mu: monitor{capacity: e.Capacity}, engine: e, id: id, name: name, counts: e.counted(name), opts: &o, base: context.Background(), stored: make(chan struct{}, 1)}
}

// A Part is where tasks of a queue wait: all of them, unless it is spread.
type Part struct {
	*store.Served
	Haul func(context.Context) error // moves accepted batches to it
}

// Serve makes a handler work on the queue. Call it before the first Join.
func (q *Queue) Serve(h Handler, o Options) {
	q.watch = time.AfterFunc(time.Hour, q.unstick)
	q.watch.Stop()
	q.handler, q.opts = h, &o
	q.share = q.engine.Capacity.Share(o.Weight, o.Priority, q.turn)
}

// serves reports whether a handler works on the queue.
func (q *Queue) serves() bool { return q.handler != nil }

// SetBase sets the parent of the contexts of tasks, for sessions that begin later.
func (q *Queue) SetBase(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.base = ctx
}

// Join begins a session with a part of the queue that the worker has joined.
func (q *Queue) Join(p Part, m Membership) *Session {
	s := newSession(q, p, m)
	q.mu.Lock()
	q.sessions = append(q.sessions, s)
	if q.draining {
		s.drainLocked()
	}
	q.mu.Unlock()
	s.listen()
	return s
}

// Options are those in force.
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

// A slot is room for one task: the units of the common capacity that it
// occupies.
type slot int

// turn makes the queue ask for tasks: it's its turn with the common capacity. What
// it gets is kept for the round that follows.
func (q *Queue) turn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.sessions) > 0 {
		q.spare = append(q.spare, q.grabLocked(min(q.opts.Concurrency-q.taken, MaxStarts))...)
		if len(q.spare) == 0 || q.lookLocked() { // a round has asked in the meantime, or will
			q.mu.pass = false // who gives turns goes on by himself
			return
		}
	}
	q.forgoLocked() // it asks once it is back
	q.mu.pass = false
}

// grabLocked takes up to n free slots.
func (q *Queue) grabLocked(n int) (slots []slot) {
	q.mu.pass = true
	if q.draining {
		q.share.Sated()
		return nil
	}
	got, units := q.share.Take(min(n, q.opts.Concurrency-q.taken))
	q.taken += got
	for range got {
		slots = append(slots, slot(units))
	}
	return slots
}

// wantsLocked reports whether the handler has a free slot, even if the common capacity
// doesn't allow its use.
func (q *Queue) wantsLocked() bool {
	return !q.draining && q.taken-len(q.spare) < q.opts.Concurrency
}

// reserveLocked takes slots for up to n tasks that the session will ask for.
func (q *Queue) reserveLocked(s *Session, n int) []slot {
	n = q.allowedLocked(s, n)
	k := min(n, len(q.spare))
	slots := q.spare[:k:k]
	q.spare = q.spare[k:]
	slots = append(slots, q.grabLocked(n-k)...)
	q.occupyLocked(s, len(slots))
	return slots
}

// fillLocked runs prefetched tasks in slots of the session that got no task, and
// returns the slots left over.
func (q *Queue) fillLocked(s *Session, slots []slot) []slot {
	for len(slots) > 0 && q.taken <= q.opts.Concurrency {
		t := q.nextLocked()
		if t == nil {
			break
		}
		s.slots--
		q.beginLocked(t, slots[0], true)
		slots = slots[1:]
	}
	return slots
}

// unreserveLocked gives back slots of the session that got no task. Sated says that it wants
// no more at present.
func (q *Queue) unreserveLocked(s *Session, slots []slot, sated bool) {
	if sated {
		q.satedLocked(s)
	}
	s.slots -= len(slots)
	q.vacateLocked(slots)
}

// vacateLocked gives back slots.
func (q *Queue) vacateLocked(slots []slot) {
	q.taken -= len(slots)
	for _, of := range slots {
		q.giveLocked(of)
	}
}

// giveLocked gives back the units of a slot.
func (q *Queue) giveLocked(of slot) {
	q.share.Give(1, int(of))
	q.mu.pass = true
	q.offerLocked()
}

// forgoLocked gives back the units that were kept: the queue wants no more at present.
func (q *Queue) forgoLocked() {
	q.share.Sated()
	for _, s := range q.sessions {
		s.needs = false
	}
	q.mu.pass = true
	q.vacateLocked(q.spare)
	q.spare = nil
}

// needsLocked notes whether a task is known to exist that could start: only then do other
// queues leave room for it.
func (q *Queue) needsLocked(s *Session, needs bool) {
	s.needs = needs
	q.share.Needs(slices.ContainsFunc(q.sessions, func(o *Session) bool { return o.needs }))
	q.mu.pass = true
}

// end notes that the end of a task was stored.
func (q *Queue) storedLocked() {
	q.ending--
	select {
	case q.stored <- struct{}{}:
	default:
	}
}

// Stored waits until the ends of all tasks whose handlers have returned are
// stored, or ctx ends.
func (q *Queue) Stored(ctx context.Context) {
	for {
		q.mu.Lock()
		ending := q.ending
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
	for _, s := range q.sessions {
		s.recalls++ // also of what is under way
		s.drainLocked()
	}
	q.recallLocked()
	q.watch.Stop()
	for _, s := range q.sessions {
		s.lookLocked() // to be taken off the idle workers
	}
}

// HandlersDone waits until no handler runs, except those that were disowned.
func (q *Queue) HandlersDone() { q.handlers.Wait() }

// pause asks Backoff how long to wait after a failure, and survives its panics.
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

// disown logs that a handler ignores its context, with its stack.
func (q *Queue) disown(a *run, cause error) {
	if q.engine.failures.stuck.Allow(q.id) {
		q.engine.Log.Error("worqr: a handler didn't return after its context ended; its slot goes to other tasks",
			a.task.named("cause", cause, "grace", a.opts.Grace, "stack", stackOf(a.label))...)
	}
}

// insist repeats an end that was refused until it's stored or the task is no
// longer ours.
func (q *Queue) insist(t *Attempt, o store.Outcome) {
	for retry := store.NewBackoff(); ; {
		select {
		case <-time.After(retry.Next()):
		case <-t.session.ctx.Done():
		}
		err := t.End(context.Background(), o)
		if err == nil || errors.Is(err, ErrNotOwner) {
			q.upset.Note(q.engine.Log, "cannot store task results; retrying", nil, "queue", q.id)
			return
		}
		q.upset.Note(q.engine.Log, "cannot store task results; retrying", err, "queue", q.id)
	}
}

// SetOptions puts other options in force.
func (q *Queue) SetOptions(o Options) {
	q.setOptions(o)
	q.turn()
	q.engine.Capacity.Pass()
}

func (q *Queue) setOptions(o Options) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.opts = &o
	q.forgoLocked() // what was kept was kept by the old ones
	q.share.Set(o.Weight, o.Priority)
	for _, of := range q.grabLocked(len(q.ready)) {
		q.beginLocked(q.nextLocked(), of, true)
	}
	if len(q.ready) > 0 && o.Prefetch == 0 {
		q.watch.Reset(q.pace.stale())
	}
	if o.Prefetch != 0 && len(q.ready) > max(o.Prefetch, 0) {
		q.recallLocked()
	}
}
