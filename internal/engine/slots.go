package engine

import (
	"runtime/pprof"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// ahead takes room for up to n tasks beyond the slots, which are asked for then:
// as many as the handlers will begin in a moment, and for how many bytes.
func (s *Queue) aheadLocked(now time.Time, n int) (tasks, bytes int) {
	most, room := s.roomLocked(now)
	beside := s.lanes(s.pace.trip)
	n = max(min(n, room, (most+beside-1)/beside), 0) // the rest is for the rounds beside this one
	s.asked += n
	return n, mostBytes - s.bytes
}

// foresee notes how long a trip to Redis takes, and by how much longer at present: as long,
// and more, what is prefetched has to last.
func (s *Queue) foreseeLocked(trip, late time.Duration) {
	s.pace.trip, s.pace.late = trip, late
}

// answered notes that tasks asked for ahead have come, or will not come.
func (s *Queue) answeredLocked(ahead int) {
	s.asked -= ahead
}

// roomy reports whether more could be taken ahead.
func (s *Queue) roomyLocked(now time.Time) bool {
	_, room := s.roomLocked(now)
	return room > 0
}

// roomLocked is how many tasks may be taken ahead, and how many more.
func (s *Queue) roomLocked(now time.Time) (most, more int) {
	most = s.opts.Prefetch
	switch {
	case s.bytes >= mostBytes || s.draining || most < 0 || s.opts.MaxCrashes == 1 || s.engine.capacity.Total() > 0:
		return 0, 0 // what is shared is not to be hoarded
	case most == 0 && s.pace.slow(now):
		return 0, 0
	case most == 0:
		most = s.pace.ahead(s.opts.Concurrency)
	}
	return most, most - len(s.ready) - s.asked
}

// take has tasks be handled: in the slots, which the peer keeps for them, and the
// others as slots become free. It tells whether it did: not when the peer drains.
func (s *Queue) takeLocked(tasks []*Attempt, slots []slot) bool {
	if s.draining {
		return false
	}
	before := len(s.ready)
	s.ready = append(s.ready, tasks...)
	for _, t := range tasks {
		s.bytes += t.size
	}
	if more := len(s.ready) - len(slots); more > 0 {
		slots = append(slots, s.grabLocked(more)...) // some may have become free
	}
	for i, of := range slots {
		s.beginLocked(s.nextLocked(), of, i < before)
	}
	if len(s.ready) > 0 && s.opts.Prefetch == 0 {
		s.watch.Reset(s.pace.stale())
	}
	return true
}

// beginLocked has a task be handled in a slot. Ready tells whether it was prefetched.
func (s *Queue) beginLocked(t *Attempt, of slot, ready bool) {
	s.handlers.Add(1)
	s.handling++
	s.mu.laterLocked(func() { go s.work(t, of, ready) })
}

// nextLocked is the task that has been ready for longest, or nil.
func (s *Queue) nextLocked() *Attempt {
	if len(s.ready) == 0 || s.draining {
		return nil
	}
	t := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	s.bytes -= t.size
	return t
}

// handlerLabel marks the goroutines of handlers in profiles. By it the stack of a
// handler that does not return is found.
const handlerLabel = "worqr.handler"

var handlerGoroutines atomic.Int64 // that were started, by all peers of the program

// work handles a task in a slot, and then others as long as any is ready. Ready
// tells whether the first was.
func (s *Queue) work(t *Attempt, of slot, ready bool) {
	name := s.id + "/" + strconv.FormatInt(handlerGoroutines.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(t.session.base, pprof.Labels(handlerLabel, name)))
	now := time.Now()
	s.mu.Lock()
	s.pace.began(now, s.handling >= s.opts.Concurrency)
	opts := s.opts
	if ready {
		t.assureLocked(now)
	}
	s.mu.Unlock()
	for t != nil {
		a := newRun(s, t, opts, of, name, now)
		a.ready = ready
		a.handle()
		t, opts, now, ready = a.next, a.then, a.ended, true
	}
}

// freedLocked takes in that a handler has returned: its slot goes to the task that it
// returns, or is given back when there is none.
func (s *Queue) freedLocked(a *run) *Attempt {
	s.pace.freed(a.ended, a.began, a.task.size, s.opts.Concurrency)
	a.then = s.opts
	return s.vacantLocked(a.ended, a.slot)
}

// vacantLocked is the next task for a slot, which is given back when there is none, or
// when there are too many of them now. The end of what was in it is to be stored.
func (s *Queue) vacantLocked(now time.Time, of slot) *Attempt {
	s.ending++
	s.engine.counts.Running.Add(-1)
	var t *Attempt
	if s.taken <= s.opts.Concurrency {
		t = s.nextLocked()
	}
	if t == nil {
		s.taken--
		s.handling--
		s.pace.busy = false
		s.giveLocked(of)
		s.handlers.Done()
		return nil
	}
	t.assureLocked(now)
	return t
}

// reassign gives the slot of a disowned attempt away.
func (s *Queue) reassign(a *run) {
	s.mu.Lock()
	t := s.vacantLocked(time.Now(), a.slot)
	s.mu.Unlock()
	if t != nil {
		go s.work(t, a.slot, true)
	}
}

// unstick gives back what is ready when no handler has begun anything of it for a
// while: others may be idle.
func (s *Queue) unstick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := s.pace.stale() - time.Since(s.pace.last); left > 0 {
		if len(s.ready) > 0 {
			s.watch.Reset(left)
		}
		return
	}
	if len(s.ready) > 0 {
		s.pace.stuck = true
	}
	s.recallLocked()
}

// Recall puts back what is ready.
func (s *Queue) Recall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recallLocked()
}

func (s *Queue) recallLocked() {
	for len(s.ready) > 0 {
		r := s.ready[0].session
		r.recallLocked()
		r.wakeLocked()
	}
}

// recallLocked puts back what is ready, and what a round under way brings is to follow
// it.
func (r *Session) recallLocked() {
	r.queue.recalls++
	for _, t := range r.queue.withdrawLocked(func(t *Attempt) bool { return t.session == r }) {
		if r.ended == nil {
			r.giveBackLocked(t)
		}
	}
}

// withdraw takes away those of the ready tasks that are meant.
func (s *Queue) withdrawLocked(meant func(*Attempt) bool) (tasks []*Attempt) {
	s.ready = slices.DeleteFunc(s.ready, func(t *Attempt) bool {
		if meant(t) {
			tasks = append(tasks, t)
			s.bytes -= t.size
			return true
		}
		return false
	})
	return tasks
}
