package engine

import (
	"context"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/counts"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/prefetch"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/verdict"
)

// A Queue is one queue of a peer. It outlives the incarnations of the worker, and so do running handlers.
//
// A handler occupies a slot. Prefetched tasks wait for the next free slot; while there are any, no slot is free.
type Queue struct {
	engine  *Engine
	id      string // the name, or a different one for its failed queue
	name    string // the same for both
	counts  *counts.Counts
	handler Handler         // nil while the queue is served by hand
	share   *capacity.Share // nil while the queue is served by hand
	upset   logs.Outage     // outcomes that Redis refuses
	unsound logs.Outage     // failures of Backoff
	unread  logs.Outage     // large payloads that can't be read

	handlers sync.WaitGroup // goroutines that run handlers that weren't disowned

	mu       monitor         // protects the fields below, and those of sessions
	base     context.Context // parent of the tasks' contexts
	session  *Session        // nil if it has ended
	opts     *Options        // replaced, not changed
	taken    int             // slots in use: handling, spare, and those of all rounds in flight, which add up to it
	handling int             // slots of handlers that run
	grace    time.Duration   // the longest that earlier options gave a handler that may still run; 0 if none runs
	spare    []slot          // for the next round
	ahead    []*Attempt      // prefetched, oldest first
	bytes    int             // of the payloads of ahead
	coming   int             // tasks to prefetch that rounds in flight ask for; sessions keep it
	pace     prefetch.Pace
	ending   int           // tasks whose outcome has yet to be stored
	stored   chan struct{} // closed when there are none; nil if nobody waits for that
	draining bool          // take and begin no more tasks; Session.draining is closed then, or when its worker leaves
}

// A monitor is the lock of a queue and of its sessions. Code that holds it defers what must not happen under the lock,
// such as logging and callbacks, until Unlock. Unlock also passes on freed capacity.
type monitor struct {
	capacity *capacity.Capacity

	mu    sync.Mutex // protects the fields below
	after []func()   // in order
	pass  bool       // units were taken or given back
}

func (m *monitor) Lock() { m.mu.Lock() }

// Unlock releases the lock and runs what was deferred.
func (m *monitor) Unlock() {
	after, pass := m.after, m.pass
	m.after, m.pass = nil, false
	m.mu.Unlock()
	for _, do := range after {
		do()
	}
	if pass {
		m.capacity.Pass()
	}
}

// laterLocked defers a log line or a call until the lock is released.
func (m *monitor) laterLocked(do func()) { m.after = append(m.after, do) }

// A Handler works on a task. If it returns no error, the result is stored with the outcome.
type Handler func(ctx context.Context, t *Attempt) (result []byte, err error)

// Options are those of a handler, with defaults filled in.
type Options struct {
	verdict.Policy
	Concurrency int
	Timeout     time.Duration // 0: none
	Grace       time.Duration
	MaxCrashes  int
	Keep        int                                       // failed tasks; 0: all
	Backoff     func(t *Attempt, err error) time.Duration // before a retry after err
	Exclusive   bool
	Priority    int
	Weight      int
	Prefetch    int
}

// Queue returns a new queue of the peer. Until Serve is called, it's served by hand, and only the options
// MaxCrashes and Keep matter.
func (e *Engine) Queue(name, id string, o Options) *Queue {
	return &Queue{
		engine: e, id: id, name: name, counts: e.Counts.Of(id),
		mu: monitor{capacity: e.Capacity}, base: context.Background(), opts: &o,
	}
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
func (q *Queue) Join(v *store.View, m Membership) *Session {
	s := newSession(q, v, m)
	q.mu.Lock()
	q.session = s
	if q.draining {
		s.drainLocked()
	}
	q.mu.Unlock()
	q.engine.background.Go(s.loop)
	s.deaf = v.Listen(m.Worker, s.notify, func() { s.Wake() }) // earlier messages may have been missed
	return s
}

// Options returns the current options.
func (q *Queue) Options() *Options {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.opts
}

// storedLocked records that the outcome of a task was stored.
func (q *Queue) storedLocked() {
	if q.ending--; q.ending == 0 && q.stored != nil {
		close(q.stored)
		q.stored = nil
	}
}

// Stored waits until the outcomes of all tasks whose handlers have returned are stored, or ctx ends.
func (q *Queue) Stored(ctx context.Context) {
	q.mu.Lock()
	if q.ending > 0 && q.stored == nil {
		q.stored = make(chan struct{})
	}
	stored := q.stored
	q.mu.Unlock()
	if stored == nil {
		return
	}
	select {
	case <-stored:
	case <-ctx.Done():
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
		s.wakeLocked() // so that Redis no longer counts the worker as idle
	}
}

// Grace returns the longest Grace that a running handler may have, at least that of the current options.
func (q *Queue) Grace() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(q.grace, q.opts.Grace)
}

// HandlersDone waits until no handler runs, except those that were disowned.
func (q *Queue) HandlersDone() { q.handlers.Wait() }

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
	q.mu.Lock()
	if q.handling > 0 {
		q.grace = max(q.grace, q.opts.Grace)
	}
	q.opts = &o
	q.forgoLocked() // spare slots were taken under the old options
	q.share.Set(o.Weight, o.Priority)
	for _, of := range q.grabLocked(len(q.ahead)) {
		q.beginLocked(q.nextLocked(), of)
	}
	if s := q.session; s != nil && o.Prefetch != 0 && len(q.ahead) > max(o.Prefetch, 0) {
		s.recallLocked()
	}
	q.mu.Unlock()
	q.takeTurn()
	q.engine.Capacity.Pass()
}
