package engine

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

// A Lease is how long a worker may be silent.
type Lease struct {
	Beat  time.Duration // between two heartbeats
	Grant time.Duration // a heartbeat keeps the lease from lapsing for so long; 0 is forever
	Sure  time.Duration // after it was renewed, it is certain to hold for so long
}

// LeaseOf returns the lease of so long; a negative one never lapses, and such a worker
// beats as often as with a lease of 3 s.
func LeaseOf(d time.Duration) Lease {
	if d < 0 {
		return Lease{Beat: time.Second, Sure: 1<<63 - 1}
	}
	return Lease{Beat: d / 3, Grant: d * 2 / 3, Sure: d / 10 * 9}
}

// Pulse takes in the answer to a beat that was sent at the given time.
func (r *Session) Pulse(p *store.Pulse, sent time.Time) {
	if r.abandoned(p.Batch) && !r.hauling.Swap(true) {
		r.engine.background.Go(r.haul) // it may take long, and the next beat not
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulseLocked(time.Now(), p, sent)
	r.wakeLocked()
}

// pulseLocked is Pulse, but for the batch.
func (r *Session) pulseLocked(now time.Time, p *store.Pulse, sent time.Time) {
	r.renewLocked(now, sent)
	if p.Deadline < r.granted {
		r.mu.laterLocked(func() { r.LostWrites("Redis no longer has a heartbeat that it had acknowledged") })
	}
	r.granted = p.Now + r.engine.lease.Grant.Milliseconds()
	if p.Rank == 0 {
		r.listens = now.Add(2 * r.engine.lease.Beat)
	}
	r.look = r.look || p.Canceled > 0 || p.Waiting > 0 && r.freeLocked()
	if p.Canceled > 0 && p.Canceled < r.seen {
		r.seen, r.said = 0, 0 // what Redis has lost of our acknowledgements it then asks for again
	}
	for _, t := range r.refused {
		if r.held[t.ID] == t {
			r.giveBackLocked(t)
		}
	}
	r.refused = nil
	r.compareLocked(p.Held, sent)
}

// abandoned reports whether nobody moves the batch that a beat saw: it is as it
// was a beat ago. Else all who serve the queue would do it beside its producer.
func (r *Session) abandoned(batch string) bool {
	was := r.batch
	r.batch = batch
	return batch != "" && batch == was
}

// haul moves to the queue what a producer has enqueued in pages and not moved itself.
func (r *Session) haul() {
	defer r.hauling.Store(false)
	_ = r.queue.haul(r.ctx) // if it fails, that is logged, and the next beat begins again
}

// LostWrites says that Redis, or the one that has taken its place, does not know
// of something that it had answered. Whatever else it had answered since is gone
// as well: tasks that were enqueued, and ends of tasks, which then run again. It
// cannot be told from a clock of Redis that was set back.
func (r *Session) LostWrites(sign string) {
	r.engine.log.Error("worqr: Redis has lost writes; tasks may be lost", "queue", r.queue.id, "sign", sign)
}

// renewLocked notes that the lease was renewed by something sent at the given time.
func (r *Session) renewLocked(now, sent time.Time) {
	if sent.After(r.renewed) {
		r.renewed = sent
	}
	if r.fence != nil && r.ended == nil && r.sureLocked(now) { // also when it has fired; else it has for what we hold
		r.fence.Reset(r.renewed.Add(r.engine.lease.Sure).Sub(now))
	}
}

// sureLocked reports whether what we hold is certain to be ours alone: an answer may come,
// or a task may begin, when the lease has lapsed.
func (r *Session) sureLocked(now time.Time) bool { return now.Sub(r.renewed) < r.engine.lease.Sure }

// unsure ends the contexts of what an exclusive handler runs: from now on others
// may run it, whether they do or not.
func (r *Session) unsure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sureLocked(time.Now()) {
		return // renewed meanwhile
	}
	ends := 0
	for _, t := range r.held {
		if t.Context().Err() == nil { // else an earlier stall has ended it
			ends++
		}
		t.endLocked(ErrLeaseExpired)
	}
	if ends > 0 {
		r.mu.laterLocked(func() {
			r.engine.log.Warn("worqr: lease expired: Redis did not answer in time; stopping exclusive handlers, their tasks start again",
				"queue", r.queue.id, "tasks", ends)
		})
	}
}
