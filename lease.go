package worqr

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// beat renews the lease on every queue in one exchange, and looks for workers
// whose lease has lapsed. It returns when to beat again at the latest.
func (w *worker) beat(ctx context.Context) (next time.Duration, err error) {
	p := w.peer
	w.mu.Lock()
	id := w.id
	members := slices.SortedFunc(maps.Values(w.members), func(a, b *rounds) int { return strings.Compare(a.queue.id, b.queue.id) })
	w.mu.Unlock()

	if id != w.beats {
		w.beats, w.witness = id, witness{beat: p.opts.beat()}
	}
	sent := time.Now()
	judge := w.witness.asks(sent, p.control.Made())
	var until int64 // by the clock of Redis
	if judge {
		until = w.redis + (sent.Sub(w.witness.beaten) + p.opts.beat()).Milliseconds()
	}
	calls := []redisconn.Call{redisconn.Command("PEXPIRE", p.space.Worker(id), w.ttl().Milliseconds())}
	if p.opts.Lease < 0 {
		calls[0] = redisconn.Command("EXISTS", p.space.Worker(id))
	}
	for _, r := range members {
		calls = append(calls, store.BeatCall(r.queue.keys, id, p.opts.granted(), p.opts.beat(), until))
	}
	replies := p.control.Do(ctx, calls...)

	// Where the clock of Redis has jumped ahead others have lapsed for that, even if our
	// own lease was renewed by a round since.
	latest := w.redis + time.Since(w.witness.beaten).Milliseconds() + p.opts.beat().Milliseconds()
	next = time.Duration(1<<63 - 1)
	lapsed, answered, ousted, cut := false, false, false, false
	dead := obituaries{}
	for i, r := range members {
		pulse, e := store.ReadBeat(replies[i+1])
		switch {
		case errors.Is(e, store.ErrEvicted):
			r.ousted()
			answered, ousted = true, true
		case e != nil:
			err = cmp.Or(err, r.queue.wrap("beat", e)) // always the same one, or each would be logged
			cut = cut || errors.Is(e, redisconn.ErrUnknown)
		default:
			answered = true
			lapsed = lapsed || pulse.Lapsed || w.redis > 0 && pulse.Now > latest
			w.redis = pulse.Now
			r.pulse(pulse, sent)
			if r.abandoned(pulse.Batch) && !r.hauling.Swap(true) {
				w.loops.Go(func() { r.haul(w.ctx) }) // it may take long, and the next beat and the end of the worker not
			}
			if due := p.swept(r.queue, pulse.Look, dead); judge || pulse.Again {
				next = min(next, due)
			}
		}
	}
	there, e := redis.Int(replies[0].Value, replies[0].Err)
	switch {
	case e != nil:
		err = cmp.Or(err, e)
		cut = cut || errors.Is(e, redisconn.ErrUnknown)
	case there == 0 && !ousted: // else who has failed this id has removed it
		w.outdate()
		w.hurry()
	}
	if len(dead) > 0 {
		w.mourn(dead)
	}
	if len(members) == 0 {
		answered = e == nil
	}
	if cut {
		w.witness.cut()
	}
	if answered {
		wait := w.witness.hears(sent, time.Now(), lapsed)
		if !judge {
			next = min(next, max(wait, 5*time.Millisecond))
		}
	}
	return next, err
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
