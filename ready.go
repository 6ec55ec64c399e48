package worqr

import (
	"runtime/pprof"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// ahead takes room for up to n tasks beyond the slots, which are asked for then:
// as many as the handlers will begin in a moment, and for how many bytes.
func (s *service) ahead(n int) (tasks, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, room := s.room()
	n = max(min(n, room, (most+1)/2), 0) // the rest is for the round beside this one
	s.asked += n
	return n, mostBytes - s.bytes
}

// foresee notes how long a trip to Redis takes, and by how much longer at present: as long,
// and more, what is prefetched has to last.
func (s *service) foresee(trip, late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.trip, s.pace.late = trip, late
}

// answered notes that tasks asked for ahead have come, or will not come.
func (s *service) answered(ahead int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked -= ahead
}

// roomy reports whether more could be taken ahead.
func (s *service) roomy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, room := s.room()
	return room > 0
}

// worth is for how many ends a second round is sent where Redis is far away: a small one
// would keep its connection for a whole trip.
func (s *service) worth() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, _ := s.room()
	return max(worthwhile, min(most/4, maxStarts/4))
}

// room is how many tasks may be taken ahead, and how many more. s.mu is held.
func (s *service) room() (most, more int) {
	most = s.opts.Prefetch
	switch {
	case s.bytes >= mostBytes || s.draining || most < 0 || s.opts.MaxCrashes == 1 || s.queue.peer.capacity.Total() > 0:
		return 0, 0 // what is shared is not to be hoarded
	case most == 0 && s.pace.slow(time.Now()):
		return 0, 0
	case most == 0:
		most = s.pace.ahead(s.opts.Concurrency)
	}
	return most, most - len(s.ready) - s.asked
}

// take has tasks be handled: in the slots, which the peer keeps for them, and the
// others as slots become free. It tells whether it did: not when the peer drains.
func (s *service) take(tasks []*Task, slots []slot) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	before := len(s.ready)
	s.ready = append(s.ready, tasks...)
	for _, t := range tasks {
		s.bytes += t.size
	}
	if more := len(s.ready) - len(slots); more > 0 {
		slots = append(slots, s.grab(more)...) // some may have become free
	}
	for i, of := range slots {
		s.begin(s.next(), of, i < before)
	}
	if len(s.ready) > 0 && s.opts.Prefetch == 0 {
		s.watch.Reset(s.pace.stale())
	}
	return true
}

// begin has a task be handled in a slot. Ready tells whether it was prefetched. s.mu
// is held.
func (s *service) begin(t *Task, of slot, ready bool) {
	s.handlers.Add(1)
	s.handling++
	go s.work(t, of, ready)
}

// next is the task that has been ready for longest, or nil. s.mu is held.
func (s *service) next() *Task {
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
func (s *service) work(t *Task, of slot, ready bool) {
	name := s.queue.id + "/" + strconv.FormatInt(handlerGoroutines.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(t.rounds.base, pprof.Labels(handlerLabel, name)))
	now := time.Now()
	s.mu.Lock()
	s.pace.began(now, s.handling >= s.opts.Concurrency)
	s.mu.Unlock()
	for t != nil {
		a := newAttempt(s, t, of, name, now)
		a.ready = ready
		a.run()
		t, now, ready = a.next, a.ended, true
	}
}

// freed takes in that a handler has returned: its slot goes to the task that it
// returns, or is given back when there is none.
func (s *service) freed(a *attempt) *Task {
	s.mu.Lock()
	s.pace.freed(a.ended, a.began, a.task.size, s.opts.Concurrency)
	t := s.vacant(a.slot)
	s.mu.Unlock()
	return t
}

// vacant is the next task for a slot, which is given back when there is none, or
// when there are too many of them now. The end of what was in it is to be stored.
// s.mu is held.
func (s *service) vacant(of slot) *Task {
	s.ending++
	s.queue.peer.counts.running.Add(-1)
	var t *Task
	if s.taken <= s.opts.Concurrency {
		t = s.next()
	}
	if t == nil {
		s.taken--
		s.handling--
		s.pace.busy = false
		s.share.Give(1, int(of))
		s.handlers.Done()
	}
	return t
}

// reassign gives the slot of a disowned attempt away.
func (s *service) reassign(a *attempt) {
	s.mu.Lock()
	t := s.vacant(a.slot)
	s.mu.Unlock()
	if t != nil {
		go s.work(t, a.slot, true)
	}
}

// unstick gives back what is ready when no handler has begun anything of it for a
// while: others may be idle.
func (s *service) unstick() {
	s.mu.Lock()
	waits := time.Since(s.pace.last)
	if left := s.pace.stale() - waits; left > 0 {
		if len(s.ready) > 0 {
			s.watch.Reset(left)
		}
		s.mu.Unlock()
		return
	}
	if len(s.ready) > 0 {
		s.pace.stuck = true
	}
	s.mu.Unlock()
	s.recall()
}

// recall puts back what is ready.
func (s *service) recall() {
	for {
		s.mu.Lock()
		var r *rounds
		if len(s.ready) > 0 {
			r = s.ready[0].rounds
		}
		s.mu.Unlock()
		if r == nil {
			return
		}
		r.mu.Lock()
		r.recall()
		r.kick()
		r.mu.Unlock()
	}
}

// recall puts back what is ready, and what a round under way brings is to follow
// it. r.mu is held.
func (r *rounds) recall() {
	r.serve.recalls.Add(1)
	for _, t := range r.serve.withdraw(func(t *Task) bool { return t.rounds == r }) {
		if r.ended == nil {
			r.giveBack(t)
		}
	}
}

// withdraw takes away those of the ready tasks that are meant.
func (s *service) withdraw(meant func(*Task) bool) (tasks []*Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = slices.DeleteFunc(s.ready, func(t *Task) bool {
		if meant(t) {
			tasks = append(tasks, t)
			s.bytes -= t.size
			return true
		}
		return false
	})
	return tasks
}
