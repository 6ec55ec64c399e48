package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/worqrtrace"
)

const atOnce = 8 // queues in one exchange: heartbeats wait for it, and each call may take a few milliseconds

// evictFromLocked makes the node evict the dead workers of a queue, and return tasks.
func (n *node) evictFromLocked(m *member) {
	if !slices.Contains(n.toEvict, m) {
		n.toEvict = append(n.toEvict, m)
	}
	if !n.evicting {
		n.evicting = true
		n.worker.loops.Go(n.evict)
	}
}

// evict evicts the dead workers of the queues for which a heartbeat has asked for it, until no more is to be done.
// When there will be something to do again, the queue gets a heartbeat, which asks again unless another worker has
// been faster.
func (n *node) evict() {
	for {
		some, judge := n.nextLooks()
		if len(some) == 0 {
			return
		}
		queues := make([]*store.Shared, len(some))
		for i, m := range some {
			queues[i] = m.queue.Shared
		}
		ctx, cancel := context.WithTimeout(n.worker.ctx, n.worker.patience())
		looks, errs := store.LookAll(ctx, n.worker.fleet.Lines.Control, queues, judge, n.worker.fleet.times.Beat)
		cancel()
		if n.worker.ctx.Err() == nil {
			n.note(&n.evicts, "can't evict workers or return their tasks; retrying", cmp.Or(errs...))
		}
		n.looked(some, looks, errs)
	}
}

// nextLooks takes queues to look at, and Redis's time until which workers may be evicted from each. If there are
// none, the loop ends.
func (n *node) nextLooks() (some []*member, judge []int64) {
	now, made := time.Now(), n.made()
	n.worker.mu.Lock()
	defer n.worker.mu.Unlock()
	if n.worker.ctx.Err() != nil {
		n.toEvict = nil
	}
	some = n.toEvict[:min(atOnce, len(n.toEvict))]
	n.toEvict = slices.Clone(n.toEvict[len(some):])
	n.evicting = len(some) > 0
	for _, m := range some {
		judge = append(judge, n.judgesLocked(m, now, made))
	}
	return some, judge
}

// looked handles what evict has found on some queues. Those where more is to be done are looked at again.
func (n *node) looked(some []*member, looks []store.Look, errs []error) {
	f, dead := n.worker.fleet, evictions{}
	rarely := f.times.Beat / 16
	n.worker.mu.Lock()
	for i, m := range some {
		for _, d := range looks[i].Evicted {
			dead.add(m.queue.ID, d)
		}
		switch wait := looks[i].Wait; {
		case errs[i] != nil: // a heartbeat asks again
		case wait == 0:
			n.evictFromLocked(m)
		case wait > 0:
			if at := time.Now().Add(max(wait+time.Millisecond, rarely)); m.due.IsZero() || at.Before(m.due) { // an attempt may have to stop
				m.due = at
			}
		}
	}
	for id, o := range dead {
		if o.again = !n.worker.dead[id].IsZero(); !o.again {
			n.worker.dead[id] = time.Now()
			f.counts.WorkersEvicted.Add(1)
		}
	}
	n.worker.mu.Unlock()
	n.soon()
	f.notes.Add(func() {
		for i, m := range some {
			f.returned(m.queue.ID, looks[i].Returned)
		}
		if len(dead) > 0 { // at once, since whatever killed them may kill this peer next
			f.report(dead, f.registered(context.Background(), slices.Sorted(maps.Keys(dead))))
		}
	})
}

// Fail evicts a worker, alive or not, and returns the number of returned tasks.
func (f *Fleet) Fail(ctx context.Context, worker string) (returned int, err error) {
	dead, returned, errs := f.byHand(ctx, worker)
	if o := dead[worker]; o != nil {
		f.evictedOther(store.Worker{ID: worker}, o)
	}
	return returned, combined(append(errs, store.Unregister(ctx, f.Lines.Calls, f.Space, worker)))
}

// Sweep checks every queue once, evicts workers that were already silent for too long at an earlier
// check, and returns their ids.
func (f *Fleet) Sweep(ctx context.Context) (failed []string, err error) {
	dead, _, errs := f.byHand(ctx, "")
	failed = slices.Sorted(maps.Keys(dead)) // UUIDv7s sort by the time they were made
	f.counts.WorkersEvicted.Add(int64(len(dead)))
	last := context.WithoutCancel(ctx)
	f.report(dead, f.registered(last, failed))
	return failed, combined(append(errs, store.Unregister(last, f.Lines.Calls, f.Space, failed...), store.Prune(ctx, f.Lines.Calls, f.Space)))
}

// byHand evicts one worker, or, without one, those that are dead, from each queue and each failed queue. If Redis
// refuses a queue, it continues and names the queue in its error. If a cluster node is down, it skips the node's
// other queues after the first.
func (f *Fleet) byHand(ctx context.Context, worker string) (dead evictions, returned int, errs []error) {
	dead, skipped, away := evictions{}, 0, store.NewAbsence(f.Lines.Calls)
	for name, err := range store.Queues(ctx, f.Lines.Calls, f.Space) {
		if err != nil {
			errs = append(errs, f.Describe("list queues", "", err))
			break
		}
		q := f.Space.Queue(name)
		if away.Has(q) {
			skipped++
			continue
		}
		n, err := f.byHandOn(ctx, q, name, worker, dead)
		if err == nil {
			var more int
			more, err = f.byHandOn(ctx, q.Failed(), name+failedHalf, worker, dead)
			n += more
		}
		returned += n
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("queue %q: %w", name, logs.WithoutInput(err)))
		if !store.IsAnswer(err) && (ctx.Err() != nil || !away.Note(q, err)) {
			break
		}
	}
	if skipped > 0 {
		errs = append(errs, fmt.Errorf("queues skipped, since their node can't be reached: %d", skipped))
	}
	return dead, returned, errs
}

func (f *Fleet) byHandOn(ctx context.Context, q store.Keys, id, worker string, dead evictions) (returned int, err error) {
	judge := int64(0) // no others
	if worker == "" {
		now, err := store.NowAt(ctx, f.Lines.Calls, q)
		if err != nil {
			return 0, err
		}
		judge = now + f.times.Beat.Milliseconds()
	}
	l, err := store.EvictAll(ctx, f.Lines.Calls, q, worker, judge, f.times.Beat)
	for _, d := range l.Evicted {
		dead.add(id, d)
	}
	f.returned(id, l.Returned)
	return l.Returned, err
}

// most is the largest number of errors in one error.
const most = 20

// combined combines the errors of many queues: it returns the first few.
func combined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
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
			if !w.LastHeartbeat.IsZero() {
				attrs = append(attrs, "last_heartbeat", w.LastHeartbeat)
			}
		}
		queues := slices.Compact(slices.Sorted(slices.Values(o.queues)))
		if f.limit.Allow(queues[0]) {
			f.Log.Warn("worqr: evicted a worker whose lease expired", append(attrs, "queues", queues, "tasks", o.tasks, "evicted_at", o.at)...)
		}
	}
}

func (f *Fleet) evictedOther(w store.Worker, o *eviction) {
	f.Trace.WorkerFailed(worqrtrace.Worker{
		At: time.Now(), WorkerID: w.ID, Name: w.Name, Host: w.Host, PID: w.PID, LastHeartbeat: w.LastHeartbeat, Queues: publics(o.queues), Tasks: o.tasks,
	})
}
