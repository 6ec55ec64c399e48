package engine

import (
	"slices"
	"time"

	"github.com/worqr/worqr/internal/invoke"
	"github.com/worqr/worqr/internal/prefetch"
	"github.com/worqr/worqr/internal/store"
)

// A slot is room for one task: the units of the shared capacity that it occupies.
type slot int

// takeTurn makes the queue ask for tasks when it's its turn with the shared capacity. It keeps the
// slots that it gets for the next round.
func (q *Queue) takeTurn() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.session != nil {
		q.spare = append(q.spare, q.grabLocked(min(q.opts.Concurrency-q.taken, store.RoundWeight))...)
		if len(q.spare) == 0 || q.session.wakeLocked() { // a round has asked in the meantime, or will ask
			q.mu.pass = false // the caller passes turns on itself
			return
		}
	}
	q.forgoLocked() // it asks again after it rejoins
	q.mu.pass = false
}

func (q *Queue) grabLocked(n int) []slot {
	q.mu.pass = true
	if q.draining {
		q.share.Sated()
		return nil
	}
	got, units := q.share.Take(min(n, q.opts.Concurrency-q.taken))
	q.taken += got
	return slices.Repeat([]slot{slot(units)}, got)
}

// freeLocked returns how many more tasks the handlers could take, whatever is left of the shared capacity.
func (q *Queue) freeLocked() int {
	if q.draining {
		return 0
	}
	return max(q.opts.Concurrency-q.taken+len(q.spare), 0)
}

// reserveLocked takes slots for up to n tasks that the session will ask for.
func (q *Queue) reserveLocked(n int) []slot {
	k := min(n, len(q.spare))
	slots := q.spare[:k:k]
	q.spare = q.spare[k:]
	return append(slots, q.grabLocked(n-k)...)
}

// fillLocked runs prefetched tasks in slots for which the session got no task, and returns the slots left over.
func (q *Queue) fillLocked(slots []slot) []slot {
	for len(slots) > 0 && q.taken <= q.opts.Concurrency {
		t := q.nextLocked()
		if t == nil {
			break
		}
		q.beginLocked(t, slots[0])
		slots = slots[1:]
	}
	return slots
}

// vacateLocked gives back slots for which there's no task.
func (q *Queue) vacateLocked(slots []slot) {
	q.taken -= len(slots)
	for _, of := range slots {
		q.share.Give(1, int(of))
		q.mu.pass = true
	}
}

// forgoLocked gives back spare slots: the queue wants no more tasks at present.
func (q *Queue) forgoLocked() {
	if !q.serves() {
		return
	}
	q.share.Sated()
	q.mu.pass = true
	q.vacateLocked(q.spare)
	q.spare = nil
}

// needsLocked records whether the queue is known to have a task that could start. Only then do other
// queues leave room for it.
func (q *Queue) needsLocked(needs bool) {
	if q.serves() {
		q.share.Needs(needs)
		q.mu.pass = true
	}
}

// roomLocked returns how many more tasks may be prefetched.
func (q *Queue) roomLocked() int {
	most := q.opts.Prefetch
	switch {
	case q.bytes >= prefetch.Bytes || q.draining || most < 0 || q.opts.MaxCrashes == 1 || q.engine.Capacity.Total() > 0:
		return 0 // a shared capacity must not be hoarded
	case most == 0:
		most = q.pace.Ahead(q.opts.Concurrency)
	}
	return max(most-len(q.ahead)-q.coming, 0)
}

// takeLocked runs tasks: some in slots, which the peer keeps for them, and the others as slots
// become free. It returns false if the peer drains.
func (q *Queue) takeLocked(tasks []*Attempt, slots []slot) bool {
	if q.draining {
		return false
	}
	q.ahead = append(q.ahead, tasks...)
	for _, t := range tasks {
		q.bytes += t.size
	}
	if more := len(q.ahead) - len(slots); more > 0 {
		slots = append(slots, q.grabLocked(more)...) // more may have become free
	}
	for _, of := range slots {
		q.beginLocked(q.nextLocked(), of)
	}
	return true
}

// beginLocked runs a task in a slot.
func (q *Queue) beginLocked(t *Attempt, of slot) {
	q.handlers.Add(1)
	q.handling++
	q.mu.laterLocked(func() { go q.work(t, of) })
}

// nextLocked removes and returns the task that was prefetched first, or nil.
func (q *Queue) nextLocked() *Attempt {
	if len(q.ahead) == 0 || q.draining {
		return nil
	}
	t := q.ahead[0]
	q.ahead[0] = nil
	q.ahead = q.ahead[1:]
	q.bytes -= t.size
	return t
}

// work runs a task in a slot, and then others as long as any is prefetched.
func (q *Queue) work(t *Attempt, of slot) {
	label := invoke.Label(t.session.base, q.id)
	now := time.Now()
	q.mu.Lock()
	opts := q.opts
	t.assureLocked(now)
	q.mu.Unlock()
	var r *run
	defer func() { // even if a handler ends the goroutine
		if t != nil && r != nil && r.next != nil {
			go q.work(r.next, r.slot)
		}
	}()
	for t != nil {
		r = newRun(q, t, opts, of, label, now, t.fetch(t.ctx))
		r.handle()
		t, opts, now = r.next, r.then, r.ended
	}
}

// isStuckLocked reports whether handlers keep prefetched tasks waiting: none has returned for a while. A positive
// Prefetch says that they may wait.
func (q *Queue) isStuckLocked(now time.Time, while time.Duration) bool {
	return len(q.ahead) > 0 && q.opts.Prefetch == 0 && q.pace.IsStuck(now, while)
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
		if q.handling--; q.handling == 0 {
			q.grace = 0
		}
		q.vacateLocked([]slot{r.slot})
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
		go q.work(t, r.slot)
	}
}

// withdrawLocked removes selected tasks from the prefetched ones and returns them.
func (q *Queue) withdrawLocked(meant func(*Attempt) bool) (tasks []*Attempt) {
	q.ahead = slices.DeleteFunc(q.ahead, func(t *Attempt) bool {
		if meant(t) {
			tasks = append(tasks, t)
			q.bytes -= t.size
			return true
		}
		return false
	})
	return tasks
}
