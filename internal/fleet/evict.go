package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
)

// Fail evicts a worker, whether it lives or not, and returns how many tasks went back.
func (f *Fleet) Fail(ctx context.Context, worker string) (returned int, err error) {
	errs := f.eachQueue(ctx, func(q store.Keys, _ string) error {
		_, n, err := store.FailWorker(ctx, f.Lines.Calls, q, worker)
		returned += n
		return err
	})
	f.counts.Returned.Add(int64(returned))
	return returned, joined(append(errs, f.unregister(ctx, worker)))
}

// Sweep looks at every queue once, evicts workers whose lease had expired at an earlier
// look, and returns their ids.
func (f *Fleet) Sweep(ctx context.Context) (failed []string, err error) {
	dead := evictions{}
	errs := f.eachQueue(ctx, func(q store.Keys, id string) error {
		for again := true; again; {
			look, err := store.Sweep(ctx, f.Lines.Calls, q, f.lease.Beat)
			if err != nil {
				return err
			}
			f.swept(id, look, dead)
			again = look.Again
		}
		return nil
	})
	failed = slices.Sorted(maps.Keys(dead)) // ids are in the order of their time
	if len(dead) > 0 {
		f.counts.Swept.Add(int64(len(dead)))
		last := context.WithoutCancel(ctx)
		f.report(last, dead, f.registered(last, failed))
	}
	return failed, joined(append(errs, store.Prune(ctx, f.Lines.Calls, f.Space)))
}

// most is how many errors of queues one error tells of.
const most = 20

// eachQueue does something with each queue, and each failed queue. One that Redis
// refuses to work on doesn't stop it, and is named in its error.
func (f *Fleet) eachQueue(ctx context.Context, do func(q store.Keys, id string) error) (errs []error) {
	for name, err := range store.Queues(ctx, f.Lines.Calls, f.Space) {
		if err != nil {
			return append(errs, f.Describe("list queues", "", err))
		}
		for q, id := range halves(f.Space, name) {
			if err := do(q, id); err != nil {
				errs = append(errs, fmt.Errorf("queue %q: %w", name, logs.WithoutInput(err)))
				if !store.OfQueue(err) {
					return errs
				}
			}
		}
	}
	return errs
}

// halves are a queue and its failed queue.
func halves(s store.Space, name string) iter.Seq2[store.Keys, string] {
	return func(yield func(store.Keys, string) bool) {
		q := s.Queue(name)
		_ = yield(q, name) && yield(q.Failed(), name+" (failed)")
	}
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

// An eviction is what a peer knows of a worker that it has evicted.
type eviction struct {
	at     time.Time // when it was failed on the first queue
	queues []string
	tasks  int
}

type evictions map[string]*eviction // by worker

// add takes in that a worker was failed on a queue.
func (e evictions) add(queue string, d store.Dead) {
	one := e[d.Worker]
	if one == nil {
		one = &eviction{at: time.Now()}
		e[d.Worker] = one
	}
	one.queues = append(one.queues, queue)
	one.tasks += d.Tasks
}

// report says who was evicted, in one line for each, and takes them off the roster.
func (f *Fleet) report(ctx context.Context, dead evictions, were map[string]store.Worker) {
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(dead)), page) {
		for _, id := range ids {
			o, attrs := dead[id], []any{"worker", id}
			if w, there := were[id]; there { // else that is all that is known
				attrs = append(attrs, "name", w.Name, "host", w.Host, "pid", w.PID)
			}
			slices.Sort(o.queues)
			f.Log.Warn("worqr: evicted a worker whose lease expired", append(attrs, "queues", o.queues, "tasks", o.tasks, "evicted_at", o.at)...)
		}
		if err := f.strike(ctx, ids); err != nil {
			f.Log.Debug("worqr: removing the registrations of dead workers", "workers", len(ids), "err", err)
			if w := f.present(); w != nil {
				w.pruneLater()
			}
		}
	}
}

// strike takes dead workers off the roster.
func (f *Fleet) strike(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, f.lease.Beat)
	defer cancel()
	return f.unregister(ctx, ids...)
}

// reportLater counts the dead, and has each be reported once it has been failed on all its
// queues: rounds renew the lease on one queue only, so it may lapse a beat later on
// another, and is found to have lapsed a beat later there. Who they were is read at
// once, since other peers take them off the roster, too.
func (w *worker) reportLater(dead evictions) {
	w.mu.Lock()
	var ids []string // not to be reported yet
	for id, o := range dead {
		if w.dead[id] == nil {
			ids = append(ids, id)
		}
		for _, q := range o.queues {
			w.dead.add(q, store.Dead{Worker: id})
		}
		w.dead[id].tasks += o.tasks
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	w.fleet.counts.Swept.Add(int64(len(ids)))
	w.loops.Go(func() {
		were := w.fleet.registered(w.last, ids)
		select {
		case <-w.ctx.Done():
		case <-time.After(w.fleet.lease.Beat * 9 / 4):
		}
		all := evictions{}
		w.mu.Lock()
		for _, id := range ids {
			all[id] = w.dead[id]
			delete(w.dead, id)
		}
		w.mu.Unlock()
		w.fleet.report(w.last, all, were)
	})
}

// swept takes in what a look has found, and returns the time until the next
// look should follow.
func (f *Fleet) swept(queue string, look store.Look, dead evictions) time.Duration {
	f.counts.Returned.Add(int64(look.Returned))
	for _, d := range look.Failed {
		dead.add(queue, d)
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
func (f *Fleet) evicted(id string) {
	w := f.present()
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
	f := w.fleet
	w.mu.Lock()
	if !w.evicted || w.closing {
		w.mu.Unlock()
		return nil
	}
	old, id, members := w.id, store.NewID(), w.members
	w.id, w.evicted, w.members = id, false, map[string]*member{}
	clear(w.numbers)
	clear(w.burned)
	w.mu.Unlock()
	w.absent = true
	f.mu.Lock()
	f.id = id
	f.mu.Unlock()
	f.CameBack()

	f.counts.Evicted.Add(1)
	var queues []string
	for _, m := range members {
		queues = append(queues, m.queue.ID)
	}
	slices.Sort(queues)
	f.Log.Warn("worqr: this worker was evicted; coming back under a new id", "worker", old, "new", id, "name", f.Name, "queues", queues)
	for _, m := range members {
		w.forsake(m, engine.ErrEvicted)
	}
	f.Engine.Pass()
	w.lookForLoss(ctx, slices.Collect(maps.Values(members)))
	if err := w.settleAll(ctx); err != nil {
		f.Log.Debug("worqr: leaving under the old id", "err", err) // retried
	}
	if err := f.unregister(ctx, old); err != nil {
		f.Log.Debug("worqr: removing the old registration", "err", err)
	}
	return w.register(ctx, f.Lines.Control, id)
}

// lookForLoss says, once, if Redis has lost a token that these sessions had seen: a token
// never goes back, and rises when a worker is failed. It is asked for before the worker
// leaves, which raises it, too. Where others have raised it as far since, or Redis
// does not say, nobody knows.
func (w *worker) lookForLoss(ctx context.Context, all []*member) {
	queues := make([]*Queue, len(all))
	for i, m := range all {
		queues[i] = m.queue
	}
	for i, token := range store.Known(ctx, w.fleet.Lines.Control, keysOf(queues)) {
		if _, seen := all[i].Last(); token >= 0 && token < seen {
			all[i].LostWrites("Redis no longer has a token that it had issued")
			return
		}
	}
}
