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

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

// FailWorker evicts a worker, whether it lives or not: from now on it
// changes nothing any more, and its tasks are at the front of their queues. It
// returns how many. A worker that lives will notice, stop what it runs, and
// come back under another id.
//
// It looks at every queue, and blocks until all is done or ctx ends; it may be
// repeated. A worker that is not known has nothing returned. A queue that can't be
// looked at, such as one with a key of another type, doesn't stop it: the error names
// each of these.
func (p *Peer) FailWorker(ctx context.Context, worker string) (returned int, err error) {
	if worker == "" {
		return 0, wrap("fail worker", fmt.Errorf("%w: the worker's id is empty", ErrInvalid))
	}
	errs := p.eachQueue(ctx, func(q *Queue) error {
		_, n, err := store.FailWorker(ctx, p.calls, q.keys, worker)
		returned += n
		return err
	})
	p.counts.returned.Add(int64(returned))
	return returned, wrap("fail worker", joined(append(errs, p.unregister(ctx, worker))))
}

// Sweep looks at every queue now, once. It evicts workers whose lease had already
// expired at an earlier look, at least a third of a lease ago, and returns their ids.
// Running peers do this with every heartbeat; Sweep is for tools, and for fleets without
// a peer. It goes on after a queue that can't be looked at; the error names each.
func (p *Peer) Sweep(ctx context.Context) (failed []string, err error) {
	dead := obituaries{}
	errs := p.eachQueue(ctx, func(q *Queue) error {
		for again := true; again; {
			look, err := store.Sweep(ctx, p.calls, q.keys, p.opts.beat())
			if err != nil {
				return err
			}
			p.swept(q, look, dead)
			again = look.Again
		}
		return nil
	})
	failed = slices.Sorted(maps.Keys(dead)) // ids are in the order of their time
	if len(dead) > 0 {
		p.counts.swept.Add(int64(len(dead)))
		last := context.WithoutCancel(ctx)
		p.bury(last, dead, p.were(last, failed))
	}
	return failed, wrap("sweep", joined(append(errs, store.Prune(ctx, p.calls, p.space))))
}

// most is how many errors of queues one error tells of.
const most = 20

// eachQueue does something with each queue, and each failed queue. One that Redis
// refuses to work on doesn't stop it, and is named in its error.
func (p *Peer) eachQueue(ctx context.Context, do func(*Queue) error) (errs []error) {
	for q, err := range p.queues(ctx) {
		if err != nil {
			return append(errs, err)
		}
		if err := do(q); err != nil {
			errs = append(errs, fmt.Errorf("queue %.*q: %w", keys.MaxName, q.name, public(err)))
			if !store.OfQueue(err) {
				break
			}
		}
	}
	return errs
}

// joined makes one error of those of many queues: of what hit all of them, if there is
// such a thing, else of the first ones.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if i := slices.IndexFunc(errs, func(err error) bool { return !store.OfQueue(err) }); i >= 0 {
		return errs[i]
	}
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more errors", len(errs)-most))
	}
	return errors.Join(errs...)
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

// An obituary is what a peer knows of a worker that it has failed.
type obituary struct {
	queues []string
	tasks  int
}

type obituaries map[string]*obituary // by worker

// add takes in that a worker was failed on a queue.
func (o obituaries) add(queue string, d store.Dead) {
	one := o[d.Worker]
	if one == nil {
		one = &obituary{}
		o[d.Worker] = one
	}
	one.queues = append(one.queues, queue)
	one.tasks += d.Tasks
}

// bury says who is dead, in one line for each, and takes them off the roster.
func (p *Peer) bury(ctx context.Context, dead obituaries, were map[string]store.Worker) {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(dead)), page) {
		for _, id := range ids {
			o, attrs := dead[id], []any{"worker", id}
			if w, there := were[id]; there { // else that is all that is known
				attrs = append(attrs, "name", w.Name, "host", w.Host, "pid", w.PID)
			}
			slices.Sort(o.queues)
			p.log.Warn("worqr: evicted a worker whose lease expired", append(attrs, "queues", o.queues, "tasks", o.tasks)...)
		}
		if err := p.strike(ctx, ids); err != nil {
			p.log.Debug("worqr: removing the registrations of dead workers", "workers", len(ids), "err", err)
			if w := p.present(); w != nil {
				w.pruneLater()
			}
		}
	}
}

