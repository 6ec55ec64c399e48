package worqr

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"

	"github.com/worqr/worqr/internal/capacity"
	"github.com/worqr/worqr/internal/store"
)

// A service is a handled queue of a peer. It outlives the incarnations of the
// worker, and so do the handlers that run.
//
// A handler occupies a slot. Tasks that were taken ahead are ready for whichever
// slot is free next; while there are any, no slot is free.
type service struct {
	queue    *Queue
	handler  Handler
	share    *capacity.Share
	followed bool            // OnFailed works on what fails
	base     context.Context // parent of the tasks' contexts; set by Run, protected by the peer's mu
	upset    logs.Outage
	unsound  logs.Outage // about Backoff and errors

	handlers sync.WaitGroup // goroutines that run handlers, and were not disowned
	stored   chan struct{}  // has an element when an end was stored; holds one
	recalls  atomic.Int64   // of ready tasks
	watch    *time.Timer    // while tasks are ready: whether any is begun

	mu       sync.Mutex     // protects the fields below
	opts     *HandleOptions // replaced, not changed
	taken    int            // slots: of handlers that run, of tasks that were asked for, and spare
	handling int            // slots of handlers that run
	spare    []slot         // for the next round
	ready    []*Task        // taken ahead, oldest first
	bytes    int            // of their payloads
	asked    int            // tasks that are asked for ahead
	pace     pace
	ending   int // tasks whose end is to be stored
	draining bool
}

func newService(q *Queue, h Handler, o HandleOptions) *service {
	s := &service{queue: q, handler: h, opts: &o, base: context.Background(), stored: make(chan struct{}, 1)}
	s.watch = time.AfterFunc(time.Hour, s.unstick)
	s.watch.Stop()
	s.share = q.peer.capacity.Share(o.Weight, o.Priority, s.turn)
	return s
}

// options are those in force.
func (s *service) options() *HandleOptions {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opts
}

// limits are what decides whether a task is started or has failed, and how many
// of these are kept.
func (s *service) limits() (crashes, keep int) {
	o := s.options()
	if s.followed {
		return max(o.MaxCrashes, 0), 0
	}
	return max(o.MaxCrashes, 0), o.KeepFailed
}

// A slot is room for one task: how many units of the common capacity it
// occupies.
type slot int

// turn has the queue ask for tasks: it is its turn with the common capacity. What
// it gets is kept for the round that follows.
func (s *service) turn() {
	if r, err := s.queue.rounds(); err == nil {
		s.mu.Lock()
		s.spare = append(s.spare, s.grab(min(s.opts.Concurrency-s.taken, maxStarts))...)
		asks := len(s.spare) > 0 // or a round has asked in the meantime
		s.mu.Unlock()
		if !asks || r.poke() {
			return
		}
	}
	s.forgo() // it asks once it is back
	s.queue.peer.capacity.Pass()
}

// grab takes up to n free slots. s.mu is held.
func (s *service) grab(n int) (slots []slot) {
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
func (s *service) wants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.draining && s.taken-len(s.spare) < s.opts.Concurrency
}

// reserve takes slots for up to n tasks that are to be asked for. Capacity.Pass
// is to follow, without locks, here and below.
func (s *service) reserve(n int) []slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := min(n, len(s.spare))
	slots := s.spare[:k:k]
	s.spare = s.spare[k:]
	return append(slots, s.grab(n-k)...)
}

// fill has what is ready be handled in slots for which no task came, and returns
// those that are left.
func (s *service) fill(slots []slot) []slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(slots) > 0 && s.taken <= s.opts.Concurrency {
		t := s.next()
		if t == nil {
			break
		}
		s.begin(t, slots[0], true)
		slots = slots[1:]
	}
	return slots
}

// unreserve gives back slots for which no task came. Sated tells that no more
// are wanted at present.
func (s *service) unreserve(slots []slot, sated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sated {
		s.leave()
	}
	s.vacate(slots)
}

// vacate gives back slots. s.mu is held.
func (s *service) vacate(slots []slot) {
	s.taken -= len(slots)
	for _, u := range slots {
		s.share.Give(1, int(u))
	}
}

// forgo gives back what was kept for a round that does not follow.
func (s *service) forgo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave()
}

// leave gives back what was kept: no more is wanted at present. s.mu is held.
func (s *service) leave() {
	s.share.Sated()
	s.vacate(s.spare)
	s.spare = nil
}

// end notes that the end of a task was stored.
func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending--
	select {
	case s.stored <- struct{}{}:
	default:
	}
}

// store waits until the ends of all tasks whose handlers have returned are
// stored, or ctx ends.
func (s *service) store(ctx context.Context) {
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

func (s *service) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// drain has nothing be taken or begun any more.
func (s *service) drain() {
	s.mu.Lock()
	s.draining = true
	s.leave()
	s.recalls.Add(1) // also of what is under way
	s.mu.Unlock()
	s.recall()
}

// pause asks Backoff how long to wait, and survives its panics.
func (s *service) pause(o *HandleOptions, retry int) (d time.Duration) {
	defer func() {
		var err error
		attrs := []any{"queue", s.queue.id}
		if v := recover(); v != nil {
			stack := debug.Stack()
			d, err = defaultBackoff(retry), &panicError{value: v, stack: stack}
			attrs = append(attrs, "stack", string(stack))
		}
		s.unsound.Note(s.queue.peer.log, "Backoff panics, and the default holds", err, attrs...)
	}()
	return min(max(o.Backoff(retry), 0), longest)
}

// disown logs that a handler ignores its context, with its stack.
func (s *service) disown(a *attempt, cause error) {
	if s.queue.peer.failures.stuck.Allow(s.queue.id) {
		s.queue.peer.log.Error("worqr: a handler didn't return after its context ended; its slot goes to other tasks",
			"queue", s.queue.id, "process", a.task.AttemptID, "cause", cause, "grace", a.opts.Grace, "stack", stackOf(a.label))
	}
}

// insist repeats an end that was refused until it is stored or the task is no
// longer ours.
func (s *service) insist(t *Task, o store.Outcome) {
	for retry := redisconn.NewBackoff(); ; {
		select {
		case <-time.After(retry.Next()):
		case <-t.rounds.ctx.Done():
		}
		err := t.settle(context.Background(), o)
		if err == nil || errors.Is(err, ErrNotOwner) {
			s.upset.Note(s.queue.peer.log, "cannot store task results; retrying", nil, "queue", s.queue.id)
			return
		}
		s.upset.Note(s.queue.peer.log, "cannot store task results; retrying", err, "queue", s.queue.id)
	}
}

// set puts other options in force.
func (s *service) set(o HandleOptions) {
	s.mu.Lock()
	s.opts = &o
	s.leave() // what was kept was kept by the old ones
	s.share.Set(o.Weight, o.Priority)
	for _, of := range s.grab(len(s.ready)) {
		s.begin(s.next(), of, true)
	}
	tooMany := o.Prefetch != 0 && len(s.ready) > max(o.Prefetch, 0)
	if len(s.ready) > 0 && o.Prefetch == 0 {
		s.watch.Reset(s.pace.stale())
	}
	s.mu.Unlock()
	if tooMany {
		s.recall()
	}
	s.queue.peer.capacity.Pass()
	s.turn()
}
