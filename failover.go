package worqr

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
)

// FailWorker gives a worker up for dead, whether it is or not: from now on it
// changes nothing any more, and its tasks are at the front of their queues. It
// returns how many. A worker that lives will notice, stop what it runs, and
// come back under another id.
//
// It looks at every queue, and blocks until all is done or ctx ends; it may be
// repeated. A worker that is not known has nothing returned.
func (p *Peer) FailWorker(ctx context.Context, worker string) (returned int, err error) {
	if worker == "" {
		return 0, wrap("fail worker", fmt.Errorf("%w: the worker's id is empty", ErrBadOption))
	}
	for q, err := range p.queues(ctx) {
		if err != nil {
			return returned, wrap("fail worker", err)
		}
		_, n, err := script.FailWorker(ctx, p.calls, q.keys, worker)
		returned += n
		if err != nil {
			return returned, q.wrap("fail worker", err)
		}
	}
	p.counts.returned.Add(int64(returned))
	return returned, wrap("fail worker", p.unregister(ctx, worker))
}

// Sweep looks at every queue now, once, and returns the workers that it has
// failed: those that had lapsed when somebody looked at least a third of a
// lease earlier, and still have. Peers that run do this with every beat; it is
// for tools, and for fleets of which nobody else is left.
func (p *Peer) Sweep(ctx context.Context) (failed []string, err error) {
	seen := map[string]bool{}
	for q, err := range p.queues(ctx) {
		if err != nil {
			return failed, wrap("sweep", err)
		}
		for again := true; again; {
			look, err := script.Sweep(ctx, p.calls, q.keys, p.opts.beat())
			if err != nil {
				return failed, q.wrap("sweep", err)
			}
			p.swept(q, look)
			if len(look.Failed) > 0 {
				p.strike(context.WithoutCancel(ctx), look.Failed)
			}
			for _, w := range look.Failed {
				if !seen[w] {
					failed = append(failed, w)
				}
				seen[w] = true
			}
			again = look.Again
		}
	}
	return failed, p.prune(ctx)
}

// prune takes peers off the list whose registration has ended. One that lives
// puts itself back with its next beat.
func (p *Peer) prune(ctx context.Context) error {
	var some []string
	for id, err := range p.scan(ctx, p.space.Workers()) {
		if err != nil {
			return wrap("sweep", err)
		}
		if some = append(some, id); len(some) == page {
			if err := script.Delist(ctx, p.calls, p.space, some); err != nil {
				return wrap("sweep", err)
			}
			some = nil
		}
	}
	return wrap("sweep", script.Delist(ctx, p.calls, p.space, some))
}

// pruneSome is prune for as many as one look takes, so that what it costs does not
// grow with the fleet. Which ones is left to chance.
func (p *Peer) pruneSome(ctx context.Context) error {
	some, err := redis.Strings(p.calls.One(ctx, redisconn.Command("SRANDMEMBER", p.space.Workers(), page)))
	if err != nil {
		return wrap("sweep", err)
	}
	return wrap("sweep", script.Delist(ctx, p.calls, p.space, some))
}

// queues yields a handle to each queue, and to each failed queue.
func (p *Peer) queues(ctx context.Context) iter.Seq2[*Queue, error] {
	return func(yield func(*Queue, error) bool) {
		for name, err := range p.Queues(ctx) {
			q := p.Queue(name)
			if !yield(q, err) || err != nil || !yield(q.failed(), nil) {
				return
			}
		}
	}
}

// strike takes dead workers off the roster.
func (p *Peer) strike(ctx context.Context, dead []string) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.beat())
	defer cancel()
	slices.Sort(dead)
	dead = slices.Compact(dead)
	if err := p.unregister(ctx, dead...); err != nil {
		p.log.Debug("worqr: removing the registrations of dead workers", "workers", len(dead), "err", err)
		if w := p.present(); w != nil {
			w.pruneLater()
		}
	}
}

