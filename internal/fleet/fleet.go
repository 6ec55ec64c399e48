// Package fleet runs one worker of the fleet: it registers, sends heartbeats, joins and leaves
// queues, evicts silent workers, and comes back under a new id after it was evicted itself. It
// begins and ends the sessions in which internal/engine works on a queue.
//
// # Words
//
//   - A Fleet is a peer's view of the fleet; while it is started it has a worker.
//   - A worker has an id, which changes after each eviction; everything else stays.
//   - A membership belongs to an id and a queue. It's owed when it may still exist in Redis but
//     shouldn't, until a leave has ended it.
//   - A node is one server, with the queues whose heartbeats go there.
//   - A beat is a heartbeat that is sent, or the time between two; a pulse is the answer for one queue.
//   - The roster is the list of registered peers.
//
// # Loops
//
// The run loop of a worker joins and leaves queues, and may wait for Redis. Each node has a loop
// that sends heartbeats and waits for nothing else, and one that evicts, which runs only while a
// heartbeat has asked for it. Neither calls the logger or a hook of the fleet: what they have to say is put
// into Fleet.notes. But heartbeats call methods of errors, and Config.LostWrites of the engine.
//
// # Locks
//
// worker.joining is held during joins and while one queue is left, and is taken before worker.mu. A worker that
// stops sets closing and takes it only to wait for a join: afterwards, none begins, and the id stays. Fleet.mu
// and worker.mu are never held together, only protect reading and writing their fields, and no method of a
// session is called under them.
package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/tracing"
)

// Errors that the root package exports under the same names.
var (
	ErrNotStarted     = errors.New("worqr: the worker isn't started")
	ErrEvictionPolicy = errors.New("worqr: Redis may evict tasks")
)

// ErrOld means that Redis lacks commands that the scripts need. The worker doesn't start then: it
// would be a member that starts no tasks and returns none.
var ErrOld = errors.New("worqr: Redis is too old")

// A Config has what a Fleet needs to know.
type Config struct {
	Lines   *store.Lines
	Space   store.Space
	Log     *logs.Log
	Engine  *engine.Engine
	Lease   time.Duration // negative: it never expires
	Name    string        // of the peer
	Version string        // of the library
	Service string        // version of the service; "" if it isn't known

	NoHistory bool

	Protocol store.Protocol // the one that the library speaks

	// Describe wraps err as the error of a verb, on a queue if one is given.
	Describe func(verb, queue string, err error) error
	// CameBack is called when the worker comes back under a new id, and when another server has
	// taken over: Redis may have lost everything.
	CameBack func()
	// Over, if not nil, is called when no peer asserts a queue's schedule anymore.
	Over  func(store.Target)
	Trace *tracing.Caller
}

// A Fleet is a peer's view of the fleet.
type Fleet struct {
	Config
	times  engine.Lease // of Config.Lease
	counts Counts
	warned sync.Once    // warns about the eviction policy
	limit  logs.Limiter // of lines about evicted workers
	notes  logs.Calls   // what heartbeats have to say: unlike lines of Log, notes may do I/O and call methods of errors

	recording chan struct{}      // holds a value while histories are written
	written   map[string]written // by the queue's id; protected by recording
	unwritten logs.Outage        // records that Redis refuses

	mu     sync.Mutex // protects the fields below
	id     string     // of the worker; comeBack changes it a moment after worker.id
	used   bool       // id has been registered
	worker *worker    // nil while not started
}

// Counts are counters of the work done.
type Counts struct{ WorkersEvicted, TasksReturned, TimesEvicted atomic.Int64 }

// A Queue is a queue that the worker serves or should serve.
type Queue struct {
	*store.View
	Engine  *engine.Queue
	Handled bool // a handler works on it
}

// New returns the fleet of a peer. It does no I/O and starts nothing.
func New(c Config) *Fleet {
	lost := func(n int) {
		c.Log.Warn("worqr: notes of heartbeats are missing, since a logger or a hook blocks", "notes", n)
	}
	return &Fleet{
		Config: c, times: engine.LeaseOf(c.Lease), id: store.NewID(), written: map[string]written{}, recording: make(chan struct{}, 1),
		limit: logs.Limiter{Say: c.Log.Warn, What: "worqr: more workers were evicted", Each: evictedLines, All: evictedLines},
		notes: logs.Calls{Dropped: lost, Panicked: func(any) { lost(1) }},
	}
}

// evictedLines is how many lines a second are logged about evicted workers: whoever writes Redis's
// keys can name any number of workers.
const evictedLines = 50

// Flush waits until what heartbeats have noted is said, unless that blocks, and logs the count of
// suppressed lines.
func (f *Fleet) Flush() {
	f.notes.Flush()
	f.limit.Flush()
}

// Counts returns the counters since the fleet was created.
func (f *Fleet) Counts() *Counts { return &f.counts }

