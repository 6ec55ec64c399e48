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
	"github.com/worqr/worqr/worqrtrace"
)

// Fail evicts a worker, alive or not, and returns the number of returned tasks.
func (f *Fleet) Fail(ctx context.Context, worker string) (returned int, err error) {
	dead := evictions{}
	errs := f.eachQueue(ctx, func(q store.Keys, id string) error {
		known, n, err := store.FailWorker(ctx, f.Lines.Calls, q, worker)
		if known {
			dead.add(id, store.Dead{Worker: worker, Tasks: n})
		}
		f.returned(id, n)
		returned += n
		return err
	})
	f.counts.Returned.Add(int64(returned))
	if o := dead[worker]; o != nil {
		f.evictedOther(store.Worker{ID: worker}, o)
	}
	return returned, joined(append(errs, f.partly(f.dismiss(ctx, []string{worker}))))
}

// Sweep checks every queue once, evicts workers that were already silent for too long at an earlier
// check, and returns their ids.
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
	failed = slices.Sorted(maps.Keys(dead)) // UUIDv7s sort by the time they were made
	if len(dead) > 0 {
		f.counts.Swept.Add(int64(len(dead)))
		last := context.WithoutCancel(ctx)
		f.report(dead, f.registered(last, failed))
		errs = append(errs, f.partly(f.dismiss(last, failed)))
	}
	return failed, joined(append(errs, f.partly(store.Prune(ctx, f.Lines.Calls, f.Space))))
}

// most is the largest number of queue errors in one error.
const most = 20

// eachQueue calls a function for each queue and each failed queue. If Redis refuses a queue, it
// continues and names the queue in its error. If a cluster node is down, it skips the node's other
// queues after the first.
func (f *Fleet) eachQueue(ctx context.Context, do func(q store.Keys, id string) error) (errs []error) {
	away := store.NewAbsence(f.Lines.Calls)
	skipped := 0
	defer func() {
		if skipped > 0 {
			errs = append(errs, &passed{fmt.Errorf("queues skipped, since their node can't be reached: %d", skipped)})
		}
	}()
	for name, err := range store.Queues(ctx, f.Lines.Calls, f.Space) {
		if err != nil {
			return append(errs, f.Describe("list queues", "", err))
		}
		if away.Has(f.Space.Queue(name)) {
			skipped++
			continue
		}
		for q, id := range halves(f.Space, name) {
			err := do(q, id)
			if err == nil {
				continue
			}
			failed := fmt.Errorf("queue %q: %w", name, logs.WithoutInput(err))
			if ctx.Err() == nil && away.Note(q, err) {
				errs = append(errs, &passed{failed})
				break
			}
			if errs = append(errs, failed); !store.OfQueue(err) {
				return errs
			}
		}
	}
	return errs
}

// failedHalf is the suffix of the ids of failed queues.
const failedHalf = " (failed)"

func halves(s store.Space, name string) iter.Seq2[store.Keys, string] {
	return func(yield func(store.Keys, string) bool) {
		q := s.Queue(name)
		_ = yield(q, name) && yield(q.Failed(), name+failedHalf)
	}
}

// A passed error says that some queues were skipped.
type passed struct{ error }

func (e *passed) Unwrap() error { return e.error }

// ofSome reports whether an error affects only some of the queues.
func ofSome(err error) bool {
	_, over := errors.AsType[*passed](err)
	return over || store.OfQueue(err)
}

// partly wraps the error of a key that belongs to no queue. In a cluster, it may be that only the
// node with that key is down.
func (f *Fleet) partly(err error) error {
	if err != nil && f.Lines.InCluster() && store.IsAway(err) {
		return &passed{err}
	}
	return err
}

// joined combines the errors of many queues: it returns the error that affects all of them, if
// there is one, otherwise the first few.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if i := slices.IndexFunc(errs, func(err error) bool { return !ofSome(err) }); i >= 0 {
		return errs[i]
	}
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("more errors: %d", len(errs)-most))
	}
	return errors.Join(errs...)
}

// An eviction holds what a peer knows about a worker that it has evicted.
type eviction struct {
	at     time.Time // when it was evicted from the first queue
	queues []string
	tasks  int
	again  bool // it was reported before, on other queues
}

type evictions map[string]*eviction // by worker

// add records that a worker was evicted from a queue.
func (e evictions) add(queue string, d store.Dead) {
	one := e[d.Worker]
	if one == nil {
		one = &eviction{at: time.Now()}
		e[d.Worker] = one
	}
	one.queues = append(one.queues, queue)
	one.tasks += d.Tasks
}

// report logs one line for each evicted worker, within a limit. If a worker is no longer registered, the line has
// only its id.
func (f *Fleet) report(dead evictions, were map[string]store.Worker) {
	for _, id := range slices.Sorted(maps.Keys(dead)) {
		o, attrs := dead[id], []any{"worker", id}
		w, there := were[id]
		if w.ID = id; !o.again {
			f.evictedOther(w, o)
		}
		if there {
			attrs = append(attrs, "name", w.Name, "host", w.Host, "pid", w.PID)
		}
		queues := slices.Compact(slices.Sorted(slices.Values(o.queues)))
		if f.lines.Allow(queues[0]) {
			f.Log.Warn("worqr: evicted a worker whose lease expired", append(attrs, "queues", queues, "tasks", o.tasks, "evicted_at", o.at)...)
		}
	}
}

