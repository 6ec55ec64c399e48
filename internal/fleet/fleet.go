// Package fleet is one worker among others: it registers, beats, joins and leaves queues,
// evicts who is silent, and comes back under a new id when it was evicted itself. What it
// does on a queue is the business of internal/engine; it begins and ends the sessions.
//
// # Words
//
//   - A Fleet is what a peer knows of the fleet; while it is started it has a worker.
//   - A worker has an id, which changes each time it was evicted; everything else stays.
//   - A membership is that of an id in a queue. It is doubtful when it may be there and
//     should not, and an id is burned on a queue where it may have been failed.
//   - The roster is the list of registered peers.
//
// # Locks
//
// worker.joining is held during joins and leaves, and is taken before worker.mu. Fleet.mu
// and worker.mu are never held together, and nothing is done under either but reading and
// writing the fields they protect.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// What callers are told. The root has the same under the same names.
var (
	ErrNotStarted     = errors.New("worqr: the worker is not started")
	ErrEvictionPolicy = errors.New("worqr: Redis may evict tasks")
)

// Config is what a fleet is given.
type Config struct {
	Lines   *store.Lines
	Space   store.Space
	Log     *logs.Log
	Engine  *engine.Engine
	Lease   time.Duration // negative: it never lapses
	Name    string        // of the peer
	Version string        // of the library

	// Describe makes err the error of a verb, on a queue if one is given.
	Describe func(verb, queue string, err error) error
	// CameBack is called when the worker comes back under a new id. Redis may have lost
	// everything.
	CameBack func()
}

// A Fleet is what a peer knows of the fleet.
type Fleet struct {
	Config
	lease  engine.Lease
	counts Counts
	warned sync.Once // of the eviction policy

	mu     sync.Mutex // protects the fields below
	id     string
	used   bool    // id was registered
	worker *worker // nil while not started
}

// Counts are counters of what was done.
type Counts struct{ Swept, Returned, Evicted atomic.Int64 }

// A Queue is one that the worker serves, or is to.
type Queue struct {
	*store.Served
	Engine  *engine.Queue
	Handled bool // a handler works on it
}

// New returns the fleet of a peer. It does no I/O and starts nothing.
func New(c Config) *Fleet {
	return &Fleet{Config: c, lease: engine.LeaseOf(c.Lease), id: store.NewID()}
}

// Counts are what was done since it was made.
func (f *Fleet) Counts() *Counts { return &f.counts }

// ID is the id of the present incarnation.
func (f *Fleet) ID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.id
}

// present is the started worker, or nil.
func (f *Fleet) present() *worker {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.worker
}

// IsStarted reports whether there is a worker.
func (f *Fleet) IsStarted() bool { return f.present() != nil }

// Start registers a worker and has it beat. When it fails, nothing has been started. Starts
// and stops come one after the other.
func (f *Fleet) Start(ctx context.Context) error {
	if f.IsStarted() {
		return nil
	}
	if err := f.checkRedis(ctx); err != nil {
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
		if errors.Is(err, store.ErrUnknown) { // it may be there
			tidy, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.lease.Beat)
			defer cancel()
			_ = f.unregister(tidy, w.id) // as well as can be done
		}
		return err
	}
	f.mu.Lock()
	f.worker = w
	f.mu.Unlock()
	w.loops.Go(w.keep)
	w.loops.Go(w.belong)
	return nil
}

// Stop has the worker leave everything, and waits until no goroutine of it runs. It ends
// without leaving where ctx ends first, or Redis is away for longer than a moment.
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
	if err == nil {
		f.Log.Info("worqr: stopped", "worker", id)
	} else {
		f.Log.Warn("worqr: stopped without leaving; peers return its tasks when its lease expires", "worker", id, "err", err)
	}
	return err
}

// Want has the worker join the queue, and stay joined whatever happens.
func (f *Fleet) Want(q *Queue) {
	if w := f.present(); w != nil {
		w.want(q)
	}
}

// Wants reports whether the worker works on a queue, or is to.
func (f *Fleet) Wants(id string) bool {
	w := f.present()
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wanted[id] != nil
}

// Join makes the worker a member of the queue.
func (f *Fleet) Join(ctx context.Context, q *Queue) error {
	w := f.present()
	if w == nil {
		return fmt.Errorf("%w; call StartWorker first", ErrNotStarted)
	}
	return w.join(ctx, q)
}

// Leave has the worker leave a queue.
func (f *Fleet) Leave(ctx context.Context, id string) error {
	w := f.present()
	if w == nil {
		return engine.ErrNotWorking
	}
	return w.part(ctx, id)
}

// Session is that of the present worker with a queue.
func (f *Fleet) Session(id string) (*engine.Session, error) {
	w := f.present()
	if w == nil {
		return nil, fmt.Errorf("%w; call StartWorker and StartWork first", engine.ErrNotWorking)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := w.members[id]; {
	case m != nil:
		return m.Session, nil
	case w.wanted[id] != nil:
		return nil, fmt.Errorf("%w, and is coming back", engine.ErrEvicted)
	}
	return nil, fmt.Errorf("%w; call StartWork first", engine.ErrNotWorking)
}

// Announce has the registration be written again, in the worker's next turn.
func (f *Fleet) Announce() {
	if w := f.present(); w != nil {
		w.outdate()
	}
}
