package worqr

import (
	"context"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// beat is the time between two beats.
func (o *Options) beat() time.Duration {
	if o.Lease < 0 {
		return defaultLease / 3
	}
	return o.Lease / 3
}

// granted is how long a beat keeps the lease from lapsing; 0 is forever.
func (o *Options) granted() time.Duration {
	if o.Lease < 0 {
		return 0
	}
	return o.Lease * 2 / 3
}

// exclusive is how long after it was renewed a lease is certain to hold.
func (p *Peer) exclusive() time.Duration {
	if p.opts.Lease < 0 {
		return 1<<63 - 1
	}
	return p.opts.Lease / 10 * 9
}

// pulse takes in the answer to a beat that was sent at the given time.
func (r *rounds) pulse(p *store.Pulse, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renew(sent)
	if p.Deadline < r.granted {
		r.lostWrites("a beat that was answered is not known")
	}
	r.granted = p.Now + r.queue.peer.opts.granted().Milliseconds()
	if p.Rank == 0 {
		r.listens = time.Now().Add(2 * r.queue.peer.opts.beat())
	}
	r.look = r.look || p.Canceled > 0 || p.Waiting > 0 && r.free()
	if p.Canceled > 0 && p.Canceled < r.seen {
		r.seen, r.said = 0, 0 // what Redis has lost of our acknowledgements it then asks for again
	}
	for _, t := range r.refused {
		if r.held[t.AttemptID] == t {
			r.giveBack(t)
		}
	}
	r.refused = nil
	r.compare(p.Held, sent)
	r.kick()
}

// abandoned reports whether nobody moves the batch that a beat saw: it is as it
// was a beat ago. Else all who serve the queue would do it beside its producer.
func (r *rounds) abandoned(batch string) bool {
	was := r.batch
	r.batch = batch
	return batch != "" && batch == was
}

// haul moves to the queue what a producer has enqueued in pages and not moved itself.
func (r *rounds) haul(ctx context.Context) {
	defer r.hauling.Store(false)
	_ = r.queue.haul(ctx) // if it fails, that is logged, and the next beat begins again
}

// lostWrites says that Redis, or the one that has taken its place, does not know
// of something that it had answered. Whatever else it had answered since is gone
// as well: tasks that were enqueued, and ends of tasks, which then run again. It
// cannot be told from a clock of Redis that was set back.
func (r *rounds) lostWrites(sign string) {
	r.queue.peer.log.Error("worqr: Redis has lost writes, tasks may be among them", "queue", r.queue.id, "sign", sign)
}

// renew notes that the lease was renewed by something sent at the given time.
// r.mu is held.
func (r *rounds) renew(sent time.Time) {
	if sent.After(r.renewed) {
		r.renewed = sent
	}
	if r.fence != nil && r.ended == nil && r.sure() { // also when it has fired; else it has for what we hold
		r.fence.Reset(time.Until(r.renewed.Add(r.queue.peer.exclusive())))
	}
}

// sure reports whether what we hold is certain to be ours alone: an answer may come,
// or a task may begin, when the lease has lapsed. r.mu is held.
func (r *rounds) sure() bool { return time.Since(r.renewed) < r.queue.peer.exclusive() }

// unsure ends the contexts of what an exclusive handler runs: from now on others
// may run it, whether they do or not.
func (r *rounds) unsure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sure() {
		return // renewed meanwhile
	}
	ends := 0
	for _, t := range r.held {
		if t.Context().Err() == nil { // else an earlier stall has ended it
			ends++
		}
		t.end(ErrLeaseExpired)
	}
	if ends > 0 {
		r.queue.peer.log.Warn("worqr: lease expired: Redis did not answer in time; the contexts of exclusive handlers end, and their tasks start again",
			"queue", r.queue.id, "tasks", ends)
	}
}