// dismiss removes dead workers from the roster. If it can't, the worker looks for them later.
func (f *Fleet) dismiss(ctx context.Context, dead []string) error {
	for ids := range slices.Chunk(dead, page) {
		if err := store.Unregister(ctx, f.Lines.Calls, f.Space, ids...); err != nil {
			if w := f.present(); w != nil {
				w.pruneLater()
			}
			return err
		}
	}
	return nil
}

// recordDead counts dead workers, and logs them as soon as it has read their names, since whatever
// killed them may kill this peer next. A round renews the lease on one queue only, so the lease may
// expire a beat later on another queue, which is noticed a beat after that. Until then, the workers
// stay on the roster, where other peers read their names.
func (w *worker) recordDead(dead evictions) {
	var first []string
	w.mu.Lock()
	for id, o := range dead {
		if o.again = w.dead[id]; !o.again {
			w.dead[id], first = true, append(first, id)
		}
	}
	w.mu.Unlock()
	w.fleet.counts.Swept.Add(int64(len(first)))
	w.loops.Go(func() {
		w.fleet.report(dead, w.fleet.registered(w.last, slices.Sorted(maps.Keys(dead))))
		if len(first) == 0 {
			return
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(w.fleet.lease.Beat * 9 / 4):
		}
		w.mu.Lock()
		for _, id := range first {
			delete(w.dead, id)
		}
		w.mu.Unlock()
		if err := w.fleet.dismiss(w.last, first); err != nil {
			w.fleet.Log.Debug("worqr: removing the registrations of dead workers", "workers", len(first), "err", err)
		}
	})
}

// swept handles the result of one check of a queue, and returns the time until the next check.
func (f *Fleet) swept(queue string, look store.Look, dead evictions) time.Duration {
	f.counts.Returned.Add(int64(look.Returned))
	f.returned(queue, look.Returned)
	for _, d := range look.Failed {
		dead.add(queue, d)
	}
	switch {
	case look.Again:
		return 5 * time.Millisecond // let other clients use Redis
	case look.Due >= 0:
		return max(look.Due+time.Millisecond, 5*time.Millisecond)
	}
	return time.Hour
}

// evicted is called when a call finds that the worker is no longer a member.
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

// comeBack brings an evicted worker back under a new id. It drops all tasks that the worker held:
// other workers have taken them over, or will, since comeBack returns the tasks on queues from
// which the worker wasn't evicted. The caller holds w.joining.
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
	queues := slices.Collect(maps.Keys(members))
	f.Log.Warn("worqr: this worker was evicted; coming back under a new id", "worker", old, "new", id, "name", f.Name, "queues", slices.Sorted(slices.Values(queues)))
	f.Trace.Evicted(worqrtrace.Worker{At: time.Now(), WorkerID: old, NewID: id, Name: f.Name, Queues: publics(queues)})
	for _, m := range members {
		w.forsake(m, engine.ErrEvicted)
	}
	f.Engine.Capacity.Pass() // frees the units of the ended sessions
	w.lookForLoss(ctx, slices.Collect(maps.Values(members)))
	if err := w.settleAll(ctx); err != nil {
		f.Log.Debug("worqr: leaving under the old id", "err", err) // retried
	}
	if err := f.unregister(ctx, old); err != nil {
		f.Log.Debug("worqr: removing the old registration", "err", err)
	}
	if err := w.agree(ctx); err != nil {
		w.outdate() // it isn't registered until it joins
		return err
	}
	return w.register(ctx, f.Lines.Control, id)
}

// lookForLoss logs if Redis has lost a token that these sessions had seen. A token never decreases,
// and rises when a worker is evicted. It's read before the worker leaves, which raises it, too. If
// other workers have raised it that far in the meantime, or Redis doesn't answer, the loss goes
// unnoticed. It reports whether Redis answered.
func (w *worker) lookForLoss(ctx context.Context, all []*member) (sure bool) {
	queues, marks := make([]*Queue, len(all)), make([]engine.Mark, len(all))
	for i, m := range all {
		queues[i] = m.queue
		marks[i] = m.Mark()
	}
	sure = true
	for i, token := range store.Known(ctx, w.fleet.Lines.Control, keysOf(queues)) {
		if token < 0 {
			sure = false
			continue
		}
		all[i].Compare(token, marks[i])
	}
	return sure
}

// Changed must be called after another server has replaced the previous one, as in a failover, and
// all connections to the old one are closed. It doesn't block. The worker then looks for lost
// writes on all queues, even idle ones, and rewrites its registration and the list of queues.
// Changes in quick succession, as when the slots of a cluster move one after the other, are handled
// together.
func (f *Fleet) Changed() {
	f.CameBack()
	w := f.present()
	if w == nil {
		return
	}
	now := time.Now()
	w.mu.Lock()
	wait, due := w.calm.Sub(now), w.recheck
	w.moved, w.outdated, w.shifted, w.recheck = true, true, now, wait > 0
	w.mu.Unlock()
	switch {
	case wait <= 0:
		w.hurry()
	case !due:
		time.AfterFunc(wait, w.hurry)
	}
}

// calmFor is the shortest time between two checks for writes lost in a change of servers, unless
// heartbeats are closer together: a check takes some calls per queue.
const calmFor = time.Second

// compareTokens looks for lost writes if the server has changed. If Redis doesn't answer, it tries
// again next time. The caller holds w.joining.
func (w *worker) compareTokens(ctx context.Context) {
	w.mu.Lock()
	moved, members := w.moved, slices.Collect(maps.Values(w.members))
	if w.moved = false; moved {
		w.calm, w.recheck = time.Now().Add(min(calmFor, w.fleet.lease.Beat)), false
	}
	w.mu.Unlock()
	if !moved || w.lookForLoss(ctx, members) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = true
}