// ID returns the worker's current id.
func (f *Fleet) ID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// present returns the started worker, or nil.
func (f *Fleet) present() *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.worker
}

// IsStarted reports whether there is a worker.
func (f *Fleet) IsStarted() bool { return f.present() != nil }

// Start registers a worker and starts its heartbeats. If it fails, nothing has been started.
// Callers must not call Start and Stop concurrently.
func (f *Fleet) Start(ctx context.Context) error {
	if f.IsStarted() {
		return nil
	}
	if err := cmp.Or(f.checkRedis(ctx), f.agree(ctx)); err != nil {
		return err
	}
	f.mu.Lock()
	if f.used {
		f.id = store.NewID()
	}
	f.used = true
	w := newWorker(f, f.id)
	f.mu.Unlock()
	if err := w.register(ctx, f.Lines.Calls, w.id); err != nil {
		if errors.Is(err, store.ErrUnknown) { // it may be registered
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.times.Beat)
			defer cancel()
			_ = store.Unregister(tidy, f.Lines.Control, f.Space, w.id) // best effort
		}
		return err
	}
	w.mu.Lock()
	w.enterLocked(store.Somewhere) // before a queue can join, since it is there at first
	w.mu.Unlock()
	f.mu.Lock()
	f.worker = w
	f.mu.Unlock()
	w.loops.Go(w.belong)
	if !f.NoHistory {
		w.loops.Go(w.record)
	}
	return nil
}

// Stop makes the worker leave all queues, and waits until its goroutines have ended. If ctx ends
// first, or Redis stays down, it stops without leaving. It fails with ErrNotStarted.
func (f *Fleet) Stop(ctx context.Context) error {
	w, id := f.present(), f.ID()
	if w == nil {
		return ErrNotStarted
	}
	err := w.leave(ctx)
	f.Lines.Abort()
	f.Engine.Wait()
	f.mu.Lock()
	f.worker = nil
	f.mu.Unlock()
	if err == nil && !f.NoHistory {
		f.record(context.WithoutCancel(ctx), lastTry, nil)
	}
	if err == nil {
		f.Log.Info("worqr: stopped", "worker", id)
	} else {
		f.Log.Warn("worqr: stopped without leaving; other peers return its tasks when its lease expires", "worker", id, "err", err)
	}
	return err
}

// with calls a function with the worker, under its lock, if there is one.
func (f *Fleet) with(do func(w *worker)) {
	if w := f.present(); w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		do(w)
	}
}

// Want makes the worker join the queue, and join it again whenever necessary. It doesn't block.
func (f *Fleet) Want(q *Queue) {
	f.with(func(w *worker) {
		w.wanted[q.ID] = q
		w.hurry()
	})
}

// Wants reports whether the worker serves a queue or should.
func (f *Fleet) Wants(id string) (wants bool) {
	f.with(func(w *worker) { wants = w.wanted[id] != nil })
	return wants
}

// Join makes the worker a member of the queue, and waits for that. It fails with ErrNotStarted.
func (f *Fleet) Join(ctx context.Context, q *Queue) error {
	w := f.present()
	if w == nil {
		return fmt.Errorf("%w; call StartWorker first", ErrNotStarted)
	}
	return w.join(ctx, q)
}

// Leave makes the worker leave the queue with the id, and waits for that. It fails with ErrNotWorking.
func (f *Fleet) Leave(ctx context.Context, id string) error {
	w := f.present()
	if w == nil {
		return engine.ErrNotWorking
	}
	return w.part(ctx, id)
}

// Session returns the session of the queue with the id. It fails with ErrNotWorking, or with
// ErrEvicted if the worker is coming back.
func (f *Fleet) Session(id string) (s *engine.Session, err error) {
	err = fmt.Errorf("%w; call StartWorker and StartWork first", engine.ErrNotWorking)
	f.with(func(w *worker) {
		if m := w.members[id]; m != nil {
			s, err = m.session, nil
		} else if w.wanted[id] != nil {
			err = fmt.Errorf("%w, and is coming back", engine.ErrEvicted)
		}
	})
	return s, err
}

// Sessions returns all sessions.
func (f *Fleet) Sessions() (all []*engine.Session) {
	f.with(func(w *worker) {
		for _, m := range w.members {
			all = append(all, m.session)
		}
	})
	return all
}

// Announce makes the worker rewrite its registration in its next turn. It doesn't block.
func (f *Fleet) Announce() { f.with(func(w *worker) { w.announced = time.Time{} }) }

// Changed must be called after another server has replaced the previous one, as in a failover, and
// all connections to the old one are closed. It doesn't block. In its next turn, the worker looks for
// lost writes on all queues, even idle ones, and rewrites its registration and the list of queues.
// Changes in quick succession, as when the slots of a cluster move one after the other, are handled
// together.
func (f *Fleet) Changed() {
	f.CameBack()
	f.with(func(w *worker) { w.moved, w.announced = true, time.Time{} })
}