// swept takes in what a look has found, and returns the time until the next
// look should follow.
func (p *Peer) swept(q *Queue, look script.Look) time.Duration {
	p.counts.swept.Add(int64(len(look.Failed)))
	p.counts.returned.Add(int64(look.Returned))
	for _, id := range look.Failed {
		p.log.Warn("worqr: a worker was given up for dead", "queue", q.id, "worker", id)
	}
	if look.Returned > 0 {
		p.log.Info("worqr: tasks of dead workers are back at the front", "queue", q.id, "tasks", look.Returned)
	}
	switch {
	case look.Again:
		return 5 * time.Millisecond // others get their turn with Redis
	case look.Due >= 0:
		return max(look.Due+time.Millisecond, 5*time.Millisecond)
	}
	return time.Hour
}

// evicted is called by whoever learns that the worker is no member any more.
func (p *Peer) evicted(id string) {
	w := p.present()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.id == id && !w.closing {
		w.evicted = true
		w.hurry()
	}
}

// ousted ends the rounds of a worker that a beat found to be no member.
func (r *rounds) ousted() {
	r.mu.Lock()
	closing := r.closing
	r.mu.Unlock()
	if !closing {
		r.end(ErrEvicted)
		r.queue.peer.capacity.Pass()
		r.queue.peer.evicted(r.worker)
	}
}

// comeBack brings an evicted worker back under a new id. Whatever it held is
// dropped; others have it, or will: what it still holds on queues where it was
// not failed is given back. w.joining is held.
func (w *worker) comeBack(ctx context.Context) error {
	p := w.peer
	w.mu.Lock()
	if !w.evicted || w.closing {
		w.mu.Unlock()
		return nil
	}
	old, id, members := w.id, newID(), w.members
	w.id, w.evicted, w.members = id, false, map[string]*rounds{}
	clear(w.numbers)
	clear(w.spent)
	w.mu.Unlock()
	p.mu.Lock()
	p.id = id
	clear(p.backs) // Redis may have lost everything
	p.mu.Unlock()

	p.counts.evicted.Add(1)
	p.log.Warn("worqr: this worker was given up for dead; it comes back under a new id", "worker", old, "new", id)
	for _, r := range members {
		w.forsake(r, ErrEvicted)
	}
	p.capacity.Pass()
	w.lookForLoss(ctx, slices.Collect(maps.Values(members)))
	if err := w.loosenAll(ctx); err != nil {
		p.log.Debug("worqr: leaving under the old id", "err", err) // tried again
	}
	if err := p.unregister(ctx, old); err != nil {
		p.log.Debug("worqr: removing the old registration", "err", err)
	}
	return w.register(ctx, id)
}

// lookForLoss says, once, if Redis has lost a token that these rounds had seen: a token
// never goes back, and rises when a worker is failed. It is asked for before the worker
// leaves, which raises it, too. Where others have raised it as far since, or Redis
// does not say, nobody knows.
func (w *worker) lookForLoss(ctx context.Context, all []*rounds) {
	if len(all) == 0 {
		return
	}
	calls := make([]redisconn.Call, len(all))
	for i, r := range all {
		calls[i] = script.TokenCall(r.queue.keys)
	}
	var replies []redisconn.Reply
	_ = twice(func() error { // the connection may be one to the Redis that was there before
		replies = w.peer.control.Do(ctx, calls...)
		return replies[0].Err
	})
	for i, reply := range replies {
		token, err := redis.Int64(reply.Value, reply.Err)
		if errors.Is(err, redis.ErrNil) {
			token, err = 0, nil // none was given
		}
		if err == nil && token < all[i].highest() {
			all[i].lostWrites("a token that was given is not known")
			return
		}
	}
}

// exclusive is how long after it was renewed a lease is certain to hold.
func (p *Peer) exclusive() time.Duration {
	if p.opts.Lease < 0 {
		return 1<<63 - 1
	}
	return p.opts.Lease / 10 * 9
}