// were is what is still registered of workers. It may not take long.
func (p *Peer) were(ctx context.Context, ids []string) map[string]store.Worker {
	ctx, cancel := context.WithTimeout(ctx, max(p.opts.beat()/4, 500*time.Millisecond))
	defer cancel()
	all := map[string]store.Worker{}
	for some := range slices.Chunk(ids, page) {
		workers, _ := store.Registrations(ctx, p.calls, p.space, some)
		for _, w := range workers {
			all[w.ID] = w
		}
	}
	return all
}

// strike takes dead workers off the roster.
func (p *Peer) strike(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.beat())
	defer cancel()
	return p.unregister(ctx, ids...)
}

// mourn counts the dead, and has each be buried once it has been failed on all its
// queues: rounds renew the lease on one queue only, so it may lapse a beat later on
// another, and is found to have lapsed a beat later there. Who they were is read at
// once, since other peers take them off the roster, too.
func (w *worker) mourn(dead obituaries) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string // not mourned yet
	for id, o := range dead {
		if w.dead[id] == nil {
			ids = append(ids, id)
		}
		for _, q := range o.queues {
			w.dead.add(q, store.Dead{Worker: id})
		}
		w.dead[id].tasks += o.tasks
	}
	if len(ids) == 0 {
		return
	}
	w.peer.counts.swept.Add(int64(len(ids)))
	w.loops.Go(func() {
		were := w.peer.were(w.last, ids)
		select {
		case <-w.ctx.Done():
		case <-time.After(w.peer.opts.beat() * 9 / 4):
		}
		all := obituaries{}
		w.mu.Lock()
		for _, id := range ids {
			all[id] = w.dead[id]
			delete(w.dead, id)
		}
		w.mu.Unlock()
		w.peer.bury(w.last, all, were)
	})
}

// swept takes in what a look has found, and returns the time until the next
// look should follow.
func (p *Peer) swept(q *Queue, look store.Look, dead obituaries) time.Duration {
	p.counts.returned.Add(int64(look.Returned))
	for _, d := range look.Failed {
		dead.add(q.id, d)
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
	w.id, w.evicted, w.members = id, false, map[string]*serving{}
	clear(w.numbers)
	clear(w.spent)
	w.mu.Unlock()
	p.mu.Lock()
	p.id = id
	clear(p.backs) // Redis may have lost everything
	p.mu.Unlock()

	p.counts.evicted.Add(1)
	var queues []string
	for _, r := range members {
		queues = append(queues, r.queue.id)
	}
	slices.Sort(queues)
	p.log.Warn("worqr: this worker was evicted; it comes back under a new id", "worker", old, "new", id, "name", p.opts.Name, "queues", queues)
	for _, r := range members {
		w.forsake(r, ErrEvicted)
	}
	p.capacity.Pass()
	w.lookForLoss(ctx, slices.Collect(maps.Values(members)))
	if err := w.loosenAll(ctx); err != nil {
		p.log.Debug("worqr: leaving under the old id", "err", err) // retried
	}
	if err := p.unregister(ctx, old); err != nil {
		p.log.Debug("worqr: removing the old registration", "err", err)
	}
	return w.register(ctx, w.peer.control, id)
}

// lookForLoss says, once, if Redis has lost a token that these rounds had seen: a token
// never goes back, and rises when a worker is failed. It is asked for before the worker
// leaves, which raises it, too. Where others have raised it as far since, or Redis
// does not say, nobody knows.
func (w *worker) lookForLoss(ctx context.Context, all []*serving) {
	if len(all) == 0 {
		return
	}
	calls := make([]redisconn.Call, len(all))
	for i, r := range all {
		calls[i] = store.TokenCall(r.queue.keys)
	}
	var replies []redisconn.Reply
	_ = store.Twice(func() error { // the connection may be one to the Redis that was there before
		replies = w.peer.control.Do(ctx, calls...)
		return replies[0].Err
	})
	for i, reply := range replies {
		token, err := redis.Int64(reply.Value, reply.Err)
		if errors.Is(err, redis.ErrNil) {
			token, err = 0, nil // none was given
		}
		if err == nil && token < highest(all[i]) {
			all[i].LostWrites("a token that was given is not known")
			return
		}
	}
}

// highest is the highest token that a session has seen.
func highest(m *serving) int64 {
	_, token := m.Last()
	return token
}
