package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/store"
)

// A Queue is one queue of a peer. It outlives the incarnations of the
// worker, and so do the handlers that run.
//
// A handler occupies a slot. Tasks that were taken ahead are ready for whichever
// slot is free next; while there are any, no slot is free.
type Queue struct {
	engine  *Engine
	store   *store.Served
	id      string // the name, or what tells its failed queue from it
	haul    func(context.Context) error
	handler Handler         // nil while the queue is served by hand
	share   *capacity.Share // likewise
	upset   logs.Outage
	unsound logs.Outage // about Backoff and errors

	handlers sync.WaitGroup // goroutines that run handlers, and were not disowned
	stored   chan struct{}  // has an element when an end was stored; holds one
	watch    *time.Timer    // while tasks are ready: whether any is begun

	mu       monitor         // protects the fields below, and those of sessions
	recalls  int             // of ready tasks
	base     context.Context // parent of the tasks' contexts
	session  *Session        // the last one, until it has ended
	opts     *Options        // replaced, not changed
	taken    int             // slots: of handlers that run, of tasks that were asked for, and spare
	handling int             // slots of handlers that run
	spare    []slot          // for the next round
	ready    []*Attempt      // taken ahead, oldest first
	bytes    int             // of their payloads
	asked    int             // tasks that are asked for ahead
	pace     pace
	ending   int // tasks whose end is to be stored
	draining bool
}

// An Handler works on a task. The result goes with the end, if it returns no error.
type Handler func(ctx context.Context, t *Attempt) (result []byte, err error)

// Options are those of a handler, all filled in.
type Options struct {
	Concurrency int
	Timeout     time.Duration // 0: none
	Grace       time.Duration
	MaxRetries  int
	MaxCrashes  int
	Keep        int // failed tasks
	Backoff     func(retry int) time.Duration
	Exclusive   bool
	FailOnPanic bool
	Followed    bool // a handler works on what fails
	Priority    int
	Weight      int
	Prefetch    int
}

// Queue returns a queue of the peer that is served by hand until Serve is called. Of the
// options only MaxCrashes and Keep count until then. Haul moves accepted batches to it.
func (e *Engine) Queue(q *store.Served, o Options, haul func(context.Context) error) *Queue {
	return &Queue{mu: monitor{capacity: e.capacity}, engine: e, store: q, id: q.ID, haul: haul, opts: &o, base: context.Background(), stored: make(chan struct{}, 1)}
}

// Serve has a handler work on the queue. It is called before the first Join.
func (s *Queue) Serve(h Handler, o Options) {
	s.watch = time.AfterFunc(time.Hour, s.unstick)
	s.watch.Stop()
	s.handler, s.opts = h, &o
	s.share = s.engine.capacity.Share(o.Weight, o.Priority, s.turn)
}

// serves reports whether a handler works on the queue.
func (s *Queue) serves() bool { return s.handler != nil }

// SetBase sets what the contexts of tasks descend from, for sessions that begin later.
func (s *Queue) SetBase(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = ctx
}

// Join begins a session with the queue, of which the worker has become a member.
func (s *Queue) Join(m Membership) *Session {
	r := newSession(s, m)
	s.mu.Lock()
	s.session = r
	s.mu.Unlock()
	r.listen()
	return r
}

// Options are those in force.
func (s *Queue) Options() *Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts
}

// limits are what decides whether a task is started or has failed, and how many
// of these are kept.
func (s *Queue) limitsLocked() (crashes, keep int) {
	o := s.opts
	if o.Followed {
		return max(o.MaxCrashes, 0), 0
	}
	return max(o.MaxCrashes, 0), o.Keep
}

// A slot is room for one task: how many units of the common capacity it
// occupies.
type slot int

// turn has the queue ask for tasks: it is its turn with the common capacity. What
// it gets is kept for the round that follows.
func (s *Queue) turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.session; r != nil {
		s.spare = append(s.spare, s.grabLocked(min(s.opts.Concurrency-s.taken, MaxStarts))...)
		if len(s.spare) == 0 || r.lookLocked() { // a round has asked in the meantime, or will
			s.mu.pass = false // who gives turns goes on by himself
			return
		}
	}
	s.forgoLocked() // it asks once it is back
	s.mu.pass = false
}

// grabLocked takes up to n free slots.
func (s *Queue) grabLocked(n int) (slots []slot) {
	s.mu.pass = true
	if s.draining {
		s.share.Sated()
		return nil
	}
	got, units := s.share.Take(min(n, s.opts.Concurrency-s.taken))
	s.taken += got
	for range got {
		slots = append(slots, slot(units))
	}
	return slots
}

// wants reports whether the handler has a free slot, though the common capacity
// may not allow to use it.
func (s *Queue) wantsLocked() bool {
	return !s.draining && s.taken-len(s.spare) < s.opts.Concurrency
}

