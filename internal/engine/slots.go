package engine

import (
	"runtime/pprof"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// aheadLocked reserves room to prefetch up to n tasks, for which the round then asks: as many as
// the handlers will begin soon.
func (q *Queue) aheadLocked(lanes int, now time.Time, n int) int {
	most, room := q.roomLocked(now)
	n = max(min(n, room, (most+lanes-1)/lanes), 0) // the rest is for concurrent rounds
	q.asked += n
	return n
}

// roomyLocked reports whether more tasks could be prefetched.
func (q *Queue) roomyLocked(now time.Time) bool {
	_, room := q.roomLocked(now)
	return room > 0
}

// roomLocked returns how many tasks may be prefetched in total, and how many more than now.
func (q *Queue) roomLocked(now time.Time) (most, more int) {
	most = q.opts.Prefetch
	switch {
	case q.bytes >= aheadBytes || q.draining || most < 0 || q.opts.MaxCrashes == 1 || q.engine.Capacity.Total() > 0:
		return 0, 0 // a shared capacity must not be hoarded
	case most == 0 && q.pace.slow(now):
		return 0, 0
	case most == 0:
		most = q.pace.ahead(q.opts.Concurrency)
	}
	return most, most - len(q.ready) - q.asked
}

// takeLocked runs tasks: some in slots, which the peer keeps for them, and the others as slots
// become free. It returns false if the peer drains.
func (q *Queue) takeLocked(tasks []*Attempt, slots []slot) bool {
	if q.draining {
		return false
	}
	before := len(q.ready)
	q.ready = append(q.ready, tasks...)
	for _, t := range tasks {
		q.bytes += t.size
	}
	if more := len(q.ready) - len(slots); more > 0 {
		slots = append(slots, q.grabLocked(more)...) // more may have become free
	}
	for i, of := range slots {
		q.beginLocked(q.nextLocked(), of, i < before)
	}
	if len(q.ready) > 0 && q.opts.Prefetch == 0 {
		q.watch.Reset(q.pace.stale())
	}
	return true
}

// beginLocked runs a task in a slot. ready reports whether it was prefetched.
func (q *Queue) beginLocked(t *Attempt, of slot, ready bool) {
	q.handlers.Add(1)
	q.handling++
	q.mu.laterLocked(func() { go q.work(t, of, ready) })
}

// nextLocked removes and returns the task that has been ready for longest, or nil.
func (q *Queue) nextLocked() *Attempt {
	if len(q.ready) == 0 || q.draining {
		return nil
	}
	t := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	q.bytes -= t.size
	return t
}

// handlerLabel marks the goroutines of handlers in profiles. With it, the stack of a
// handler that doesn't return can be found.
const handlerLabel = "worqr.handler"

var handlerGoroutines atomic.Int64 // number started by all peers of the program

// work runs a task in a slot, and then others as long as any is ready. ready reports whether the
// first one was.
func (q *Queue) work(t *Attempt, of slot, ready bool) {
	name := q.id + "/" + strconv.FormatInt(handlerGoroutines.Add(1), 10)
	pprof.SetGoroutineLabels(pprof.WithLabels(t.session.base, pprof.Labels(handlerLabel, name)))
	now := time.Now()
	q.mu.Lock()
	q.pace.began(now, q.handling >= q.opts.Concurrency)
	opts := q.opts
	if ready {
		t.assureLocked(now)
	}
	q.mu.Unlock()
	var r *run
	defer func() { // even if a handler ends the goroutine
		if t != nil && r.next != nil {
			go q.work(r.next, r.slot, true)
		}
	}()
	for t != nil {
		r = newRun(q, t, opts, of, name, now)
		r.ready = ready
		r.handle()
		t, opts, now, ready = r.next, r.then, r.ended, true
	}
}

// freedLocked records that a handler has returned: its slot goes to the task that it returns, or is
// given back if there is none.
func (q *Queue) freedLocked(r *run) *Attempt {
	q.pace.freed(r.ended, r.began, q.opts.Concurrency)
	r.then = q.opts
	return q.vacantLocked(r.ended, r)
}

// vacantLocked returns the next task for a slot. It gives the slot back if there is no task, or if
// there are too many slots now. The outcome of the slot's last task has yet to be stored.
func (q *Queue) vacantLocked(now time.Time, r *run) *Attempt {
	q.ending++
	q.counts.Running.Add(-1)
	var t *Attempt
	if q.taken <= q.opts.Concurrency {
		t = q.nextLocked()
	}
	if t == nil {
		q.taken--
		if q.handling--; q.handling == 0 {
			q.grace = 0
		}
		q.pace.busy = false
		q.giveLocked(r.slot)
		q.handlers.Done()
		return nil
	}
	t.assureLocked(now)
	return t
}

// reassign gives the slot of a disowned attempt away.
func (q *Queue) reassign(r *run) {
	q.mu.Lock()
	t := q.vacantLocked(time.Now(), r)
	q.mu.Unlock()
	if t != nil {
		go q.work(t, r.slot, true)
	}
}

// unstick returns the ready tasks if no handler has begun one of them for a while: other workers
// may be idle.
func (q *Queue) unstick() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if left := q.pace.stale() - time.Since(q.pace.last); left > 0 {
		if len(q.ready) > 0 {
			q.watch.Reset(left)
		}
		return
	}
	q.recallLocked()
}

// Recall returns the ready tasks.
func (q *Queue) Recall() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.recallLocked()
}

func (q *Queue) recallLocked() {
	for len(q.ready) > 0 {
		s := q.ready[0].session
		s.recallLocked()
		s.wakeLocked()
	}
}

// recallLocked returns the ready tasks, and marks the tasks of rounds in flight to follow them.
func (s *Session) recallLocked() {
	s.recalls++
	for _, t := range s.queue.withdrawLocked(func(t *Attempt) bool { return t.session == s }) {
		if s.ended == nil {
			s.giveBackLocked(t)
		}
	}
}

// withdrawLocked removes selected tasks from the ready ones and returns them.
func (q *Queue) withdrawLocked(meant func(*Attempt) bool) (tasks []*Attempt) {
	q.ready = slices.DeleteFunc(q.ready, func(t *Attempt) bool {
		if meant(t) {
			tasks = append(tasks, t)
			q.bytes -= t.size
			return true
		}
		return false
	})
	return tasks
}