// reserve takes slots for up to n tasks that are to be asked for.
func (s *Queue) reserveLocked(n int) []slot {
	k := min(n, len(s.spare))
	slots := s.spare[:k:k]
	s.spare = s.spare[k:]
	return append(slots, s.grabLocked(n-k)...)
}

// fill has what is ready be handled in slots for which no task came, and returns
// those that are left.
func (s *Queue) fillLocked(slots []slot) []slot {
	for len(slots) > 0 && s.taken <= s.opts.Concurrency {
		t := s.nextLocked()
		if t == nil {
			break
		}
		s.beginLocked(t, slots[0], true)
		slots = slots[1:]
	}
	return slots
}

// unreserve gives back slots for which no task came. Sated tells that no more
// are wanted at present.
func (s *Queue) unreserveLocked(slots []slot, sated bool) {
	if sated {
		s.forgoLocked()
	}
	s.vacateLocked(slots)
}

// vacateLocked gives back slots.
func (s *Queue) vacateLocked(slots []slot) {
	s.taken -= len(slots)
	for _, of := range slots {
		s.giveLocked(of)
	}
}

// giveLocked gives back the units of a slot.
func (s *Queue) giveLocked(of slot) {
	s.share.Give(1, int(of))
	s.mu.pass = true
}

// forgoLocked gives back what was kept: no more is wanted at present.
func (s *Queue) forgoLocked() {
	s.share.Sated()
	s.mu.pass = true
	s.vacateLocked(s.spare)
	s.spare = nil
}

// end notes that the end of a task was stored.
func (s *Queue) storedLocked() {
	s.ending--
	select {
	case s.stored <- struct{}{}:
	default:
	}
}

// Stored waits until the ends of all tasks whose handlers have returned are
// stored, or ctx ends.
func (s *Queue) Stored(ctx context.Context) {
	for {
		s.mu.Lock()
		ending := s.ending
		s.mu.Unlock()
		if ending == 0 {
			return
		}
		select {
		case <-s.stored:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Queue) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// Drain has nothing be taken or begun any more.
func (s *Queue) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	s.forgoLocked()
	s.recalls++ // also of what is under way
	s.recallLocked()
	s.watch.Stop()
	if s.session != nil {
		s.session.lookLocked() // to be taken off the idle workers
	}
}

// HandlersDone waits until no handler runs but those that were disowned.
func (s *Queue) HandlersDone() { s.handlers.Wait() }

// pause asks Backoff how long to wait, and survives its panics.
func (s *Queue) pause(o *Options, retry int) (d time.Duration) {
	defer func() {
		var err error
		attrs := []any{"queue", s.id}
		if v := recover(); v != nil {
			stack := debug.Stack()
			d, err = DefaultBackoff(retry), &panicError{value: v, stack: stack}
			attrs = append(attrs, "stack", string(stack))
		}
		s.unsound.Note(s.engine.log, "Backoff panicked; using the default", err, attrs...)
	}()
	return min(max(o.Backoff(retry), 0), Longest)
}

// disown logs that a handler ignores its context, with its stack.
func (s *Queue) disown(a *run, cause error) {
	if s.engine.failures.stuck.Allow(s.id) {
		s.engine.log.Error("worqr: a handler didn't return after its context ended; its slot goes to other tasks",
			a.task.named("cause", cause, "grace", a.opts.Grace, "stack", stackOf(a.label))...)
	}
}

// insist repeats an end that was refused until it is stored or the task is no
// longer ours.
func (s *Queue) insist(t *Attempt, o store.Outcome) {
	for retry := store.NewBackoff(); ; {
		select {
		case <-time.After(retry.Next()):
		case <-t.session.ctx.Done():
		}
		err := t.End(context.Background(), o)
		if err == nil || errors.Is(err, ErrNotOwner) {
			s.upset.Note(s.engine.log, "cannot store task results; retrying", nil, "queue", s.id)
			return
		}
		s.upset.Note(s.engine.log, "cannot store task results; retrying", err, "queue", s.id)
	}
}

// SetOptions puts other options in force.
func (s *Queue) SetOptions(o Options) {
	s.setOptions(o)
	s.turn()
	s.engine.capacity.Pass()
}

func (s *Queue) setOptions(o Options) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts = &o
	s.forgoLocked() // what was kept was kept by the old ones
	s.share.Set(o.Weight, o.Priority)
	for _, of := range s.grabLocked(len(s.ready)) {
		s.beginLocked(s.nextLocked(), of, true)
	}
	if len(s.ready) > 0 && o.Prefetch == 0 {
		s.watch.Reset(s.pace.stale())
	}
	if o.Prefetch != 0 && len(s.ready) > max(o.Prefetch, 0) {
		s.recallLocked()
	}
}
